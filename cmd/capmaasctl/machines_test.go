// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const machinesRegion = testRegion + `
machines:
- {names: [metal-a, metal-b], cores: 8, memory: 16384, disks: [100]}
`

func TestMachines(t *testing.T) {
	b := newBed(t, machinesRegion, simulator.Options{})
	ids := map[string]string{}
	for _, m := range b.Machines() {
		ids[m.Hostname] = m.SystemID
	}
	ctl := func(key string, args ...string) outcome {
		return call(t, "", []string{"MAAS_ENDPOINT=" + b.url, "MAAS_API_KEY=" + key}, append([]string{"capmaasctl", "machines"}, args...)...)
	}
	tagged := func(hostname string) bool {
		m, _ := b.Machine(ids[hostname])
		return slices.Contains(m.Tags, quarantine.Tag)
	}
	if got := ctl(plainKey, "list"); got.code != exitOK || got.stdout != "0 machine(s) in quarantine.\n" || got.err != "" {
		t.Errorf("list: %+v", got)
	}
	for _, tc := range []struct {
		args []string
		said string // a pattern
		in   bool
	}{
		{[]string{"quarantine", "metal-a"}, `machine/metal-a quarantined until it is lifted\n`, true},
		{[]string{"quarantine", ids["metal-a"], "--for", "48h", "--why", "the fan smokes"}, `machine/metal-a quarantined until 20\S+Z\n`, true},
		{[]string{"lift", "metal-a"}, `machine/metal-a lifted\n`, false},
		{[]string{"lift", ids["metal-a"]}, `machine/metal-a already lifted\n`, false},
		{[]string{"quarantine", "metal-a", "--for=48h", "--why=the fan smokes"}, `machine/metal-a quarantined until 20\S+Z\n`, true},
	} {
		got := ctl(adminKey, tc.args...)
		if got.code != exitOK || !regexp.MustCompile("^"+tc.said+"$").MatchString(got.stdout) || got.err != "" || tagged("metal-a") != tc.in {
			t.Errorf("%v: %+v, in quarantine: %v; want %q, %v", tc.args, got, tagged("metal-a"), tc.said, tc.in)
		}
	}
	got := ctl(plainKey, "list")
	line := regexp.MustCompile(`(?m)^NAME +SYSTEM ID +STATE +SINCE +UNTIL +FAILURES +WHY\nmetal-a +` + ids["metal-a"] + ` +Ready +20\S+Z +20\S+Z +0 +the fan smokes\n1 machine.*\n$`)
	if got.code != exitOK || !line.MatchString(got.stdout) {
		t.Errorf("list: %+v", got)
	}
	for name, tc := range map[string]struct {
		key  string
		args []string
		code int
		said string
	}{
		"no right":         {plainKey, []string{"quarantine", "metal-b"}, exitFailed, "administrator"},
		"no right to lift": {plainKey, []string{"lift", "metal-a"}, exitFailed, "administrator"},
		"no such machine":  {adminKey, []string{"quarantine", "metal-c"}, exitFailed, "metal-c"},
		"no name":          {adminKey, []string{"lift"}, exitUsage, "NAME"},
		"two names":        {adminKey, []string{"lift", "metal-a", "metal-b"}, exitUsage, "unexpected argument"},
		"no good name":     {adminKey, []string{"quarantine", "a/b"}, exitUsage, "a/b"},
		"no time":          {adminKey, []string{"quarantine", "metal-b", "--for=-1h"}, exitUsage, "--for"},
	} {
		if got := ctl(tc.key, tc.args...); got.code != tc.code || !strings.Contains(got.err, tc.said) || got.stdout != "" {
			t.Errorf("%s: %+v, want exit code %d, and %q", name, got, tc.code, tc.said)
		}
	}
	if tagged("metal-b") || !tagged("metal-a") {
		t.Error("what was refused was done")
	}
}
