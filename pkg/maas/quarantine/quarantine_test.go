// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

const region = `
users:
  - {name: admin, admin: true, keys: ["admin:token:secret"]}
  - {name: plain, keys: ["plain:token:secret"]}
tags: [{name: virtual, comment: people's}]
machines:
  - {names: [metal-a], cores: 4, memory: 8192, disks: [100], tags: [virtual]}
  - {names: [metal-b], cores: 8, memory: 16384, disks: [100]}
`

const (
	adminKey = "admin:token:secret"
	plainKey = "plain:token:secret"
)

// bed is a MAAS with two machines, and a clock.
type bed struct {
	t    *testing.T
	maas *simulator.Simulator
	url  string
	a, b string // system ids
	now  time.Time
}

func newBed(t *testing.T) *bed {
	t.Helper()
	return newBedOf(t, region, "")
}

func newBedOf(t *testing.T, region, version string) *bed {
	t.Helper()
	sim, endpoint := simtest.Start(t, region, simulator.Options{Version: version})
	b := &bed{t: t, maas: sim, url: endpoint, now: now}
	for _, m := range sim.Machines() {
		*map[string]*string{"metal-a": &b.a, "metal-b": &b.b}[m.Hostname] = m.SystemID
	}
	return b
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// manager is a service as a manager has it that has just started.
func (b *bed) manager(key string) *Service {
	b.t.Helper()
	client := simtest.Client(b.t, b.url, key)
	s := NewService(inventory.New(client, inventory.Options{}))
	s.SetClock(func() time.Time { return b.now })
	return s
}

func (b *bed) put(s *Service, systemID, by string) {
	b.t.Helper()
	if _, err := s.Put(b.t.Context(), aTest, systemID, Cause{By: by, Why: "it failed"}); err != nil {
		b.t.Fatal(err)
	}
}

// inPool puts a machine that is in the pool into quarantine, and lets its pause begin.
func (b *bed) inPool(s *Service, systemID, by string) {
	b.t.Helper()
	b.put(s, systemID, by)
	b.lifts(s)
}

// allocate takes a machine for a user.
func (b *bed) allocate(systemID string) *maas.Machine {
	b.t.Helper()
	m, err := b.manager(adminKey).inventory.Client().AllocateMachine(b.t.Context(), aTest, maas.AllocateParams{SystemID: systemID})
	if err != nil {
		b.t.Fatal(err)
	}
	return m
}

func (b *bed) release(systemID string) {
	b.t.Helper()
	if _, err := b.manager(adminKey).inventory.Client().ReleaseMachine(b.t.Context(), maas.UnrecordedRelease("a test"), systemID, maas.ReleaseParams{}); err != nil {
		b.t.Fatal(err)
	}
	if m, _ := b.maas.Machine(systemID); m.Status != "Ready" {
		b.t.Fatalf("it is %s, want Ready: it was off", m.Status)
	}
}

// lifts checks what one round lifts.
func (b *bed) lifts(s *Service, want ...string) {
	b.t.Helper()
	lifted, err := s.Tend(b.t.Context(), aTest)
	slices.Sort(want)
	if err != nil || !slices.Equal(lifted, want) {
		b.t.Errorf("lifted %v, %v; want %v", lifted, err, want)
	}
}

// has checks the quarantined machines and their notes, as a manager sees them.
func (b *bed) has(s *Service, want map[string]Note) {
	b.t.Helper()
	list, err := s.List(b.t.Context(), 0)
	if err != nil {
		b.t.Fatal(err)
	}
	got := map[string]Note{}
	for _, m := range list {
		got[m.SystemID] = m.Note
	}
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Errorf("in quarantine are others (-want +got):\n%s", diff)
	}
}

func (b *bed) tags(systemID string) []string {
	m, _ := b.maas.Machine(systemID)
	return m.Tags
}

// noteTags are the notes that MAAS has.
func (b *bed) noteTags() (names []string) {
	b.t.Helper()
	tags, err := b.manager(adminKey).tags(b.t.Context(), 0)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, tag := range tags {
		if strings.HasPrefix(tag.Name, quarantined.noteName("")) {
			names = append(names, tag.Name)
		}
	}
	return names
}

