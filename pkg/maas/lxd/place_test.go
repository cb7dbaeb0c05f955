// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"cmp"
	"errors"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
)

// placed returns the host for a VM beside its peers.
func placed(hosts []Host, spec VMSpec, peers []Peer) (Host, error) {
	return place(hosts, &spec, countPeers(peers, hosts))
}

func host(name, zone string, change ...func(*Host)) Host {
	h := Host{
		ID: len(name) + int(name[len(name)-1]), Name: name, Zone: zone, Pool: "default", Reachable: true,
		Capacity:     Resources{Cores: 16, Memory: 32768, Disk: 500},
		Largest:      Resources{Cores: 16, Memory: 32768, Disk: 500},
		StoragePools: []StoragePool{{Name: "default", Available: 500, Default: true}},
	}
	for _, c := range change {
		c(&h)
	}
	return h
}

// of gives a host an LXDHost, which is for the namespace of small.
func of(object HostObject) func(*Host) {
	object.Bridge, object.Subnet = "br0", cmp.Or(object.Subnet, netip.MustParsePrefix("10.1.0.0/24"))
	object.Allows = func(namespace string) bool { return namespace == small.Namespace }
	return func(h *Host) { h.Object = &object }
}

// nameless are subnets without name servers in MAAS, on a host whose LXDHost names none.
func nameless(subnets ...string) func(*Host) {
	return func(h *Host) {
		for _, subnet := range subnets {
			h.Nameless = append(h.Nameless, netip.MustParsePrefix(subnet))
		}
	}
}

// project makes a host a project of an LXD.
func project(certificate, name string) func(*Host) {
	return of(HostObject{Direct: true, Server: lxdhost.Options{ServerCertificate: []byte(certificate), Project: name}})
}

func used(cores, memory int) func(*Host) {
	return func(h *Host) { h.Used = Resources{Cores: cores, Memory: memory} }
}

func failed(to string, until int64) func(*Host) {
	return func(h *Host) { h.CooldownUntil, h.FailedTo = time.Unix(until, 0), to }
}

var small = VMSpec{Hostname: "vm", Cluster: "c", Resources: Resources{Cores: 2, Memory: 4096, Disk: 20}}

func with(change func(*VMSpec)) VMSpec {
	spec := small
	change(&spec)
	return spec
}

func apart(s *VMSpec) { s.AntiAffinity = RequireApart }

func device(devices ...Device) func(*VMSpec) { return func(s *VMSpec) { s.Devices = devices } }

// on puts a host on a machine with one interface that VMs can boot from.
func on(bridge string, subnets ...string) func(*Host) {
	nic := HostInterface{Name: bridge, Bootable: true}
	for _, subnet := range subnets {
		nic.Subnets = append(nic.Subnets, netip.MustParsePrefix(subnet))
	}
	return func(h *Host) { h.Machine = &HostMachine{Interfaces: []HostInterface{nic}} }
}

