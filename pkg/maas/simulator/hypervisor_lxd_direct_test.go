// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/http"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

const directMAC = "00:16:3e:12:34:56"

// makeDirect makes a VM in LXD, as a person does who has no VM host.
func (b *lxdBed) makeDirect() {
	b.t.Helper()
	op, err := b.server.CreateInstance(api.InstancesPost{
		Name: "vm1", Type: api.InstanceTypeVM, Source: api.InstanceSource{Type: api.SourceTypeNone},
		InstancePut: api.InstancePut{
			Profiles: []string{},
			Config:   map[string]string{"limits.cpu": "1", "limits.memory": "512MiB", "security.secureboot": "false"},
			Devices: map[string]map[string]string{
				"root": {"type": "disk", "path": "/", "pool": "default", "size": "3GB"},
				"eth0": {"type": "nic", "nictype": "bridged", "parent": "br0", "name": "eth0", "hwaddr": directMAC, "boot.priority": "1"},
			},
		},
	})
	lxdtest.Finish(b.t, op, err)
}

func (b *lxdBed) directStatus() api.StatusCode {
	b.t.Helper()
	found, _, err := b.server.GetInstance("vm1")
	if err != nil {
		b.t.Fatal(err)
	}
	return found.StatusCode
}

// MAAS drives a VM that it did not compose with the power parameters alone, and leaves it when its record is deleted.
func TestDirectVMOnLXD(t *testing.T) {
	b := newLXDBed(t)
	b.makePool()
	enlist := func() answer {
		return b.enlist("vm1", directMAC, "power_parameters_power_address", "https://"+b.address, "power_parameters_project", defaultProject,
			"power_parameters_certificate", b.certificate, "power_parameters_key", b.key)
	}
	if got := enlist(); got.status != http.StatusInternalServerError {
		t.Fatalf("without the VM: %d %s", got.status, got.body)
	}
	id := b.named("vm1").SystemID
	b.makeDirect()
	b.op(id, "commission").object(t)
	if got := b.directStatus(); got != api.Running {
		t.Fatalf("the VM is %s", got)
	}
	b.await("the first boot", func() bool { return b.bootMethod(id) == bootUEFI })
	b.await("Ready", func() bool { m, _ := b.Machine(id); return m.Status == "Ready" && m.Power == "off" })
	if m, _ := b.Machine(id); m.Cores != 1 || m.Memory != 512 || len(m.Disks) != 1 || b.directStatus() != api.Stopped {
		t.Errorf("commissioned, it is %+v; LXD: %s", m, b.directStatus())
	}
	b.op(id, "commission").object(t)
	if got := b.do(del, "machines/"+id+"/"); got.status != http.StatusNoContent {
		t.Fatalf("deletion: %d %s", got.status, got.body)
	}
	if got := b.directStatus(); got != api.Running {
		t.Errorf("deleted in MAAS, the VM is %s", got)
	}
	before := len(b.Machines())
	b.pass(time.Minute)
	b.await("a stranger", func() bool { return len(b.Machines()) == before+1 })
	if got := enlist(); got.status != http.StatusBadRequest {
		t.Errorf("the MAC address is the stranger's: %d %s", got.status, got.body)
	}
}
