// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
)

// RetiringTag on a VM host keeps new VMs off it, also pinned ones.
const RetiringTag = "capmaas-retiring"

// coolingDown is why a host that recently failed is refused.
const coolingDown = "skipped after it failed to "

// Peer is a VM of the same cluster that is already placed on a host in a zone. A machine that is no VM has no host, but
// counts for its zone.
type Peer struct {
	VM, Host, Zone string
	// Ref is the recorded reference to the host (see HostRef), which may be called something else by now; "": none is.
	Ref string
}

// AntiAffinity decides what happens with a host that already has a VM of the same cluster.
type AntiAffinity int

const (
	// PreferApart prefers other hosts, and takes this one if there is no other.
	PreferApart AntiAffinity = iota
	// RequireApart refuses the host.
	RequireApart
)

// place chooses the host for a VM: it filters out the hosts that can't take it, and returns the best of the rest. It is
// pure: the same input gives the same result, in whatever order hosts and peers come. The error is an *LXDError with
// the reason for each host.
func place(hosts []Host, spec *VMSpec, near *neighbours) (Host, error) {
	best := -1
	for i := range hosts {
		if refuse(&hosts[i], spec, near) != fits {
			continue
		}
		if best < 0 || near.compare(&hosts[i], &hosts[best], spec) < 0 {
			best = i
		}
	}
	if best < 0 {
		return Host{}, refusal(hosts, spec, near)
	}
	return hosts[best], nil
}

// reason is why a host can't take a VM, in two parts that make up the text: "not in zone " and "a". So no text is put
// together for the hosts that can.
type reason struct{ why, what string }

// fits is no reason.
var fits reason

func (r reason) String() string { return r.why + r.what }

// lacksRoom reports whether the host lacks resources.
func (r reason) lacksRoom() bool { return r.why == outOf || r.why == tooSmall }

// passes reports whether the host can take the VM as soon as others leave it.
func (r reason) passes() bool { return r.why == outOf || r.why == together }

const (
	outOf     = "out of "
	tooSmall  = "too small for the VM in "
	together  = "with another VM of this cluster"
	tooNew    = "on an LXD that is too new for MAAS, "
	notPinned = "not "
	notInZone = "not in zone "
	notInPool = "not in resource pool "

	ofCores  = "cores"
	ofMemory = "memory"
	ofDisk   = "disk"

	withoutSubnet      = "without a subnet for bridge "
	withoutOwnBridge   = "without the bridge that the LXDHost names, "
	withoutOwnPool     = "without the storage pool that the LXDHost names, "
	withoutNameservers = "without name servers for subnet "
	noSecureBoot       = "VM hosts of MAAS, which boot VMs without secure boot"
	unsignedImage      = "where the image is not signed for secure boot, "
)

func when(refused bool, why, what string) reason {
	if refused {
		return reason{why, what}
	}
	return fits
}

// wanted check what the spec asks of a host, regardless of the host's current state.
var wanted = []func(*Host, *VMSpec) reason{
	// A pinned VM has no other host.
	func(h *Host, s *VMSpec) reason {
		return when(s.HostName != "" && h.Name != s.HostName, notPinned, s.HostName)
	},
	// A failure domain is a promise to the user.
	func(h *Host, s *VMSpec) reason { return when(s.Zone != "" && h.Zone != s.Zone, notInZone, s.Zone) },
	func(h *Host, s *VMSpec) reason {
		return when(s.ResourcePool != "" && h.Pool != s.ResourcePool, notInPool, s.ResourcePool)
	},
	func(h *Host, s *VMSpec) reason {
		return when(h.Object != nil && !h.Object.Allows(s.Namespace), "not for namespace ", s.Namespace)
	},
	// Tags are constraints: all must match.
	func(h *Host, s *VMSpec) reason {
		lacks := list.First(s.Tags, func(tag string) bool { return !slices.Contains(h.Tags, tag) })
		return when(lacks != "", "without tag ", lacks)
	},
	func(h *Host, s *VMSpec) reason {
		has := list.First(s.NotTags, func(tag string) bool { return slices.Contains(h.Tags, tag) })
		return when(has != "", "with tag ", has)
	},
}

