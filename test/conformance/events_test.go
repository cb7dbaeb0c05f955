// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"testing"
	"time"
)

func (m *maas) events(t *testing.T, query ...string) *answer {
	t.Helper()
	return m.get(t, "events/", append([]string{"op", "query"}, query...)...)
}

func TestEventsOfAMachine(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		vm := m.deployedVM(t)
		got := m.events(t, "id", vm.str("system_id")).object(t)
		checkShape(t, "events", got, shapes["events"])
		events := got.objects("events")
		if len(events) == 0 || got.int("count") != len(events) {
			t.Fatalf("count %v, %d events; want some", got["count"], len(events))
		}
		previous := events[0].num("id") + 1
		for _, event := range events {
			checkShape(t, "event", event, shapes["event"])
			if event.str("node") != vm.str("system_id") || event.str("hostname") != vm.str("hostname") {
				t.Errorf("event of %s %s, want %s", event.str("node"), event.str("hostname"), vm.str("system_id"))
			}
			if event.num("id") >= previous {
				t.Errorf("event %v after %v, want the newest first", event["id"], previous)
			}
			previous = event.num("id")
			if _, err := time.Parse("Mon, 02 Jan. 2006 15:04:05", event.str("created")); err != nil {
				t.Errorf("created: %v", err)
			}
		}
		if !has(events, "type", "Deployed") || !has(events, "type", "Deploying") {
			t.Errorf("events %v, want Deploying and Deployed among them", events)
		}
	})
}

func TestEventsAreLimited(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		vm := m.deployedVM(t)
		got := m.events(t, "id", vm.str("system_id"), "limit", "1").object(t)
		if len(got.objects("events")) != 1 || got.num("count") != 1 {
			t.Errorf("%v events, want 1", got["count"])
		}
		m.events(t, "limit", "1001").refuses(t, http.StatusBadRequest,
			"Requested number of events 1001 is greater than limit: 1000")
	})
}

func TestEventsBeforeAndAfter(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		vm := m.deployedVM(t)
		all := m.events(t, "id", vm.str("system_id")).object(t).objects("events")
		if len(all) < 2 {
			t.Fatalf("%d events, want at least 2", len(all))
		}
		newest, next := all[0], all[1]
		before := m.events(t, "id", vm.str("system_id"), "before", newest.id("id"), "limit", "1").object(t).objects("events")
		if len(before) != 1 || before[0].id("id") != next.id("id") {
			t.Errorf("before %s: %v, want %s", newest.id("id"), before, next.id("id"))
		}
		after := m.events(t, "id", vm.str("system_id"), "after", next.id("id"), "limit", "1").object(t).objects("events")
		if len(after) != 1 || after[0].id("id") != newest.id("id") {
			t.Errorf("after %s: %v, want %s", next.id("id"), after, newest.id("id"))
		}
		m.events(t, "before", "1", "after", "1").refuses(t, http.StatusBadRequest, "`after` and `before`")
	})
}

func TestEventsByHostnameAndAgentName(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		agent := uniqueName()
		vm := m.deployedVM(t, "agent_name", agent)
		for _, query := range [][]string{{"hostname", vm.str("hostname")}, {"agent_name", agent}} {
			events := m.events(t, query...).object(t).objects("events")
			if len(events) == 0 {
				t.Errorf("%v finds no events", query)
			}
			for _, event := range events {
				if event.str("node") != vm.str("system_id") {
					t.Errorf("%v finds an event of %s, want only %s", query, event.str("node"), vm.str("system_id"))
				}
			}
		}
	})
}

func TestEventsOfABadLevelAreRefused(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.events(t, "level", "LOUD").refuses(t, http.StatusBadRequest, "Unrecognised log level: LOUD")
	})
}

func TestEventsOfAnUnknownMachineAreNone(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		got := m.events(t, "id", "nosuch").object(t)
		if got.num("count") != 0 || len(got.objects("events")) != 0 || got.at("prev_uri") != nil {
			t.Errorf("%v, want no events and nothing before them", got)
		}
	})
}

func TestEventsWithoutOperationAreUnrecognised(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.get(t, "events/").refuses(t, http.StatusBadRequest, "Unrecognised signature: method=GET op=None")
	})
}