func (b *bed) calls() int { return len(b.maas.Calls().Log) }

var aTest = maas.Unrecorded("a test")

type noted = map[string]Note

func TestAQuarantineIsSharedAndEnds(t *testing.T) {
	b := newBed(t)
	first, second := b.manager(adminKey), b.manager(adminKey)
	b.has(first, noted{})
	b.allocate(b.a)
	b.put(first, b.a, "m1")
	held := Note{Since: now, Until: now.Add(heldAtMost), Pause: Limits.First, Failures: 1, By: "m1", Why: "it failed"}
	b.has(second, noted{b.a: held})
	b.now = now.Add(time.Hour) // A machine that is not back in the pool stays quarantined.
	b.lifts(second)
	b.put(first, b.a, "m1")
	b.has(second, noted{b.a: held})

	b.release(b.a)
	b.lifts(second) // Whoever sees it first.
	ends := held
	ends.Until, ends.Pause = b.now.Add(Limits.First), 0
	b.has(first, noted{b.a: ends})
	b.now = b.now.Add(time.Minute)
	b.lifts(first)
	b.has(first, noted{b.a: ends})

	b.now = ends.Until.Add(-time.Second)
	b.lifts(first)
	b.now = ends.Until
	b.lifts(first, b.a)
	b.lifts(second)
	b.has(second, noted{})
	if tags := b.tags(b.a); !slices.Equal(tags, []string{"virtual"}) {
		t.Errorf("the machine has the tags %v, want what it had", tags)
	}
	b.put(second, b.a, "m2")
	b.has(first, noted{b.a: {Since: b.now, Until: b.now.Add(heldAtMost), Pause: 2 * Limits.First, Failures: 2, By: "m2", Why: "it failed"}})
}

func TestNotesAreForgotten(t *testing.T) {
	b := newBed(t)
	s := b.manager(adminKey)
	b.inPool(s, b.a, "m1")
	b.now = now.Add(Limits.First)
	b.lifts(s, b.a)
	b.now = b.now.Add(Limits.Remembered)
	b.lifts(s)
	if names := b.noteTags(); len(names) != 1 {
		t.Errorf("MAAS has the notes %v, want that of the failure", names)
	}
	b.now = b.now.Add(time.Second)
	b.lifts(s)
	if names := b.noteTags(); len(names) != 0 {
		t.Errorf("MAAS has the notes %v, want none", names)
	}
}

// An identity that may not see a machine forgets nothing about it.
func TestTheNoteOnAMachineThatIsNotSeenStays(t *testing.T) {
	entitled := strings.NewReplacer(`{name: plain, `, `{name: plain, entitlements: [{name: can_edit_global_entities}, {name: can_deploy_machines, pool: others}], `,
		"tags: [{", "pools: [{name: others}]\ntags: [{").Replace(region)
	b := newBedOf(t, entitled, "3.8")
	admin, other := b.manager(adminKey), b.manager(plainKey)
	b.inPool(admin, b.a, "m1")
	b.now = now.Add(Limits.First + Limits.Remembered + time.Second)
	b.lifts(other)
	if names := b.noteTags(); len(names) != 1 {
		t.Errorf("MAAS has the notes %v, want that of the machine", names)
	}
	b.lifts(admin, b.a)
}

// A person takes the tag off, or deletes it for all machines, and puts it on others.
func TestPeopleLiftQuarantinesAndMakeThem(t *testing.T) {
	b := newBed(t)
	s := b.manager(adminKey)
	client := s.inventory.Client()
	b.put(s, b.a, "m1")
	b.must(client.UntagMachines(t.Context(), aTest, Tag, []string{b.a}))
	b.lifts(s)
	b.has(s, noted{})
	b.must(client.TagMachine(t.Context(), aTest, Tag, b.b))
	b.now = now.Add(1000 * time.Hour)
	b.lifts(s)
	b.must(s.Succeeded(t.Context(), aTest, b.b, 0))
	b.has(s, noted{b.b: {}})
	b.must(client.DeleteTag(t.Context(), aTest, Tag))
	b.has(s, noted{})
	b.put(s, b.a, "m2")
	if !slices.Contains(b.tags(b.a), Tag) {
		t.Errorf("it has the tags %v", b.tags(b.a))
	}
}

