// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// hosts composes as its fields say.
type hosts struct {
	list     []Host
	projects map[string]string
	err      error
	composed []string
}

func (h *hosts) Hosts(context.Context, VMSpec, time.Duration) ([]Host, error) {
	return append([]Host(nil), h.list...), nil
}

func (h *hosts) Project(_ context.Context, host Host) (string, error) {
	project, found := h.projects[host.Name]
	if !found {
		return "", maas.NotFound
	}
	return project, nil
}

func (h *hosts) Compose(_ context.Context, _ maas.Permit, host Host, spec VMSpec) (VM, error) {
	if h.err != nil {
		return VM{}, h.err
	}
	h.composed = append(h.composed, spec.Hostname+"@"+host.Name)
	return VM{SystemID: "id-" + spec.Hostname, Host: host.Name}, nil
}

func (h *hosts) Decompose(context.Context, maas.VMPermit, VM) error { return nil }

func (h *hosts) Adopt(context.Context, VM, []string, []string) (string, *Host, error) {
	return "", nil, errors.ErrUnsupported
}

func (h *hosts) Stop(context.Context, maas.VMPermit, VM) error { return nil }

func (h *hosts) Start(context.Context, maas.VMPermit, VM) error { return nil }

func (h *hosts) Observe(context.Context, VM, time.Duration) (Seen, error) { return Seen{}, nil }

func (h *hosts) Forget(context.Context, maas.Permit, *maas.Machine, string) error { return nil }

func (h *hosts) FindDevice(context.Context, VM, string) (*maas.Machine, error) { return nil, nil }

func (h *hosts) Find(context.Context, VM) (Presence, error) { return Presence{}, nil }

// compose places and composes one VM.
func compose(t *testing.T, s *Service, spec VMSpec) (string, error) {
	t.Helper()
	list, err := s.GetAvailableLXDHosts(t.Context(), spec)
	if err != nil {
		return "", err
	}
	host, err := s.SelectOptimalHost(list, spec, nil)
	if err != nil {
		return "", err
	}
	_, err = s.ComposeVM(t.Context(), maas.Unrecorded("a test"), host, spec)
	return host.Name, err
}

// talkingFailed is MAAS's error for a host that could not compose.
var talkingFailed = &maas.Error{Kind: maas.Unavailable, Status: 503, Message: "Failed talking to pod"}

func TestAHostThatFailedIsLeftAloneForAWhile(t *testing.T) {
	fleet := &hosts{list: []Host{host("a1", "a"), host("a2", "a")}}
	s := NewService(fleet, NewReservations())
	now := time.Unix(1000, 0)
	s.SetClock(func() time.Time { return now })

	fleet.err = talkingFailed
	name, err := compose(t, s, small)
	var failed *LXDError
	if !errors.As(err, &failed) || failed.Type != VMCreationFailed || failed.Host != name || !errors.Is(err, maas.Unavailable) {
		t.Fatalf("composing: %#v, want an LXDError of type %s on %s", err, VMCreationFailed, name)
	}
	s.Cancel(small.Hostname)

	fleet.err = nil
	other, err := compose(t, s, small)
	if err != nil || other == name {
		t.Fatalf("the second try went to %s (%v), want the host that did not fail", other, err)
	}
	s.Cancel(small.Hostname)
	now = now.Add(cooldowns.First)
	if again, err := compose(t, s, small); err != nil || again != name {
		t.Errorf("after a while a VM went to %s (%v), want %s again", again, err, name)
	}
}

func TestAPinnedVMGoesToAHostThatFailed(t *testing.T) {
	fleet := &hosts{list: []Host{host("a1", "a")}, err: talkingFailed}
	s := NewService(fleet, NewReservations())
	if _, err := compose(t, s, small); err == nil {
		t.Fatal("it was composed")
	}
	fleet.err = nil
	if name, err := compose(t, s, with(func(v *VMSpec) { v.HostName = "a1" })); err != nil || name != "a1" {
		t.Errorf("it went to %q: %v", name, err)
	}
}