func TestPlaceChooses(t *testing.T) {
	a1, a2, b1 := host("a1", "a"), host("a2", "a"), host("b1", "b")
	for name, tc := range map[string]struct {
		hosts []Host
		spec  VMSpec
		peers []Peer
		want  string
	}{
		"the only host":                         {[]Host{a1}, small, nil, "a1"},
		"a zone without peers":                  {[]Host{a1, a2, b1}, small, []Peer{{VM: "x", Host: "a1", Zone: "a"}}, "b1"},
		"a host without peers in a pinned zone": {[]Host{a1, a2, b1}, with(func(s *VMSpec) { s.Zone = "a" }), []Peer{{VM: "x", Host: "a1", Zone: "a"}}, "a2"},
		"the emptier host":                      {[]Host{host("a1", "a", used(8, 0)), a2}, small, nil, "a2"},
		"memory counts as much as cores":        {[]Host{host("a1", "a", used(0, 16384)), host("a2", "a", used(4, 0))}, small, nil, "a2"},
		"the name decides between equals":       {[]Host{a2, a1}, small, nil, "a1"},
		"a pinned host, however full":           {[]Host{host("a1", "a", used(14, 0)), a2}, with(func(s *VMSpec) { s.HostName = "a1" }), nil, "a1"},
		"spreading yields to room":              {[]Host{a1, host("b1", "b", used(16, 0))}, small, []Peer{{VM: "x", Host: "a1", Zone: "a"}}, "a1"},
		"a host without a tag":                  {[]Host{host("a1", "a", func(h *Host) { h.Tags = []string{"ssd", "gpu"} }), host("a2", "a", func(h *Host) { h.Tags = []string{"ssd"} })}, with(func(s *VMSpec) { s.Tags, s.NotTags = []string{"ssd"}, []string{"gpu"} }), nil, "a2"},
		"all tags":                              {[]Host{host("a1", "a", func(h *Host) { h.Tags = []string{"ssd"} }), host("a2", "a", func(h *Host) { h.Tags = []string{"gpu", "ssd"} })}, with(func(s *VMSpec) { s.Tags = []string{"ssd", "gpu"} }), nil, "a2"},
		"a resource pool":                       {[]Host{a1, host("a2", "a", func(h *Host) { h.Pool = "capi" })}, with(func(s *VMSpec) { s.ResourcePool = "capi" }), nil, "a2"},
		"a storage pool with room":              {[]Host{a1, host("a2", "a", func(h *Host) { h.StoragePools = append(h.StoragePools, StoragePool{Name: "fast", Available: 30}) })}, with(func(s *VMSpec) { s.StoragePool = "fast" }), nil, "a2"},
		"disk on any pool, where none is default": {[]Host{host("a1", "a", func(h *Host) {
			h.StoragePools = []StoragePool{{Name: "x", Available: 10}, {Name: "y", Available: 30}}
		})}, small, nil, "a1"},
		"a host with a peer, if there is no other":    {[]Host{a1}, small, []Peer{{VM: "x", Host: "a1", Zone: "a"}}, "a1"},
		"no host with a peer, where that is required": {[]Host{a1, host("a2", "a", used(12, 0))}, with(apart), []Peer{{VM: "x", Host: "a1", Zone: "a"}}, "a2"},
		"no former VM host with a peer, whatever it is called": {[]Host{
			host("node-1", "a", of(HostObject{Direct: true, VMHostID: 7}), func(h *Host) { h.ID = 0 }), host("a2", "a", used(12, 0)),
		}, with(apart), []Peer{{VM: "x", Host: "lxd-a", Zone: "a", Ref: "7/lxd-a"}}, "a2"},
		"a host that has the name of a peer's since":             {[]Host{a1, host("a2", "a")}, with(apart), []Peer{{VM: "x", Host: "a1", Zone: "a", Ref: strconv.Itoa(a2.ID) + "/a1"}}, "a1"},
		"a zone without machines that are no VMs":                {[]Host{a1, b1}, with(apart), []Peer{{VM: "metal", Zone: "a"}}, "b1"},
		"a machine with the bridge":                              {[]Host{host("a1", "a", on("br1")), host("a2", "a", on("br0"))}, with(device(Device{Bridge: "br0"})), nil, "a2"},
		"a machine that is not shown, which may have the bridge": {[]Host{a1}, with(device(Device{Bridge: "br0"})), nil, "a1"},
		"a machine in the subnet":                                {[]Host{host("a1", "a", on("br0", "10.1.0.0/24")), host("a2", "a", on("br0", "10.2.0.0/24"))}, with(device(Device{Subnet: "10.2.0.7/24"})), nil, "a2"},
		"a machine that runs": {[]Host{
			host("a1", "a", func(h *Host) { h.Machine = &HostMachine{Off: true} }),
			host("a2", "a", func(h *Host) { h.Machine = &HostMachine{State: "Broken"} }),
			host("a3", "a", func(h *Host) { h.Machine = &HostMachine{} }),
		}, small, nil, "a3"},
		"a host that is not cordoned": {[]Host{host("a1", "a", of(HostObject{Unschedulable: true, VMHost: VMHostKey(guard.Server{}, 1)})), host("a2", "a", of(HostObject{VMHost: VMHostKey(guard.Server{}, 2)}))}, small, nil, "a2"},
		"no other project of an LXD that may have the VM": {[]Host{
			host("a1", "a", project("lxd-1", "one"), used(8, 0)), host("a2", "a", project("lxd-1", "two")), host("a3", "a", project("lxd-2", "two"), used(4, 0)),
		}, with(func(s *VMSpec) { s.MayBeOn = []Host{host("a1", "a", project("lxd-1", "one"))} }), nil, "a3"},
		"the host itself that may have the VM": {[]Host{host("a1", "a", project("lxd-1", "one")), host("a2", "a", project("lxd-1", "two"))},
			with(func(s *VMSpec) { s.MayBeOn = []Host{host("a1", "a", project("lxd-1", "one"))} }), nil, "a1"},
		"a direct host with the image": {[]Host{
			host("a1", "a", of(HostObject{Direct: true})),
			host("a2", "a", used(8, 0), of(HostObject{Direct: true}), func(h *Host) { h.Images = []string{"u", "v"} }),
		}, with(func(s *VMSpec) { s.Image = "v" }), nil, "a2"},
		"a direct host without the pool and the bridge of its LXDHost, for a VM on others": {
			[]Host{host("a1", "a", of(HostObject{Direct: true}), on("br7", "10.1.0.0/24"), func(h *Host) { h.StoragePools[0].Default = false })},
			with(func(s *VMSpec) { s.StoragePool, s.Devices = "default", []Device{{Name: "eth0", Subnet: "10.1.0.0/24"}} }), nil, "a1",
		},
		"a host with name servers": {[]Host{
			host("a1", "a", of(HostObject{Direct: true}), nameless("10.1.0.0/24")), host("a2", "a", used(8, 0), of(HostObject{Direct: true}), nameless("10.2.0.0/24")),
		}, small, nil, "a2"},
		"a host with name servers on the second subnet": {
			[]Host{host("a1", "a", of(HostObject{Direct: true}), on("br0", "10.1.0.0/24", "10.2.0.0/24"), nameless("10.1.0.0/24"))},
			with(device(Device{Name: "eth0", Bridge: "br0"}, Device{Name: "eth1", Subnet: "10.2.0.0/24"})), nil, "a1",
		},
		"no host whose resources MAAS lacks yet": {[]Host{host("a1", "a", func(h *Host) { h.Reachable = false }), a2}, small, nil, "a2"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := placed(tc.hosts, tc.spec, tc.peers)
			if err != nil {
				t.Fatalf("HostRef: %v", err)
			}
			if got.Name != tc.want {
				t.Errorf("Place chose %s, want %s", got.Name, tc.want)
			}
		})
	}
}

func TestPlaceRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		hosts []Host
		spec  VMSpec
		kind  ErrorType
		says  string // a part of the message
	}{
		"no hosts":       {nil, small, HostUnavailable, "no LXD VM hosts"},
		"another zone":   {[]Host{host("a1", "a")}, with(func(s *VMSpec) { s.Zone = "z" }), HostUnavailable, "1 not in zone z"},
		"another pinned": {[]Host{host("a1", "a")}, with(func(s *VMSpec) { s.HostName = "q" }), HostUnavailable, "1 not q (a1), as in spec.lxdConfig.vmHost, and no host has that name: "},
		"pinned to a full one": {
			[]Host{host("a1", "a"), host("q", "a", used(16, 0))}, with(func(s *VMSpec) { s.HostName = "q" }), InsufficientResources,
			"2 host(s): 1 not q (a1), as in spec.lxdConfig.vmHost, 1 out of cores (q), as spec.minCPU is 2, and at most 0 are free on one: ",
		},
		"pinned, and a project": {
			[]Host{host("a1", "a")}, with(func(s *VMSpec) { s.HostName, s.Project = "q", "p" }), HostUnavailable,
			"1 not q (a1), as in spec.lxdConfig.vmHost, and none with the spec's LXD project and profile has that name: ",
		},
		"no such pool":              {[]Host{host("a1", "a")}, with(func(s *VMSpec) { s.StoragePool = "fast" }), HostUnavailable, "without storage pool fast"},
		"out of memory":             {[]Host{host("a1", "a", used(0, 30000)), host("a2", "a", used(0, 30000)), host("b1", "b", used(16, 0))}, small, InsufficientResources, "3 host(s): 2 out of memory (a1, a2), as spec.minMemory is 4096 MiB, and at most 2768 are free on one, 1 out of cores (b1)"},
		"out of disk":               {[]Host{host("a1", "a")}, with(func(s *VMSpec) { s.Disk = 501 }), InsufficientResources, "1 out of disk (a1), as the VM's disks (spec.minDiskSize, spec.lxdConfig) take 501 GB of a storage pool, and at most 500 are free on one: "},
		"out of disk for all disks": {[]Host{host("a1", "a")}, with(func(s *VMSpec) { s.MoreDisks = []Disk{{Size: 481}} }), InsufficientResources, "out of disk"},
		"no such pool for a disk":   {[]Host{host("a1", "a")}, with(func(s *VMSpec) { s.MoreDisks = []Disk{{1, "fast"}} }), HostUnavailable, "without storage pool fast"},
		"a device that is not allowed": {
			[]Host{host("a1", "a", of(HostObject{Direct: true, Namespace: "others", Name: "a1"}))},
			with(func(s *VMSpec) {
				s.Hardware = map[string]map[string]string{"nvme0": {"type": "pci", "address": "0000:01:00.0"}}
			}),
			HostUnavailable, "1 that do not give namespace " + small.Namespace + " the device nvme0 (pci); add it to spec.allowedDevices of the LXDHost (a1)",
		},
		"secure boot on a VM host": {
			[]Host{host("a1", "a")}, with(func(s *VMSpec) { s.SecureBoot = true }), HostUnavailable,
			"1 VM hosts of MAAS, which boot VMs without secure boot (a1): remove spec.lxdConfig.secureBoot, or use LXDHosts with spec.address",
		},
		"secure boot without UEFI": {
			[]Host{host("a1", "a", of(HostObject{Direct: true}), on("br0"), func(h *Host) { h.Architecture = "s390x/generic" })},
			with(func(s *VMSpec) { s.SecureBoot = true }), HostUnavailable, "1 of an architecture that LXD has no secure boot for: s390x (a1)",
		},
		"secure boot of an image that is not signed": {
			[]Host{host("a1", "a", of(HostObject{Direct: true}), on("br0"), func(h *Host) { h.Images, h.Unsigned = []string{"i", "u"}, []string{"u"} })},
			with(func(s *VMSpec) { s.SecureBoot, s.Image = true, "u" }), HostUnavailable,
			"1 where the image is not signed for secure boot, u (a1): bring one without the property requirements.secureboot=false, or remove spec.lxdConfig.secureBoot",
		},
		"devices of a VM host":                           {[]Host{host("a1", "a")}, with(func(s *VMSpec) { s.Hardware = map[string]map[string]string{"gpu0": nil} }), HostUnavailable, "which give VMs no devices"},
		"larger than the host, whatever the over-commit": {[]Host{host("a1", "a", func(h *Host) { h.Capacity.Cores = 64 })}, with(func(s *VMSpec) { s.Cores = 20 }), InsufficientResources, "1 too small for the VM in cores (a1), as spec.minCPU is 20, and the largest has 16: "},
		"memory that no host has": {
			[]Host{host("a1", "a"), host("a2", "a", func(h *Host) { h.Largest.Memory = 65536 })}, with(func(s *VMSpec) { s.Memory = 131072 }),
			InsufficientResources, "2 too small for the VM in memory (a1, a2), as spec.minMemory is 131072 MiB, and the largest has 65536: ",
		},
		"cordoned":                {[]Host{host("a1", "a", of(HostObject{Unschedulable: true, VMHost: VMHostKey(guard.Server{}, 1)}))}, small, HostUnavailable, "1 unschedulable (a1)"},
		"cordoned, and pinned":    {[]Host{host("a1", "a", of(HostObject{Unschedulable: true, Direct: true}))}, with(func(s *VMSpec) { s.HostName = "a1" }), HostUnavailable, "1 unschedulable (a1)"},
		"for others":              {[]Host{host("a1", "a", of(HostObject{Direct: true}))}, with(func(s *VMSpec) { s.Namespace = "theirs" }), HostUnavailable, "1 not for namespace theirs"},
		"LXD does not respond":    {[]Host{host("a1", "a", of(HostObject{Direct: true}), func(h *Host) { h.Reachable = false })}, small, HostUnavailable, "see its LXDHost"},
		"devices MAAS can't name": {[]Host{host("a1", "a", of(HostObject{Direct: true}), on("br0"))}, with(device(Device{Name: "lan0", Bridge: "br0"})), HostUnavailable, "eth0"},
		"no subnet on the bridge": {
			[]Host{host("a1", "a", of(HostObject{Direct: true}), func(h *Host) { h.Object.Subnet = netip.Prefix{} })}, small,
			HostUnavailable, "1 without a subnet for bridge br0 (a1): set spec.subnet of the LXDHost",
		},
		"no subnet on another bridge": {
			[]Host{host("a1", "a", of(HostObject{Direct: true}), on("br7"))}, with(device(Device{Bridge: "br7"})),
			HostUnavailable, "1 without a subnet for bridge br7 (a1)",
		},
		"no bridge of the LXDHost": {
			[]Host{host("a1", "a", of(HostObject{Direct: true}), on("br7"))}, small,
			HostUnavailable, "1 without the bridge that the LXDHost names, br0 (a1): make it on the host, or change spec.networkBridge",
		},
		"no storage pool of the LXDHost": {
			[]Host{host("a1", "a", of(HostObject{Direct: true, StoragePool: "fast"}), func(h *Host) { h.StoragePools[0].Default = false })},
			with(func(s *VMSpec) { s.StoragePool, s.MoreDisks = "default", []Disk{{Size: 1}} }),
			HostUnavailable, "1 without the storage pool that the LXDHost names, fast (a1): make it on the host, or change spec.storagePool",
		},
		"no name servers on any of the VM's subnets": {
			[]Host{host("a1", "a", of(HostObject{Direct: true}), on("br0", "10.1.0.0/24", "10.2.0.0/24"), nameless("10.1.0.0/24", "10.2.0.0/24"))},
			with(device(Device{Name: "eth0", Bridge: "br0"}, Device{Name: "eth1", Subnet: "10.2.0.0/24"})), HostUnavailable,
			"1 without name servers for subnet 10.1.0.0/24 (a1): set spec.nameservers of the LXDHost, or the subnet's DNS servers in MAAS (dns_servers)",
		},
		"not ready": {[]Host{host("a1", "a", func(h *Host) { h.Reachable = false })}, small, HostUnavailable, "not ready"},
		"failed lately": {[]Host{
			host("a1", "a", failed(toCompose, 7200)), host("a2", "a", failed(toCompose, 3600)),
			host("a3", "a", used(16, 0)),
		}, small, InsufficientResources, "3 host(s): 2 skipped after it failed to compose a VM (a1, a2; the next is tried from 1970-01-01T01:00:00Z on), 1 out of cores (a3)"},
		"silent lately":                 {[]Host{host("a1", "a", failed(toAnswer, 3600))}, small, HostUnavailable, "1 skipped after it failed to answer MAAS (a1; the next is tried from 1970-01-01T01:00:00Z on)"},
		"a tag is missing":              {[]Host{host("a1", "a")}, with(func(s *VMSpec) { s.Tags = []string{"ssd"} }), HostUnavailable, "without tag ssd"},
		"many hosts are not all named":  {[]Host{host("a1", "a"), host("a4", "a"), host("a3", "a"), host("a2", "a")}, with(func(s *VMSpec) { s.Zone = "z" }), HostUnavailable, "4 not in zone z (a1, a2, a3 and 1 more)"},
		"a peer is on each":             {[]Host{host("p1", "p")}, with(apart), HostUnavailable, "with another VM of this cluster"},
		"no such bridge":                {[]Host{host("a1", "a", on("br1"))}, with(device(Device{Bridge: "br0"})), HostUnavailable, "without bridge br0"},
		"not in the subnet":             {[]Host{host("a1", "a", on("br1", "10.1.0.0/24"))}, with(device(Device{Subnet: "10.2.0.0/24"})), HostUnavailable, "without an address in subnet 10.2.0.0/24"},
		"a machine that is not known":   {[]Host{host("a1", "a", func(h *Host) { h.Machine = &HostMachine{Missing: true} })}, with(device(Device{Bridge: "br0"})), HostUnavailable, "on a machine that MAAS does not know"},
		"no DHCP on the VM's networks":  {[]Host{host("a1", "a", on("br0"), func(h *Host) { h.Machine.Interfaces[0].Bootable = false })}, with(device(Device{Bridge: "br0"})), HostUnavailable, "without MAAS's DHCP"},
		"a machine without power":       {[]Host{host("a1", "a", func(h *Host) { h.Machine = &HostMachine{Off: true} })}, small, HostUnavailable, "powered off"},
		"a machine that is released":    {[]Host{host("a1", "a", func(h *Host) { h.Machine = &HostMachine{State: "Releasing"} })}, small, HostUnavailable, "Releasing"},
		"pinned to a host that is down": {[]Host{host("a1", "a", func(h *Host) { h.Machine = &HostMachine{Off: true} })}, with(func(s *VMSpec) { s.HostName = "a1" }), HostUnavailable, "powered off"},
		"enormous use":                  {[]Host{host("a1", "a", used(math.MaxInt, 0))}, small, InsufficientResources, "out of cores"},
		"enormous use of memory":        {[]Host{host("a1", "a", used(0, math.MaxInt-1000))}, small, InsufficientResources, "out of memory"},
		"negative capacity":             {[]Host{host("a1", "a", used(math.MinInt, 0), func(h *Host) { h.Capacity.Cores = math.MinInt })}, small, InsufficientResources, "out of cores"},
		"negative use":                  {[]Host{host("a1", "a", used(-100, 0), func(h *Host) { h.Capacity.Cores = 1 })}, small, InsufficientResources, "out of cores"},
		"a pool of less than nothing":   {[]Host{host("a1", "a", func(h *Host) { h.StoragePools[0].Available = math.MinInt })}, small, InsufficientResources, "out of disk"},
		"an LXD that MAAS can't use":    {[]Host{host("a1", "a", func(h *Host) { h.TooNew = "6.9" })}, small, HostUnavailable, "too new for MAAS, 6.9 (a1)"},
		"an architecture without the image": {
			[]Host{host("a1", "a", func(h *Host) { h.Architecture = "arm64/generic" })},
			with(func(s *VMSpec) { s.Processors = []string{"amd64"} }), HostUnavailable, "no such image for: arm64 (a1)",
		},
		"direct hosts without the image": {
			[]Host{
				host("a1", "a", of(HostObject{Direct: true})),
				host("a2", "a", of(HostObject{Direct: true}), func(h *Host) { h.Images = []string{"custom/v"} }),
			},
			with(func(s *VMSpec) { s.Image = "custom/u" }), HostUnavailable,
			"2 without image custom/u (a1, a2), as in spec.image: `capmaasctl image upload --lxd-host` brings it there",
		},
		"the pool is wrong": {[]Host{host("a1", "a")}, with(func(s *VMSpec) { s.ResourcePool = "capi" }), HostUnavailable, "resource pool capi"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := placed(tc.hosts, tc.spec, []Peer{{VM: "x", Host: "p1", Zone: "p"}})
			var refused *LXDError
			if !errors.As(err, &refused) || refused.Type != tc.kind {
				t.Fatalf("HostRef: %#v, want an LXDError of type %s", err, tc.kind)
			}
			if !strings.Contains(refused.Message, tc.says) {
				t.Errorf("the message is %q, want it to contain %q", refused.Message, tc.says)
			}
		})
	}
}

func names(hosts []Host) []string {
	var list []string
	for _, h := range hosts {
		list = append(list, h.Name)
	}
	return list
}