// A person who takes the tag off lifts the quarantine: nothing of it stays, however far its end was.
func TestTheNoteOfAQuarantineThatAPersonLiftedGoes(t *testing.T) {
	for name, put := range map[string]func(b *bed, s *Service){
		"of a failure": func(b *bed, s *Service) { b.put(s, b.a, "m1") },
		"back in pool": func(b *bed, s *Service) { b.inPool(s, b.a, "m1") },
		"by hand": func(b *bed, s *Service) {
			if _, err := s.PutByHand(b.t.Context(), aTest, b.a, "the fan smokes", 0); err != nil {
				b.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			s := b.manager(adminKey)
			put(b, s)
			b.must(s.inventory.Client().UntagMachines(t.Context(), aTest, Tag, []string{b.a}))
			b.forgets(s)
			if names := b.noteTags(); len(names) != 1 {
				t.Errorf("MAAS has the notes %v: a note comes before its tag", names)
			}
			b.now = now.Add(puttingTakes + time.Second)
			b.forgets(s)
			if names := b.noteTags(); len(names) != 0 {
				t.Errorf("MAAS has the notes %v, want none", names)
			}
		})
	}
}

// forgets deletes the notes of what people lifted.
func (b *bed) forgets(s *Service) {
	b.t.Helper()
	b.must(s.ForgetLifted(b.t.Context(), aTest, 0))
}

// The note of a machine that has the tag stays, and that of one whose quarantine ended by itself.
func TestTheNoteOfAQuarantineThatNobodyLiftedStays(t *testing.T) {
	b := newBed(t)
	s := b.manager(adminKey)
	if _, err := s.PutByHand(t.Context(), aTest, b.a, "the fan smokes", 0); err != nil {
		t.Fatal(err)
	}
	b.inPool(s, b.b, "m2")
	b.now = now.Add(Limits.First + time.Hour)
	b.lifts(s, b.b)
	b.forgets(s)
	if names := b.noteTags(); len(names) != 2 {
		t.Errorf("MAAS has the notes %v, want both", names)
	}
}

func TestByHand(t *testing.T) {
	b := newBed(t)
	s := b.manager(adminKey)
	for _, tc := range []struct {
		lasts time.Duration
		want  Note
	}{{0, Note{Since: now, Why: "the fan smokes"}}, {time.Hour, Note{Since: now, Until: now.Add(time.Hour), Why: "the fan smokes"}}} {
		if _, err := s.PutByHand(t.Context(), aTest, b.a, tc.want.Why, tc.lasts); err != nil {
			t.Fatal(err)
		}
		b.has(s, noted{b.a: tc.want})
		if err := s.Succeeded(t.Context(), aTest, b.a, 0); err != nil { // It is deployed, and not meant to be allocated again.
			t.Fatal(err)
		}
		b.has(s, noted{b.a: tc.want})
	}
	for range 2 {
		b.must(s.Lift(t.Context(), aTest, b.a))
		b.has(s, noted{})
	}
	if names := b.noteTags(); len(names) != 0 {
		t.Errorf("MAAS has the notes %v", names)
	}
}

func TestADeployedMachineIsForgiven(t *testing.T) {
	b := newBed(t)
	s := b.manager(adminKey)
	b.put(s, b.a, "m1")
	b.put(s, b.b, "m2")
	b.must(s.Succeeded(t.Context(), aTest, b.a, time.Hour))
	list, err := s.List(t.Context(), 0)
	if err != nil || len(list) != 1 || list[0].SystemID != b.b {
		t.Errorf("in quarantine: %+v, %v; want only the other", list, err)
	}
	b.put(s, b.a, "m3")
	if list, err := s.List(t.Context(), 0); err != nil || len(list) != 2 || list[0].Failures+list[1].Failures != 2 {
		t.Errorf("in quarantine: %+v, %v; want both for their first failure", list, err)
	}
}