func TestTheOnlyHostThatFailedIsLeftAloneForLongerEachTime(t *testing.T) {
	fleet := &hosts{list: []Host{host("a1", "a")}}
	s := NewService(fleet, NewReservations())
	now := time.Unix(1000, 0)
	s.SetClock(func() time.Time { return now })
	pause := func() time.Duration {
		t.Helper()
		fleet.err = talkingFailed
		if _, err := compose(t, s, small); !errors.Is(err, maas.Unavailable) {
			t.Fatalf("composing: %v", err)
		}
		s.Cancel(small.Hostname)
		fleet.err = nil
		until := time.Time{}
		for waited := time.Duration(0); ; waited += time.Minute {
			_, err := compose(t, s, with(func(v *VMSpec) { v.Hostname = "other" }))
			s.Cancel("other")
			if err == nil {
				t.Fatalf("the host was tried %v after it failed, and not refused before", waited)
			}
			var refused *LXDError
			if !errors.As(err, &refused) || refused.Type != HostUnavailable {
				t.Fatalf("%#v, want a refusal", err)
			}
			list, _ := s.GetAvailableLXDHosts(t.Context(), small)
			if until.IsZero() {
				until = list[0].CooldownUntil
			}
			if said := until.UTC().Format(time.RFC3339); !list[0].CooldownUntil.Equal(until) || !strings.Contains(refused.Message, said) {
				t.Fatalf("it is skipped until %v, before that until %v, and the message is %q", list[0].CooldownUntil, until, refused.Message)
			}
			if now = now.Add(time.Minute); !now.Before(until) {
				return waited + time.Minute
			}
		}
	}
	var got []time.Duration
	for range 7 {
		got = append(got, pause())
	}
	const m = time.Minute
	if diff := cmp.Diff([]time.Duration{3 * m, 6 * m, 12 * m, 24 * m, 48 * m, 60 * m, 60 * m}, got); diff != "" {
		t.Errorf("the pauses differ (-want +got):\n%s", diff)
	}
	if _, err := compose(t, s, small); err != nil {
		t.Fatal(err)
	}
	s.Cancel(small.Hostname)
	if got := pause(); got != cooldowns.First {
		t.Errorf("after a success the pause is %v, want %v", got, cooldowns.First)
	}
	now = now.Add(2 * cooldowns.Longest)
	if got := pause(); got != cooldowns.First {
		t.Errorf("long after a failure the pause is %v, want %v", got, cooldowns.First)
	}
}

// The longest pause counts.
func TestAHostThatFailedAndDoesNotRespondIsSkippedOnce(t *testing.T) {
	for name, until := range map[string]time.Duration{"longer": 2 * cooldowns.First, "shorter": cooldowns.First / 2} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			fleet := &hosts{list: []Host{host("a1", "a", failed(toAnswer, now.Add(until).Unix()))}}
			s := NewService(fleet, NewReservations())
			s.SetClock(func() time.Time { return now })
			s.failed(&fleet.list[0])
			list, err := s.GetAvailableLXDHosts(t.Context(), small)
			if err != nil {
				t.Fatal(err)
			}
			if want := now.Add(max(until, cooldowns.First)); !list[0].CooldownUntil.Equal(want) || (list[0].FailedTo == toAnswer) != (until > cooldowns.First) {
				t.Errorf("it cools down until %v after it failed to %s, want %v", list[0].CooldownUntil, list[0].FailedTo, want)
			}
		})
	}
}

// A direct host that restarts is back before a VM host would be tried again.
func TestADirectHostCoolsDownForLess(t *testing.T) {
	now := time.Unix(1000, 0)
	s := NewService(&hosts{}, NewReservations())
	s.SetClock(func() time.Time { return now })
	list := []Host{host("a1", "a"), host("a2", "a")}
	list[1].Object = &HostObject{Direct: true}
	for i := range list {
		s.failed(&list[i])
	}
	s.markCoolingDown(list)
	got := []time.Duration{list[0].CooldownUntil.Sub(now), list[1].CooldownUntil.Sub(now)}
	if diff := cmp.Diff([]time.Duration{cooldowns.First, directCooldowns.First}, got); diff != "" {
		t.Errorf("the cooldowns differ (-want +got):\n%s", diff)
	}
}

// What is in the way of a VM that is there, and the time that this process took, say nothing of its host.
func TestADirectHostCoolsDownForItsOwnFailuresAlone(t *testing.T) {
	for kind, want := range map[lxdhost.Kind]bool{
		lxdhost.KindNoRoom: true, lxdhost.KindConflict: true, lxdhost.KindVolume: false, lxdhost.KindTooLate: false,
	} {
		direct := host("a1", "a")
		direct.Object = &HostObject{Direct: true}
		s := NewService(&hosts{err: &DirectError{cause: &lxdhost.Error{Kind: kind}}}, NewReservations())
		if _, err := s.ComposeVM(t.Context(), maas.Unrecorded("a test"), direct, small); err == nil {
			t.Fatal("it was composed")
		}
		all := []Host{direct}
		if s.markCoolingDown(all); all[0].CooldownUntil.IsZero() == want {
			t.Errorf("after %s: it cools down until %s", kind, all[0].CooldownUntil)
		}
	}
}

// VMs that were on their way to a host when it failed are no further failures.
func TestFailuresAtTheSameTimeCountOnce(t *testing.T) {
	s := NewService(&hosts{}, NewReservations())
	now := time.Unix(1000, 0)
	s.SetClock(func() time.Time { return now })
	list := []Host{host("a1", "a")}
	for range 10 {
		s.failed(&list[0])
		now = now.Add(time.Second)
	}
	s.markCoolingDown(list)
	if want := time.Unix(1000, 0).Add(cooldowns.First); !list[0].CooldownUntil.Equal(want) {
		t.Errorf("it is skipped until %v, want %v", list[0].CooldownUntil, want)
	}
}

