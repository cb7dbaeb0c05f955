// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

// bed is a MaasMachine, and a MaasCluster, in an API server.
type bed struct {
	*testing.T
	client  client.Client
	records *Records
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func newBed(t *testing.T, funcs interceptor.Funcs) *bed {
	t.Helper()
	m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default", UID: "uid"}}
	keeps := &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default", UID: "cluster"}}
	c := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(m, keeps).WithInterceptorFuncs(funcs).Build()
	return &bed{t, c, &Records{Client: c}}
}

// now returns the object as Kubernetes has it.
func (b *bed) now() *infrav1.MaasMachine {
	b.Helper()
	m := &infrav1.MaasMachine{}
	if err := b.client.Get(b.Context(), client.ObjectKey{Namespace: "default", Name: "m"}, m); err != nil {
		b.Fatal(err)
	}
	return m
}

// open is the beginning of a reconcile.
func (b *bed) open() (*Machine, *infrav1.MaasMachine) {
	b.Helper()
	m := b.now()
	r, err := b.records.OpenMachine(m)
	if err != nil {
		b.Fatal(err)
	}
	return r, m
}

// openCluster is the beginning of a reconcile of the MaasCluster.
func (b *bed) openCluster() (*Cluster, *infrav1.MaasCluster) {
	b.Helper()
	c := &infrav1.MaasCluster{}
	if err := b.client.Get(b.Context(), client.ObjectKey{Namespace: "default", Name: "c"}, c); err != nil {
		b.Fatal(err)
	}
	r, err := b.records.OpenCluster(c)
	if err != nil {
		b.Fatal(err)
	}
	return r, c
}

// pending are the operations that Kubernetes has as pending.
func (b *bed) pending() (ops []Op) {
	b.Helper()
	data, err := OfMachine(b.now())
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range data.Pending {
		ops = append(ops, p.Op)
	}
	return ops
}

func (b *bed) wantPending(want ...Op) {
	b.Helper()
	if diff := cmp.Diff(want, b.pending()); diff != "" {
		b.Errorf("pending (-want +got):\n%s", diff)
	}
}

// touch changes the object, as another client does.
func (b *bed) touch(change func(*infrav1.MaasMachine)) {
	b.Helper()
	m := b.now()
	change(m)
	if err := b.client.Update(b.Context(), m); err != nil {
		b.Fatal(err)
	}
}

var lost = &maas.Error{Kind: maas.Unavailable}

func TestACallIsRecordedBeforeAndTakenOffWhenItsOutcomeIsCertain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		op   Op
		err  error
		left []Op
	}{
		"a change that was done":      {Deploy, nil, nil},
		"a change that was refused":   {Deploy, &maas.Error{Kind: maas.Conflict}, nil},
		"a change that was not sent":  {Deploy, &maas.Error{Kind: maas.Unavailable, NotSent: true}, nil},
		"a change that was lost":      {Deploy, lost, []Op{Deploy}},
		"a machine that was acquired": {Allocate, nil, []Op{Allocate}},
		"a machine that was refused":  {Allocate, &maas.Error{Kind: maas.Conflict}, nil},
		"a machine that may come":     {Allocate, lost, []Op{Allocate}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, interceptor.Funcs{})
			r, _ := b.open()
			err := r.Call(t.Context(), tc.op, func(_ context.Context, permit maas.Permit) error {
				b.wantPending(tc.op)
				if before, limited := permit.SendBefore(); !limited || time.Until(before) > sendWithin {
					t.Errorf("it may be sent until %v", before)
				}
				return tc.err
			})
			if !errors.Is(err, tc.err) {
				t.Errorf("the error is %v", err)
			}
			b.wantPending(tc.op)
			b.must(r.Close(t.Context()))
			b.wantPending(tc.left...)
		})
	}
}

func TestAnEarlierCallWhoseOutcomeIsUnknownStaysPending(t *testing.T) {
	t.Parallel()
	b := newBed(t, interceptor.Funcs{})
	for _, result := range []error{lost, nil} {
		r, _ := b.open()
		if err := r.Call(t.Context(), Link, func(context.Context, maas.Permit) error { return result }); !errors.Is(err, result) {
			t.Fatal(err)
		}
	}
	b.wantPending(Link)
}

func TestNothingIsDeployedWhileATestMayComeLate(t *testing.T) {
	t.Parallel()
	b := newBed(t, interceptor.Funcs{})
	b.records.SettleTime = time.Hour
	r, _ := b.open()
	_ = r.Call(t.Context(), Test, func(context.Context, maas.Permit) error { return lost })
	unsettled, is := errors.AsType[*UnsettledError](r.Awaits(Deploy))
	if !is || unsettled.Op != Deploy || unsettled.Pending != Test {
		t.Errorf("it waits for %v", unsettled)
	}
	if err := r.Awaits(Link); err != nil {
		t.Error(err)
	}
}

