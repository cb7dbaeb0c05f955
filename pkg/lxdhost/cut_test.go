// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"
)

// Writes of the methods, for a VM with one further disk.
const (
	writesOfClone         = 3 // the VM, its volume, both together
	writesOfDelete        = 3 // apart again, the volume, the VM
	writesOfDeleteRunning = 2 // its mark, power
)

func withDisk(name string) Spec {
	s := spec(name)
	s.Disks = []Disk{{pool, 1 << 20}}
	return s
}

// cases runs a test for each way to lose a write.
func cases(t *testing.T, writes int, test func(t *testing.T, name string, change middleware, seen func() int)) {
	for when, cut := range map[string]interference{"before": cutBefore, "after": cutAfter} {
		for write := 1; write <= writes; write++ {
			for _, down := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s write %d, down %t", when, write, down), func(t *testing.T) {
					change, seen := atNth(isWrite, write, down, cut)
					test(t, fmt.Sprintf("%s%d%t", when, write, down), change, func() int {
						if seen() < write {
							t.Errorf("there were only %d writes", seen())
						}
						return seen()
					})
				})
			}
		}
	}
}

func (b *bed) wantGone(name string) {
	b.t.Helper()
	if vm := b.instance(name); vm != nil {
		b.t.Errorf("there is %+v", vm)
	}
	if left := b.volumes(); len(left) > 0 {
		b.t.Errorf("left behind: %v", left)
	}
}

// busyWithWhatWasLost are the kinds of errors of a call after which LXD may still do it.
var busyWithWhatWasLost = []Kind{"", KindUnreachable, KindUnfinished, KindOther}

// A VM that a lost call made, at once or late, is found by the next one; it is stopped until it is started.
func TestACloneIsResumedWhereverItWasCutOff(t *testing.T) {
	b := newBed(t)
	cases(t, writesOfClone, func(t *testing.T, name string, change middleware, seen func() int) {
		b := b.in(t)
		for _, again := range []bool{true, false} {
			s, room := withDisk(name), b.seen()
			b.between.set(change)
			err := b.host.Clone(t.Context(), s, room)
			b.between.set(nil)
			seen()
			if kind := KindOf(err); !slices.Contains(busyWithWhatWasLost, kind) {
				t.Errorf("the error is of the kind %s: %v", kind, err)
			}
			if again {
				b.eventually(func() error { return b.host.Clone(t.Context(), s, room) })
				b.checkDisks(s)
			}
			// Also what is only half made is found and deleted.
			b.eventually(func() error { return b.host.Delete(t.Context(), name, ours, time.Time{}) })
			b.wantGone(name)
		}
	})
}

func TestDeleteIsResumedWhereverItWasCutOff(t *testing.T) {
	b := newBed(t)
	cases(t, writesOfDelete, func(t *testing.T, name string, change middleware, seen func() int) {
		b := b.in(t)
		b.create(withDisk(name))
		b.interruptDelete(name, change, seen)
	})
	cases(t, writesOfDeleteRunning, func(t *testing.T, name string, change middleware, seen func() int) {
		b := b.in(t)
		b.create(spec(name))
		b.must(b.host.Start(t.Context(), name, ours, time.Time{}))
		b.interruptDelete(name, change, seen)
	})
}

func (b *bed) interruptDelete(name string, change middleware, seen func() int) {
	b.t.Helper()
	b.between.set(change)
	err := b.host.Delete(b.t.Context(), name, ours, time.Time{})
	b.between.set(nil)
	seen()
	if err != nil {
		if kind := KindOf(err); kind != KindUnreachable && kind != KindOther { // LXD is busy with what was lost
			b.t.Errorf("the error is of the kind %s: %v", kind, err)
		}
	} else if vm := b.instance(name); vm != nil {
		b.t.Errorf("it was deleted, and is there: %+v", vm)
	}
	b.eventually(func() error { return b.host.Delete(b.t.Context(), name, ours, time.Time{}) })
	b.wantGone(name)
}

// What an operation does is found out without it.
func TestAnOperationThatCannotBeFollowed(t *testing.T) {
	b := newBed(t)
	for name, lost := range map[string]interference{"forgotten": nil, "cut-before": cutBefore, "cut-after": cutAfter, "refused": refusedWait} {
		t.Run(name, func(t *testing.T) {
			b := b.in(t)
			follow := func(what string, do func() error) {
				t.Helper()
				change, seen := forgetting(func() {})
				if lost != nil {
					change, seen = atNth(isWait, 1, false, lost)
				}
				b.between.set(change)
				defer b.between.set(nil)
				if err := do(); err != nil {
					// The operation may still be under way when LXD is asked what came of it.
					if name == "forgotten" || name == "cut-after" {
						t.Errorf("%s: its effect was there: %v", what, err)
					}
					b.eventually(do)
				}
				if seen() == 0 {
					t.Errorf("%s: no operation was waited for", what)
				}
			}
			follow("clone", func() error { return b.clone(b.host, spec(name)) })
			follow("start", func() error { return b.host.Start(t.Context(), name, ours, time.Time{}) })
			follow("stop", func() error { return b.host.Stop(t.Context(), name, ours, time.Time{}) })
			follow("delete", func() error { return b.host.Delete(t.Context(), name, ours, time.Time{}) })
			b.wantGone(name)
		})
	}
}