func TestWhatIsNotTheHostsFault(t *testing.T) {
	for name, err := range map[string]error{
		"the API key":              &maas.Error{Kind: maas.Unauthorized, Status: 401},
		"no administrator":         &maas.Error{Kind: maas.Forbidden, Status: 403},
		"a MAAS without VM hosts":  &maas.Error{Kind: maas.Gone, Status: 410},
		"the connection broke":     &maas.Error{Kind: maas.Unavailable},
		"a garbled response":       &maas.Error{Kind: maas.Unavailable, Status: 200},
		"a lock in MAAS":           &maas.Error{Kind: maas.Conflict, Status: 409},
		"a host that is gone":      &maas.Error{Kind: maas.NotFound, Status: 404},
		"a proxy":                  &maas.Error{Kind: maas.Unavailable, Status: 502},
		"a proxy that is busy":     &maas.Error{Kind: maas.Unavailable, Status: 503, RetryAfter: time.Second},
		"MAAS is known to be away": &maas.Error{Kind: maas.Unavailable, NotSent: true},
	} {
		t.Run(name, func(t *testing.T) {
			fleet := &hosts{list: []Host{host("a1", "a")}, err: err}
			s := NewService(fleet, NewReservations())
			if _, got := compose(t, s, small); !errors.Is(got, err) {
				t.Fatalf("composing: %v, want %v", got, err)
			}
			fleet.err = nil
			if _, err := compose(t, s, small); err != nil {
				t.Errorf("the host is skipped: %v", err)
			}
		})
	}
}

func TestWhatIsTheHostsFault(t *testing.T) {
	for name, err := range map[string]error{
		"it can't be reached":  talkingFailed,
		"it failed":            &maas.Error{Kind: maas.Unavailable, Status: 500},
		"it lacks something":   &maas.Error{Kind: maas.Invalid, Status: 400, Fields: map[string][]string{"storage": {"no room"}}},
		"it is not MAAS's own": errors.New("LXD refuses"),
	} {
		t.Run(name, func(t *testing.T) {
			fleet := &hosts{list: []Host{host("a1", "a")}, err: err}
			s := NewService(fleet, NewReservations())
			if _, got := compose(t, s, small); !errors.Is(got, err) {
				t.Fatalf("composing: %v, want %v", got, err)
			}
			fleet.err = nil
			if host, err := compose(t, s, small); err == nil {
				t.Errorf("the next one is composed on %s", host)
			}
		})
	}
}

// A compose that never reached MAAS holds no room, and is no failure of a host.
func TestAComposeThatWasNotSentLeavesNothing(t *testing.T) {
	fleet := &hosts{list: []Host{host("a1", "a")}, err: &maas.Error{Kind: maas.Unavailable, NotSent: true}}
	s := NewService(fleet, NewReservations())
	_, err := compose(t, s, small)
	if placed := (*LXDError)(nil); errors.As(err, &placed) || !maas.NotSent(err) {
		t.Errorf("the error is %#v", err)
	}
	if n := len(s.reservations.byVM); n != 0 {
		t.Errorf("%d reservations are left", n)
	}
}

func TestATakenNameIsNotTheHostsFault(t *testing.T) {
	fleet := &hosts{list: []Host{host("a1", "a")}, err: &maas.Error{Kind: maas.Invalid, Fields: map[string][]string{"hostname": {"taken"}}}}
	s := NewService(fleet, NewReservations())
	if _, err := compose(t, s, small); !errors.Is(err, maas.Invalid) {
		t.Fatalf("composing: %v, want %s", err, maas.Invalid)
	}
	fleet.err = nil
	if _, err := compose(t, s, small); err != nil {
		t.Errorf("the host is avoided: %v", err)
	}
}

func TestProjectsAndProfiles(t *testing.T) {
	left := host("a3", "a") // MAAS listed it, and no longer has it.
	fleet := &hosts{list: []Host{host("a1", "a"), host("a2", "a"), left}, projects: map[string]string{"a1": "default", "a2": "maas"}}
	for name, tc := range map[string]struct {
		spec VMSpec
		want []string
		kind ErrorType
	}{
		"none":               {small, []string{"a1", "a2", "a3"}, ""},
		"a project":          {with(func(s *VMSpec) { s.Project = "maas" }), []string{"a2"}, ""},
		"no such project":    {with(func(s *VMSpec) { s.Project = "other" }), nil, ProjectNotFound},
		"MAAS's own profile": {with(func(s *VMSpec) { s.Profile = "maas" }), []string{"a1", "a2", "a3"}, ""},
		"any other profile":  {with(func(s *VMSpec) { s.Profile = "fast" }), nil, ProfileNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := NewService(fleet, NewReservations()).GetAvailableLXDHosts(t.Context(), tc.spec)
			var refused *LXDError
			if tc.kind != "" && (!errors.As(err, &refused) || refused.Type != tc.kind) {
				t.Fatalf("the error is %v, want type %s", err, tc.kind)
			}
			if tc.kind == "" && err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, names(got)); diff != "" {
				t.Errorf("the hosts differ (-want +got):\n%s", diff)
			}
		})
	}
}