func TestATestOfAnEarlierHoldingProvesNothing(t *testing.T) {
	t.Parallel()
	pending := Calls{Pending: []Pending{{Op: Test}}}
	for name, tc := range map[string]struct{ before, want MachineData }{
		"none":         {},
		"passed":       {before: MachineData{Tests: &Tests{After: 3, Over: true}}},
		"failed":       {MachineData{Tests: &Tests{After: 3, Failed: "f"}}, MachineData{Tests: &Tests{After: 3, Failed: "f"}}},
		"may come":     {MachineData{Calls: pending, Tests: &Tests{After: 3, Vain: 1}}, MachineData{Calls: pending, Tests: &Tests{After: 7}}},
		"is not known": {before: MachineData{Tests: &Tests{After: 3}}},
	} {
		if tc.before.TestAnew(7); write(&tc.before) != write(&tc.want) {
			t.Errorf("%s: it is %+v", name, tc.before.Tests)
		}
	}
}

func TestWhatWasAcquiredIsStoredTogetherWithTheEndOfTheCall(t *testing.T) {
	t.Parallel()
	b := newBed(t, interceptor.Funcs{})
	r, _ := b.open()
	done := func(context.Context, maas.Permit) error {
		b.touch(func(m *infrav1.MaasMachine) { m.Labels = map[string]string{"of": "others"} })
		return nil
	}
	b.must(r.Call(t.Context(), Allocate, done))
	b.must(r.Store(t.Context(), r.Acquired, func(m client.Object) { m.(*infrav1.MaasMachine).Spec.SystemID = "abc" }))
	b.wantPending()
	if m := b.now(); m.Spec.SystemID != "abc" || m.Labels["of"] != "others" {
		t.Errorf("stored is %+v", m)
	}
}

// A machine whose system id could not be stored stays pending: otherwise nothing would refer to it, and the object
// could be deleted without it.
func TestWhatCouldNotBeStoredStaysPending(t *testing.T) {
	t.Parallel()
	var down error
	b := newBed(t, interceptor.Funcs{Patch: func(
		ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption,
	) error {
		if down != nil {
			return down
		}
		return c.Patch(ctx, object, patch, options...)
	}})
	r, m := b.open()
	b.must(r.Call(t.Context(), Allocate, func(context.Context, maas.Permit) error { return nil }))
	down = errors.New("the API server is away")
	if err := r.Store(t.Context(), r.Acquired, func(m client.Object) { m.(*infrav1.MaasMachine).Spec.SystemID = "abc" }); !errors.Is(err, down) {
		t.Fatal(err)
	}
	if down = nil; m.Spec.SystemID != "" || !r.MayAcquire() {
		t.Errorf("here it counts as stored: %+v, %+v", m.Spec, r.MachineData)
	}
	b.must(r.Close(t.Context()))
	b.wantPending(Allocate)
}

func TestNothingIsAskedForOnAnObjectThatOthersHaveChanged(t *testing.T) {
	t.Parallel()
	b := newBed(t, interceptor.Funcs{})
	r, _ := b.open()
	b.touch(func(m *infrav1.MaasMachine) { m.Spec.SystemID = "theirs" })
	err := r.Call(t.Context(), Allocate, func(context.Context, maas.Permit) error { t.Error("MAAS was asked"); return nil })
	if !apierrors.IsConflict(err) {
		t.Errorf("the error is %v, want a conflict", err)
	}
	b.wantPending()
	if r.MayAcquire() {
		t.Error("the call counts as pending")
	}
}

// What is sent late of a long call is recorded again, unless another process has the object by then.
func TestACallThatTakesLongIsRecordedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, interceptor.Funcs{})
		r, _ := b.open()
		err := r.Call(t.Context(), Compose, func(ctx context.Context, permit maas.Permit) error {
			for range 2 {
				<-time.After(time.Minute)
				var err error
				if permit, err = permit.Again(ctx); err != nil {
					t.Fatal(err)
				}
				data, _ := OfMachine(b.now())
				if before, _ := permit.SendBefore(); time.Until(before) != sendWithin || time.Since(data.Pending[0].At.Time) >= time.Second {
					t.Errorf("it may be sent until %s, and recorded are %+v", before, data.Pending)
				}
				b.wantPending(Compose)
			}
			b.touch(func(m *infrav1.MaasMachine) { m.Spec.SystemID = "theirs" })
			if _, err := permit.Again(ctx); !apierrors.IsConflict(err) {
				t.Errorf("the error is %v, want a conflict", err)
			}
			return &maas.Error{Kind: maas.Conflict}
		})
		if !errors.Is(err, maas.Conflict) {
			t.Error(err)
		}
		b.must(r.Close(t.Context()))
		b.wantPending()
	})
}