func refusedWait(_ http.Handler, w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusInternalServerError, "no such thing")
}

// LXD may do later what it gave no proper answer to: a caller that takes it for refused would do it again elsewhere.
func TestAnOutcomeThatIsNotKnownIsNoRefusal(t *testing.T) {
	b := newBed(t)
	garbage := func(_ http.Handler, w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("not JSON")) }
	accepted := func(_ http.Handler, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(api.ResponseRaw{Type: api.AsyncResponse, Metadata: api.Operation{ID: "later"}})
	}
	for name, answers := range map[string]struct{ request, wait interference }{
		"no answer of LXD's form":      {garbage, nil},
		"a page":                       {page, nil},
		"an operation that is refused": {accepted, refusedWait},
		"no operation of LXD's form":   {accepted, garbage},
	} {
		t.Run(name, func(t *testing.T) {
			b := b.in(t)
			b.between.set(func(lxd http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch {
					case isWrite(r):
						answers.request(lxd, w, r)
					case isWait(r):
						answers.wait(lxd, w, r)
					default:
						lxd.ServeHTTP(w, r)
					}
				})
			})
			defer b.between.set(nil)
			err := b.clone(b.host, spec("later"))
			wantKind(t, err, KindUnreachable)
			var failed *Error
			if !errors.As(err, &failed) || !failed.Sent {
				t.Errorf("it says that nothing was sent: %v", err)
			}
		})
	}
}

func page(_ http.Handler, w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusBadGateway)
	_, _ = w.Write([]byte("<html>Bad Gateway</html>"))
}

// Another client is faster, at the worst moment: between the look and the change.
func TestAnotherClientIsFaster(t *testing.T) {
	b := newBed(t)
	first := func(do func()) {
		change, _ := atNth(isWrite, 1, false, func(lxd http.Handler, w http.ResponseWriter, r *http.Request) {
			do()
			lxd.ServeHTTP(w, r)
		})
		b.between.set(change)
	}
	defer b.between.set(nil)
	direct := b.connect(b.direct)

	first(func() { b.foreign(b.server, "theirs", theirs.config()) })
	wantKind(t, b.clone(b.host, spec("theirs")), KindConflict)
	if has := marksOf(b.instance("theirs").Config); has != theirs {
		t.Errorf("it is marked %+v", has)
	}

	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	create := func() { must(b.clone(direct, spec("ours"))) }
	first(create)
	b.create(spec("ours"))

	start := func() { must(direct.Start(t.Context(), "ours", ours, time.Time{})) }
	first(start)
	must(b.host.Start(t.Context(), "ours", ours, time.Time{}))

	first(func() { must(direct.Stop(t.Context(), "ours", ours, time.Time{})) })
	must(b.host.Stop(t.Context(), "ours", ours, time.Time{}))

	first(start) // as MAAS may, while we delete
	if err := b.host.Delete(t.Context(), "ours", ours, time.Time{}); err == nil {
		t.Error("a running VM was deleted")
	}
	first(func() { must(direct.Delete(t.Context(), "ours", ours, time.Time{})) }) // at our stop
	must(b.host.Delete(t.Context(), "ours", ours, time.Time{}))
	create()
	first(func() { must(direct.Delete(t.Context(), "ours", ours, time.Time{})) }) // at our deletion
	must(b.host.Delete(t.Context(), "ours", ours, time.Time{}))

	// Somebody replaces it while we stop it: theirs stays.
	create()
	start()
	first(func() {
		must(direct.Delete(t.Context(), "ours", ours, time.Time{}))
		b.foreign(b.server, "ours", theirs.config())
	})
	wantKind(t, b.host.Delete(t.Context(), "ours", ours, time.Time{}), KindConflict)
	if b.instance("ours") == nil {
		t.Error("another's VM was deleted")
	}
}

// LXD deletes by name, whatever If-Match says: what was ours before it was stopped need not be ours afterwards. That
// counts for a VM that is not deleted when it stops, because it has further disks.
func TestDeleteReadsTheMarksAgain(t *testing.T) {
	b := newBed(t)
	direct := b.connect(b.direct)
	b.create(withDisk("vm"))
	b.must(b.host.Start(t.Context(), "vm", ours, time.Time{}))
	change, seen := atNth(isWait, 1, false, func(lxd http.Handler, w http.ResponseWriter, r *http.Request) {
		stopped := httptest.NewRecorder()
		lxd.ServeHTTP(stopped, r)
		if err := direct.Delete(t.Context(), "vm", ours, time.Time{}); err != nil {
			t.Error(err)
		}
		b.foreign(b.server, "vm", theirs.config())
		w.WriteHeader(stopped.Code)
		_, _ = w.Write(stopped.Body.Bytes())
	})
	b.between.set(change)
	wantKind(t, b.host.Delete(t.Context(), "vm", ours, time.Time{}), KindConflict)
	if vm := b.instance("vm"); vm == nil || seen() != 1 {
		t.Errorf("another's VM is %+v; %d operations were waited for", vm, seen())
	}
}

