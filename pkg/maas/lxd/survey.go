// SPDX-License-Identifier: Apache-2.0

package lxd

import "slices"

// Room is the room of hosts for VMs of a spec.
type Room struct {
	// Hosts is the number of hosts for such VMs, including full ones.
	Hosts int
	// VMs is how many more of them fit.
	VMs int
}

// maxSurveyed is where survey stops counting on one host: it does not matter whether it is a million or two.
const maxSurveyed = 1 << 20

// survey returns the room of each zone for more VMs of a spec beside its neighbours. It is pure.
func survey(hosts []Host, spec *VMSpec, near *neighbours) map[string]Room {
	zones := map[string]Room{}
	for i := range hosts {
		host := &hosts[i]
		why := refuse(host, spec, near)
		if why != fits && !why.passes() {
			continue
		}
		room := zones[host.Zone]
		room.Hosts++
		switch {
		case why != fits:
		case spec.AntiAffinity == RequireApart:
			room.VMs++
		default:
			room.VMs += roomFor(host, spec)
		}
		zones[host.Zone] = room
	}
	return zones
}

// Architectures returns the possible architectures of VMs of a spec in MAAS's form (amd64/generic), each once: those of
// the hosts that match the spec, also of full ones. It is pure.
func Architectures(hosts []Host, spec VMSpec) []string {
	var architectures []string
	for i := range hosts {
		host := &hosts[i]
		if isWanted(host, &spec) && host.Architecture != "" && !slices.Contains(architectures, host.Architecture) {
			architectures = append(architectures, host.Architecture)
		}
	}
	return architectures
}

// roomFor returns how many VMs fit on a host.
func roomFor(host *Host, spec *VMSpec) int {
	vms := min(
		maxSurveyed,
		room(host.Capacity.Cores, host.Used.Cores)/max(spec.Cores, 1),
		room(host.Capacity.Memory, host.Used.Memory)/max(spec.Memory, 1),
	)
	for _, pool := range onPools(host, spec.disks()) {
		if pool.Size > 0 {
			vms = min(vms, roomOnDisk(host, pool.Pool)/pool.Size)
		}
	}
	return vms
}
