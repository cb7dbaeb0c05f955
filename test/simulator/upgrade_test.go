// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func (b *bed) onHost(name string) VM {
	b.t.Helper()
	for _, vm := range b.VMHosts()[0].VMs {
		if vm.Name == name {
			return vm
		}
	}
	b.t.Fatalf("no VM %s on the host", name)
	return VM{}
}

func (b *bed) op(id, op string, pairs ...string) answer {
	b.t.Helper()
	return b.do(post, "machines/"+id+"/", append([]string{"op", op}, pairs...)...)
}

func (b *bed) power(id string) map[string]any {
	b.t.Helper()
	return b.do(get, "machines/"+id+"/", "op", "power_parameters").object(b.t)
}

func TestUpgradeKeepsTheMachinesOfVMs(t *testing.T) {
	b := newBed(t)
	id := b.composeVM("vm1")
	parent := b.parent(id)
	b.op(id, "deploy", "agent_name", "mine").object(t)
	b.op(id, "set_workload_annotations", "a", "b").object(t)
	b.pass(5 * time.Minute)
	before, _ := b.Machine(id)
	b.upgrade("3.8")
	if got, _ := b.Machine(id); got.VMHost != before.VMHost || b.parent(id) != parent {
		t.Fatalf("with MAAS 3.8 it is on %q, below %s; want %q, %s", got.VMHost, b.parent(id), before.VMHost, parent)
	}
	b.upgrade("4.0")
	if got := b.do(get, "vm-hosts/"); got.status != http.StatusGone {
		t.Errorf("VM hosts: %d %s", got.status, got.body)
	}
	after, _ := b.Machine(id)
	before.VMHost, before.VMHostID = "", 0
	if diff := cmp.Diff(before, after, cmp.Comparer(func(a, b fmt.Stringer) bool { return a.String() == b.String() })); diff != "" {
		t.Errorf("the machine before and after:\n%s", diff)
	}
	if got := b.power(id); got["instance_name"] != "vm1" || got["power_address"] != "10.254.0.1:8443" {
		t.Errorf("power parameters %v", got)
	}
	if b.parent(id) != parent {
		t.Errorf("it is below %s, want %s", b.parent(id), parent)
	}
	if got := b.do(get, "machines/"+id+"/", "op", "query_power_state").object(t)["state"]; got != "on" {
		t.Errorf("power %v, want on", got)
	}
	if got := b.do(del, "machines/"+id+"/"); got.status != http.StatusNoContent || !b.onHost("vm1").Running {
		t.Errorf("deletion: %d; the VM: %+v", got.status, b.onHost("vm1"))
	}
}

func (b *bed) upgrade(version string) {
	b.t.Helper()
	if got := b.control(put, "version", `{"version": "`+version+`"}`); got.status != http.StatusNoContent {
		b.t.Fatalf("upgrade to %s: %d %s", version, got.status, got.body)
	}
}

// parent is the machine that a machine is on, as MAAS has it.
func (b *bed) parent(id string) string {
	b.t.Helper()
	return b.do(get, "machines/"+id+"/").object(b.t)["parent"].(map[string]any)["system_id"].(string)
}

// Node.parent in maasserver/models/node.py cascades.
func TestMachinesOfVMsGoWithTheirFormerHost(t *testing.T) {
	b := newBed(t)
	id := b.composeVM("vm1")
	host := b.parent(id)
	b.upgrade("4.0")
	if got := b.do(del, "machines/"+host+"/"); got.status != http.StatusNoContent {
		t.Fatalf("deletion of the host's machine: %d %s", got.status, got.body)
	}
	if _, there := b.Machine(id); there || b.onHost("vm1").Name != "vm1" {
		t.Errorf("the VM's machine is there: %v; the VM: %+v", there, b.onHost("vm1"))
	}
}

// _finalize_release in maasserver/models/node.py.
func TestMachineThatAllocateComposedGoesWithItsReleaseAfterTheUpgrade(t *testing.T) {
	b := newBed(t)
	id := b.do(post, "machines/", "op", "allocate", "pod", "host", "cpu_count", "3").object(t)["system_id"].(string)
	b.upgrade("4.0")
	b.op(id, "release").object(t)
	b.pass(5 * time.Minute)
	if _, there := b.Machine(id); there {
		t.Error("it is there after its release")
	}
	if all, _ := b.realVMs(); all != 1 {
		t.Error("its VM is gone")
	}
}

// What an upgrade does to no VM is no change of the region.
func TestUpgradeChangesNoBareMetal(t *testing.T) {
	b := newBedWith(t, strings.Split(testRegion, "vm_hosts:")[0], Options{Seed: 1, Version: "3.7"})
	before := string(b.State())
	for _, version := range []string{"3.8", "4.0"} {
		b.upgrade(version)
		if diff := cmp.Diff(before, string(b.State())); diff != "" {
			t.Errorf("after the upgrade to %s:\n%s", version, diff)
		}
	}
}