// isWanted reports whether a host is what the spec asks for, whatever its state.
func isWanted(host *Host, spec *VMSpec) bool {
	return !slices.ContainsFunc(wanted, func(check func(*Host, *VMSpec) reason) bool { return check(host, spec) != fits })
}

// checks run in order; the first that refuses a host gives the reason. Each is short and made for people: "in another
// zone".
var checks = append(slices.Clip(wanted), []func(*Host, *VMSpec) reason{
	// MAAS registers hosts that it can't reach, with no figures; new ones have none for a moment.
	func(h *Host, _ *VMSpec) reason {
		if h.IsDirect() {
			return when(!h.Reachable, "not ready (see its LXDHost)", "")
		}
		return when(!h.Reachable, "not ready (MAAS does not know its resources)", "")
	},
	// MAAS would find no endpoint for VMs there.
	func(h *Host, _ *VMSpec) reason { return when(h.TooNew != "", tooNew, h.TooNew) },
	// A person has cordoned it.
	func(h *Host, _ *VMSpec) reason {
		return when(h.Object != nil && h.Object.Unschedulable, "unschedulable", "")
	},
	// MAAS would refuse the VM.
	func(h *Host, _ *VMSpec) reason {
		if h.Forbidden == nil {
			return fits
		}
		lacks := cmp.Or(rights.Describe(h.Forbidden.Missing, h.Forbidden.Pool), "an administrator's rights")
		return reason{"not for the API key, which lacks ", lacks}
	},
	// The image would not boot there.
	func(h *Host, s *VMSpec) reason {
		return when(h.IsDirect() && s.Image != "" && !slices.Contains(h.Images, s.Image), "without image ", s.Image)
	},
	// The VM would have no address.
	func(h *Host, s *VMSpec) reason {
		if !h.IsDirect() || h.Object.subnetOf(s.cards()[0]).IsValid() {
			return fits
		}
		return reason{withoutSubnet, h.Object.bridgeOf(s.cards()[0])}
	},
	// Its node could resolve no name.
	(*Host).resolvesNothing,
	func(h *Host, s *VMSpec) reason {
		if h.IsDirect() {
			return fits
		}
		processor, _, _ := strings.Cut(h.Architecture, "/")
		return when(s.NoMAASImage || len(s.Processors) > 0 && processor != "" && !slices.Contains(s.Processors, processor),
			"of an architecture that MAAS has no such image for: ", processor)
	},
	isRetiring,
	// The machine is not running.
	func(h *Host, _ *VMSpec) reason { return h.Machine.down() },
	func(h *Host, s *VMSpec) reason {
		return when(slices.ContainsFunc(s.MayBeOn, h.isOtherProjectOf), "an LXD that may have the VM in another project", "")
	},
	// It would probably fail again, and delay other VMs. A pinned VM has no other host to try.
	func(h *Host, s *VMSpec) reason {
		return when(!h.CooldownUntil.IsZero() && s.HostName == "", coolingDown, h.FailedTo)
	},
	func(h *Host, s *VMSpec) reason {
		isMissing := func(disk Disk) bool { return disk.Pool != "" && storagePool(h, disk.Pool) == nil }
		missing := list.First(s.disks(), isMissing).Pool
		return when(missing != "", "without storage pool ", missing)
	},
	// LXD would refuse the VM.
	(*Host).lacksItsOwn,
	givesDevices,
	bootsSecurely,
	func(h *Host, s *VMSpec) reason { return h.Machine.unconnected(s.Devices) },
	// Network cards are named in the order of the devices.
	func(h *Host, s *VMSpec) reason {
		for i := range s.Devices {
			if wanted := fmt.Sprintf("eth%d", i); h.IsDirect() && s.Devices[i].Name != wanted {
				return reason{"where the network devices are named eth0, eth1 and so on, not ", s.Devices[i].Name}
			}
		}
		return fits
	},
	func(h *Host, s *VMSpec) reason {
		return when(s.Cores > h.Largest.Cores, tooSmall, ofCores)
	},
	func(h *Host, s *VMSpec) reason {
		return when(s.Memory > h.Largest.Memory, tooSmall, ofMemory)
	},
	func(h *Host, s *VMSpec) reason {
		return when(s.Cores > room(h.Capacity.Cores, h.Used.Cores), outOf, ofCores)
	},
	func(h *Host, s *VMSpec) reason {
		return when(s.Memory > room(h.Capacity.Memory, h.Used.Memory), outOf, ofMemory)
	},
	func(h *Host, s *VMSpec) reason {
		_, isFull := fullPool(h, s)
		return when(isFull, outOf, ofDisk)
	},
}...)

