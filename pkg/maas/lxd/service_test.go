// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// hosts composes as it is told.
type hosts struct {
	list     []Host
	projects map[string]string
	err      error
	composed []string
}

func (h *hosts) Hosts(context.Context) ([]Host, error) { return append([]Host(nil), h.list...), nil }

func (h *hosts) Project(_ context.Context, host Host) (string, error) {
	return h.projects[host.Name], nil
}

func (h *hosts) Compose(_ context.Context, host Host, spec VMSpec) (VM, error) {
	if h.err != nil {
		return VM{}, h.err
	}
	h.composed = append(h.composed, spec.Hostname+"@"+host.Name)
	return VM{SystemID: "id-" + spec.Hostname, Host: host.Name}, nil
}

func (h *hosts) Decompose(context.Context, VM) error { return nil }

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
	_, err = s.ComposeVM(t.Context(), host, spec)
	return host.Name, err
}

func TestAHostThatFailedIsLeftAloneForAWhile(t *testing.T) {
	fleet := &hosts{list: []Host{host("a1", "a"), host("a2", "a")}}
	s := NewService(fleet, NewReservations())
	now := time.Unix(1000, 0)
	s.clock = func() time.Time { return now }

	fleet.err = &maas.Error{Kind: maas.Unavailable, Message: "Failed talking to pod"}
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
	pinned, err := compose(t, s, with(func(v *VMSpec) { v.HostName = name }))
	if err != nil || pinned != name {
		t.Errorf("a pinned VM went to %s (%v), want %s", pinned, err, name)
	}
	s.Cancel(small.Hostname)
	now = now.Add(avoidance)
	if again, err := compose(t, s, small); err != nil || again != name {
		t.Errorf("after a while a VM went to %s (%v), want %s again", again, err, name)
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
	fleet := &hosts{list: []Host{host("a1", "a"), host("a2", "a")}, projects: map[string]string{"a1": "default", "a2": "maas"}}
	for name, tc := range map[string]struct {
		spec VMSpec
		want []string
		kind ErrorType
	}{
		"none":               {small, []string{"a1", "a2"}, ""},
		"a project":          {with(func(s *VMSpec) { s.Project = "maas" }), []string{"a2"}, ""},
		"no such project":    {with(func(s *VMSpec) { s.Project = "other" }), nil, ProjectNotFound},
		"MAAS's own profile": {with(func(s *VMSpec) { s.Profile = "maas" }), []string{"a1", "a2"}, ""},
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
