// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"cmp"
	"math"
	"net"

	"github.com/canonical/lxd/shared/api"
	"github.com/canonical/lxd/shared/units"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
)

// bridgeType is LXD's type of bridges, its own and others.
const bridgeType = "bridge"

// stateBytes is LXD's default size of a VM's filesystem for its configuration, which counts as the project's.
const stateBytes = 100 << 20

// check checks what LXD would not: it never looks for room, or for a MAC address that is in use.
func (r *Reading) check(spec Spec) error {
	if name, is := r.MACs[spec.MAC.String()]; is && name != spec.Name { // What was read may be older than its deletion.
		return problem(KindMACInUse, "the instance %s has the MAC address %s", name, spec.MAC)
	}
	if err := r.checkPools(spec); err != nil {
		return err
	}
	return checkRoom(spec, r.Capacity)
}

// bridge returns a bridge. LXD finds that it is missing only when the VM is started.
func (r *Reading) bridge(name string) (Bridge, error) {
	bridge := list.Find(r.Bridges, func(b Bridge) bool { return b.Name == name })
	if bridge == nil {
		return Bridge{}, problem(KindBridge, "there is no bridge %s, or none that the project may use", name)
	}
	return *bridge, nil
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

// promised returns how much of something may be promised: ratio, which is in whole percents, times what there is; 0
// stands for 1.
func promised(there int64, ratio float64) int64 {
	const whole = 100
	percents := int64(math.Round(cmp.Or(ratio, 1) * whole))
	return there/whole*percents + there%whole*percents/whole // A network's file system may say that it has exbibytes.
}

// checkPools checks each pool once, for all disks in it.
func (r *Reading) checkPools(spec Spec) error {
	wanted := map[string]int64{}
	var names []string
	for _, disk := range spec.allDisks() {
		if wanted[disk.Pool] == 0 {
			names = append(names, disk.Pool)
		}
		wanted[disk.Pool] += disk.Bytes
	}
	for _, name := range names {
		pool := list.Find(r.Pools, func(p Pool) bool { return p.Name == name })
		if pool == nil {
			return problem(KindPool, "there is no storage pool %s", name)
		}
		// What is used may be other projects', and what is promised may not be used yet.
		taken := max(r.Disk[name], pool.UsedBytes)
		if most := promised(pool.TotalBytes, spec.Overcommit.Disk); wanted[name] > most-taken {
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