// isRetiring refuses a host whose machine is being deleted, and waits for its VMs.
func isRetiring(h *Host, _ *VMSpec) reason {
	return when(slices.Contains(h.Tags, RetiringTag), "being removed", "")
}

// lacksItsOwn returns what a direct host lacks of what its LXDHost names, for a VM whose spec names no other.
func (h *Host) lacksItsOwn(s *VMSpec) reason {
	if !h.IsDirect() {
		return fits
	}
	isOnOwn := func(disk Disk) bool { return disk.Pool == "" }
	if slices.ContainsFunc(s.disks(), isOnOwn) && storagePool(h, "") == nil {
		return reason{withoutOwnPool, h.Object.StoragePool}
	}
	own := []Device{{Bridge: h.Object.Bridge}}
	return when(len(s.Devices) == 0 && h.Machine.unconnected(own) != fits, withoutOwnBridge, h.Object.Bridge)
}

func refuse(host *Host, spec *VMSpec, near *neighbours) reason {
	for _, check := range checks {
		if why := check(host, spec); why != fits {
			return why
		}
	}
	return when(spec.AntiAffinity == RequireApart && near.onHost[host.Name] > 0, together, "")
}

// room returns what is left. A wrong figure of MAAS never makes it more than the capacity.
func room(capacity, used int) int {
	return max(capacity, 0) - max(used, 0)
}

// sum does not wrap around: a huge number must not become a small one.
func sum(a, b int) int {
	if s := a + b; (s > a) == (b > 0) {
		return s
	}
	if b > 0 {
		return math.MaxInt
	}
	return math.MinInt
}

func storagePool(host *Host, name string) *StoragePool {
	return list.Find(host.StoragePools, func(pool StoragePool) bool {
		return pool.Name == name || (name == "" && pool.Default)
	})
}

// roomOnDisk returns the free GB of the storage pool that the VM would use. Without a default pool, MAAS takes any that
// is large enough.
func roomOnDisk(host *Host, pool string) int {
	if p := storagePool(host, pool); p != nil {
		return p.Available
	}
	if len(host.StoragePools) == 0 {
		return room(host.Capacity.Disk, host.Used.Disk)
	}
	most := math.MinInt
	for i := range host.StoragePools {
		most = max(most, host.StoragePools[i].Available)
	}
	return most
}

// onPools adds disks up by the storage pool that they are in on a host.
func onPools(host *Host, disks []Disk) []Disk {
	pools := make([]Disk, 0, len(disks))
	for _, disk := range disks {
		if pool := storagePool(host, disk.Pool); pool != nil {
			disk.Pool = pool.Name
		}
		if at := slices.IndexFunc(pools, func(p Disk) bool { return p.Pool == disk.Pool }); at >= 0 {
			pools[at].Size = sum(pools[at].Size, disk.Size)
			continue
		}
		pools = append(pools, disk)
	}
	return pools
}

// fullPool returns the first storage pool of a host that lacks room for a VM's disks, with their size, if there is one.
func fullPool(h *Host, s *VMSpec) (Disk, bool) {
	pools := onPools(h, s.disks())
	at := slices.IndexFunc(pools, func(pool Disk) bool { return pool.Size > roomOnDisk(h, pool.Pool) })
	if at < 0 {
		return Disk{}, false
	}
	return pools[at], true
}

