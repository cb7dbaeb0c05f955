// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

const (
	// mark is that of the VM's MaasMachine.
	mark   = "capmaas/owner/vm"
	theirs = "juju"
)

// shared is a MAAS with a VM that nobody has, which another user may take.
type shared struct {
	fuzzedRegion
	t        *testing.T
	composer *both
	other    *maas.Client
	vm       VM
}

func newShared(t *testing.T, change ...func(*VMSpec)) *shared {
	t.Helper()
	text := strings.Replace(fuzzRegion, "compose: 0s", "compose: 0s, decompose: 0s, refresh: 0s, commission: 1h", 1)
	text = strings.Replace(text, "users: [", `users: [{name: other, admin: true, keys: ["other:token:secret"]}, `, 1)
	s := &shared{t: t}
	s.sim = simtest.New(t, text, simulator.Options{})
	server := httptest.NewServer(s.sim.Handler())
	t.Cleanup(server.Close)
	s.inventory = inventory.New(simtest.Client(t, server.URL+"/MAAS", "admin:token:secret"), inventory.Options{})
	s.composer = &both{objects: objectsOf(nil), vmHosts: &vmHosts{s.inventory, NewHostRefresher()}}
	s.other = simtest.Client(t, server.URL+"/MAAS", "other:token:secret")
	host := s.host(t, s.composer.vmHosts)
	spec := VMSpec{Hostname: "vm", Resources: Resources{1, 2048, 8}}
	for _, c := range change {
		c(&spec)
	}
	var err error
	s.vm, err = s.composer.vmHosts.Compose(t.Context(), maas.Unrecorded("a test"), host, spec)
	if err != nil {
		t.Fatal(err)
	}
	s.vm.Mark, s.vm.HostRef = mark, HostRef(host)
	s.vm.Machine = s.read()
	return s
}

// read returns the VM as MAAS has it; nil if it is gone.
func (s *shared) read() *maas.Machine {
	s.t.Helper()
	m, err := s.other.GetMachine(s.t.Context(), s.vm.SystemID)
	if errors.Is(err, maas.NotFound) {
		return nil
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

// take is another user's attempt to get the VM.
func (s *shared) take() error {
	_, err := s.other.AllocateMachine(s.t.Context(), maas.Unrecorded("a test"), maas.AllocateParams{SystemID: s.vm.SystemID, AgentName: theirs})
	return err
}

func (s *shared) decompose() error {
	return s.composer.Decompose(s.t.Context(), maas.UnrecordedVM("a test"), s.vm)
}

// MAAS may delete what it was asked for late, when another user has taken the VM that nobody had.
func TestNobodysVMIsClaimedBeforeItIsDeleted(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	var taken atomic.Int32
	s.sim.SetHook(func(c simulator.Call, phase simulator.Phase) error {
		if c.Method == http.MethodDelete && phase == simulator.Before {
			if err := s.take(); !errors.Is(err, maas.Conflict) {
				taken.Add(1)
				t.Errorf("another user gets the VM that is being deleted: %v", err)
			}
		}
		return nil
	})
	if err := s.decompose(); err != nil {
		t.Fatal(err)
	}
	if m := s.read(); m != nil && taken.Load() == 0 {
		t.Errorf("MAAS has %+v", m)
	}
}

// What is known of a VM may be old.
func TestAVMThatAnotherUserHasTakenIsNotDeleted(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]bool{"seen as nobody's": true, "never seen": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShared(t)
			if !known {
				s.vm.Machine = nil
			}
			if err := s.take(); err != nil {
				t.Fatal(err)
			}
			err := s.decompose()
			if taken, is := errors.AsType[*TakenError](err); !is || taken.Machine.SystemID != s.vm.SystemID || !maas.HadNoEffect(err) {
				t.Errorf("the error is %v", err)
			}
			if m := s.read(); m == nil || m.Status != maas.StatusAllocated {
				t.Errorf("MAAS has %+v", m)
			}
		})
	}
}

// Who claims a VM to delete it, and dies, finds it again.
func TestAVMThatWasClaimedToBeDeletedIsFound(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		by    func(*shared) error
		state State
	}{
		"by us": {func(s *shared) error {
			_, err := s.inventory.Client().AllocateMachine(s.t.Context(), maas.Unrecorded("a test"), maas.AllocateParams{SystemID: s.vm.SystemID, AgentName: mark})
			return err
		}, Present},
		"by another user": {(*shared).take, Gone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShared(t)
			if err := tc.by(s); err != nil {
				t.Fatal(err)
			}
			was := s.vm.SystemID
			s.vm.SystemID, s.vm.Machine = "", nil
			p, err := found(t, s.composer.vmHosts, s.vm)
			if err != nil || p.State != tc.state {
				t.Fatalf("got %+v, %v", p, err)
			}
			if tc.state != Present {
				return
			}
			s.vm = *p.VM
			if s.vm.SystemID != was || s.vm.Mark != mark {
				t.Errorf("found is %+v", s.vm)
			}
			if err := s.decompose(); err != nil || s.read() != nil {
				t.Errorf("MAAS has %+v: %v", s.read(), err)
			}
		})
	}
}

// A VM that MAAS commissions can be allocated by nobody.
func TestAVMThatIsCommissionedNeedsNoClaim(t *testing.T) {
	t.Parallel()
	s := newShared(t, func(spec *VMSpec) { spec.Commission = true })
	if s.vm.Machine.Status == maas.StatusReady {
		t.Fatalf("MAAS has %+v", s.vm.Machine)
	}
	if err := s.decompose(); err != nil || s.read() != nil {
		t.Errorf("MAAS has %+v: %v", s.read(), err)
	}
}