// What another manager has recorded since must survive what this one stores.
func TestWhatOthersHaveRecordedStays(t *testing.T) {
	t.Parallel()
	b := newBed(t, interceptor.Funcs{})
	stale, _ := b.open()
	other, _ := b.open()
	if err := other.Call(t.Context(), Compose, func(context.Context, maas.Permit) error { return lost }); !errors.Is(err, lost) {
		t.Fatal(err)
	}
	if err := stale.Store(t.Context(), func() { stale.AddHost("1/a") }); !apierrors.IsConflict(err) || len(stale.Hosts) > 0 {
		t.Errorf("the error is %v, want a conflict; in memory are %v", err, stale.Hosts)
	}
	b.wantPending(Compose)
	if data, _ := OfMachine(b.now()); len(data.Hosts) != 0 {
		t.Errorf("recorded is %+v", data)
	}

	stale, _ = b.open()
	b.touch(func(m *infrav1.MaasMachine) { m.Annotations[infrav1.RecordAnnotation] = `{"hosts":["2/b"]}` })
	stale.AddHost("1/a")
	if err := stale.Close(t.Context()); !apierrors.IsConflict(err) {
		t.Errorf("the error is %v, want a conflict", err)
	}
	if data, _ := OfMachine(b.now()); !cmp.Equal(data.Hosts, []string{"2/b"}) {
		t.Errorf("recorded is %+v", data)
	}
}

// A call may take long, and others change the object meanwhile, which is no reason to doubt the outcome. If they change
// the record, it is theirs.
func TestTheOutcomeOfACallIsRecordedThoughOthersChangeTheObject(t *testing.T) {
	t.Parallel()
	b := newBed(t, interceptor.Funcs{})
	r, _ := b.open()
	changed := func(change func(*infrav1.MaasMachine)) func(context.Context, maas.Permit) error {
		return func(context.Context, maas.Permit) error { b.touch(change); return nil }
	}
	b.must(r.Call(t.Context(), Deploy, changed(func(m *infrav1.MaasMachine) { m.Labels = map[string]string{"of": "others"} })))
	err := r.Call(t.Context(), Deploy, func(context.Context, maas.Permit) error { t.Error("MAAS was asked"); return nil })
	if !apierrors.IsConflict(err) {
		t.Errorf("the error is %v, want a conflict: what others changed was not read", err)
	}
	b.must(r.Close(t.Context()))
	b.wantPending()

	r, _ = b.open()
	theirs := func(m *infrav1.MaasMachine) { m.Annotations[infrav1.RecordAnnotation] = `{"hosts":["2/b"]}` }
	b.must(r.Call(t.Context(), Deploy, changed(theirs)))
	if err := r.Close(t.Context()); !apierrors.IsConflict(err) {
		t.Errorf("the error is %v, want a conflict", err)
	}
	if data, _ := OfMachine(b.now()); !cmp.Equal(data.Hosts, []string{"2/b"}) {
		t.Errorf("recorded is %+v", data)
	}
}

// One patch says that a call is over, and that the next one is recorded.
func TestTheEndOfACallIsWrittenWithTheNext(t *testing.T) {
	t.Parallel()
	writes := 0
	b := newBed(t, interceptor.Funcs{Patch: func(
		ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption,
	) error {
		writes++
		return c.Patch(ctx, o, p, opts...)
	}})
	r, _ := b.open()
	for i, op := range []Op{Deploy, Annotate} {
		b.must(r.Call(t.Context(), op, func(context.Context, maas.Permit) error { b.wantPending(op); return nil }))
		if writes != i+1 {
			t.Errorf("%d calls took %d writes", i+1, writes)
		}
	}
	b.must(r.Close(t.Context()))
	b.wantPending()
	if writes != 3 {
		t.Errorf("two calls took %d writes, want 3", writes)
	}
}

func TestCloseStoresOverWhatIsNotTheRecord(t *testing.T) {
	t.Parallel()
	b := newBed(t, interceptor.Funcs{})
	r, _ := b.open()
	r.Enter("deploying", time.Now())
	b.touch(func(m *infrav1.MaasMachine) { m.Labels = map[string]string{"of": "others"} })
	b.must(r.Close(t.Context()))
	if r.Written() != nil {
		t.Error("the object would count as one that others have not changed")
	}
	if data, _ := OfMachine(b.now()); !data.In("deploying") {
		t.Errorf("recorded is %+v", data)
	}
}

