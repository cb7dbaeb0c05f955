// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"
)

// listResults lists the results of a machine's tests. The simulator has none of commissioning and installation.
func (rq *request) listResults() (any, error) {
	m, err := rq.resultsOf()
	if err != nil {
		return nil, err
	}
	isTesting := true
	switch rq.query.get("type") {
	case "", "2", "test", "testing":
	case "0", "1", "3", "4", "commission", "commissioning", "install", "installation", "release", "deployment":
		isTesting = false
	default:
		return nil, badRequest("Invalid result type name")
	}
	out := []any{}
	for _, set := range m.tests {
		if isTesting {
			out = append(out, rq.renderResults(m, set))
		}
	}
	return out, nil
}

// resultsOf returns the machine of the path, which for its results is a node.
func (rq *request) resultsOf() (*machine, error) {
	m, err := rq.machineFor(mayView)
	if m == nil && rq.machineByID(rq.vars[0]) == nil {
		return nil, notFound("Node")
	}
	return m, err
}

// readResults returns one set of results, by its id or as current-testing.
func (rq *request) readResults() (any, error) {
	m, err := rq.resultsOf()
	if err != nil {
		return nil, err
	}
	id := rq.vars[1]
	names := []string{"current-testing", "current-commissioning", "current-installation"}
	number, notNumber := strconv.Atoi(id)
	switch {
	case id == names[0] && m.testSet != nil:
		return rq.renderResults(m, m.testSet), nil
	case notNumber != nil && slices.Contains(names, id) && rq.version.AtLeast(3, 6, 0):
		return nil, badRequest("No %s script set exists for this node.", strings.ReplaceAll(id, "-", " "))
	case notNumber != nil:
		return nil, badRequest(`Unknown id "%s" must be current-commissioning, current-testing, current-installation, `+
			"or the id number of a specific result.", id)
	}
	for _, set := range m.tests {
		if set.id == number {
			return rq.renderResults(m, set), nil
		}
	}
	return nil, notFound("ScriptSet")
}

// renderResults renders a set with its results, sorted by their scripts and devices.
func (rq *request) renderResults(m *machine, set *scriptSet) object {
	results := slices.Clone(set.results)
	slices.SortStableFunc(results, func(a, b *scriptResult) int {
		return cmp.Or(strings.Compare(a.script.name, b.script.name), strings.Compare(a.device(), b.device()))
	})
	var started, ended *time.Time
	for _, r := range results {
		if r.started != nil && (started == nil || r.started.Before(*started)) {
			started = r.started
		}
		if r.ended != nil && (ended == nil || r.ended.After(*ended)) {
			ended = r.ended
		}
	}
	if slices.ContainsFunc(results, func(r *scriptResult) bool { return r.ended == nil }) {
		ended = nil
	}
	shown := []any{}
	for _, r := range results {
		if rq.isFiltered(r) {
			shown = append(shown, rq.renderResult(r))
		}
	}
	status := overall(results)
	out := object{
		"id": set.id, "system_id": m.systemID, "type": 2, "type_name": "Testing", "last_ping": nil, "status": status,
		"status_name": scriptNames[status], "started": mailTimeOrNil(started), "ended": mailTimeOrNil(ended),
		"runtime": runtime(started, ended), "results": shown,
		"resource_uri": apiRoot + "nodes/" + m.systemID + "/results/" + strconv.Itoa(set.id) + "/",
	}
	if !set.lastPing.IsZero() {
		out["last_ping"] = mailTime(set.lastPing)
	}
	return out
}

// isFiltered reports whether a result is one of those that are asked for: by the name or a tag of its script, or by its id.
func (rq *request) isFiltered(r *scriptResult) bool {
	return !rq.query.has("filters") || slices.ContainsFunc(strings.Split(rq.query.get("filters"), ","), func(asked string) bool {
		return r.script.isCalled(asked) || asked == strconv.Itoa(r.id)
	})
}

func (rq *request) renderResult(r *scriptResult) object {
	out := object{
		"id": r.id, "created": mailTime(r.created), "updated": mailTime(r.updated), "name": r.script.name,
		"status": r.status, "status_name": scriptNames[r.status], "exit_status": nil, "started": mailTimeOrNil(r.started),
		"ended": mailTimeOrNil(r.ended), "runtime": runtime(r.started, r.ended), "starttime": epochOrEmpty(r.started),
		"endtime": epochOrEmpty(r.ended), "estimated_runtime": cmp.Or(runtime(r.started, r.ended), "Unknown"),
		"parameters": r.renderParameters(), "script_id": r.script.id, "script_revision_id": nil, "suppressed": r.suppressed,
	}
	if r.exit != nil {
		out["exit_status"] = *r.exit
	}
	if r.ended != nil {
		out["script_revision_id"] = r.script.revision
	}
	if rq.query.get("include_output") != "" {
		output := base64.StdEncoding.EncodeToString([]byte(r.output))
		out["output"], out["stdout"], out["stderr"], out["result"] = output, output, "", ""
	}
	return out
}

func (r *scriptResult) renderParameters() object {
	out := object{}
	for _, p := range r.script.parameters {
		one := object{"type": p.kind}
		switch {
		case p.name == r.unknownDevice:
			one["value"] = "all"
		case p.kind == "storage" && r.disk != nil:
			one["argument_format"] = "{path}"
			one["value"] = object{
				"id": r.disk.id, "name": r.disk.name, "id_path": r.disk.idPath, "model": r.disk.model, "serial": r.disk.serial,
			}
		case p.kind == "interface" && r.nic != nil:
			one["value"] = object{"id": r.nic.id, "name": r.nic.name, "mac_address": r.nic.mac, "vendor": "", "product": ""}
		case p.kind == "password" && r.parameters[p.name] != "":
			one["value"] = "REDACTED"
		case r.parameters[p.name] == "":
			continue
		default:
			one["value"] = r.parameters[p.name]
		}
		out[p.name] = one
	}
	return out
}

func mailTimeOrNil(at *time.Time) any {
	if at == nil {
		return nil
	}
	return mailTime(*at)
}

// epochOrEmpty writes a time as seconds; "" if there is none.
func epochOrEmpty(at *time.Time) any {
	if at == nil {
		return ""
	}
	return pyFloat(float64(at.UnixMicro()) / 1e6)
}

// runtime is how long something ran; "" if it has not ended.
func runtime(started, ended *time.Time) string {
	if started == nil || ended == nil {
		return ""
	}
	return pythonDuration(ended.Sub(*started))
}
