// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

func TestInstallsLXD(t *testing.T) {
	for command, want := range map[string]bool{
		"snap install lxd": true,
		"snap list lxd || snap install lxd --channel=5.21/stable":        true,
		"snap install --channel=5.21/stable lxd":                         true,
		"apt-get update && apt-get install -y lxd btrfs-progs":           true,
		"DEBIAN_FRONTEND=noninteractive apt-get --yes install zfs lxd=5": true,
		"apt install lxd/bookworm":                                       true,
		"sh -c 'snap install lxd; true'":                                 true,
		"bash /usr/local/bin/prepare.sh --fast":                          true,
		"/usr/local/bin/other.sh":                                        false,
		"snap list lxd":                                                  false,
		"snap install lxd-ui":                                            false,
		"apt-get install -y containerd; echo lxd":                        false,
		"snap remove lxd":                                                false,
		"kubeadm init --config /run/kubeadm/kubeadm.yaml":                false,
	} {
		data := &userData{commands: []string{"true", command}, files: map[string]string{
			"/usr/local/bin/prepare.sh": "#!/bin/sh\nset -e\nsnap install lxd\n",
			"/usr/local/bin/other.sh":   "#!/bin/sh\necho install lxd\n",
		}}
		if got := installsLXD(data); got != want {
			t.Errorf("%q: %t, want %t", command, got, want)
		}
	}
}

func TestOwnNetwork(t *testing.T) {
	m := simulator.MachineSnapshot{
		Addresses: []netip.Addr{netip.MustParseAddr("10.77.0.5"), netip.MustParseAddr("fd00::5")},
		Interfaces: []simulator.InterfaceSnapshot{
			{Name: "eth0", MAC: "52:54:00:00:00:01"},
			{Name: "eth1", MAC: "52:54:00:00:00:02", Addresses: []netip.Prefix{netip.MustParsePrefix("fd00::5/64"), netip.MustParsePrefix("10.77.0.5/24")}},
		},
	}
	want := lxd.Options{Address: netip.MustParsePrefix("10.77.0.5/24"), MAC: "52:54:00:00:00:02", Card: "eth1"}
	if got := ownNetwork(m); !reflect.DeepEqual(got, want) {
		t.Errorf("with a card: %+v, want %+v", got, want)
	}
	m.Interfaces[1].Name, m.Interfaces[1].Ports, want.Bridge, want.Card = "br1", []string{"eth0"}, "br1", "eth0"
	if got := ownNetwork(m); !reflect.DeepEqual(got, want) {
		t.Errorf("with a bridge: %+v, want %+v", got, want)
	}
	if got := ownNetwork(simulator.MachineSnapshot{}); !reflect.DeepEqual(got, lxd.Options{}) {
		t.Errorf("without a network: %+v", got)
	}
}
