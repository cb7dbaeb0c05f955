// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/test/golden"
	"github.com/capmaas/cluster-api-provider-maas/test/refused"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

func TestCheckVMHost(t *testing.T) {
	_, port, err := net.SplitHostPort(refused.Port(t))
	if err != nil {
		t.Fatal(err)
	}
	const node1 = "--node-ip=10.254.0.1"
	sentences := map[string]string{}
	for name, tc := range map[string]struct {
		key    string
		lxd    string              // that of node1, if not the simulator's own
		others map[string][]string // VM hosts that are registered beside node1: name, addresses
		args   []string
		want   map[string]state
		last   string // the last check that is made
	}{
		"as it should be": {args: []string{node1, "--zone=zone-a", "--resource-pool=capi", "--vm-host-name=node1"}, last: "vm-host-resources"},
		"anywhere":        {args: []string{node1}, last: "vm-host-resources"},
		"not registered":  {args: []string{"--node-ip=10.254.0.9"}, want: map[string]state{"vm-host": stateMissing}, last: "vm-host"},
		"another project": {args: []string{node1, "--project=other"}, want: map[string]state{"vm-host": stateMissing}},
		"another port":    {args: []string{node1, "--port=9443"}, want: map[string]state{"vm-host": stateMissing}},
		"another zone":    {args: []string{node1, "--zone=zone-b"}, want: map[string]state{"vm-host-zone": stateFailed}, last: "vm-host-resources"},
		"another pool":    {args: []string{node1, "--resource-pool=default"}, want: map[string]state{"vm-host-pool": stateFailed}},
		"another name":    {args: []string{node1, "--vm-host-name=node7"}, want: map[string]state{"vm-host": stateFailed}},
		"another address": {args: []string{"--node-ip=10.254.0.7", "--vm-host-name=node1"}, want: map[string]state{"vm-host": stateFailed}},
		"unknown zone": {args: []string{node1, "--zone=zone-z"},
			want: map[string]state{"zone": stateFailed, "vm-host-zone": stateFailed}},
		"unknown pool": {args: []string{node1, "--resource-pool=none"},
			want: map[string]state{"resource-pool": stateFailed, "vm-host-pool": stateFailed}},
		"registered twice": {others: map[string][]string{"node1": {"https://10.254.0.1:8443"}}, args: []string{node1},
			want: map[string]state{"vm-host": stateFailed}, last: "vm-host"},
		"registered twice, under another name": {others: map[string][]string{"twin": {"10.254.0.1"}}, args: []string{node1},
			want: map[string]state{"vm-host": stateFailed}, last: "vm-host"},
		"resources unknown": {others: map[string][]string{"node2": {"10.254.0.2"}}, args: []string{"--node-ip=10.254.0.2"},
			want: map[string]state{"vm-host-resources": stateFailed}},
		"never reached": {others: map[string][]string{"node3": {"127.0.0.1:" + port}}, args: []string{"--node-ip=127.0.0.1", "--port=" + port},
			want: map[string]state{"vm-host-reachable": stateFailed}, last: "vm-host-reachable"},
		"too new an LXD": {lxd: "6.9", args: []string{node1}, want: map[string]state{"vm-host-reachable": stateFailed}, last: "vm-host-reachable"},
		"plain user":     {key: plainKey, args: []string{node1}, want: map[string]state{"administrator": stateFailed}, last: "vm-hosts"},
	} {
		t.Run(name, func(t *testing.T) {
			region := testRegion
			if tc.lxd != "" {
				region = strings.Replace(region, "{name: node1,", "{name: node1, version: \""+tc.lxd+"\",", 1)
			}
			b := newBed(t, region, simulator.Options{})
			for name, addresses := range tc.others {
				b.register(t, name, addresses...)
			}
			if tc.key == "" {
				tc.key = adminKey
			}
			result, got := b.ask(t, tc.key, append([]string{"vm-host"}, tc.args...)...)
			if want := exitOK + min(len(tc.want), 1); got.code != want {
				t.Errorf("exit code %d, want %d", got.code, want)
			}
			checkStates(t, result, tc.want)
			if len(tc.want) > 0 {
				sentences[name] = strings.ReplaceAll(complaints(result), port, "8443")
			}
			if last := result.Checks[len(result.Checks)-1]; tc.last != "" && last.Name != tc.last {
				t.Errorf("the last check is %s, want %s", last.Name, tc.last)
			}
		})
	}
	golden.Sentences(t, "capmaasctl-check-vm-host.txt", sentences)
}

func TestApplyWithoutLXDRegistersNothing(t *testing.T) {
	b := newBed(t, testRegion, simulator.Options{})
	result, _ := b.ask(t, adminKey, "vm-host", "--node-ip=10.254.0.2", "--apply", "--socket="+t.TempDir()+"/none")
	checkStates(t, result, map[string]state{"connection": stateFailed})
	if !result.Applied || strings.Contains(result.Summary, "without --apply") {
		t.Errorf("applied %v, summary %q", result.Applied, result.Summary)
	}
}

func TestApplyWithNamesThatMAASDoesNotHaveStopsBeforeLXD(t *testing.T) {
	b := newBed(t, testRegion, simulator.Options{})
	result, _ := b.ask(t, adminKey, "vm-host", "--node-ip=10.254.0.2", "--apply", "--zone=zone-z", "--resource-pool=none",
		"--socket="+t.TempDir()+"/none")
	checkStates(t, result, map[string]state{"zone": stateFailed, "resource-pool": stateFailed})
}

// What LXD answers, when the registration asks it for its VMs, is no answer of MAAS.
func TestAnErrorOfLXDIsToldAsSuchInARegistration(t *testing.T) {
	_, err := lxdnode.Connect(t.Context(), t.TempDir()+"/none")
	wrong, is := errors.AsType[*lxdnode.Error](err)
	if !is || wrong.Remedy == "" {
		t.Fatalf("the error of a socket that is not there: %v", err)
	}
	var found checks
	found.notRegistered(err)
	want := checks{{Name: lineName(wrong.Step), State: stateFailed, Found: inFlags(wrong.Problem), Remedy: inFlags(wrong.Remedy)}}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Error(diff)
	}
}
