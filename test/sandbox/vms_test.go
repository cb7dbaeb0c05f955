// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/canonical/lxd/shared/api"
	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
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

func TestAVMHasWhatCloudInitIsTold(t *testing.T) {
	instance := &api.Instance{Name: "vm-1"}
	instance.Config = map[string]string{
		"limits.cpu": "2", "limits.memory": "2147483648", userDataKey: "#cloud-config", "volatile.eth1.hwaddr": "00:16:3e:00:00:02",
		"volatile.cloud-init.instance-id": "0123",
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
	seed := map[string][]byte{
		"/etc/cloud/cloud.cfg.d/99-lxd.cfg":          []byte("datasource_list: [ NoCloud ]\n"),
		"/var/lib/cloud/seed/nocloud/user-data":      []byte("#cloud-config"),
		"/var/lib/cloud/seed/nocloud/network-config": []byte(instance.Config[networkConfigKey]),
		"/var/lib/cloud/seed/nocloud/meta-data":      []byte("instance-id: 0123\nlocal-hostname: vm-1\n"),
	}
	if diff := cmp.Diff(seed, vm.seed); diff != "" {
		t.Errorf("what cloud-init finds (-want +got):\n%s", diff)
	}
	if len(vm.Interfaces) != 2 || vm.Cores != 2 || vm.Memory != 2048 || vm.Status != deployed || vm.Running {
		t.Errorf("the VM is %+v", vm.MachineSnapshot)
	}
}

// The name of a VM's image is asked for until LXD tells it, and stays when the image has gone.
func TestAVMKeepsTheNameOfItsImage(t *testing.T) {
	region, device := regionWithDevice(t, "vm-1")
	here, m := &lxd.Daemon{}, newMachines(region, logr.Discard())
	instance := api.Instance{Name: device.Hostname, StatusCode: api.Running}
	instance.Config = map[string]string{ownerMark: "owner", instanceID: "a", "limits.cpu": "1", "limits.memory": "1073741824"}
	for _, step := range []struct{ lxd, want string }{{"", ""}, {"u-2204-k8s-1.36", "u-2204-k8s-1.36"}, {"", "u-2204-k8s-1.36"}} {
		m.see(here, m.among("lxd-a", here, []api.Instance{instance}, func(*api.Instance) (string, error) { return step.lxd, nil }))
		if vm, there := m.Machine(device.SystemID); !there || vm.Image != step.want || vm.VMHost != "lxd-a" {
			t.Errorf("LXD names the image %q, and the VM is %+v, want the image %q", step.lxd, vm, step.want)
		}
	}
}

// regionWithDevice is a MAAS that has a device.
func regionWithDevice(t *testing.T, hostname string) (*simulator.Simulator, *maas.Device) {
	t.Helper()
	region, err := simulator.LoadRegion(bytes.NewReader(defaultRegion))
	if err != nil {
		t.Fatal(err)
	}
	sim, err := simulator.New(region, simulator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(server.Close)
	key, err := administratorKey(sim, "")
	if err != nil {
		t.Fatal(err)
	}
	client, err := maas.NewClient(maas.Config{Endpoint: server.URL + "/MAAS", APIKey: key})
	if err != nil {
		t.Fatal(err)
	}
	params := maas.CreateDeviceParams{Hostname: hostname, MACAddresses: []string{"00:16:3e:00:00:01"}}
	device, err := client.CreateDevice(t.Context(), maas.Unrecorded("a test"), params)
	if err != nil {
		t.Fatal(err)
	}
	return sim, device
}

// LXD knows the name of the image that a VM was made from, as long as it has the image under one.
func TestLXDNamesTheImageOfAVM(t *testing.T) {
	host := directhost.Start(t)
	if err := host.AddImage(t.Context(), "custom/u-2204-k8s-1.36"); err != nil {
		t.Fatal(err)
	}
	all := lxdtest.Connect(t, host.Daemon.Socket())
	server := all.UseProject(directhost.Project)
	operation, err := server.CreateInstance(api.InstancesPost{
		Name: "vm-1", Type: api.InstanceTypeVM, Source: api.InstanceSource{Type: api.SourceTypeImage, Alias: "custom/u-2204-k8s-1.36"},
		InstancePut: api.InstancePut{Profiles: []string{}, Devices: map[string]map[string]string{
			"root": {"type": "disk", "path": "/", "pool": lxdnode.DefaultStoragePool, "size": "64MiB"},
		}},
	})
	lxdtest.Finish(t, operation, err)
	check := func(want string) {
		t.Helper()
		instances, err := all.GetInstancesAllProjects(api.InstanceTypeVM)
		if err != nil || len(instances) != 1 {
			t.Fatalf("LXD has the VMs %+v, %v", instances, err)
		}
		if got, err := imageOf(all, &instances[0]); got != want || err != nil {
			t.Errorf("the image is %q, %v, want %q", got, err, want)
		}
	}
	check("custom/u-2204-k8s-1.36")
	if err := server.DeleteImageAlias("custom/u-2204-k8s-1.36"); err != nil {
		t.Fatal(err)
	}
	check("")
}
