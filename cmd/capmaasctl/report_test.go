// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func sample() checks {
	var c checks
	c.ok("endpoint", "MAAS answers at %s", "http://maas")
	c.add(stateChanged, "vm-host", "", "it is registered now")
	c.add(stateMissing, "project", "--apply makes it so", "there is no project maas")
	c.failed("administrator", "use an administrator's key", "<capi> is no administrator")
	return c
}

func TestText(t *testing.T) {
	var out bytes.Buffer
	if err := newReport("check maas", sample(), true, false).text(&out); err != nil {
		t.Fatal(err)
	}
	want := `endpoint       ok       MAAS answers at http://maas
vm-host        changed  it is registered now
project        missing  there is no project maas
                        -> --apply makes it so
administrator  failed   <capi> is no administrator
                        -> use an administrator's key
1 ok, 1 changed, 1 missing, 1 failed. Nothing was changed: without --apply this only looks.
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	if err := (surroundings{out: &out}).print(newReport("check maas", sample(), false, true), "json"); err != nil {
		t.Fatal(err)
	}
	want := `{
  "command": "check maas",
  "applied": true,
  "ok": false,
  "checks": [
    {
      "name": "endpoint",
      "state": "ok",
      "found": "MAAS answers at http://maas"
    },
    {
      "name": "vm-host",
      "state": "changed",
      "found": "it is registered now"
    },
    {
      "name": "project",
      "state": "missing",
      "found": "there is no project maas",
      "remedy": "--apply makes it so"
    },
    {
      "name": "administrator",
      "state": "failed",
      "found": "<capi> is no administrator",
      "remedy": "use an administrator's key"
    }
  ],
  "summary": "1 ok, 1 changed, 1 missing, 1 failed."
}
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestAReportIsOKWhenNothingIsLeftToDo(t *testing.T) {
	for s, want := range map[state]bool{stateOK: true, stateChanged: true, stateMissing: false, stateFailed: false} {
		found := checks{{Name: "first", State: stateOK}, {Name: "second", State: s}}
		if got := newReport("check lxd", found, true, false).OK; got != want {
			t.Errorf("with a check that is %s: %v", s, got)
		}
	}
}
