// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

const name = "api.maas.test"

// server is a MAAS that has one DNS record at most.
type server struct {
	mu sync.Mutex
	// fqdn is the record's; "" if there is none. An address of "" is that of a link whose machine was released.
	fqdn      string
	addresses []string
	// calls are those that change something.
	calls []string
	// reads counts the reads of the record.
	reads int
	// down makes reads fail with 500.
	down bool
	// lose is how many changes get 500 after they took effect.
	lose int
}

func (s *server) record() any {
	links := []any{}
	for _, address := range s.addresses {
		if address == "" {
			links = append(links, map[string]any{"ip": nil})
			continue
		}
		links = append(links, map[string]any{"ip": address})
	}
	return map[string]any{"id": 7, "fqdn": s.fqdn, "ip_addresses": links}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodGet && s.down {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if r.Method == http.MethodGet {
		s.reads++
		answer := []any{}
		if s.fqdn != "" {
			answer = append(answer, s.record())
		}
		_ = json.NewEncoder(w).Encode(answer)
		return
	}
	_ = r.ParseMultipartForm(1 << 20)
	s.calls = append(s.calls, r.Method)
	switch {
	case r.Method == http.MethodPost && s.fqdn != "":
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"__all__": ["Labels must be unique within their zone."]}`)
		return
	case r.Method == http.MethodPost:
		s.fqdn, s.addresses = r.Form.Get("fqdn"), strings.Fields(r.Form.Get("ip_addresses"))
	case s.fqdn == "":
		w.WriteHeader(http.StatusNotFound)
		return
	case r.Method == http.MethodPut:
		s.addresses = strings.Fields(r.Form.Get("ip_addresses"))
	case r.Method == http.MethodDelete:
		s.fqdn, s.addresses = "", nil
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if s.lose > 0 {
		s.lose--
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(s.record())
}

func newService(t *testing.T, s *server) *Service {
	t.Helper()
	listener := httptest.NewServer(s)
	t.Cleanup(listener.Close)
	client := simtest.Client(t, listener.URL+"/MAAS", "consumer:token:secret")
	return NewService(inventory.New(client, inventory.Options{}))
}

var unrecorded = Calls{
	Write: func(ctx context.Context, call func(context.Context, maas.Permit) error) error {
		return call(ctx, maas.Unrecorded("a test"))
	},
	Free: func(ctx context.Context, call func(context.Context, maas.ReleasePermit) error) error {
		return call(ctx, maas.UnrecordedRelease("a test"))
	},
}

func want(addresses ...string) func([]string) ([]string, error) {
	return func([]string) ([]string, error) { return addresses, nil }
}

func TestEnsureWritesOnlyWhatDiffers(t *testing.T) {
	for name, tc := range map[string]struct {
		server  *server
		desired []string
		calls   []string
		left    []string
	}{
		"there is none yet":                       {&server{}, []string{"10.0.0.1"}, []string{"POST"}, []string{"10.0.0.1"}},
		"it is so":                                {&server{fqdn: name, addresses: []string{"10.0.0.2", "10.0.0.1"}}, []string{"10.0.0.1", "10.0.0.2"}, nil, []string{"10.0.0.2", "10.0.0.1"}},
		"another user edited it":                  {&server{fqdn: name, addresses: []string{"10.0.0.9"}}, []string{"10.0.0.1"}, []string{"PUT"}, []string{"10.0.0.1"}},
		"somebody emptied it":                     {&server{fqdn: name}, []string{"10.0.0.1"}, []string{"PUT"}, []string{"10.0.0.1"}},
		"it is never emptied":                     {&server{fqdn: name, addresses: []string{"10.0.0.1"}}, nil, nil, []string{"10.0.0.1"}},
		"it is not made without an address":       {&server{}, nil, nil, nil},
		"a link to a machine that was released":   {&server{fqdn: name, addresses: []string{"10.0.0.1", ""}}, []string{"10.0.0.1"}, []string{"PUT"}, []string{"10.0.0.1"}},
		"such a link, and nothing to lead to yet": {&server{fqdn: name, addresses: []string{""}}, nil, []string{"DELETE"}, nil},
		"beside an address that may work":         {&server{fqdn: name, addresses: []string{"10.0.0.1", ""}}, nil, nil, []string{"10.0.0.1", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			s := tc.server
			service := newService(t, s)
			if _, wrote, err := service.Ensure(t.Context(), "api.maas.test", false, unrecorded, want(tc.desired...)); err != nil || wrote != (tc.calls != nil && tc.left != nil) {
				t.Errorf("wrote: %v, %v", wrote, err)
			}
			if diff := cmp.Diff(tc.calls, s.calls); diff != "" {
				t.Errorf("the calls differ (-want +got):\n%s", diff)
			}
			if !slices.Equal(s.addresses, tc.left) {
				t.Errorf("the record holds %v, want %v", s.addresses, tc.left)
			}
		})
	}
}

// MAAS removes the address of a machine that leaves the record, or the record itself, and gives the replacement the
// lowest free address: the same.
func TestEnsureAfterTheOnlyMachineWasReplaced(t *testing.T) {
	for name, gone := range map[string]func(*server){
		"a released machine leaves a link":      func(s *server) { s.addresses = []string{""} },
		"a deleted machine's address goes":      func(s *server) { s.addresses = nil },
		"the record goes with its last address": func(s *server) { s.fqdn, s.addresses = "", nil },
		"it stays as it is":                     func(*server) {},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{}
			service := newService(t, s)
			ensure := func(addresses ...string) {
				t.Helper()
				if _, _, err := service.Ensure(t.Context(), "api.maas.test", false, unrecorded, want(addresses...)); err != nil {
					t.Fatal(err)
				}
			}
			ensure("10.0.0.1")
			ensure() // The machine is on its way out.
			gone(s)
			service.LetGo("api.maas.test", "one")
			ensure()
			if slices.Contains(s.addresses, "") {
				t.Errorf("after the calls %v the record has the link still, which the next user's machine would fill", s.calls)
			}
			ensure()
			reads := s.reads
			ensure()
			if s.fqdn == "" && s.reads != reads {
				t.Errorf("%d reads while there is no record", s.reads-reads)
			}
			ensure("10.0.0.1")
			if !slices.Equal(s.addresses, []string{"10.0.0.1"}) {
				t.Errorf("after the calls %v the record holds %q", s.calls, s.addresses)
			}
			calls, reads := len(s.calls), s.reads
			ensure("10.0.0.1")
			if len(s.calls) != calls || s.reads != reads {
				t.Errorf("a record that is known to be right was read or written again: %v", s.calls[calls:])
			}
		})
	}
}

// A machine takes its time to go, and many reconciles see it. A replacement may be there before it is let go.
func TestEnsureReadsOnceWhileTheOnlyMachineGoes(t *testing.T) {
	for name, gone := range map[string]func(*server){
		"its address stays":                     func(*server) {},
		"a released machine leaves a link":      func(s *server) { s.addresses = []string{""} },
		"the record goes with its last address": func(s *server) { s.fqdn, s.addresses = "", nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{}
			service := newService(t, s)
			ensure := func(addresses ...string) {
				t.Helper()
				if _, _, err := service.Ensure(t.Context(), "api.maas.test", false, unrecorded, want(addresses...)); err != nil {
					t.Fatal(err)
				}
			}
			ensure("10.0.0.1")
			reads := s.reads
			for range 5 {
				ensure()
			}
			if s.reads != reads {
				t.Errorf("%d reads while the machine is on its way out", s.reads-reads)
			}
			gone(s)
			for range 5 { // A reconciler whose cache is behind says it again.
				service.LetGo("api.maas.test", "one")
				ensure()
			}
			if s.reads != reads+1 {
				t.Errorf("%d reads after it was let go, want 1", s.reads-reads)
			}
			service.LetGo("api.maas.test", "another")
			ensure()
			if s.reads != reads+2 {
				t.Errorf("%d reads after another one was let go, too, want 2", s.reads-reads)
			}
			s.addresses = nil // MAAS took its address out only now.
			ensure("10.0.0.1")
			if !slices.Equal(s.addresses, []string{"10.0.0.1"}) {
				t.Errorf("the replacement has the address of the former machine, and the record %q", s.addresses)
			}
		})
	}
}

func TestEnsureAfterALostResponseFindsTheRecord(t *testing.T) {
	for method, s := range map[string]*server{"POST": {lose: 1}, "PUT": {fqdn: name, addresses: []string{"10.0.0.2"}, lose: 1}} {
		t.Run(method, func(t *testing.T) {
			service := newService(t, s)
			if _, _, err := service.Ensure(t.Context(), name, false, unrecorded, want("10.0.0.1")); !errors.Is(err, maas.Unavailable) {
				t.Errorf("the error is %v", err)
			}
			got, wrote, err := service.Ensure(t.Context(), name, false, unrecorded, want("10.0.0.1"))
			if err != nil || wrote || !slices.Equal(got, []string{"10.0.0.1"}) {
				t.Errorf("then it holds %v, wrote %v, %v", got, wrote, err)
			}
			if !slices.Equal(s.calls, []string{method}) {
				t.Errorf("the calls were %v", s.calls)
			}
		})
	}
}

// A write whose response was lost may come after the record was read.
func TestEnsureCorrectsALateWrite(t *testing.T) {
	s := &server{fqdn: name, addresses: []string{"10.0.0.1"}}
	service := newService(t, s)
	for range 2 {
		got, _, err := service.Ensure(t.Context(), name, true, unrecorded, want("10.0.0.1"))
		if err != nil || !slices.Equal(got, []string{"10.0.0.1"}) || !slices.Equal(s.addresses, got) {
			t.Errorf("it returns %v, %v; the record holds %v", got, err, s.addresses)
		}
		s.addresses = []string{"10.0.0.1", "10.0.0.2"}
	}
}

func TestEnsureWritesNothingWhenItIsNotKnownWhat(t *testing.T) {
	unread := &server{fqdn: name, addresses: []string{"10.0.0.1"}, down: true}
	if _, wrote, err := newService(t, unread).Ensure(t.Context(), name, false, unrecorded, want("10.0.0.2")); !errors.Is(err, maas.Unavailable) || wrote || unread.calls != nil {
		t.Errorf("without having read it: wrote %v, calls %v, %v", wrote, unread.calls, err)
	}
	s := &server{fqdn: name, addresses: []string{"10.0.0.1"}}
	down := errors.New("down")
	_, wrote, err := newService(t, s).Ensure(t.Context(), name, false, unrecorded, func([]string) ([]string, error) { return nil, down })
	if !errors.Is(err, down) || wrote || s.calls != nil {
		t.Errorf("wrote %v, calls %v, %v", wrote, s.calls, err)
	}
}

// Whoever filters records for us, or renames one, does not make us write to, or delete, another's.
func TestTheRecordOfAnotherNameIsNotTouched(t *testing.T) {
	s := &server{fqdn: "somebody.maas.test", addresses: []string{"10.0.0.9"}}
	service := newService(t, s)
	_, _, ensured := service.Ensure(t.Context(), name, false, unrecorded, want("10.0.0.1"))
	for doing, err := range map[string]error{"writing": ensured, "deleting": service.Delete(t.Context(), maas.Unrecorded("a test"), unrecorded.Free, name)} {
		var wrong *inventory.WrongRecordError
		if !errors.As(err, &wrong) || wrong.Got != "somebody.maas.test" || wrong.Wanted != name {
			t.Errorf("%s: the error is %v", doing, err)
		}
	}
	if s.calls != nil || !slices.Equal(s.addresses, []string{"10.0.0.9"}) {
		t.Errorf("after %v the record holds %v", s.calls, s.addresses)
	}
}

func TestARecordThatWasRenamedIsNotTakenForOurs(t *testing.T) {
	s := &server{fqdn: name, addresses: []string{"10.0.0.1"}}
	service := newService(t, s)
	if _, _, err := service.Ensure(t.Context(), name, false, unrecorded, want("10.0.0.1")); err != nil {
		t.Fatal(err)
	}
	s.fqdn = "renamed.maas.test"
	var wrong *inventory.WrongRecordError
	if _, _, err := service.Ensure(t.Context(), name, false, unrecorded, want("10.0.0.2")); !errors.As(err, &wrong) {
		t.Errorf("the error is %v", err)
	}
	s.fqdn, s.addresses = "", nil // MAAS does not find it by our name any more.
	if got, wrote, err := service.Ensure(t.Context(), name, false, unrecorded, want("10.0.0.2")); err != nil || !wrote || !slices.Equal(got, []string{"10.0.0.2"}) {
		t.Errorf("then it holds %v, wrote %v, %v", got, wrote, err)
	}
}

func TestDeleteEndsWhenTheRecordIsGone(t *testing.T) {
	s := &server{fqdn: "API.maas.test", addresses: []string{"10.0.0.1"}} // Names of DNS don't care.
	service := newService(t, s)
	for range 2 {
		if err := service.Delete(t.Context(), maas.Unrecorded("a test"), unrecorded.Free, name); err != nil {
			t.Error(err)
		}
	}
	if s.fqdn != "" || !slices.Equal(s.calls, []string{"DELETE"}) {
		t.Errorf("after %v there is %q", s.calls, s.fqdn)
	}
}

// Who waits for another's call gives up with its own context, and leaves its worker to others meanwhile.
func TestWaitingForTheRecordRespectsTheContext(t *testing.T) {
	service := newService(t, &server{})
	unlock, err := service.lock.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	free := make(chan struct{})
	ctx = guard.WithIdle(ctx, func() (resume func()) {
		close(free)
		return func() {}
	})
	go func() {
		<-free
		cancel()
	}()
	if err := service.Delete(ctx, maas.Unrecorded("a test"), unrecorded.Free, name); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v, want that the context was cancelled", err)
	}
}
