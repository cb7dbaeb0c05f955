// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/test/hostile"
)

// something is a server that is no LXD, and Options for it.
func something(t *testing.T, handler http.Handler) Options {
	t.Helper()
	keys := newKeys(t)
	address, certificate := hostile.ServeTLS(t, handler)
	return Options{
		Address: address, ServerCertificate: certificate, ClientCertificate: keys.Certificate, ClientKey: keys.Key, Project: project,
	}
}

// Whoever may make an LXDHost names the server, and the chart limits the manager's memory.
func TestAnLXDThatAnswersWithoutEndTakesLittle(t *testing.T) {
	t.Parallel()
	const offered = 256 << 20
	for name, begin := range map[string]func(w http.ResponseWriter){
		"a response": func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"type":"sync","metadata":{"auth":"trusted","x":"`)
		},
		"an error": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"type":"error","error":"`)
		},
		"garbage":           nil,
		"spaces and a page": func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) },
		"a header":          func(w http.ResponseWriter) { w.Header().Set("ETag", strings.Repeat("a", 2*guard.MaxHeader)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flood := &hostile.Flood{Begin: begin, Most: offered}
			o := something(t, flood)
			_, err := new(Connections).Read(t.Context(), o, 0)
			wantKind(t, err, KindUnreachable)
			if got := flood.Taken(); got > 2*maxResponse {
				t.Errorf("the manager took %d MiB of it", got>>20)
			}
		})
	}
}

func TestARedirectOfLXDIsNotFollowed(t *testing.T) {
	t.Parallel()
	var followed atomic.Bool
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Store(true) }))
	defer elsewhere.Close()
	o := something(t, http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	if _, err := connect(t.Context(), o, newCircuit()); !errors.Is(err, errRedirect) || followed.Load() {
		t.Errorf("followed %v: %v", followed.Load(), err)
	}
}

// hanging is a server that accepts requests and responds to none.
func hanging(t *testing.T) (o Options, asked <-chan struct{}) {
	t.Helper()
	silence := hostile.NewSilence()
	return something(t, silence), silence.Requests()
}

// The LXDHost's own reconciler waits for LXD longer than a placement may.
func TestAReaderWaitsNoLongerThanItMay(t *testing.T) {
	t.Parallel()
	o, asked := hanging(t)
	c := &Connections{}
	first, stop := context.WithCancel(t.Context())
	firstEnded := make(chan struct{})
	go func() { defer close(firstEnded); _, _ = c.Read(first, o, 0) }()
	<-asked // It has the lock.
	for name, call := range map[string]func(context.Context) error{
		"Read": func(ctx context.Context) error { _, err := c.Read(ctx, o, 0); return err },
		"Host": func(ctx context.Context) error { _, err := c.Host(ctx, o); return err },
	} {
		var idle, resumed atomic.Int32
		ctx := guard.WithIdle(t.Context(), func() func() { idle.Add(1); return func() { resumed.Add(1) } })
		ctx, cancel := context.WithTimeout(ctx, short)
		err := call(ctx)
		cancel()
		wantKind(t, err, KindUnreachable)
		wantDeadline(t, err)
		if idle.Load() == 0 || idle.Load() != resumed.Load() {
			t.Errorf("%s: its worker was given away %d times, and taken back %d times", name, idle.Load(), resumed.Load())
		}
		select {
		case <-firstEnded:
			t.Errorf("%s waited for the other caller", name)
		default:
		}
	}
	stop()
	<-firstEnded
}

// Whoever waits for LXD holds none of the manager's workers.
func TestAWorkerIsFreeWhileLXDIsAsked(t *testing.T) {
	t.Parallel()
	o, asked := hanging(t)
	idle, resumed := make(chan struct{}, 1), make(chan struct{}, 1)
	ctx := guard.WithIdle(t.Context(), func() func() { idle <- struct{}{}; return func() { resumed <- struct{}{} } })
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); _, _ = connect(ctx, o, newCircuit()) }()
	<-asked
	select {
	case <-idle:
	default:
		t.Error("the worker is held")
	}
	cancel()
	<-ended
	<-resumed
}

