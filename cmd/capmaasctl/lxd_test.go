// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	lxdclient "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"
	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// lxdBed is a node with a real LXD.
type lxdBed struct {
	daemon *lxd.Daemon
	client lxdclient.InstanceServer
}

func newLXDBed(t *testing.T) lxdBed {
	t.Helper()
	b := lxdBedOf(t, lxdtest.ForMAAS())
	lxdtest.RequireForMAAS(t, b.daemon)
	return b
}

// lxdBedOf plays a version of LXD; "" is its own.
func lxdBedOf(t *testing.T, version string) lxdBed {
	t.Helper()
	daemon := lxdtest.Start(t, lxd.Options{Plays: version})
	return lxdBed{daemon, lxdtest.Connect(t, daemon.Socket())}
}

// check runs `check lxd` with a pool in a directory, which needs nothing of the machine.
func (b lxdBed) check(t *testing.T, args ...string) report {
	t.Helper()
	args = append([]string{"lxd-test-linux", "--storage-backend=dir", "--socket=" + b.daemon.Socket(), "-o=json"}, args...)
	return decode(t, call(t, "", nil, args...))
}

// state is everything in LXD that a check could change.
func (b lxdBed) state(t *testing.T) string {
	t.Helper()
	server, _, err := b.client.GetServer()
	if err != nil {
		t.Fatal(err)
	}
	pools, err := b.client.GetStoragePools()
	if err != nil {
		t.Fatal(err)
	}
	networks, err := b.client.GetNetworks()
	if err != nil {
		t.Fatal(err)
	}
	projects, err := b.client.GetProjects()
	if err != nil {
		t.Fatal(err)
	}
	certificates, err := b.client.GetCertificates()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.MarshalIndent([]any{server.Config, pools, networks, projects, certificates}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// recorder records LXD's events in all projects.
type recorder struct {
	lxdBed
	seen chan string
}

func (b lxdBed) record(t *testing.T) recorder {
	t.Helper()
	listener, err := b.client.GetEventsAllProjects()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(listener.Disconnect)
	r := recorder{b, make(chan string, 100)}
	_, err = listener.AddHandler([]string{api.EventTypeLifecycle}, func(event api.Event) {
		var happened api.EventLifecycle
		if err := json.Unmarshal(event.Metadata, &happened); err == nil {
			r.seen <- happened.Action + " " + happened.Source
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// until returns what happened before this event.
func (r recorder) until(t *testing.T, event string) (happened []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Limit)
	defer cancel()
	for {
		select {
		case next := <-r.seen:
			if next == event {
				return happened
			}
			happened = append(happened, next)
		case <-ctx.Done():
			t.Fatalf("%q was never heard of, only %q", event, happened)
		}
	}
}

// sofar returns what happened since the last call: all of LXD's events before those of a project that is made and
// deleted for this.
func (r recorder) sofar(t *testing.T) []string {
	t.Helper()
	const mark = "capmaasctl-test-mark"
	if err := r.client.CreateProject(api.ProjectsPost{Name: mark}); err != nil {
		t.Fatal(err)
	}
	happened := r.until(t, "project-created /1.0/projects/"+mark)
	if err := r.client.DeleteProject(mark); err != nil {
		t.Fatal(err)
	}
	return append(happened, r.until(t, "project-deleted /1.0/projects/"+mark)...)
}

func TestCheckLXDOnAFreshNode(t *testing.T) {
	t.Parallel()
	b := newLXDBed(t)
	before, events := b.state(t), b.record(t)
	missing := map[string]state{
		"storage-pool": stateMissing, "project": stateMissing, "profile": stateMissing, "https-address": stateMissing,
	}
	checkStates(t, b.check(t), missing)
	if happened := events.sofar(t); len(happened) > 0 {
		t.Errorf("looking is not all that it did: %q", happened)
	}
	if diff := cmp.Diff(before, b.state(t)); diff != "" {
		t.Errorf("looking changed LXD: %s", diff)
	}

	first := b.check(t, "--apply")
	if !first.OK || !first.Applied {
		t.Errorf("applied %v, ok %v: %v", first.Applied, first.OK, first.Checks)
	}
	for name := range missing {
		if line := first.line(name); line.State != stateChanged {
			t.Errorf("%s is %v, want it changed", name, line)
		}
	}

	// LXD's event of its configuration may come a while after its response; it was changed twice.
	for range 2 {
		events.until(t, "config-updated /1.0")
	}
	events.sofar(t)
	before = b.state(t)
	checkStates(t, b.check(t, "--apply"), nil)
	checkStates(t, b.check(t), nil)
	if happened := events.sofar(t); len(happened) > 0 {
		t.Errorf("what was as it should be was changed: %q", happened)
	}
	if diff := cmp.Diff(before, b.state(t)); diff != "" {
		t.Errorf("what was as it should be was changed: %s", diff)
	}

	result := b.check(t, "--storage-backend=btrfs", "--network-bridge=br7", "--apply")
	checkStates(t, result, map[string]state{"storage-pool": stateFailed, "network-bridge": stateFailed})
	for name, flag := range map[string]string{"storage-pool": "--storage-backend=dir", "network-bridge": "--network-bridge"} {
		if line := result.line(name); !strings.Contains(line.Remedy, flag) {
			t.Errorf("the remedy of %s does not name %s: %v", name, flag, line)
		}
	}
}

// lxdRegion has nothing but users: its one VM host is the real LXD.
const lxdRegion = `
users: [{name: root, admin: true, keys: ["` + adminKey + `"]}]
zones: [{name: zone-a}, {name: zone-b}]
pools: [{name: capi}]
domains: [{name: maas.test}]
subnets: [{cidr: 10.0.2.0/24, dhcp: true}]
timings: {refresh: 0s, vm_host_sync: 1s, power_poll: 24h}
`

func TestARealNodeBecomesAVMHost(t *testing.T) {
	t.Parallel()
	node := newLXDBed(t)
	events := node.record(t)
	if prepared := node.check(t, "--apply"); !prepared.OK {
		t.Fatal(prepared.Checks)
	}
	b := newBed(t, lxdRegion, simulator.Options{Dial: node.daemon.Dial, PatchedLXDDriver: true})
	args := []string{"vmhost-test-linux", "--maas-endpoint=" + b.url, "--node-ip=10.0.2.15", "--resource-pool=capi", "-o=json"}
	look := func(args ...string) report {
		t.Helper()
		return decode(t, call(t, "", []string{"MAAS_API_KEY=" + adminKey}, args...))
	}
	apply := append(slices.Clone(args), "--apply", "--socket="+node.daemon.Socket())

	checkStates(t, look(append(args, "--zone=zone-a")...), map[string]state{"vm-host": stateMissing})
	created := look(append(apply, "--zone=zone-a", "--vm-host-name=node1")...)
	checkStates(t, created, map[string]state{"trust": stateChanged, "vm-host": stateChanged})
	checkStates(t, look(append(args, "--zone=zone-a")...), nil)

	// A second time, and without the name that it got: nothing is left to do, and nothing is made twice.
	events.sofar(t)
	before := b.State()
	checkStates(t, look(append(apply, "--zone=zone-a")...), nil)
	if happened := events.sofar(t); len(happened) > 0 {
		t.Errorf("the second run changed LXD: %q", happened)
	}
	if diff := cmp.Diff(string(before), string(b.State())); diff != "" {
		t.Errorf("the second run changed MAAS: %s", diff)
	}

	checkStates(t, look(append(args, "--zone=zone-b")...), map[string]state{"vm-host-zone": stateFailed})
	checkStates(t, look(append(apply, "--zone=zone-b")...), map[string]state{"vm-host": stateChanged})
	checkStates(t, look(append(args, "--zone=zone-b")...), nil)

	// At another address it is known by the certificate that this LXD trusts.
	power := node.onlyHost(t, b)
	b.reachAt(t, "127.0.0.1:1")
	checkStates(t, look(append(apply, "--zone=zone-b", "--vm-host-name=node1")...), map[string]state{"vm-host": stateChanged})
	if diff := cmp.Diff(power, node.onlyHost(t, b)); diff != "" {
		t.Errorf("MAAS reaches it in another way than before: %s", diff)
	}

	// MAAS's certificate is put back, not replaced: MAAS has the key.
	node.forgetCertificates(t)
	checkStates(t, look(append(apply, "--zone=zone-b")...), map[string]state{"trust": stateChanged})
	if diff := cmp.Diff(power, node.onlyHost(t, b)); diff != "" {
		t.Errorf("MAAS reaches it in another way now: %s", diff)
	}
}

// reachAt gives MAAS another address of its first VM host.
func (b bed) reachAt(t *testing.T, address string) {
	t.Helper()
	hosts, err := b.client(t).ListVMHosts(t.Context())
	if err == nil {
		params := maas.VMHostParams{VMHostPower: maas.VMHostPower{PowerAddress: address}}
		_, err = b.client(t).UpdateVMHost(t.Context(), maas.Unrecorded("a test"), hosts[0].ID, params)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// onlyHost returns how MAAS reaches its one VM host.
func (b lxdBed) onlyHost(t *testing.T, region bed) maas.VMHostPower {
	t.Helper()
	hosts, err := region.client(t).ListVMHosts(t.Context())
	if err != nil || len(hosts) != 1 {
		t.Fatalf("MAAS has %d VM hosts (%v), want one", len(hosts), err)
	}
	power, err := region.client(t).VMHostPower(t.Context(), hosts[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	return power
}

// forgetCertificates removes all certificates from LXD's trust store, as an operator might by mistake.
func (b lxdBed) forgetCertificates(t *testing.T) {
	t.Helper()
	certificates, err := b.client.GetCertificates()
	if err != nil || len(certificates) != 1 {
		t.Fatalf("LXD trusts %d certificates (%v), want one", len(certificates), err)
	}
	if err := b.client.DeleteCertificate(certificates[0].Fingerprint); err != nil {
		t.Fatal(err)
	}
}

func TestANamesakeAtAnotherAddressIsLeftAlone(t *testing.T) {
	t.Parallel()
	node := newLXDBed(t)
	node.check(t, "--apply")
	b := newBed(t, lxdRegion, simulator.Options{Dial: node.daemon.Dial, PatchedLXDDriver: true})
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	b.register(t, strings.ToLower(name), "127.0.0.1:1")
	before := node.state(t)
	for _, args := range [][]string{nil, {"--vm-host-name=" + strings.ToLower(name)}} {
		args = append([]string{"vm-host", "--node-ip=10.0.2.15", "--apply", "--socket=" + node.daemon.Socket()}, args...)
		result, _ := b.ask(t, adminKey, args...)
		checkStates(t, result, map[string]state{"vm-host": stateFailed})
	}
	if diff := cmp.Diff(before, node.state(t)); diff != "" {
		t.Errorf("it changed LXD: %s", diff)
	}
}

// TestAnAddressThatLXDDoesNotHaveIsNotRegistered tries an LXD that does not listen, and then the node of another
// address.
func TestAnAddressThatLXDDoesNotHaveIsNotRegistered(t *testing.T) {
	t.Parallel()
	node := newLXDBed(t)
	b := newBed(t, lxdRegion, simulator.Options{Dial: node.daemon.Dial, PatchedLXDDriver: true})
	for _, args := range [][]string{{"--node-ip=10.0.2.15"}, {"--node-ip=10.0.2.16"}, {"--node-ip=10.0.2.15", "--port=9443"}} {
		args = append([]string{"vm-host", "--apply", "--socket=" + node.daemon.Socket()}, args...)
		result, _ := b.ask(t, adminKey, args...)
		checkStates(t, result, map[string]state{"https-address": stateFailed})
		node.check(t, "--apply")
	}
}

// MAAS can't use LXD 6.7 and newer; LXD itself is as it should be.
func TestALXDThatIsTooNewForMAASIsNotRegistered(t *testing.T) {
	t.Parallel()
	node := lxdBedOf(t, "6.9")
	node.check(t, "--apply")
	for _, line := range node.check(t).Checks {
		if line.State != stateOK || line.Name == "lxd-server" && !strings.Contains(line.Found, "LXD 6.9") {
			t.Errorf("the check is %+v", line)
		}
	}
	before := node.state(t)
	b := newBed(t, lxdRegion, simulator.Options{Dial: node.daemon.Dial, PatchedLXDDriver: true})
	result, _ := b.ask(t, adminKey, "vm-host", "--apply", "--socket="+node.daemon.Socket(), "--node-ip=10.0.2.15")
	checkStates(t, result, map[string]state{"lxd-server": stateFailed})
	if diff := cmp.Diff(before, node.state(t)); diff != "" {
		t.Errorf("it changed LXD: %s", diff)
	}
}

func TestAHostThatMAASCantReachIsReported(t *testing.T) {
	t.Parallel()
	node := newLXDBed(t)
	node.check(t, "--apply")
	b := newBed(t, lxdRegion, simulator.Options{Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("there is a firewall")
	}})
	got := decode(t, call(t, "", []string{"MAAS_API_KEY=" + adminKey}, "vmhost-test", "--maas-endpoint="+b.url, "--node-ip=10.0.2.15",
		"--apply", "--socket="+node.daemon.Socket(), "-o=json"))
	checkStates(t, got, map[string]state{"trust": stateChanged, "vm-host": stateChanged, "vm-host-reachable": stateFailed})
}
