// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"net/netip"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
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
	if address, mac := ownNetwork(m); address.String() != "10.77.0.5/24" || mac != "52:54:00:00:00:02" {
		t.Errorf("%s with %s", address, mac)
	}
	if address, mac := ownNetwork(simulator.MachineSnapshot{}); address.IsValid() || mac != "" {
		t.Errorf("without a network: %s with %q", address, mac)
	}
}
