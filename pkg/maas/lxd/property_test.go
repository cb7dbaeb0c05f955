// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/test/figures"
)

// seeds are how many random fleets each property is tried on. A failure names its seed, which makes the same fleet
// again.
const seeds = 400

// forEachSeed runs a property on random fleets.
func forEachSeed(t *testing.T, property func(t *testing.T, r *rand.Rand)) {
	t.Helper()
	for seed := range uint64(seeds) {
		ok := t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { property(t, rand.New(rand.NewPCG(seed, 7))) })
		if !ok {
			return
		}
	}
}

// chance is true once in n times.
func chance(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// randomHost returns a host of any size, over-committed or not, with anything that may be wrong with a host.
func randomHost(r *rand.Rand, id int) Host {
	cores, memory, disk := 1+r.IntN(32), 1024*(1+r.IntN(64)), r.IntN(400)
	ratio := pick(r, 0.5, 1, 1, 1, 2, 7.5)
	h := Host{
		ID: id, Name: fmt.Sprintf("h%02d", id), Zone: fmt.Sprint("z", r.IntN(4)), Pool: pick(r, "default", "default", "other"),
		Reachable: !chance(r, 12), CooldownUntil: time.Unix(0, 0).Add(time.Duration(r.IntN(12)/11) * time.Hour), SeenAt: time.Unix(0, 0),
		Largest:      Resources{cores, memory, disk},
		Capacity:     Resources{int(float64(cores) * ratio), int(float64(memory) * ratio), disk},
		StoragePools: []StoragePool{{Name: "default", Available: disk, Default: true}},
	}
	h.Used = Resources{r.IntN(cores + 2), r.IntN(memory + 1), 0}
	if chance(r, 3) {
		h.StoragePools = append(h.StoragePools, StoragePool{Name: "fast", Available: r.IntN(200)})
	}
	if chance(r, 3) {
		h.Tags = []string{"ssd"}
	}
	if chance(r, 15) {
		h.Tags = append(h.Tags, RetiringTag)
	}
	if !chance(r, 3) {
		on(pick(r, "br0", "br0", "br1"), "10.0.0.0/24")(&h)
		h.Machine.Off = chance(r, 15)
		h.Machine.State = pick(r, "", "", "", "", "", "", "Releasing")
	}
	return h
}

func randomFleet(r *rand.Rand) []Host {
	hosts := make([]Host, 1+r.IntN(14))
	for i := range hosts {
		hosts[i] = randomHost(r, i+1)
	}
	return hosts
}

func randomSpec(r *rand.Rand, hosts []Host) VMSpec {
	spec := small
	spec.Resources = Resources{1 + r.IntN(8), 1024 * (1 + r.IntN(12)), 8 + r.IntN(60)}
	set := func(n int, change func()) {
		if chance(r, n) {
			change()
		}
	}
	set(5, func() { spec.Zone = fmt.Sprint("z", r.IntN(4)) })
	set(6, func() { spec.ResourcePool = "default" })
	set(8, func() { spec.Tags = []string{"ssd"} })
	set(8, func() { spec.StoragePool = pick(r, "default", "fast", "none") })
	set(4, func() { spec.MoreDisks = []Disk{{Size: 1 + r.IntN(40), Pool: pick(r, "", "default", "fast")}} })
	set(8, func() { spec.HostName = pick(r, hosts...).Name })
	set(6, func() { spec.Devices = []Device{{Name: "eth0", Bridge: "br0"}} })
	set(4, func() { spec.AntiAffinity = RequireApart })
	return spec
}

func randomPeers(r *rand.Rand, hosts []Host) []Peer {
	peers := make([]Peer, r.IntN(8))
	for i := range peers {
		host := pick(r, hosts...)
		peers[i] = Peer{VM: fmt.Sprint("peer-", i), Host: host.Name, Zone: host.Zone}
		if chance(r, 5) {
			peers[i].Host = ""
		}
	}
	return peers
}

// TestNoHostIsOverbooked places VMs of any size one after the other, while some are composed, canceled or in doubt and
// figures are read now and then: a host never has more than MAAS allows.
func TestNoHostIsOverbooked(t *testing.T) {
	forEachSeed(t, func(t *testing.T, r *rand.Rand) {
		b := newBook(t, randomFleet(r)...)
		truth := slices.Clone(b.hosts) // What is really there, which the figures show when they are read.
		for i := range truth {
			truth[i].StoragePools = slices.Clone(truth[i].StoragePools)
		}
		composing := map[string]VMSpec{}
		for step := range 60 {
			b.pass(time.Second)
			if chance(r, 4) {
				for i := range truth {
					b.hosts[i].Used, b.hosts[i].StoragePools, b.hosts[i].SeenAt = truth[i].Used, slices.Clone(truth[i].StoragePools), b.now
				}
				b.pass(time.Millisecond)
			}
			for vm, spec := range composing {
				if end := r.IntN(4); end > 0 {
					finish(b, truth, vm, spec, end)
					delete(composing, vm)
				}
				break
			}
			spec := randomSpec(r, b.hosts)
			spec.Hostname = fmt.Sprint("vm-", step)
			host, err := b.Reservations.Place(b.hosts, spec, nil)
			if err != nil {
				continue
			}
			spec.HostName = host.Name
			composing[spec.Hostname] = spec
		}
		for vm, spec := range composing {
			finish(b, truth, vm, spec, 1)
		}
	})
}

// finish ends a compose: 1 made, 2 refused, 3 made and MAAS's response lost. It fails if MAAS would have refused.
func finish(b *book, truth []Host, vm string, spec VMSpec, how int) {
	b.t.Helper()
	if how == 2 {
		b.cancel(vm)
		return
	}
	h := &truth[slices.IndexFunc(truth, func(h Host) bool { return h.Name == spec.HostName })]
	for _, disk := range spec.disks() {
		h.Used.Disk += disk.Size
		storagePool(h, disk.Pool).Available -= disk.Size
	}
	h.Used.Cores, h.Used.Memory = h.Used.Cores+spec.Cores, h.Used.Memory+spec.Memory
	isFull := func(pool StoragePool) bool { return pool.Available < 0 }
	if h.Used.Cores > h.Capacity.Cores || h.Used.Memory > h.Capacity.Memory || slices.ContainsFunc(h.StoragePools, isFull) {
		b.t.Errorf("host %s is overbooked: %+v of %+v, its pools have %+v", h.Name, h.Used, h.Capacity, h.StoragePools)
	}
	if how == 1 {
		b.settle(vm)
	} else {
		b.doubt(vm)
	}
}

// TestVMsAreSpreadWithinOneOfTheBest places equal VMs: no zone has two more than another with room for one more, and no
// host two more than another one of its zone.
func TestVMsAreSpreadWithinOneOfTheBest(t *testing.T) {
	forEachSeed(t, func(t *testing.T, r *rand.Rand) {
		hosts := randomFleet(r)
		spec := randomSpec(r, hosts)
		count := 1 + r.IntN(12)
		chosen, err := distribute(hosts, spec, count)
		if (err == nil) != (len(chosen) == count) {
			t.Fatalf("%d of %d VMs were placed, and the error is %v", len(chosen), count, err)
		}
		near := countPeers(nil, nil)
		after := slices.Clone(hosts)
		for _, host := range chosen {
			near.add(host.Name, host.Zone)
			at := slices.IndexFunc(after, func(h Host) bool { return h.ID == host.ID })
			take(&after[at], spec.Footprint())
		}
		for i := range after {
			if refuse(&after[i], &spec, near) != fits {
				continue
			}
			free := after[i]
			for zone := range near.inZone {
				if n, least := near.inZone[zone], near.inZone[free.Zone]; n > least+1 {
					t.Errorf("zone %s has %d VMs and %s, with room on %s, has %d", zone, n, free.Zone, free.Name, least)
				}
			}
			for _, other := range hosts {
				n, least := near.onHost[other.Name], near.onHost[free.Name]
				if other.Zone == free.Zone && n > least+1 {
					t.Errorf("host %s has %d VMs and %s, with room, has %d", other.Name, n, free.Name, least)
				}
			}
		}
		if spec.AntiAffinity == RequireApart {
			for name := range near.onHost {
				if n := near.onHost[name]; n > 1 {
					t.Errorf("host %s has %d VMs that must be apart", name, n)
				}
			}
		}
	})
}

func TestTheOrderOfHostsAndPeersDoesNotMatter(t *testing.T) {
	forEachSeed(t, func(t *testing.T, r *rand.Rand) {
		hosts := randomFleet(r)
		if chance(r, 3) { // Where nothing else decides, the name does.
			for i := range hosts {
				hosts[i] = host(hosts[i].Name, "z0", on("br0"))
			}
		}
		spec, peers := randomSpec(r, hosts), randomPeers(r, hosts)
		first, wrong := placed(hosts, spec, peers)
		for range 5 {
			r.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
			r.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
			again, err := placed(hosts, spec, peers)
			if again.Name != first.Name {
				t.Fatalf("the response was %q and is %q", first.Name, again.Name)
			}
			if diff := cmp.Diff(fmt.Sprint(wrong), fmt.Sprint(err)); diff != "" {
				t.Fatalf("the refusal differs:\n%s", diff)
			}
		}
	})
}

var counts = regexp.MustCompile(`(?:: |, )(\d+) `)

func TestARefusalHasAReasonForEveryHost(t *testing.T) {
	refusals := 0
	forEachSeed(t, func(t *testing.T, r *rand.Rand) {
		hosts := randomFleet(r)
		_, err := placed(hosts, randomSpec(r, hosts), randomPeers(r, hosts))
		if err == nil {
			return
		}
		refusals++
		var refused *LXDError
		if !errors.As(err, &refused) || (refused.Type != HostUnavailable && refused.Type != InsufficientResources) {
			t.Fatalf("the error is %#v", err)
		}
		total := 0
		for _, found := range counts.FindAllStringSubmatch(refused.Message, -1) {
			n, _ := strconv.Atoi(found[1])
			total += n
		}
		if total != len(hosts) {
			t.Errorf("%q has the reason for %d of %d hosts", refused.Message, total, len(hosts))
		}
	})
	if refusals < seeds/20 {
		t.Errorf("only %d of %d tries were refused", refusals, seeds)
	}
}

// TestAnotherHostNeverHurts adds hosts to a fleet: what could be placed still can, and so can at least as many VMs.
func TestAnotherHostNeverHurts(t *testing.T) {
	forEachSeed(t, func(t *testing.T, r *rand.Rand) {
		hosts := randomFleet(r)
		spec, peers := randomSpec(r, hosts), randomPeers(r, hosts)
		_, before := placed(hosts, spec, peers)
		fewer, _ := distribute(hosts, spec, 20)
		more := append(slices.Clone(hosts), randomHost(r, len(hosts)+1))
		if _, err := placed(more, spec, peers); before == nil && err != nil {
			t.Errorf("with another host nothing fits: %v", err)
		}
		if chosen, _ := distribute(more, spec, 20); len(chosen) < len(fewer) {
			t.Errorf("%d VMs could be placed, with another host %d", len(fewer), len(chosen))
		}
	})
}

// benchFleet is 1,000 hosts in 10 zones, with 10,000 VMs of one cluster on them.
func benchFleet() ([]Host, []Peer) {
	var hosts []Host
	for i := range 1000 {
		hosts = append(hosts, host(fmt.Sprintf("h%04d", i), fmt.Sprintf("z%d", i%10), used(i%14, 0), on("br0", "10.0.0.0/24")))
	}
	var peers []Peer
	for i := range 10000 {
		peers = append(peers, Peer{VM: fmt.Sprint(i), Host: hosts[i%1000].Name, Zone: hosts[i%1000].Zone})
	}
	return hosts, peers
}

// The work for one VM among 1,000 hosts is told by what is allocated for it, which is the same on every machine.
func TestWorkForAPlacement(t *testing.T) {
	hosts, peers := benchFleet()
	counted := countPeers(peers, hosts)
	spec := with(func(s *VMSpec) { s.Zone, s.StoragePool = "z3", "default" })
	allocations := testing.AllocsPerRun(10, func() {
		if _, err := place(hosts, &spec, counted); err != nil {
			t.Fatal(err)
		}
	})
	figures.Check(t, "placement among 1,000 hosts", "allocations", int(allocations))
}

func BenchmarkPlace(b *testing.B) {
	hosts, peers := benchFleet()
	for name, spec := range map[string]VMSpec{
		"any host": small,
		"a zone and a bridge": with(func(s *VMSpec) {
			s.Zone, s.Devices, s.StoragePool = "z3", []Device{{Name: "eth0", Bridge: "br0"}}, "default"
		}),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := placed(hosts, spec, peers); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// distribute returns the hosts for a number of equal VMs of a new cluster, in the order of placement.
func distribute(hosts []Host, spec VMSpec, count int) ([]Host, error) {
	hosts = slices.Clone(hosts)
	near := countPeers(nil, nil)
	var chosen []Host
	for range count {
		host, err := place(hosts, &spec, near)
		if err != nil {
			return chosen, err
		}
		chosen = append(chosen, host)
		near.add(host.Name, host.Zone)
		take(&hosts[indexOf(hosts, host)], spec.Footprint())
	}
	return chosen, nil
}

// indexOf returns where a host is in a list that it was chosen from.
func indexOf(hosts []Host, chosen Host) int {
	return slices.IndexFunc(hosts, func(h Host) bool { return h.Key() == chosen.Key() })
}
