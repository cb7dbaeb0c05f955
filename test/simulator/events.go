// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"slices"
	"strings"
)

// Levels of events, by Python's numbers.
const (
	levelAudit    = 0
	levelDebug    = 10
	levelInfo     = 20
	levelWarning  = 30
	levelError    = 40
	levelCritical = 50
)

var levelNames = map[int]string{
	levelAudit: "AUDIT", levelDebug: "DEBUG", levelInfo: "INFO", levelWarning: "WARNING", levelError: "ERROR",
	levelCritical: "CRITICAL",
}

// maxEvents bounds the stored events.
const maxEvents = 20000

// addEvent adds an event of a machine; the machine shows the last one as its message.
func (s *Simulator) addEvent(m *machine, level int, kind, description string) {
	if level >= levelInfo {
		m.statusMessage = kind
		if description != "" {
			m.statusMessage += " - " + description
		}
	}
	s.db.events = append(s.db.events, &event{
		id: s.db.next("event"), machine: m, level: level, kind: kind, description: description, username: "unknown",
		created: s.time.clock.Now().UTC(),
	})
	if over := len(s.db.events) - maxEvents; over > 0 {
		s.db.events = append([]*event(nil), s.db.events[over:]...)
	}
}

func renderEvent(e *event) object {
	return object{
		"id": e.id, "node": e.machine.systemID, "hostname": e.machine.hostname, "username": e.username,
		"level": levelNames[e.level], "type": e.kind, "description": e.description,
		"created": e.created.Format("Mon, 02 Jan. 2006 15:04:05"),
	}
}

const (
	defaultEventLimit = 100
	maxEventLimit     = 1000
)

func (rq *request) queryEvents() (any, error) {
	errs := formErrors{}
	limit := rq.query.integer("limit", defaultEventLimit, errs)
	if limit < 0 {
		return nil, badRequest("Negative indexing is not supported.")
	}
	if limit > maxEventLimit {
		return nil, badRequest("Requested number of events %d is greater than limit: %d", limit, maxEventLimit)
	}
	level := levelInfo
	if text := rq.query.get("level"); text != "" {
		found := false
		for number, name := range levelNames {
			if name == strings.ToUpper(text) {
				level, found = number, true
			}
		}
		if !found {
			return nil, badRequest("Unrecognised log level: %s", text)
		}
	}
	before, after := rq.query.integer("before", 0, errs), rq.query.integer("after", 0, errs)
	if err := errs.err(); err != nil {
		return nil, err
	}
	if before > 0 && after > 0 {
		return nil, badRequest("There is undetermined behaviour when both `after` and `before` are specified.")
	}
	var found []*event
	for _, e := range slices.Backward(rq.db.events) {
		if e.level >= level && (before == 0 || e.id < before) && (after == 0 || e.id > after) && rq.eventWanted(e) {
			found = append(found, e)
		}
	}
	if len(found) > limit {
		if after > 0 {
			found = found[len(found)-limit:]
		} else {
			found = found[:limit]
		}
	}
	return rq.eventPage(found, limit), nil
}

func (rq *request) eventWanted(e *event) bool {
	is := func(key string, values ...string) bool {
		wanted := rq.query.list(key)
		return len(wanted) == 0 || containsAny(values, wanted)
	}
	m := e.machine
	macs := []string{}
	for _, nic := range m.ifaces {
		macs = append(macs, nic.mac)
	}
	return rq.among(rq.user, m, mayView) && is("id", m.systemID) && is("hostname", m.hostname) && is("zone", m.zone.name) &&
		is("agent_name", m.agentName) && is("owner", e.username) && is("domain", m.domain.name) && is("mac_address", macs...)
}

func (rq *request) eventPage(found []*event, limit int) object {
	list, newest, oldest := []any{}, 0, 0
	for i, e := range found {
		list = append(list, renderEvent(e))
		if i == 0 {
			newest = e.id
		}
		oldest = e.id
	}
	uri := func(key string, id int) any {
		keep := ""
		for _, name := range rq.query.order {
			if name == "op" || name == "limit" || name == "before" || name == "after" {
				continue
			}
			for _, value := range rq.query.list(name) {
				keep += "&" + name + "=" + value
			}
		}
		return fmt.Sprintf("%sevents/?op=query%s&limit=%d&%s=%d", apiRoot, keep, limit, key, id)
	}
	out := object{"count": len(list), "events": list, "next_uri": nil, "prev_uri": nil}
	if len(list) > 0 {
		out["next_uri"], out["prev_uri"] = uri("after", newest), uri("before", oldest)
	}
	return out
}