// A process that was paused after it asked LXD must not change what another one has made there meanwhile.
func TestNothingIsChangedOnWhatWasSeenTooLongAgo(t *testing.T) {
	b := newBed(t)
	b.create(withDisk("stopped"))
	change, _ := atNth(isWrite, 2, true, cutBefore)
	b.between.set(change)
	wantKind(t, b.clone(b.host, withDisk("half")), KindUnreachable)
	b.between.set(nil)
	b.create(spec("running"))
	b.must(b.host.Start(t.Context(), "running", ours, time.Time{}))
	b.foreign(b.server, "unmarked", nil)
	paused := *b.host
	paused.sendWithin = time.Nanosecond
	for name, do := range map[string]func() error{
		"Clone":                    func() error { return b.clone(&paused, spec("new")) },
		"Clone, its further disks": func() error { return b.clone(&paused, withDisk("half")) },
		"Start":                    func() error { return paused.Start(t.Context(), "stopped", ours, time.Time{}) },
		"Stop":                     func() error { return paused.Stop(t.Context(), "running", ours, time.Time{}) },
		"Adopt": func() error {
			return paused.Adopt(t.Context(), "unmarked", ours, []string{DeriveMAC("foreign", "unmarked").String()})
		},
		"Delete, its stop":          func() error { return paused.Delete(t.Context(), "running", ours, time.Time{}) },
		"Delete, its further disks": func() error { return paused.Delete(t.Context(), "stopped", ours, time.Time{}) },
	} {
		calls := b.between.during(func() { wantKind(t, do(), KindTooLate) })
		if slices.ContainsFunc(calls, func(call string) bool { return !strings.HasPrefix(call, "GET ") }) {
			t.Errorf("%s: it was sent: %q", name, calls)
		}
	}
	b.must(b.host.Stop(t.Context(), "running", ours, time.Time{}))
	calls := b.between.during(func() { wantKind(t, paused.Delete(t.Context(), "running", ours, time.Time{}), KindTooLate) })
	if slices.Contains(calls, "DELETE /1.0/instances/running") {
		t.Errorf("it was sent: %q", calls)
	}
	// In time, everything goes.
	b.must(b.host.Delete(t.Context(), "running", ours, time.Time{}))
	b.must(b.host.Delete(t.Context(), "stopped", ours, time.Time{}))
}

// A VM that was asked for in time may be made late, and one whose time was over before it was asked for was not.
func TestACloneThatIsTooLateWasNotSent(t *testing.T) {
	b := newBed(t)
	s := spec("late")
	s.SendBefore = time.Now().Add(-time.Second)
	err := b.clone(b.host, s)
	wantKind(t, err, KindTooLate)
	var failed *Error
	if !errors.As(err, &failed) || failed.Sent || b.instance("late") != nil {
		t.Errorf("it was sent: %v", err)
	}
}