// A user who is no administrator sees quarantines, and changes nothing.
func TestAPlainUser(t *testing.T) {
	b := newBed(t)
	admin, plain := b.manager(adminKey), b.manager(plainKey)
	b.inPool(admin, b.a, "m1")
	before := b.maas.State()
	b.now = now.Add(Limits.First)
	_, putErr := plain.Put(t.Context(), aTest, b.b, Cause{By: "m2"})
	_, liftErr := plain.Tend(t.Context(), aTest)
	for what, err := range map[string]error{
		"put": putErr, "lift": plain.Lift(t.Context(), aTest, b.a), "lift expired": liftErr,
		"succeeded": plain.Succeeded(t.Context(), aTest, b.a, 0), "exclude": plain.Exclude(t.Context(), aTest, b.b, Cause{By: "m2"}),
	} {
		if !errors.Is(err, maas.Forbidden) {
			t.Errorf("%s: %v, want %s", what, err, maas.Forbidden)
		}
	}
	if after := b.maas.State(); string(after) != string(before) {
		t.Error("MAAS was changed")
	}
	if list, err := plain.List(t.Context(), 0); err != nil || len(list) != 1 || list[0].Failures != 1 {
		t.Errorf("a plain user sees %+v, %v", list, err)
	}
}

// Whatever call fails or is lost, the same once more completes it.
func TestPutCanBeInterruptedAnywhere(t *testing.T) {
	for call, fault := range map[string]simulator.Fault{
		"reading":     {Method: http.MethodGet, Endpoint: "tags/", First: 1},
		"noting":      {Method: http.MethodPost, Endpoint: "tags/", First: 1},
		"making":      {Method: http.MethodPost, Endpoint: "tags/", Every: 2, First: 1},
		"quarantined": {Op: "update_nodes", First: 1},
	} {
		for name, lose := range map[string]func(*simulator.Fault){
			"request": func(f *simulator.Fault) { f.DropBefore = true }, "response": func(f *simulator.Fault) { f.DropAfter = true },
		} {
			t.Run(call+", its "+name+" lost", func(t *testing.T) {
				b := newBed(t)
				s, lost := b.manager(adminKey), fault
				lose(&lost)
				if _, err := b.maas.AddFault(lost); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Put(t.Context(), aTest, b.a, Cause{By: "m1", Why: "it failed"}); !errors.Is(err, maas.Unavailable) {
					t.Fatalf("the error is %v, want %s", err, maas.Unavailable)
				}
				b.now = now.Add(time.Second)
				b.put(b.manager(adminKey), b.a, "m1")
				list, err := s.List(t.Context(), 0)
				if err != nil || len(list) != 1 || list[0].Failures != 1 || list[0].Pause != Limits.First {
					t.Errorf("in quarantine: %+v, %v", list, err)
				}
			})
		}
	}
}

// However many are over, a round is a few calls.
func TestRoundsAreShort(t *testing.T) {
	b := newBed(t)
	s := b.manager(adminKey)
	before := b.calls()
	b.lifts(s)
	if n := b.calls() - before; n != 1 {
		t.Errorf("%d calls while no machine is in quarantine, want 1", n)
	}
	for _, id := range []string{b.a, b.b} {
		b.inPool(s, id, "m1")
	}
	before = b.calls()
	b.lifts(s)
	if n := b.calls() - before; n != 1 {
		t.Errorf("%d calls while none is over, want 1", n)
	}
	b.now = now.Add(Limits.First)
	before = b.calls()
	b.lifts(s, b.a, b.b)
	if n := b.calls() - before; n != 3 {
		t.Errorf("%d calls for two that are over, want 3", n)
	}
}

func (b *bed) exclude(s *Service, systemID, by string) {
	b.t.Helper()
	b.must(s.Exclude(b.t.Context(), aTest, systemID, Cause{By: by, Why: "its network is being restored"}))
}

func (b *bed) include(s *Service, systemID, by string) {
	b.t.Helper()
	b.must(s.Include(b.t.Context(), aTest, systemID, by))
}

// isExcluded checks whether a machine has the tag.
func (b *bed) isExcluded(systemID string, want bool) {
	b.t.Helper()
	if got := slices.Contains(b.tags(systemID), ExcludeTag); got != want {
		b.t.Errorf("machine %s is excluded: %v, want %v", systemID, got, want)
	}
}

