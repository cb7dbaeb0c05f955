// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

// anyTime is for observations whatever MAAS was asked for when.
var anyTime = cmpopts.IgnoreFields(Observation{}, "At")

// script is a MAAS that needs time on the test's own clock. Its client is never used: poll only asks it whether MAAS is
// away.
type script struct {
	t       *testing.T
	clock   time.Time
	perItem time.Duration // the time of a list for each machine
	timeout time.Duration // what ends a list

	machines map[string]*maas.Machine
	devices  map[string]*maas.Device
	unlisted map[string]bool  // lists lack them
	bad      map[string]error // what becomes of lists with them
	errors   map[string]error // errors of GET for one machine
	emptied  bool             // lists hold nothing

	lists    [][]string
	gets     []string
	versions int
	told     map[string]int
}

const (
	scriptedActive = 5 * time.Second
	scriptedIdle   = time.Minute
)

func newScript(t *testing.T) (*Inventory, *script) {
	t.Helper()
	s := &script{
		t: t, clock: time.Unix(1_000_000, 0), timeout: 30 * time.Second, machines: map[string]*maas.Machine{}, unlisted: map[string]bool{},
		errors: map[string]error{}, told: map[string]int{}, bad: map[string]error{},
	}
	client := simtest.Client(t, "http://127.0.0.1:1/MAAS", "a:b:c")
	i := New(client, Options{
		ActiveInterval: scriptedActive, IdleInterval: scriptedIdle, Notify: func(id string) { s.told[id]++ }, Logger: testr.New(t),
	})
	i.source, i.now = s, func() time.Time { return s.clock }
	return i, s
}

func (s *script) ListMachines(_ context.Context, filter maas.MachineFilter) ([]*maas.Machine, error) {
	s.lists = append(s.lists, filter.SystemIDs)
	took := time.Duration(len(filter.SystemIDs)) * s.perItem
	s.clock = s.clock.Add(min(took, s.timeout))
	if took >= s.timeout {
		return nil, fmt.Errorf("%w: %w", maas.Unavailable, context.DeadlineExceeded)
	}
	var found []*maas.Machine
	for _, id := range filter.SystemIDs {
		if err := s.bad[id]; err != nil {
			return nil, err
		}
		if m := s.machines[id]; m != nil && !s.unlisted[id] && !s.emptied {
			found = append(found, m)
		}
	}
	return found, nil
}

func (s *script) AllMachines(ctx context.Context) ([]*maas.Machine, error) {
	return s.ListMachines(ctx, maas.MachineFilter{})
}

func (s *script) GetMachine(_ context.Context, id string) (*maas.Machine, error) {
	s.gets = append(s.gets, id)
	if err := s.errors[id]; err != nil {
		return nil, err
	}
	if m := s.machines[id]; m != nil {
		return m, nil
	}
	return nil, maas.NotFound
}

func (s *script) ListDevices(_ context.Context, filter maas.DeviceFilter) (found []*maas.Device, err error) {
	for _, id := range filter.SystemIDs {
		if d := s.devices[id]; d != nil {
			found = append(found, d)
		}
	}
	return found, nil
}

func (s *script) GetDevice(_ context.Context, id string) (*maas.Device, error) {
	if d := s.devices[id]; d != nil {
		return d, nil
	}
	return nil, maas.NotFound
}

func (s *script) Version(context.Context) (maas.Version, error) {
	s.versions++
	return maas.Newest, nil
}

// polls advances the time, and polls when the inventory would.
func (s *script) polls(i *Inventory, n int) {
	s.t.Helper()
	for range n {
		if err := i.poll(s.t.Context()); err != nil {
			s.t.Fatalf("polling: %v", err)
		}
		s.clock = s.clock.Add(scriptedActive)
	}
}

// sweeps is enough polls for a sweep and its checks.
const sweeps = 2*int(scriptedIdle/scriptedActive) + 2