// LXD may need minutes for an image. What is sent after that needs another permit: the call counts as lost by then.
func TestACloneThatTakesLongSendsNothingTooLate(t *testing.T) {
	b := newBed(t)
	s, seen := withDisk("vm"), b.seen()
	for name, failed := range map[string]bool{"LXD makes it": false, "LXD fails": true} {
		s.SendBefore = time.Now().Add(15 * time.Second)
		b.between.set(func(lxd http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !isWait(r) {
					lxd.ServeHTTP(w, r)
					return
				}
				answer := httptest.NewRecorder()
				lxd.ServeHTTP(answer, r)
				if failed {
					b.must(b.aside.Delete(t.Context(), "vm", ours, time.Time{}))
					answer = httptest.NewRecorder()
					failure := api.Operation{StatusCode: api.Failure, Status: api.Failure.String()}
					_ = json.NewEncoder(answer).Encode(api.ResponseRaw{Type: api.SyncResponse, Metadata: failure})
				}
				if vm := b.instance("vm"); vm != nil || failed { // Otherwise LXD has failed of itself.
					<-time.After(time.Until(s.SendBefore))
				}
				_, _ = w.Write(answer.Body.Bytes())
			})
		})
		writes := slices.DeleteFunc(b.between.during(func() { wantKind(t, b.host.Clone(t.Context(), s, seen), KindTooLate) }), isGet)
		b.between.set(nil)
		if other := slices.DeleteFunc(slices.Clone(writes), isPostOfVM); len(other) > 0 || failed && len(writes) != 1 {
			t.Errorf("%s: sent are %q", name, writes)
		}
		s.SendBefore = time.Now().Add(time.Hour)
		writes = slices.DeleteFunc(b.between.during(func() { b.must(b.host.Clone(t.Context(), s, seen)) }), isGet)
		b.checkDisks(s)
		if slices.ContainsFunc(writes, isPostOfVM) != failed {
			t.Errorf("%s: in time, sent are %q", name, writes)
		}
		b.must(b.host.Delete(t.Context(), "vm", ours, time.Time{}))
	}
}

func isGet(call string) bool { return strings.HasPrefix(call, "GET ") }

func isPostOfVM(call string) bool { return !isNoPost(call) }

// While LXD does not respond, nobody waits for it but a probe.
func TestAnLXDThatDoesNotRespondIsOnlyProbed(t *testing.T) {
	b := newBed(t)
	b.create(spec("vm"))
	hasty := *b.host
	hasty.timeout, hasty.transport.slow = short, 0
	find := func() error { return hasty.Find(t.Context(), "vm", ours) }
	b.between.set(silent)
	for range guard.SilentCalls {
		err := find()
		wantKind(t, err, KindUnreachable)
		wantDeadline(t, err)
	}
	for name, do := range map[string]func() error{
		"Find":   find,
		"List":   func() error { _, err := hasty.List(t.Context()); return err },
		"Clone":  func() error { return b.clone(&hasty, spec("other")) },
		"Delete": func() error { return hasty.Delete(t.Context(), "vm", ours, time.Time{}) },
	} {
		var failed *Error
		calls := b.between.during(func() {
			if err := do(); !errors.As(err, &failed) || failed.Kind != KindUnreachable || failed.Sent {
				t.Errorf("%s: %v", name, err)
			}
		})
		if len(calls) > 1 { // A probe may be due.
			t.Errorf("%s: it was asked %q", name, calls)
		}
	}
	b.between.set(nil)
	hasty.timeout = b.host.timeout
	b.eventually(find)
	b.must(find())
}

// The circuit outlives the connection: an LXD that does not respond has none.
func TestTheCircuitOfAnLXDOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	o, asked := hanging(t)
	c := &Connections{}
	for range guard.SilentCalls {
		c.get(o).circuit.Leave(false, time.Now(), guard.Silent, "nobody answers")
	}
	for range 10 { // The next probe is not due for long.
		c.get(o).circuit.Leave(true, time.Now(), guard.Silent, "nobody answers")
	}
	for name, call := range map[string]func(context.Context) error{
		"Read": func(ctx context.Context) error { _, err := c.Read(ctx, o, 0); return err },
		"Host": func(ctx context.Context) error { _, err := c.Host(ctx, o); return err },
	} {
		var failed *Error
		if err := call(t.Context()); !errors.As(err, &failed) || failed.Kind != KindUnreachable {
			t.Errorf("%s: %v", name, err)
		}
	}
	select {
	case <-asked:
		t.Error("it was asked")
	default:
	}
}