func TestAnExclusionEndsForWhoBeganIt(t *testing.T) {
	b := newBed(t)
	first, second := b.manager(adminKey), b.manager(adminKey)
	b.exclude(first, b.a, "m1")
	b.exclude(first, b.a, "m1")
	b.isExcluded(b.a, true)
	b.include(second, b.a, "m2")
	b.isExcluded(b.a, true)
	b.exclude(second, b.a, "m2")
	b.include(first, b.a, "m1") // It is the second's by now.
	b.isExcluded(b.a, true)
	b.include(second, b.a, "m2")
	b.include(second, b.a, "m2")
	if tags := b.tags(b.a); !slices.Equal(tags, []string{"virtual"}) {
		t.Errorf("the machine has the tags %v, want what it had", tags)
	}
	if tags, err := first.tags(t.Context(), 0); err != nil || len(excluded.notes(tags)) != 0 {
		t.Errorf("MAAS has the notes %v, %v", excluded.notes(tags), err)
	}
}

// One object ends its exclusion while another one puts its own on: the note goes with that of the first. The tag goes
// with the exclusion of the second, so that the machine is not lost to the pool.
func TestAnExclusionEndsThoughItsNoteIsGone(t *testing.T) {
	b := newBed(t)
	first, second := b.manager(adminKey), b.manager(adminKey)
	b.exclude(first, b.a, "m1")
	b.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
		if at == simulator.Before && call.Method == http.MethodDelete && strings.HasPrefix(call.Endpoint, "tags/") {
			b.maas.SetHook(nil) // The first has taken its tag off.
			b.exclude(second, b.a, "m2")
		}
		return nil
	})
	b.include(first, b.a, "m1")
	b.isExcluded(b.a, true)
	b.include(second, b.a, "m2")
	b.isExcluded(b.a, false)
}

// A failure and an exclusion have nothing to do with each other.
func TestAnExclusionLeavesAQuarantineAlone(t *testing.T) {
	b := newBed(t)
	s := b.manager(adminKey)
	b.exclude(s, b.a, "m1")
	b.inPool(s, b.a, "m1")
	ends := Note{Since: now, Until: now.Add(Limits.First), Failures: 1, By: "m1", Why: "it failed"}
	b.has(s, noted{b.a: ends})
	b.include(s, b.a, "m1")
	b.has(s, noted{b.a: ends})
	b.exclude(s, b.a, "m1")
	b.now = ends.Until
	b.lifts(s, b.a)
	b.isExcluded(b.a, true)
}

// Of several managers that want a machine in the pool one holds it, whether its note was there before the other one looked or not.
func TestOneOfSeveralHoldsAMachine(t *testing.T) {
	hold := func(b *bed, s *Service, by string) error {
		return s.Hold(b.t.Context(), aTest, b.a, Cause{By: by, Why: "its layout is set"})
	}
	for name, meet := range map[string]func(b *bed, first, second *Service) (error, error){
		"one after the other": func(b *bed, first, second *Service) (error, error) {
			return hold(b, first, "m1"), hold(b, second, "m2")
		},
		"at once": func(b *bed, first, second *Service) (held error, other error) {
			b.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
				if at == simulator.Before && call.Method == http.MethodPost && call.Endpoint == "tags/" {
					b.maas.SetHook(nil)
					held = hold(b, first, "m1")
				}
				return nil
			})
			other = hold(b, second, "m2")
			return held, other
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			first, second := b.manager(adminKey), b.manager(adminKey)
			held, other := meet(b, first, second)
			if held != nil || !errors.Is(other, ErrHeld) {
				t.Fatalf("the first: %v; the other: %v, want %v", held, other, ErrHeld)
			}
			b.include(second, b.a, "m2") // Nothing is the other's.
			b.isExcluded(b.a, true)
			if err := hold(b, first, "m1"); err != nil {
				t.Errorf("once more: %v", err)
			}
			b.must(first.Acquired(t.Context(), aTest, b.a, Cause{By: "m1"}))
			b.isExcluded(b.a, false)
			if by, err := second.NotedBy(t.Context(), b.a); err != nil || by != "m1" {
				t.Errorf("it is noted by %q, %v", by, err)
			}
		})
	}
}