// neighbours count the cluster's other VMs, by zone and by host.
type neighbours struct {
	inZone, onHost map[string]int
}

// countPeers counts peers on hosts of these by the names that the hosts have now.
func countPeers(peers []Peer, hosts []Host) *neighbours {
	near := &neighbours{map[string]int{}, map[string]int{}}
	names := map[string]string{} // by reference: many VMs have the same one
	for i := range peers {
		ref, name := peers[i].Ref, peers[i].Host
		if _, asked := names[ref]; ref != "" && !asked {
			if host := HostOf(hosts, ref, name); host != nil {
				names[ref] = host.Name
			}
		}
		near.add(cmp.Or(names[ref], name), peers[i].Zone)
	}
	return near
}

// add counts a VM; a machine that is no VM has no host, but a zone.
func (n *neighbours) add(host, zone string) {
	n.inZone[zone]++
	if host != "" {
		n.onHost[host]++
	}
}

// compare orders hosts: away from the cluster's other VMs first, then by the most room left.
func (n *neighbours) compare(a, b *Host, spec *VMSpec) int {
	if a.Zone != b.Zone {
		if by := cmp.Compare(n.inZone[a.Zone], n.inZone[b.Zone]); by != 0 {
			return by
		}
	}
	if by := cmp.Compare(n.onHost[a.Name], n.onHost[b.Name]); by != 0 {
		return by
	}
	return cmp.Or(
		cmp.Compare(load(a, spec), load(b, spec)),
		cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.ID, b.ID),
	)
}

// load returns the share of the scarcest resource that would be in use with the VM.
func load(host *Host, spec *VMSpec) float64 {
	return max(
		(float64(host.Used.Cores)+float64(spec.Cores))/float64(max(host.Capacity.Cores, 1)),
		(float64(host.Used.Memory)+float64(spec.Memory))/float64(max(host.Capacity.Memory, 1)),
	)
}

// maxHostsNamed is how many hosts a message names for one reason.
const maxHostsNamed = 3

// fields are those of the spec that refuse a host, by the reason.
var fields = map[string]string{
	notInZone: ", which is the failure domain", notInPool: ", as in spec.resourcePool",
	"without tag ": ", as in spec.tags", "with tag ": ", as in spec.notTags",
	"without storage pool ": ", as in spec.lxdConfig.storage", "without bridge ": ", as in spec.lxdConfig.network",
	"without an address in subnet ": ", as in spec.lxdConfig.network",
	"without image ":                ", as in spec.image: `capmaasctl image upload --lxd-host` brings it there",
	tooNew:                          ": " + lxdapi.NotForMAASRemedy,
	withoutSubnet: ": set spec.subnet of the LXDHost to MAAS's subnet on its spec.networkBridge, which the first " +
		"network device must be on",
	noSecureBoot: ": remove spec.lxdConfig.secureBoot, or use LXDHosts with spec.address",
	unsignedImage: ": bring one without the property requirements.secureboot=false, or remove " +
		"spec.lxdConfig.secureBoot",
	withoutOwnBridge:   ": make it on the host, or change spec.networkBridge of the LXDHost",
	withoutOwnPool:     ": make it on the host, or change spec.storagePool of the LXDHost",
	withoutNameservers: ": set spec.nameservers of the LXDHost, or the subnet's DNS servers in MAAS (dns_servers)",
}