// Many that answer without end, and all of them are asked again and again, take no more than a few.
func TestManyLXDsThatAnswerWithoutEndTakeLittle(t *testing.T) {
	t.Parallel()
	flood := &hostile.Flood{}
	o := something(t, flood)
	c := &Connections{}
	for range guard.SilentCalls {
		_, err := c.Read(t.Context(), o, 0)
		wantKind(t, err, KindUnreachable)
	}
	before := flood.Taken()
	_, err := c.Read(t.Context(), o, 0)
	wantKind(t, err, KindUnreachable)
	if got := flood.Taken() - before; got > maxResponse/2 { // A probe may be due.
		t.Errorf("it was asked again, and %d MiB were taken", got>>20)
	}
}

// Another object of the same name has a VM of the same name and marks. What was proven of the earlier one is no proof for it.
func TestAVMThatWasMadeAnewIsNotChanged(t *testing.T) {
	b := newBed(t)
	for name, do := range map[string]func(name string) error{
		"during the stop of a deletion": func(name string) error { return b.host.Delete(t.Context(), name, ours, time.Time{}) },
		"during a stop":                 func(name string) error { return b.host.Stop(t.Context(), name, ours, time.Time{}) },
	} {
		t.Run(name, func(t *testing.T) {
			b := b.in(t)
			name := strings.ReplaceAll(name, " ", "-")
			b.create(spec(name))
			b.must(b.host.Start(t.Context(), name, ours, time.Time{}))
			direct := b.connect(b.direct)
			change, seen := forgetting(func() {
				b.must(direct.Delete(t.Context(), name, ours, time.Time{}))
				b.must(b.clone(direct, spec(name)))
				b.must(direct.Start(t.Context(), name, ours, time.Time{}))
			})
			b.between.set(change)
			err := do(name)
			b.between.set(nil)
			wantFollowing(t, err)
			if vm := b.instance(name); seen() == 0 || vm == nil || !isRunning(vm) {
				t.Errorf("seen %d times; the new VM is %+v", seen(), vm)
			}
		})
	}
}

// wantFollowing checks that LXD may still do what it was asked for, as far as is known.
func wantFollowing(t *testing.T, err error) {
	t.Helper()
	var failed *Error
	if !errors.As(err, &failed) || !failed.MayFollow() {
		t.Errorf("the error is no unknown outcome: %v", err)
	}
}

// Between the last proof and the deletion, another one is made: LXD is asked for the deletion of what was proven.
func TestAVMThatWasMadeAnewBeforeItsDeletionIsAnother(t *testing.T) {
	b := newBed(t)
	b.create(withDisk("vm"))
	b.must(b.host.Start(t.Context(), "vm", ours, time.Time{}))
	direct := b.connect(b.direct)
	change, seen := atNth(isWait, 1, false, func(lxd http.Handler, w http.ResponseWriter, r *http.Request) {
		lxd.ServeHTTP(w, r) // The stop is known to be done.
		b.must(direct.Delete(t.Context(), "vm", ours, time.Time{}))
		b.must(b.clone(direct, spec("vm")))
	})
	b.between.set(change)
	err := b.host.Delete(t.Context(), "vm", ours, time.Time{})
	b.between.set(nil)
	wantKind(t, err, KindConflict)
	if seen() == 0 || b.instance("vm") == nil {
		t.Error("the new VM was deleted")
	}
}

// Whatever was made under the name since the proof, with the same marks too, is neither stopped nor deleted.
func TestARunningVMIsDeletedAsItWasProven(t *testing.T) {
	b := newBed(t)
	b.create(spec("vm"))
	b.must(b.host.Start(t.Context(), "vm", ours, time.Time{}))
	direct := b.connect(b.direct)
	change, seen := atNth(isWrite, 1, false, func(lxd http.Handler, w http.ResponseWriter, r *http.Request) {
		b.must(direct.Delete(t.Context(), "vm", ours, time.Time{}))
		b.must(b.clone(direct, spec("vm")))
		b.must(direct.Start(t.Context(), "vm", ours, time.Time{}))
		lxd.ServeHTTP(w, r)
	})
	b.between.set(change)
	err := b.host.Delete(t.Context(), "vm", ours, time.Time{})
	b.between.set(nil)
	wantKind(t, err, KindConflict)
	if vm := b.instance("vm"); seen() != 1 || vm == nil || !isRunning(vm) || vm.Ephemeral {
		t.Errorf("%d changes were sent; the new VM is %+v", seen(), vm)
	}
}

