// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"cmp"
	"net"
	"slices"

	"github.com/canonical/lxd/shared/api"
	"github.com/canonical/lxd/shared/units"
)

// bridgeType is LXD's type of bridges, its own and others.
const bridgeType = "bridge"

// stateBytes is LXD's default size of a VM's filesystem for its configuration, which counts as the project's.
const stateBytes = 100 << 20

// checkHost checks what LXD would not: it finds a missing bridge only when the VM is started, and never looks for room
// or for a MAC address that is in use. It returns the bridge.
func (s *session) checkHost(spec Spec, instances []api.Instance) (*api.Network, error) {
	if err := checkMAC(spec, macAddresses(instances)); err != nil {
		return nil, err
	}
	bridge, err := s.bridge(spec.Bridge)
	if err != nil {
		return nil, err
	}
	read := func(name string) (total, used int64, err error) {
		space, err := s.space(name)
		return int64(space.Total), int64(space.Used), err
	}
	if err := checkPools(spec, allocatedDisk(instances), read); err != nil {
		return nil, err
	}
	var c Capacity
	if err := s.readHardware(&c); err != nil {
		return nil, err
	}
	if err := s.readProject(&c); err != nil {
		return nil, err
	}
	return bridge, checkRoom(spec, c)
}

// check is checkHost by what was read of a host before.
func (r *Reading) check(spec Spec) (*api.Network, error) {
	if err := checkMAC(spec, r.MACs); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(r.Bridges, func(b Bridge) bool { return b.Name == spec.Bridge })
	if at < 0 {
		return nil, noBridge(spec.Bridge)
	}
	space := func(name string) (total, used int64, err error) {
		pool := slices.IndexFunc(r.Pools, func(p Pool) bool { return p.Name == name })
		if pool < 0 {
			return 0, 0, noPool(name)
		}
		return r.Pools[pool].TotalBytes, r.Pools[pool].UsedBytes, nil
	}
	if err := checkPools(spec, r.Disk, space); err != nil {
		return nil, err
	}
	return &api.Network{Name: spec.Bridge, Managed: r.Bridges[at].Managed}, checkRoom(spec, r.Capacity)
}

// macAddresses returns which instance has which MAC address.
func macAddresses(instances []api.Instance) map[string]string {
	all := map[string]string{}
	for i := range instances {
		for _, text := range macs(&instances[i]) {
			if mac, err := net.ParseMAC(text); err == nil {
				all[mac.String()] = instances[i].Name
			}
		}
	}
	return all
}

func checkMAC(spec Spec, taken map[string]string) error {
	if name, is := taken[spec.MAC.String()]; is && name != spec.Name { // What was read may be older than its deletion.
		return problem(KindMACInUse, "the instance %s has the MAC address %s", name, spec.MAC)
	}
	return nil
}

func noBridge(name string) error {
	return problem(KindBridge, "there is no bridge %s, or none that the project may use", name)
}

func noPool(name string) error { return problem(KindPool, "there is no storage pool %s", name) }

// bridge reads a bridge: GET /1.0/networks/BRIDGE.
func (s *session) bridge(name string) (*api.Network, error) {
	found, _, err := s.client.GetNetwork(name)
	switch {
	case isNotFound(err):
		return nil, noBridge(name)
	case err != nil:
		return nil, err
	case found.Type != bridgeType:
		return nil, problem(KindBridge, "the network %s is no bridge, it is of the type %s", name, found.Type)
	}
	return found, nil
}

// checkRoom compares a VM with the host and with the project's limits. LXD keeps to the limits, too, but returns only
// words.
func checkRoom(spec Spec, c Capacity) error {
	disk := int64(stateBytes)
	for _, each := range spec.allDisks() {
		disk += each.Bytes
	}
	cores, memory := promised(int64(c.Cores), spec.Overcommit.Cores), promised(c.MemoryMiB, spec.Overcommit.Memory)
	for _, each := range []struct {
		what                    string
		wanted, allocated, most int64
	}{
		{"cores of the host", int64(spec.Cores), c.Allocated.Cores, cores},
		{"MiB of memory of the host", spec.MemoryMiB, c.Allocated.MemoryMiB, memory},
		{"cores of the project's limit", int64(spec.Cores), c.Allocated.Cores, c.Limits.Cores},
		{"MiB of memory of the project's limit", spec.MemoryMiB, c.Allocated.MemoryMiB, c.Limits.MemoryMiB},
		{"bytes of disk of the project's limit", disk, c.Allocated.DiskBytes, c.Limits.DiskBytes},
	} {
		if each.most != NoLimit && each.wanted > each.most-each.allocated {
			return noRoom(each.what, each.wanted, each.allocated, each.most)
		}
	}
	return nil
}

func noRoom(what string, wanted, allocated, most int64) error {
	return problem(KindNoRoom, "there is no room for the VM: it needs %d %s, and %d of %d are allocated", wanted, what,
		allocated, most)
}

// promised returns how much of something may be promised.
func promised(there int64, overcommit float64) int64 {
	return int64(float64(there) * cmp.Or(overcommit, 1))
}

// checkPools checks each pool once, for all disks in it. allocated are the bytes that the project's instances have
// there.
func checkPools(spec Spec, allocated map[string]int64, space func(pool string) (total, used int64, err error)) error {
	wanted := map[string]int64{}
	var names []string
	for _, disk := range spec.allDisks() {
		if wanted[disk.Pool] == 0 {
			names = append(names, disk.Pool)
		}
		wanted[disk.Pool] += disk.Bytes
	}
	for _, name := range names {
		total, used, err := space(name)
		if err != nil {
			return err
		}
		// What is used may be other projects', and what is promised may not be used yet.
		taken := max(allocated[name], used)
		if most := promised(total, spec.Overcommit.Disk); wanted[name] > most-taken {
			return noRoom("bytes in the storage pool "+name, wanted[name], taken, most)
		}
	}
	return nil
}

// allocatedDisk returns the bytes that the project's instances have in each pool: their root disks, and the further
// disks of ours.
func allocatedDisk(instances []api.Instance) map[string]int64 {
	all := map[string]int64{}
	for _, instance := range instances {
		for _, device := range instance.ExpandedDevices {
			if device["type"] == "disk" && device["path"] == "/" {
				size, _ := units.ParseByteSizeString(device["size"]) // LXD has checked it
				all[device["pool"]] += size
			}
		}
		for _, volume := range volumesOf(instance.Config) {
			all[volume.Pool] += volume.Bytes
		}
	}
	return all
}