// field names the field of the spec that refuses some of all hosts, with what there is instead.
func field(why reason, refused []*Host, all []Host, spec *VMSpec) string {
	// most returns a figure of the host that has the most of it.
	most := func(figure func(*Host) int) int {
		return max(0, figure(slices.MaxFunc(refused, func(a, b *Host) int { return cmp.Compare(figure(a), figure(b)) })))
	}
	switch why {
	case reason{tooSmall, ofCores}:
		return fmt.Sprintf(", as spec.minCPU is %d, and the largest has %d",
			spec.Cores, most(func(h *Host) int { return h.Largest.Cores }))
	case reason{tooSmall, ofMemory}:
		return fmt.Sprintf(", as spec.minMemory is %d MiB, and the largest has %d",
			spec.Memory, most(func(h *Host) int { return h.Largest.Memory }))
	case reason{outOf, ofCores}:
		return fmt.Sprintf(", as spec.minCPU is %d, and at most %d are free on one",
			spec.Cores, most(func(h *Host) int { return room(h.Capacity.Cores, h.Used.Cores) }))
	case reason{outOf, ofMemory}:
		return fmt.Sprintf(", as spec.minMemory is %d MiB, and at most %d are free on one",
			spec.Memory, most(func(h *Host) int { return room(h.Capacity.Memory, h.Used.Memory) }))
	case reason{outOf, ofDisk}:
		wanted, _ := fullPool(refused[0], spec)
		free := func(h *Host) int {
			pool, _ := fullPool(h, spec)
			return roomOnDisk(h, pool.Pool)
		}
		return fmt.Sprintf(", as the VM's disks (spec.minDiskSize, spec.lxdConfig) take %d GB of a storage pool, and at "+
			"most %d are free on one", wanted.Size, most(free))
	}
	switch why.why {
	case notPinned:
		return pinnedTo(all, spec)
	case notInZone:
		return fields[why.why] + butIn(refused, func(h *Host) string { return h.Zone })
	case notInPool:
		return fields[why.why] + butIn(refused, func(h *Host) string { return h.Pool })
	}
	return fields[why.why]
}

// butIn names where hosts are instead.
func butIn(refused []*Host, place func(*Host) string) string {
	return ", but in " + text.List(sets.List(sets.New(list.Each(refused, place)...)), maxHostsNamed)
}

// pinnedTo names the field that refuses all hosts but one, and says whether there is that one.
func pinnedTo(all []Host, spec *VMSpec) string {
	const named = ", as in spec.lxdConfig.vmHost"
	switch {
	case slices.ContainsFunc(all, func(h Host) bool { return h.Name == spec.HostName }):
		return named
	case spec.Project != "" || spec.Profile != "":
		return named + ", and none with the spec's LXD project and profile has that name"
	}
	return named + ", and no host has that name"
}

// refusal sums up why no host fits, the most frequent reason first.
func refusal(hosts []Host, spec *VMSpec, near *neighbours) error {
	if len(hosts) == 0 {
		return &LXDError{Type: HostUnavailable, Message: "MAAS has no LXD VM hosts: register one, or create a host cluster"}
	}
	refused := map[reason][]*Host{}
	kind := HostUnavailable
	var again time.Time // when the first of the skipped hosts is tried again
	for i := range hosts {
		why := refuse(&hosts[i], spec, near)
		if until := hosts[i].CooldownUntil; why.why == coolingDown && (again.IsZero() || until.Before(again)) {
			again = until
		}
		refused[why] = append(refused[why], &hosts[i])
		if why.lacksRoom() {
			kind = InsufficientResources
		}
	}
	order := slices.SortedFunc(maps.Keys(refused), func(a, b reason) int {
		return cmp.Or(cmp.Compare(len(refused[b]), len(refused[a])), cmp.Compare(a.String(), b.String()))
	})
	parts := make([]string, 0, len(order))
	for _, why := range order {
		names := list.Each(refused[why], func(h *Host) string { return h.Name })
		slices.Sort(names) // Always name the same ones.
		named := text.List(names, maxHostsNamed)
		if why.why == coolingDown {
			named += fmt.Sprintf("; the next is tried from %s on", again.UTC().Format(time.RFC3339))
		}
		parts = append(parts, fmt.Sprintf("%d %s (%s)%s", len(names), why, named, field(why, refused[why], hosts, spec)))
	}
	return &LXDError{Type: kind, Message: fmt.Sprintf(
		"%d host(s): %s: add, free or mend hosts, or change the template", len(hosts), strings.Join(parts, ", "))}
}
