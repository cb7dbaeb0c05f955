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

// guest makes a VM on the host, without MAAS, and returns its MAC address.
func (b *bed) guest(name, project string) string {
	b.t.Helper()
	made := b.control(post, "vm-hosts/host/vms", fmt.Sprintf(`{"name": %q, "project": %q, "cores": 2, "memory": 4096, "disks": [30]}`, name, project)).object(b.t)
	return made["macs"].([]any)[0].(string)
}

// enlist tells MAAS of a VM on the host; the pairs add to the usual ones.
func (b *bed) enlist(name, mac string, pairs ...string) answer {
	b.t.Helper()
	return b.do(post, "machines/", append([]string{
		"hostname", name, "architecture", "amd64/generic", "mac_addresses", mac, "power_type", "lxd",
		"power_parameters_power_address", "https://10.254.0.1:8443", "power_parameters_instance_name", name,
		"power_parameters_project", "own", "power_parameters_certificate", "CERT", "power_parameters_key", "KEY",
	}, pairs...)...)
}

// direct makes a VM and enlists it: it commissions, and is the administrator's.
func (b *bed) direct(name string, pairs ...string) (id string) {
	b.t.Helper()
	return b.enlist(name, b.guest(name, "own"), pairs...).object(b.t)["system_id"].(string)
}

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

// A layout of the time before the first PXE request has no EFI partition, and can't be installed.
func TestDirectVMWithALayoutFromBeforeItsFirstBoot(t *testing.T) {
	b := newBed(t)
	id := b.direct("vm1")
	b.do(post, "nodes/"+id+"/blockdevices/", "name", "sda", "id_path", "/dev/sda", "size", "30000000000", "block_size", "512").object(t)
	b.op(id, "mark_broken").object(t)
	b.op(id, "mark_fixed").object(t)
	flat := b.op(id, "set_storage_layout", "storage_layout", "flat").object(t)
	if parts := flat["boot_disk"].(map[string]any)["partitions"].([]any); len(parts) != 1 {
		t.Errorf("partitions %v, want one", parts)
	}
	b.pass(12 * time.Second)
	nic := b.do(get, "nodes/"+id+"/interfaces/").list(t)[0]
	b.do(post, "nodes/"+id+"/interfaces/"+jsonNumber(nic["id"])+"/", "op", "link_subnet", "mode", "AUTO", "subnet", "1", "force", "true").object(t)
	b.op(id, "deploy").object(t)
	b.pass(5 * time.Minute)
	if m, _ := b.Machine(id); m.Status != "Failed deployment" {
		t.Fatalf("%s, want Failed deployment", m.Status)
	}
	b.op(id, "release").object(t)
	b.pass(time.Minute)
	b.op(id, "commission").object(t)
	b.pass(5 * time.Minute)
	b.op(id, "deploy").object(t)
	b.pass(5 * time.Minute)
	if m, _ := b.Machine(id); m.Status != "Deployed" {
		t.Errorf("%s when it was commissioned, want Deployed", m.Status)
	}
}

// Commissioning of a VM that a person switches off on its host does not end well.
func TestDirectVMThatIsSwitchedOffOnItsHost(t *testing.T) {
	b := newBed(t)
	id := b.direct("vm1")
	b.pass(time.Minute)
	if err := (labProject{b.labByName("host"), "own"}).SetPower("vm1", false); err != nil {
		t.Fatal(err)
	}
	b.pass(time.Hour)
	if m, _ := b.Machine(id); m.Status != "Failed commissioning" {
		t.Errorf("%s, want Failed commissioning", m.Status)
	}
}

func TestDirectVMThatRunsOnAfterItsDeletionIsEnlistedAsAStranger(t *testing.T) {
	for name, test := range map[string]struct {
		stop bool
		want int // strangers
	}{"running": {false, 1}, "stopped before": {true, 0}} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			id := b.direct("vm1")
			if test.stop {
				if err := (labProject{b.labByName("host"), "own"}).SetPower("vm1", false); err != nil {
					t.Fatal(err)
				}
			}
			b.do(del, "machines/"+id+"/")
			before := len(b.Machines())
			b.pass(time.Minute)
			machines := b.Machines()
			if len(machines)-before != test.want {
				t.Fatalf("%d machines more, want %d", len(machines)-before, test.want)
			}
			if test.want == 0 {
				return
			}
			stranger := machines[len(machines)-1]
			if stranger.Status != "New" || stranger.Owner != "" || stranger.Interfaces[0].MAC != b.onHost("vm1").MACs[0] {
				t.Errorf("the stranger is %+v", stranger)
			}
			if got := b.enlist("vm1", b.onHost("vm1").MACs[0]); got.status != http.StatusBadRequest || !strings.Contains(got.body, "already in use on "+stranger.Hostname) {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
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
	id := b.do(post, "machines/", "op", "allocate", "pod_type", "lxd", "cpu_count", "3").object(t)["system_id"].(string)
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
