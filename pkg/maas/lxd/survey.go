// SPDX-License-Identifier: Apache-2.0

package lxd

import "slices"

// Room is what hosts have for VMs of a spec.
type Room struct {
	// Hosts that such VMs can be placed on, full ones too.
	Hosts int
	// VMs is how many more there is room for on them.
	VMs int
}

// maxSurveyed is where Survey stops to count on one host: it does not matter whether it is a million or two.
const maxSurveyed = 1 << 20

// Survey returns what the hosts of each zone have for more VMs of a spec beside the peers that are there, by zone. Zones without such a host are
// left out. It is pure.
func Survey(hosts []Host, spec VMSpec, peers []Peer) map[string]Room {
	zones := map[string]Room{}
	near := countPeers(peers)
	for i := range hosts {
		host := &hosts[i]
		why := refuse(host, &spec, near)
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
			room.VMs += roomFor(host, &spec)
		}
		zones[host.Zone] = room
	}
	return zones
}

// Architectures returns what VMs of a spec may be like, as MAAS names it (amd64/generic), each once: those of the hosts that the spec asks for,
// whether they can take one now or not. It is pure.
func Architectures(hosts []Host, spec VMSpec) []string {
	var architectures []string
	for i := range hosts {
		host := &hosts[i]
		asked := !slices.ContainsFunc(wanted, func(check func(*Host, *VMSpec) reason) bool { return check(host, &spec) != fits })
		if asked && host.Architecture != "" && !slices.Contains(architectures, host.Architecture) {
			architectures = append(architectures, host.Architecture)
		}
	}
	return architectures
}

// roomFor is how many VMs a host has room for.
func roomFor(host *Host, spec *VMSpec) int {
	return min(
		maxSurveyed,
		room(host.Capacity.Cores, host.Used.Cores)/max(spec.Cores, 1),
		room(host.Capacity.Memory, host.Used.Memory)/max(spec.Memory, 1),
		roomOnDisk(host, spec.StoragePool)/max(spec.Disk, 1),
	)
}