// A deletion that ended between its two changes goes on, and a VM that stops meanwhile is gone.
func TestADeletionGoesOnWhereItEnded(t *testing.T) {
	b := newBed(t)
	for _, name := range []string{"runs", "stops"} {
		b.create(spec(name))
		b.must(b.host.Start(t.Context(), name, ours, time.Time{}))
		change, _ := atNth(isWrite, 2, true, cutBefore)
		b.between.set(change)
		wantFollowing(t, b.host.Delete(t.Context(), name, ours, time.Time{}))
		b.between.set(nil)
		if vm := b.instance(name); vm == nil || !vm.Ephemeral || !isRunning(vm) {
			t.Fatalf("the VM is %+v, want it to be deleted when it stops", vm)
		}
	}
	b.must(b.host.Stop(t.Context(), "stops", ours, time.Time{}))
	for _, name := range []string{"runs", "stops"} {
		b.must(b.host.Delete(t.Context(), name, ours, time.Time{}))
		b.wantGone(name)
	}
}

// A process that was paused before it asked LXD for the first time must not take a later VM of the name for the one it means.
func TestNothingIsChangedThatIsSeenTooLate(t *testing.T) {
	b := newBed(t)
	b.create(spec("vm"))
	b.must(b.host.Start(t.Context(), "vm", ours, time.Time{}))
	late := time.Now().Add(-time.Second)
	for name, do := range map[string]func() error{
		"Start":  func() error { return b.host.Start(t.Context(), "vm", ours, late) },
		"Stop":   func() error { return b.host.Stop(t.Context(), "vm", ours, late) },
		"Delete": func() error { return b.host.Delete(t.Context(), "vm", ours, late) },
	} {
		calls := b.between.during(func() {
			err := do()
			wantKind(t, err, KindTooLate)
			if mayFollow(err) {
				t.Errorf("%s may follow: %v", name, err)
			}
		})
		if len(calls) > 0 {
			t.Errorf("%s: LXD was asked %q", name, calls)
		}
	}
	in := time.Now().Add(time.Hour)
	b.must(b.host.Stop(t.Context(), "vm", ours, in))
	b.must(b.host.Delete(t.Context(), "vm", ours, in))
}

// What was lost before it reached LXD may still reach it.
func TestALostStopOrDeletionMayFollow(t *testing.T) {
	b := newBed(t)
	b.create(withDisk("vm"))
	b.must(b.host.Start(t.Context(), "vm", ours, time.Time{}))
	for _, step := range []struct {
		name  string
		write int
		do    func() error
	}{
		{"Stop", 1, func() error { return b.host.Stop(t.Context(), "vm", ours, time.Time{}) }},
		{"Delete, its stop", 1, func() error { return b.host.Delete(t.Context(), "vm", ours, time.Time{}) }},
		{"Delete, its disk", 3, func() error { return b.host.Delete(t.Context(), "vm", ours, time.Time{}) }},
		{"Delete", 1, func() error { return b.host.Delete(t.Context(), "vm", ours, time.Time{}) }},
	} {
		change, seen := atNth(isWrite, step.write, true, cutBefore)
		b.between.set(change)
		err := step.do()
		b.between.set(nil)
		if seen() < step.write {
			t.Errorf("%s: there were %d writes", step.name, seen())
		}
		wantFollowing(t, err)
		if step.name == "Delete, its disk" {
			b.must(direct(b).Delete(t.Context(), "vm", ours, time.Time{}))
			b.create(spec("vm"))
		}
	}
}

// direct leads to LXD with nothing in between.
func direct(b *bed) *Host { return b.connect(b.direct) }
