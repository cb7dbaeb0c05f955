// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// RetiringTag on a VM host keeps new VMs off it, also pinned ones.
const RetiringTag = "capmaas-retiring"

// leftAlone is why a host is refused that could not compose a VM lately.
const leftAlone = "left alone after failing to compose a VM"

// Peer is a VM of the same cluster that is placed already, on a host in a zone.
type Peer struct {
	VM, Host, Zone string
}

// Place chooses the host for a VM: first hosts that can't take it are filtered out, then the best is taken. It is pure:
// the same input gives the same answer. The error is an *LXDError that says why each host was refused.
func Place(hosts []Host, spec VMSpec, peers []Peer) (Host, error) {
	var fitting []Host
	refusals := map[string]int{}
	var again time.Time // when the first of those that are left alone is tried again
	for _, host := range hosts {
		why := refuse(host, spec)
		if why == "" {
			fitting = append(fitting, host)
			continue
		}
		refusals[why]++
		if why == leftAlone && (again.IsZero() || host.LeftAloneUntil.Before(again)) {
			again = host.LeftAloneUntil
		}
	}
	if len(fitting) == 0 {
		return Host{}, refusal(len(hosts), refusals, again)
	}
	return slices.MinFunc(fitting, better(spec, peers)), nil
}

// checks are asked in order; the first that refuses a host says why. Each is short for people: "in another zone".
var checks = []func(Host, VMSpec) string{
	// A pinned VM goes nowhere else, whatever the other hosts are like.
	func(h Host, s VMSpec) string {
		return when(s.HostName != "" && h.Name != s.HostName, "not "+s.HostName)
	},
	// A failure domain is a promise to the user.
	func(h Host, s VMSpec) string { return when(s.Zone != "" && h.Zone != s.Zone, "not in zone "+s.Zone) },
	func(h Host, s VMSpec) string {
		return when(s.ResourcePool != "" && h.Pool != s.ResourcePool, "not in resource pool "+s.ResourcePool)
	},
	// Tags are constraints, all of them.
	func(h Host, s VMSpec) string {
		for _, tag := range s.Tags {
			if !slices.Contains(h.Tags, tag) {
				return "without tag " + tag
			}
		}
		return ""
	},
	// MAAS registers hosts that it can't reach, with no figures; and new ones have none for a moment.
	func(h Host, _ VMSpec) string {
		return when(!h.Reachable, "not ready (MAAS does not know its resources)")
	},
	// Its machine is being deleted, and waits for the VMs that are there.
	func(h Host, _ VMSpec) string {
		return when(slices.Contains(h.Tags, RetiringTag), "being removed")
	},
	// What just failed would fail again, and others would not get their turn. A pinned VM has no other host to try.
	func(h Host, s VMSpec) string {
		return when(!h.LeftAloneUntil.IsZero() && s.HostName == "", leftAlone)
	},
	func(h Host, s VMSpec) string {
		return when(s.StoragePool != "" && storagePool(h, s.StoragePool) == nil, "without storage pool "+s.StoragePool)
	},
	func(h Host, s VMSpec) string {
		return when(s.Cores > h.Largest.Cores || s.Memory > h.Largest.Memory, "too small for the VM")
	},
	func(h Host, s VMSpec) string {
		return when(h.Used.Cores+s.Cores > h.Capacity.Cores, "out of cores")
	},
	func(h Host, s VMSpec) string {
		return when(h.Used.Memory+s.Memory > h.Capacity.Memory, "out of memory")
	},
	func(h Host, s VMSpec) string {
		return when(roomOnDisk(h, s.StoragePool) < s.Disk, "out of disk")
	},
}

func when(refused bool, why string) string {
	if refused {
		return why
	}
	return ""
}

func refuse(host Host, spec VMSpec) string {
	for _, check := range checks {
		if why := check(host, spec); why != "" {
			return why
		}
	}
	return ""
}

func storagePool(host Host, name string) *StoragePool {
	for i := range host.StoragePools {
		if pool := &host.StoragePools[i]; pool.Name == name || (name == "" && pool.Default) {
			return pool
		}
	}
	return nil
}

// roomOnDisk is what is left in GB on the storage pool that the VM would use.
func roomOnDisk(host Host, pool string) int {
	if p := storagePool(host, pool); p != nil {
		return p.Available
	}
	return host.Capacity.Disk - host.Used.Disk
}

// better orders hosts: away from the cluster's other VMs first, then to where most room is left.
func better(spec VMSpec, peers []Peer) func(a, b Host) int {
	inZone, onHost := map[string]int{}, map[string]int{}
	for _, peer := range peers {
		inZone[peer.Zone]++
		onHost[peer.Host]++
	}
	return func(a, b Host) int {
		return cmp.Or(
			cmp.Compare(inZone[a.Zone], inZone[b.Zone]),
			cmp.Compare(onHost[a.Name], onHost[b.Name]),
			cmp.Compare(load(a, spec), load(b, spec)),
			cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.ID, b.ID),
		)
	}
}

// load is the share of the scarcest resource that would be in use with the VM, in per mille.
func load(host Host, spec VMSpec) int {
	return max(
		1000*(host.Used.Cores+spec.Cores)/max(host.Capacity.Cores, 1),
		1000*(host.Used.Memory+spec.Memory)/max(host.Capacity.Memory, 1),
	)
}

// refusal sums up why no host fits, most frequent reason first.
func refusal(hosts int, refusals map[string]int, again time.Time) error {
	if hosts == 0 {
		return &LXDError{Type: HostUnavailable, Message: "MAAS has no LXD VM hosts: register one, or create a host cluster"}
	}
	reasons := make([]string, 0, len(refusals))
	short := 0
	for why, n := range refusals {
		reasons = append(reasons, why)
		if strings.HasPrefix(why, "out of ") || strings.HasPrefix(why, "too small") {
			short += n
		}
	}
	slices.SortFunc(reasons, func(a, b string) int {
		return cmp.Or(cmp.Compare(refusals[b], refusals[a]), cmp.Compare(a, b))
	})
	for i, why := range reasons {
		reasons[i] = fmt.Sprintf("%d %s", refusals[why], why)
		if why == leftAlone {
			reasons[i] += fmt.Sprintf(" (the next is tried from %s on)", again.UTC().Format(time.RFC3339))
		}
	}
	kind := HostUnavailable
	if short > 0 {
		kind = InsufficientResources
	}
	return &LXDError{Type: kind, Message: fmt.Sprintf("%d VM host(s): %s", hosts, strings.Join(reasons, ", "))}
}
