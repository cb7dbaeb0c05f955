// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// book is a fleet of equal hosts, and its reservations at a time that tests move.
type book struct {
	*Reservations
	t     *testing.T
	now   time.Time
	hosts []Host
}

func newBook(t *testing.T, hosts ...Host) *book {
	b := &book{Reservations: NewReservations(), t: t, now: time.Unix(1000, 0), hosts: hosts}
	b.clock = func() time.Time { return b.now }
	b.readFigures()
	return b
}

// readFigures reads the hosts' figures now.
func (b *book) readFigures() {
	for i := range b.hosts {
		b.hosts[i].SeenAt = b.now
	}
}

func (b *book) pass(d time.Duration) { b.now = b.now.Add(d) }

func (b *book) place(vm string, change ...func(*VMSpec)) string {
	b.t.Helper()
	host, err := b.Reservations.Place(b.hosts, with(func(s *VMSpec) {
		s.Hostname = vm
		for _, c := range change {
			c(s)
		}
	}), nil)
	if err != nil {
		return ""
	}
	return host.Name
}

// whole is a VM that needs a whole host.
func whole(s *VMSpec) { s.Cores = 16 }

func TestReservationsKeepParallelPlacementsApart(t *testing.T) {
	b := newBook(t, host("a1", "a"), host("b1", "b"), host("c1", "c"))
	if got := []string{b.place("1"), b.place("2"), b.place("3")}; !cmp.Equal(got, []string{"a1", "b1", "c1"}) {
		t.Errorf("three VMs of one cluster went to %v", got)
	}
	t.Run("a canceled one gives its room back", func(t *testing.T) {
		b.cancel("2")
		if got := b.place("4"); got != "b1" {
			t.Errorf("placed on %s, want b1", got)
		}
	})
	t.Run("one that is placed again leaves its place", func(t *testing.T) {
		if got := b.place("3"); got != "c1" {
			t.Errorf("placed on %s, want c1 again", got)
		}
	})
}

func TestAReservationCountsUntilTheFiguresShowTheVM(t *testing.T) {
	b := newBook(t, host("a1", "a"))
	placed := func(vm string) bool { defer b.cancel(vm); return b.place(vm, whole) != "" }
	if b.place("1") != "a1" || placed("2") {
		t.Fatal("a host that is reserved was taken")
	}
	b.pass(time.Hour)
	b.readFigures()
	if placed("2") {
		t.Error("a compose that takes long lost its reservation")
	}
	b.settle("1")
	if placed("2") {
		t.Error("figures that are as old as the VM were trusted")
	}
	older := b.hosts[0]
	b.pass(time.Second)
	b.readFigures()
	if !placed("2") {
		t.Error("newer figures were not trusted")
	}
	t.Run("also for those who read older figures after others read newer ones", func(t *testing.T) {
		b.hosts[0] = older
		if placed("2") {
			t.Error("a host was taken that is full")
		}
	})
	t.Run("and not for ever", func(t *testing.T) {
		b.pass(figuresMaxAge + time.Second)
		b.place("other")
		if _, held := b.byVM[vmKey("1")]; held {
			t.Error("a reservation is kept that nobody needs")
		}
	})
}

func TestAVMInDoubtKeepsItsRoomForAWhile(t *testing.T) {
	b := newBook(t, host("a1", "a"), host("a2", "a"))
	first := b.place("1", whole)
	b.doubt("1")
	b.pass(doubtMaxAge - time.Second)
	b.readFigures()
	if got := b.place("2", whole); got == first || got == "" {
		t.Errorf("placed on %q, where a VM may still appear that went to %s", got, first)
	}
	b.pass(2 * time.Second)
	b.readFigures()
	if got := b.place("3", whole); got != first {
		t.Errorf("placed on %q, want %s, which is free after all", got, first)
	}
}

func TestWhatBecameOfTheVMDecidesWhetherItsRoomIsKept(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		kept bool
	}{
		"it was composed":      {nil, true},
		"MAAS did not answer":  {&maas.Error{Kind: maas.Unavailable}, true},
		"MAAS refused":         {&maas.Error{Kind: maas.Invalid}, false},
		"MAAS lacks the host":  {&maas.Error{Kind: maas.NotFound}, false},
		"MAAS has no VM hosts": {&maas.Error{Kind: maas.Gone}, false},
	} {
		t.Run(name, func(t *testing.T) {
			fleet := &hosts{list: []Host{host("a1", "a")}, err: tc.err}
			s := NewService(fleet, NewReservations())
			pinned := func(vm string) VMSpec {
				return with(func(v *VMSpec) { v.Hostname, v.HostName = vm, "a1"; whole(v) })
			}
			if _, err := compose(t, s, pinned("1")); !errors.Is(err, tc.err) {
				t.Fatalf("composing: %v", err)
			}
			fleet.err = nil
			var refused *LXDError
			_, err := compose(t, s, pinned("2"))
			if kept := errors.As(err, &refused) && refused.Type == InsufficientResources; kept != tc.kept {
				t.Errorf("another VM: %v; the room is kept: %t, want %t", err, kept, tc.kept)
			}
		})
	}
}

