// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/canonical/lxd/shared/api"
	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

func TestAVMIsAMachineFromItsFirstStartOn(t *testing.T) {
	here, there := &lxd.Daemon{}, &lxd.Daemon{}
	one := func(on *lxd.Daemon, id string, running bool) []*directVM {
		vm := &directVM{on: on, id: id}
		vm.SystemID, vm.Hostname, vm.Running = "dev001", "vm-1", running
		return []*directVM{vm}
	}
	var told []string
	m := &machines{
		logger: logr.Discard(), vms: map[string]*directVM{},
		subscribers: map[int]func(simulator.MachineSnapshot, simulator.Change){
			1: func(m simulator.MachineSnapshot, change simulator.Change) {
				told = append(told, fmt.Sprintf("%s %s %s", m.Hostname, change.Kind, power(m.Running)))
			},
		},
	}
	for _, step := range []struct {
		what string
		on   *lxd.Daemon
		now  []*directVM
		want []string
	}{
		{"made", here, one(here, "a", false), nil},
		{"started", here, one(here, "a", true), []string{"vm-1 created on"}},
		{"read again", here, one(here, "a", true), nil},
		{"made a second time elsewhere", there, one(there, "b", false), nil},
		{"gone elsewhere", there, nil, nil},
		{"stopped", here, nil, []string{"vm-1 power off"}},
		{"stopped and read again", here, one(here, "a", false), nil},
		{"started again", here, one(here, "a", true), []string{"vm-1 power on"}},
		{"replaced by one of its name", here, one(here, "c", true), []string{"vm-1 deleted on", "vm-1 created on"}},
		{"deleted", here, nil, []string{"vm-1 deleted on"}},
		{"deleted and read again", here, nil, nil},
	} {
		told = nil
		if step.what == "stopped" {
			step.now = m.withoutPower(here)
		}
		m.see(step.on, step.now)
		if diff := cmp.Diff(step.want, told); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.what, diff)
		}
	}
}

func TestAVMHasTheAddressesThatCloudInitIsTold(t *testing.T) {
	instance := &api.Instance{Name: "vm-1"}
	instance.Config = map[string]string{
		"limits.cpu": "2", "limits.memory": "2147483648", userDataKey: "#cloud-config", "volatile.eth1.hwaddr": "00:16:3e:00:00:02",
		networkConfigKey: `{"version": 2, "ethernets": {
			"eth0": {"match": {"macaddress": "00:16:3E:00:00:01"}, "addresses": ["10.77.0.5/24", "fd00::5/64"]},
			"eth1": {"match": {"macaddress": "00:16:3e:00:00:02"}, "optional": true},
			"eth2": {"match": {"macaddress": "00:16:3e:00:00:03"}, "addresses": ["10.77.0.6/24"]}}}`,
	}
	instance.ExpandedDevices = map[string]map[string]string{"eth0": {"type": "nic", "hwaddr": "00:16:3e:00:00:01"}, "eth1": {"type": "nic"}, "root": {"type": "disk"}}
	vm := &directVM{}
	if err := vm.boots(instance); err != nil {
		t.Fatal(err)
	}
	want := []netip.Addr{netip.MustParseAddr("10.77.0.5"), netip.MustParseAddr("fd00::5")}
	if diff := cmp.Diff(want, vm.Addresses, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if len(vm.Interfaces) != 2 || vm.Cores != 2 || vm.Memory != 2048 || vm.Status != deployed || vm.Running {
		t.Errorf("the VM is %+v", vm.MachineSnapshot)
	}
}