func TestWithoutAnAnswerInTime(t *testing.T) {
	b := newBed(t)
	b.create(spec("vm"))
	hasty := *b.host
	hasty.timeout = short
	b.between.set(silent)
	for what, do := range map[string]func() error{
		"read":   func() error { _, err := hasty.read(t.Context()); return err },
		"List":   func() error { _, err := hasty.List(t.Context()); return err },
		"Clone":  func() error { return b.clone(&hasty, spec("other")) },
		"Start":  func() error { return hasty.Start(t.Context(), "vm", ours, time.Time{}) },
		"Stop":   func() error { return hasty.Stop(t.Context(), "vm", ours, time.Time{}) },
		"Delete": func() error { return hasty.Delete(t.Context(), "vm", ours, time.Time{}) },
	} {
		err := do()
		if KindOf(err) != KindUnreachable {
			t.Errorf("%s: %v", what, err)
		}
		wantDeadline(t, err)
	}
	// An operation that goes on when LXD stops waiting for it.
	b.between.set(always(func(lxd http.Handler, w http.ResponseWriter, r *http.Request) {
		if isWait(r) {
			rewriteWait(lxd, w, r)
			return
		}
		lxd.ServeHTTP(w, r)
	}))
	wantKind(t, b.clone(b.host, spec("other")), KindUnfinished)
	wantKind(t, b.host.Delete(t.Context(), "vm", ours, time.Time{}), KindUnfinished)
	b.between.set(nil)
	vms, err := b.host.List(t.Context())
	b.must(err)
	if !slices.ContainsFunc(vms, func(vm VM) bool { return vm.Name == "other" }) {
		t.Errorf("there are %+v", vms)
	}
}

// LXD shows a VM while it still unpacks its image. Its versions name the VM of an operation in three ways.
func TestAVMThatIsStillBeingMadeIsNotTakenForMade(t *testing.T) {
	b := newBed(t)
	b.create(spec("vm"))
	for name, operation := range map[string]map[string]any{
		"5.0.2": {"resources": map[string]any{"instances": []string{"/1.0/instances/vm"}}},
		"5.0.3": {"resources": map[string]any{"instances": []string{"/1.0/instances/vm?project=" + project}}},
		"6.8":   {"metadata": map[string]any{"entity_url": "/1.0/instances/vm?project=" + project}},
	} {
		b := b.in(t)
		operation["id"], operation["status_code"] = "busy", api.Running
		b.between.set(rewrite("/1.0/operations", func(metadata map[string]any) { metadata["running"] = []any{operation} }))
		calls := b.between.during(func() { wantKind(t, b.clone(b.host, spec("vm")), KindUnfinished) })
		if !slices.Contains(calls, "GET /1.0/operations/busy/wait") {
			t.Errorf("%s: it was not waited for: %q", name, calls)
		}
		b.between.set(rewrite("/1.0/operations", func(metadata map[string]any) {
			operation["resources"] = map[string]any{"instances": []string{"/1.0/instances/vm?project=" + elsewhere, "/1.0/instances/other"}}
			delete(operation, "metadata")
			metadata["running"] = []any{operation}
		}))
		b.must(b.clone(b.host, spec("vm")))
	}
	b.between.set(nil)
}

// If LXD dies while it writes a VM's disk, a VM stays that would never boot. One that is finished counts, also if it was
// started since.
func TestAVMThatLXDDidNotFinishIsNotTakenForMade(t *testing.T) {
	b := newBed(t)
	b.create(spec("vm"))
	asBegun := func(times int) middleware {
		return rewrite("/1.0/instances/vm", func(metadata map[string]any) {
			if times--; times >= 0 {
				delete(metadata["config"].(map[string]any), keyFirstStart)
			}
		})
	}
	b.between.set(asBegun(1)) // LXD finishes it between two looks.
	b.must(b.clone(b.host, spec("vm")))
	b.between.set(asBegun(9))
	err := b.clone(b.host, spec("vm"))
	wantKind(t, err, KindOutdated)
	var failed *Error
	if !errors.As(err, &failed) || !failed.Sent {
		t.Errorf("the VM is there, and the error is %v", err)
	}
	b.must(b.host.Start(t.Context(), "vm", ours, time.Time{}))
	b.must(b.clone(b.host, spec("vm")))
	b.between.set(nil)
}

func rewriteWait(lxd http.Handler, w http.ResponseWriter, r *http.Request) {
	rewrite(r.URL.Path, func(operation map[string]any) {
		operation["status"], operation["status_code"] = api.Running.String(), api.Running
	})(lxd).ServeHTTP(w, r)
}