func TestReservedVMsArePeersOnce(t *testing.T) {
	known := []Peer{{VM: "1", Host: "a1", Zone: "a"}}
	for name, tc := range map[string]struct {
		cluster string
		peers   []Peer
		then    func(*book)
		want    int
	}{
		"of their cluster":                        {small.Cluster, nil, func(*book) {}, 1},
		"once, where they are known":              {small.Cluster, known, func(*book) {}, 1},
		"not of others":                           {"another", nil, func(*book) {}, 0},
		"composed, and not yet known":             {small.Cluster, nil, func(b *book) { b.settle("1"); b.pass(figuresMaxAge) }, 1},
		"composed, known, and gone since":         {small.Cluster, nil, func(b *book) { b.settle("1"); b.addReserved(countPeers(nil, nil), known, small.Cluster) }, 0},
		"composed, and deleted":                   {small.Cluster, nil, func(b *book) { b.settle("1"); b.gone("1") }, 0},
		"composed, and known since":               {small.Cluster, known, func(b *book) { b.settle("1"); b.addReserved(countPeers(nil, nil), known, small.Cluster) }, 1},
		"perhaps there, and it may still show up": {small.Cluster, nil, func(b *book) { b.doubt("1"); b.pass(doubtMaxAge) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(t, host("a1", "a"), host("b1", "b"))
			b.place("1")
			tc.then(b)
			near := countPeers(tc.peers, nil)
			b.addReserved(near, tc.peers, tc.cluster)
			if got := near.onHost["a1"]; got != tc.want {
				t.Errorf("%d peers are on the host, want %d", got, tc.want)
			}
		})
	}
}

func TestAVMInDoubtThatTurnedUpCountsAsOthersDo(t *testing.T) {
	b := newBook(t, host("a1", "a"))
	b.place("1", whole)
	b.doubt("1")
	if _, err := b.Reservations.Place(b.hosts, with(func(s *VMSpec) { s.Hostname = "2" }), []Peer{{VM: "1", Host: "a1", Zone: "a"}}); err == nil {
		t.Fatal("a host was taken that is full")
	}
	b.pass(time.Second)
	b.readFigures()
	if b.place("2", whole) == "" {
		t.Error("newer figures were not trusted")
	}
}

func TestReservationsTakeDiskOfTheRightPool(t *testing.T) {
	pools := func(list ...StoragePool) func(*Host) { return func(h *Host) { h.StoragePools = list } }
	disk := func(gb int, pool string) func(*VMSpec) {
		return func(s *VMSpec) { s.Disk, s.StoragePool = gb, pool }
	}
	more := func(root, gb int, pool string) func(*VMSpec) {
		return func(s *VMSpec) { s.Disk, s.MoreDisks = root, []Disk{{gb, pool}} }
	}
	for name, tc := range map[string]struct {
		host          Host
		first, second func(*VMSpec)
		fits          bool
	}{
		"its own":                       {host("a1", "a"), disk(300, ""), disk(300, ""), false},
		"its own, and leave others":     {host("a1", "a", pools(StoragePool{"x", 300, true}, StoragePool{"y", 300, false})), disk(300, "y"), disk(300, "x"), true},
		"the default's, by its name":    {host("a1", "a", pools(StoragePool{"x", 300, true})), disk(300, ""), disk(1, "x"), false},
		"of each disk":                  {host("a1", "a", pools(StoragePool{"x", 300, true}, StoragePool{"y", 300, false})), more(1, 300, "y"), disk(1, "y"), false},
		"any, where MAAS may take each": {host("a1", "a", pools(StoragePool{"x", 300, false}, StoragePool{"y", 300, false})), disk(300, ""), disk(1, "y"), false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(t, tc.host)
			if b.place("1", tc.first) == "" {
				t.Fatal("the first does not fit")
			}
			if got := b.place("2", tc.second) != ""; got != tc.fits {
				t.Errorf("the second fits: %t, want %t", got, tc.fits)
			}
			if diff := cmp.Diff(tc.host.StoragePools, b.hosts[0].StoragePools); diff != "" {
				t.Errorf("the caller's hosts were changed:\n%s", diff)
			}
		})
	}
}

func BenchmarkReservations(b *testing.B) {
	hosts, peers := benchFleet()
	r := NewReservations()
	for i := range 100 {
		r.byVM[vmKey(fmt.Sprint("reserved-", i))] = reservation{host: hosts[i*7].Name, zone: hosts[i*7].Zone, cluster: small.Cluster, taken: small.Footprint()}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Place(hosts, small, peers); err != nil {
			b.Fatal(err)
		}
	}
}