// A person released the machine: what is left on it is the other's to undo, and its note is the only proof of that.
func TestANoteOfWhatIsToBeUndoneIsNotTakenOver(t *testing.T) {
	b := newBed(t)
	first, second := b.manager(adminKey), b.manager(adminKey)
	b.must(first.Note(t.Context(), aTest, b.a, Cause{By: "m1"}))
	b.now = now.Add(excludedAtMost)
	if err := second.Hold(t.Context(), aTest, b.a, Cause{By: "m2"}); !errors.Is(err, ErrHeld) {
		t.Errorf("another one's hold: %v, want %v", err, ErrHeld)
	}
	if by, err := second.NotedBy(t.Context(), b.a); err != nil || by != "m1" {
		t.Errorf("it is noted by %q, %v", by, err)
	}
	b.isExcluded(b.a, false)
}

// Its manager is gone: what it noted keeps a machine from others no longer than it may.
func TestWhatNobodyEndsEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		lasts time.Duration
		begin func(b *bed, s *Service)
	}{
		"a quarantine": {heldAtMost, func(b *bed, s *Service) { b.allocate(b.a); b.put(s, b.a, "m1") }},
		"an exclusion": {excludedAtMost, func(b *bed, s *Service) { b.exclude(s, b.a, "m1") }},
		"a hold":       {excludedAtMost, func(b *bed, s *Service) { b.must(s.Hold(b.t.Context(), aTest, b.a, Cause{By: "m1"})) }},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			s := b.manager(adminKey)
			tc.begin(b, s)
			b.now = now.Add(tc.lasts - time.Second)
			b.lifts(s)
			b.now = now.Add(tc.lasts)
			b.lifts(s, b.a)
			b.isExcluded(b.a, false)
			if err := s.Hold(t.Context(), aTest, b.a, Cause{By: "m2"}); err != nil {
				t.Errorf("after %s: %v", tc.lasts, err)
			}
		})
	}
}

// A test that was aborted is no result in MAAS's summary: another script that passes does not end the quarantine.
func TestAnotherScriptDoesNotEndTheQuarantineOfAFailedCheck(t *testing.T) {
	sim, endpoint := simtest.Start(t, region+"subnets: [{cidr: 10.77.0.0/24, gateway: 10.77.0.1, dhcp: true}]\n", simulator.Options{TimeScale: 10_000})
	b := &bed{t: t, maas: sim, url: endpoint, now: now}
	id := sim.Machines()[0].SystemID
	s := b.manager(adminKey)
	client := s.inventory.Client()
	begin := func(script, result string) *maas.Machine {
		t.Helper()
		b.must(sim.SetTestOutcome(id, script, simulator.TestOutcome{Result: result}))
		m, err := client.StartTests(t.Context(), aTest, id, maas.TestParams{Scripts: []string{script}})
		b.must(err)
		return m
	}
	ended := func() {
		t.Helper()
		eventually.True(t, "the machine is in the pool", func() bool {
			m, err := s.inventory.Read(t.Context(), id)
			return err == nil && isInPool(m)
		})
	}
	read := simulator.CallKey{Method: http.MethodGet, Endpoint: "nodes/{id}/results/", Status: http.StatusOK}
	tested := begin("memtester", "hangs")
	eventually.True(t, "it is being tested", func() bool {
		results, err := client.TestResults(t.Context(), id)
		return err == nil && results[0].Set == tested.Tests.Set && results[0].Started != nil
	})
	_, err := s.Put(t.Context(), aTest, id, Cause{By: "m1", Checks: "metal", Set: tested.Tests.Set})
	b.must(err)
	_, err = client.AbortMachine(t.Context(), aTest, id, "it takes too long")
	b.must(err)
	ended()
	begin("smartctl-validate", "passed")
	ended()
	sim.ResetCalls()
	for range 3 {
		b.lifts(s)
	}
	if got := sim.Calls().ByKey[read]; got != 1 {
		t.Errorf("the results were read %d times, want once for each test", got)
	}
	begin("memtester", "passed")
	ended()
	b.lifts(s, id)
}