// deploy adds machines to MAAS, and observes them.
func (s *script) deploy(i *Inventory, interest Interest, n int) []string {
	var ids []string
	for at := range n {
		id := fmt.Sprintf("m%04d", at)
		s.machines[id] = &maas.Machine{SystemID: id, Status: maas.StatusDeployed}
		i.Observe(id, interest)
		ids = append(ids, id)
	}
	return ids
}

func TestAbsenceFromAListIsNoProof(t *testing.T) {
	t.Parallel()
	last := &maas.Machine{SystemID: "m0000", Status: maas.StatusDeployed}
	for name, tc := range map[string]struct {
		get    error
		exists bool
		want   Observation
	}{
		"GET finds it":              {exists: true, want: Observation{Known: true, Machine: last}},
		"GET says that it is gone":  {get: maas.NotFound, want: Observation{Known: true}},
		"GET says that it's hidden": {get: maas.Forbidden, want: Observation{Known: true, Machine: last, Hidden: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, s := newScript(t)
			s.deploy(i, Changing, 2)
			s.polls(i, 2)
			s.unlisted["m0000"], s.errors["m0000"] = true, tc.get
			s.polls(i, sweeps)
			if diff := cmp.Diff(tc.want, i.Observe("m0000", Changing), anyTime); diff != "" {
				t.Errorf("what is known differs (-want +got):\n%s", diff)
			}
			s.unlisted["m0000"], s.errors["m0000"] = false, nil
			s.polls(i, sweeps)
			if diff := cmp.Diff(Observation{Known: true, Machine: last}, i.Observe("m0000", Changing), anyTime); diff != "" {
				t.Errorf("what is known once the list has it differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatCantBeFoundOutChangesNothing(t *testing.T) {
	t.Parallel()
	i, s := newScript(t)
	s.deploy(i, Changing, 2)
	s.polls(i, 2)
	i.Observe("never-seen", Changing)
	for _, id := range []string{"m0000", "never-seen"} {
		s.unlisted[id], s.errors[id] = true, maas.Unauthorized
	}
	failed := false
	for range 20 {
		failed = errors.Is(i.poll(t.Context()), maas.Unauthorized) || failed
		s.clock = s.clock.Add(scriptedActive)
	}
	if !failed || !errors.Is(i.Health(), maas.Unauthorized) {
		t.Errorf("a look failed: %t, health: %v", failed, i.Health())
	}
	if seen := i.Observe("m0000", Changing); !seen.Known || seen.Machine == nil {
		t.Errorf("the last observation is gone: %+v", seen)
	}
	if seen := i.Observe("never-seen", Changing); seen.Known {
		t.Errorf("a machine that MAAS did not report is %+v", seen)
	}
	if n := s.told["m0001"]; n != 2 {
		t.Errorf("a machine that did not change was reported %d times, want once that it is there and once that MAAS can't be read", n)
	}
	clear(s.errors)
	s.polls(i, 1)
	if i.Health() != nil {
		t.Errorf("MAAS reports all again, and health is %v", i.Health())
	}
}

// What MAAS can't answer for one machine keeps nothing from being found out of the others.
func TestACheckThatFailsKeepsNoOtherWaiting(t *testing.T) {
	t.Parallel()
	i, s := newScript(t)
	ids := s.deploy(i, Leaving, maxChecks+3)
	s.polls(i, 2)
	s.emptied = true
	last := ids[len(ids)-1]
	for _, id := range ids[:len(ids)-1] {
		s.errors[id] = &maas.Error{Kind: maas.Unavailable, Status: http.StatusInternalServerError}
	}
	delete(s.machines, last)
	s.polls(i, len(ids)+1)
	if seen := i.Observe(last, Leaving); !seen.Known || seen.Machine != nil {
		t.Errorf("the machine that is gone is %+v", seen)
	}
	if seen := i.Observe(ids[0], Leaving); seen.Machine == nil {
		t.Errorf("a machine of which nothing is known is %+v", seen)
	}
	for _, id := range ids {
		s.bad[id] = &maas.Error{Kind: maas.Unavailable, Status: http.StatusMovedPermanently}
	}
	for range failedLists {
		_ = i.poll(t.Context())
		s.clock = s.clock.Add(scriptedActive)
	}
	if i.Health() == nil {
		t.Error("no list works, and MAAS counts as readable")
	}
	clear(s.bad)
	s.polls(i, 1)
	if i.Health() != nil {
		t.Errorf("lists work again, and health is %v", i.Health())
	}
}

func TestAbsentMachinesAreAskedForSeldom(t *testing.T) {
	t.Parallel()
	i, s := newScript(t)
	s.deploy(i, Changing, 4)
	delete(s.machines, "m0000")
	s.errors["m0001"] = maas.Forbidden
	s.unlisted["m0001"] = true
	s.polls(i, sweeps)
	s.gets = nil
	s.polls(i, 10*int(scriptedIdle/scriptedActive))
	if n := len(s.gets); n < 2 || n > 2*10 {
		t.Errorf("MAAS was asked %d times in ten sweeps for two machines that it does not show", n)
	}
	s.gets = nil
	_, _ = i.Change("m0000", failedChange)
	s.polls(i, 2)
	if !slices.Contains(s.gets, "m0000") || !i.Observe("m0000", Changing).Known {
		t.Error("a gone machine that is distrusted was not asked for at once")
	}
}

func TestOnePollChecksFewMachinesSingly(t *testing.T) {
	t.Parallel()
	i, s := newScript(t)
	ids := s.deploy(i, Settled, 100)
	s.polls(i, 2)
	s.emptied = true
	most := 0
	for range sweeps {
		s.gets = nil
		s.polls(i, 1)
		most = max(most, len(s.gets))
	}
	if most == 0 || most > maxChecks {
		t.Errorf("one poll asked for %d machines by themselves, want at most %d", most, maxChecks)
	}
	for _, id := range ids {
		if seen := i.Observe(id, Settled); seen.Machine == nil || seen.Vanished != 0 {
			t.Fatalf("%s is %+v, and GET finds it", id, seen)
		}
	}
}

func TestManyThatAreGoneAtOnceHaveVanished(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		machines, gone, leaving, want int
	}{
		"all":                         {machines: 5, gone: 5, want: 5},
		"more than one poll asks for": {machines: 100, gone: 100, want: 100},
		"more than a third":           {machines: 8, gone: 3, want: 3},
		"a third":                     {machines: 9, gone: 3},
		"two of two":                  {machines: 2, gone: 2},
		"all, and most are to go":     {machines: 10, gone: 10, leaving: 8},
		"only those that are not to":  {machines: 10, gone: 10, leaving: 7, want: 3},
	} {
		for _, fresh := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, new manager %t", name, fresh), func(t *testing.T) {
				t.Parallel()
				i, s := newScript(t)
				ids := s.deploy(i, Changing, tc.machines)
				if !fresh {
					s.polls(i, 2)
				}
				for _, id := range ids[:tc.leaving] {
					i.Observe(id, Leaving)
				}
				for _, id := range ids[:tc.gone] {
					delete(s.machines, id)
				}
				for range sweeps {
					s.polls(i, 1)
					for _, id := range ids[tc.leaving:tc.gone] { // At no time is one gone alone.
						if seen := i.Observe(id, Changing); seen.Known && seen.Machine == nil && (seen.Vanished > 0) != (tc.want > 0) {
							t.Fatalf("%s is %+v, want it to have vanished with %d", id, seen, tc.want)
						}
					}
				}
				for at, id := range ids[:tc.gone] {
					interest, want := Changing, tc.want
					if at < tc.leaving {
						interest, want = Leaving, 0
					}
					if diff := cmp.Diff(Observation{Known: true, Vanished: want}, i.Observe(id, interest), anyTime); diff != "" {
						t.Fatalf("%s differs (-want +got):\n%s", id, diff)
					}
				}
			})
		}
	}
}

// Changing machines are polled more often, so they are the first to be missed.
func TestChangingMachinesAreNotGoneBeforeTheOthersWerePolled(t *testing.T) {
	t.Parallel()
	i, s := newScript(t)
	ids := s.deploy(i, Settled, 10)
	i.Observe(ids[0], Changing)
	s.polls(i, 2)
	clear(s.machines)
	for range sweeps {
		s.polls(i, 1)
		if seen := i.Observe(ids[0], Changing); seen.Machine == nil && seen.Vanished != len(ids) {
			t.Fatalf("it is %+v, want it to have vanished with all", seen)
		}
	}
	if i.Observe(ids[0], Changing).Machine != nil {
		t.Error("nothing was found out")
	}
}

// If lists lack machines, only GET shows how many are gone.
func TestListsThatLackMachinesDontMakeOneVanish(t *testing.T) {
	t.Parallel()
	i, s := newScript(t)
	ids := s.deploy(i, Settled, 30)
	s.polls(i, 2)
	s.emptied = true
	s.polls(i, sweeps)
	delete(s.machines, ids[0])
	for range sweeps {
		s.polls(i, 1)
		if seen := i.Observe(ids[0], Settled); seen.Vanished != 0 {
			t.Fatalf("the only one that is gone is %+v", seen)
		}
	}
	if i.Observe(ids[0], Settled).Machine != nil {
		t.Error("nothing was found out")
	}
}

// A manager that starts hears of its machines one after the other.
func TestAMachineIsNotGoneAloneBeforeTheOthersAreKnown(t *testing.T) {
	t.Parallel()
	i, s := newScript(t)
	for at := range 4 {
		i.Observe(fmt.Sprintf("m%d", at), Settled)
		if err := i.poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if seen := i.Observe("m0", Settled); seen.Known {
			t.Fatalf("m0 is gone alone: %+v", seen)
		}
		s.clock = s.clock.Add(time.Second)
	}
	for range sweeps {
		s.polls(i, 1)
		for at := range 4 {
			if seen := i.Observe(fmt.Sprintf("m%d", at), Settled); seen.Known && seen.Vanished == 0 {
				t.Fatalf("m%d is gone alone: %+v", at, seen)
			}
		}
	}
	if !i.Observe("m3", Settled).Known {
		t.Error("nothing was found out")
	}
}

func TestVanishedEndsWhenMachinesAreBack(t *testing.T) {
	t.Parallel()
	i, s := newScript(t)
	ids := s.deploy(i, Settled, 5)
	s.polls(i, 2)
	machines := s.machines
	s.machines = map[string]*maas.Machine{}
	s.polls(i, sweeps)
	told := s.told[ids[0]]
	s.machines = machines
	delete(s.machines, ids[0])
	s.polls(i, sweeps)
	if diff := cmp.Diff(Observation{Known: true}, i.Observe(ids[0], Settled), anyTime); diff != "" {
		t.Errorf("the one that is still gone differs (-want +got):\n%s", diff)
	}
	if s.told[ids[0]] == told {
		t.Error("the end of Vanished was not reported")
	}
}

func TestAMachineThatNobodyObservesIsForgotten(t *testing.T) {
	t.Parallel()
	i, s := newScript(t)
	s.deploy(i, Changing, 1)
	for s.clock.Before(time.Unix(1_000_000, 0).Add(changingAbandoned + 5*scriptedIdle)) {
		s.polls(i, 1)
	}
	s.lists = nil
	s.polls(i, sweeps)
	if len(s.lists) > 0 {
		t.Errorf("%d lists asked for a machine that nobody observes any more", len(s.lists))
	}
}
