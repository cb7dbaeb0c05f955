// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

func TestWhatMAASShowsOfAMachineIsWhatVMsCanBeAttachedTo(t *testing.T) {
	const shown = `{"system_id": "abc", "status": 6, "status_name": "Deployed", "power_state": "unknown", "interface_set": [
		{"id": 1, "name": "eth0", "vlan": null, "links": []},
		{"id": 2, "name": "br0", "vlan": {"dhcp_on": true, "relay_vlan": null}, "links": [
			{"mode": "static", "subnet": {"id": 1, "cidr": "10.77.0.0/24"}}, {"mode": "link_up"}, {"subnet": {"id": 3, "cidr": "fd00:77::/64"}}]},
		{"id": 3, "name": "br1", "vlan": {"dhcp_on": false, "relay_vlan": {"id": 7}}, "links": [],
			"discovered": [{"subnet": {"id": 2, "cidr": "10.78.0.0/24"}, "ip_address": "10.78.0.9"}]},
		{"id": 4, "name": "br2", "vlan": {"dhcp_on": false, "relay_vlan": null}, "links": [{"subnet": {"cidr": "nonsense"}}]}, null]}`
	machine := &maas.Machine{}
	if err := json.Unmarshal([]byte(shown), machine); err != nil {
		t.Fatal(err)
	}
	prefix := netip.MustParsePrefix
	want := &HostMachine{Interfaces: []HostInterface{
		{Name: "eth0"},
		{Name: "br0", Bootable: true, Subnets: []netip.Prefix{prefix("10.77.0.0/24"), prefix("fd00:77::/64")}},
		{Name: "br1", Bootable: true, Subnets: []netip.Prefix{prefix("10.78.0.0/24")}},
		{Name: "br2"},
	}}
	same := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	if diff := cmp.Diff(want, toHostMachine("abc", machine), same); diff != "" {
		t.Errorf("the machine differs (-want +got):\n%s", diff)
	}
	t.Run("with power off and in another state", func(t *testing.T) {
		off := toHostMachine("abc", &maas.Machine{PowerState: maas.PowerOff, Status: maas.StatusReleasing, StatusName: "Releasing"})
		if !off.Off || off.State != "Releasing" {
			t.Errorf("the machine is %+v, want off and Releasing", off)
		}
	})
	t.Run("and what it does not show is not known", func(t *testing.T) {
		if got := toHostMachine("rack", nil); got != nil {
			t.Errorf("a rack controller is %+v, want nothing known", got)
		}
		if got := toHostMachine("", nil); got == nil || !got.Missing {
			t.Errorf("no machine at all is %+v, want it missing", got)
		}
	})
}