// A manager that was stopped after it recorded a call may resume when another one leads: it no longer calls
// MAAS, and the record, which may be the other's by now, stays.
func TestAManagerThatStoodStillAfterItsNoteAsksMAASForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, interceptor.Funcs{Patch: func(
			ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption,
		) error {
			err := c.Patch(ctx, object, patch, options...)
			<-time.After(sendWithin + time.Second)
			return err
		}})
		api := simtest.Client(t, "http://127.0.0.1:1/MAAS", "a:b:c")
		r, _ := b.open()
		err := r.CallRelease(t.Context(), Release, func(ctx context.Context, permit maas.ReleasePermit) error {
			_, err := api.ReleaseMachine(ctx, permit, "abc", maas.ReleaseParams{})
			return err
		})
		if !errors.Is(err, maas.Unavailable) || maas.NotSent(err) {
			t.Errorf("the error is %v; what could not be sent at once must count as of unknown outcome", err)
		}
		b.wantPending(Release)
	})
}

func TestARecordThatCantBeReadIsNotBegunAnew(t *testing.T) {
	t.Parallel()
	m := &infrav1.MaasMachine{}
	m.Annotations = map[string]string{infrav1.RecordAnnotation: "{"}
	if r, err := (&Records{}).OpenMachine(m); err == nil {
		t.Errorf("got %+v", r)
	}
}

func TestAPhaseBeginsWhenItIsFirstSeen(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := &infrav1.MaasMachine{}
	for _, step := range []struct {
		phase string
		at    time.Duration
		want  time.Duration
	}{
		{"commissioning", 0, 0},
		{"commissioning", time.Minute, time.Minute},
		{"deploying", 2 * time.Minute, 0},
		{"deploying", 12 * time.Minute, 10 * time.Minute},
		{"", 13 * time.Minute, 0},
		{"deploying", 20 * time.Minute, 0},
	} {
		// Only the annotation is kept from one reconcile to the next.
		data, err := OfMachine(m)
		if err != nil {
			t.Fatal(err)
		}
		if got := data.Enter(step.phase, start.Add(step.at)); got != step.want {
			t.Errorf("%v after the start it is %v in phase %q, want %v", step.at, got, step.phase, step.want)
		}
		SetAnnotation(m, infrav1.RecordAnnotation, write(data))
	}
}

// A call counts from when this process first saw it: the clock of the process that recorded it may be wrong by minutes
// in either direction.
func TestACallIsPendingForTheSettleTimeWhateverItsClockSays(t *testing.T) {
	const settleTime = 4 * time.Minute
	for name, skew := range map[string]time.Duration{"right": 0, "behind": -5 * time.Minute, "ahead": 9 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := Records{SettleTime: settleTime}
				recorded := time.Now()
				at := func(d time.Duration) *Machine {
					text, _ := json.Marshal(Calls{Pending: []Pending{{Op: Allocate, At: metav1.NewTime(recorded.Add(d))}}})
					m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{UID: "uid", Annotations: map[string]string{infrav1.RecordAnnotation: string(text)}}}
					r, err := s.OpenMachine(m)
					if err != nil {
						t.Fatal(err)
					}
					return r
				}
				if left := at(skew).Unsettled(); left != settleTime {
					t.Errorf("at first %s are left, want all of the settle time", left)
				}
				<-time.After(settleTime - time.Second)
				if left := at(skew).Unsettled(); left != time.Second {
					t.Errorf("a second before the end %s are left", left)
				}
				<-time.After(time.Second)
				if left := at(skew).Unsettled(); left > 0 {
					t.Errorf("afterwards %s are left", left)
				}
				if left := at(-settleTime - maxClockSkew - time.Second).Unsettled(); left > 0 {
					t.Errorf("an old call counts for %s", left)
				}
			})
		})
	}
}

func TestTheZeroPermitAllowsNothing(t *testing.T) {
	t.Parallel()
	api := simtest.Client(t, "http://127.0.0.1:1/MAAS", "a:b:c")
	if err := api.DeleteMachine(t.Context(), maas.Permit{}, "abc"); !maas.NotSent(err) {
		t.Errorf("the error is %v, want one of a call that was not sent", err)
	}
}

// Tools that a person runs have a way around the record; the manager's packages have none.
func TestTheManagerHasNoWayAroundTheRecord(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..")
	allowed := map[string]bool{"pkg/maas/permit.go": true, "pkg/maas/orphans/remove.go": true}
	for _, dir := range []string{"controllers", "pkg", "internal", filepath.Join("cmd", "manager")} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, path)
			uses := strings.Contains(string(source), "Unrecorded(") || strings.Contains(string(source), "UnrecordedRelease(")
			if uses != allowed[filepath.ToSlash(name)] {
				t.Errorf("%s uses maas.Unrecorded: %v", name, uses)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
