// SPDX-License-Identifier: Apache-2.0

// Package record keeps, in one annotation of a Kubernetes object, which calls to MAAS are pending and which phase the
// object's machine is in.
//
// A process can end between any two calls, a response can be lost, and a manager that was stopped can resume when
// another one leads. So a call that changes MAAS is recorded before it is sent, sent soon after or not at all,
// and removed from the record when its outcome is certain. Package maas accepts such calls only with a permit, and only
// this package makes permits.
package record

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/internal/permit"
)

// sendWithin is the send deadline of a call, counted from its recording; a compose may wait for a refresh of its host.
// MAAS may work on the call for the rest of the settle time.
const sendWithin = 15 * time.Second

// Record is what the records of all kinds of objects have in common, for one reconcile: how calls are made, and how the
// rest of the record is stored. That is done by the next Call or Store, or by Close.
type Record struct {
	records *Records
	object  client.Object
	stored  string        // the annotation's value in Kubernetes, as far as is known here
	written client.Object // see Written

	calls *Calls
	text  func() string           // the annotation's value with what is recorded now
	load  func(text string) error // makes that what is recorded

	about string    // see About
	asOf  time.Time // see AsOf
}

// Machine is the record of a MaasMachine.
type Machine struct {
	MachineData
	Record
	kept *KeptMachine // nil if the MaasMachine is there: see Giving
}

// Cluster is the record of a MaasCluster.
type Cluster struct {
	ClusterData
	Record
}

// Host is the record of an LXDHost.
type Host struct {
	HostData
	Record
}

// Remediation is the record of a MaasRemediation.
type Remediation struct {
	RemediationData
	Record
}

// OpenMachine reads the record of a MaasMachine, for the caller to close. Its error is that of OfMachine; there is no
// record then.
func (s *Records) OpenMachine(m *infrav1.MaasMachine) (*Machine, error) {
	r := &Machine{}
	return open(s, m, r, &r.Record, &r.Calls, &r.MachineData)
}

// OpenCluster reads the record of a MaasCluster, as OpenMachine does.
func (s *Records) OpenCluster(c *infrav1.MaasCluster) (*Cluster, error) {
	r := &Cluster{}
	return open(s, c, r, &r.Record, &r.Calls, &r.ClusterData)
}

// OpenHost reads the record of an LXDHost, as OpenMachine does.
func (s *Records) OpenHost(h *infrav1.LXDHost) (*Host, error) {
	r := &Host{}
	return open(s, h, r, &r.Record, &r.Calls, &r.HostData)
}

// OpenRemediation reads the record of a MaasRemediation, as OpenMachine does.
func (s *Records) OpenRemediation(m *infrav1.MaasRemediation) (*Remediation, error) {
	r := &Remediation{}
	return open(s, m, r, &r.Record, &r.Calls, &r.RemediationData)
}

// open reads the data of a record, of which calls are a part.
func open[R any](s *Records, object client.Object, whole *R, r *Record, calls *Calls, data any) (*R, error) {
	text := textOf(object)
	*r = Record{records: s, object: object, stored: text, calls: calls, asOf: time.Now(),
		text: func() string { return write(data) }, load: func(text string) error { return read(text, data) }}
	if err := r.load(text); err != nil {
		return nil, err
	}
	r.see()
	return whole, nil
}

// Call records an operation, calls do, and removes the operation from the record if its outcome is certain and it gave
// nothing to the object: in memory, so that what is written next, by Close at the latest, stores that. An acquisition
// stays pending until Acquired is stored together with what was acquired. also changes the object in the patch that
// records the operation.
//
// The error is a conflict if the object was changed since this reconcile read it, and *UnsettledError if the same
// operation may still take effect, or one after which nothing may be acquired or deployed yet; do is not called
// then. Nor is it too soon after MAAS refused the operation: the error is the last one then. Once it is called, a
// manager that is told to stop lets it end.
func (r *Record) Call(
	ctx context.Context, op Op, do func(context.Context, maas.Permit) error, also ...func(client.Object),
) error {
	if err := r.Awaits(op); err != nil {
		return err
	}
	return r.call(ctx, op, do, also...)
}

// Awaits returns the error of Call if an operation would not be sent now: so whoever must do something before it need
// not.
func (r *Record) Awaits(op Op) error {
	if err := r.tooSoon(op); err != nil {
		return err
	}
	return r.settled(op, func(pending Op) bool {
		return (pending == op && !op.mayRepeat()) || (op.acquires() && pending.isOnHost()) ||
			(op == Deploy && pending == Test)
	})
}

// CallRelease is Call for an operation after which any user of MAAS may have the machine, or the address. It is not
// sent as long as any other call, or the same, may still take effect: that would hit what is the next user's. The error
// is *UnsettledError then.
func (r *Record) CallRelease(
	ctx context.Context, op Op, do func(context.Context, maas.ReleasePermit) error, also ...func(client.Object),
) error {
	if err := r.tooSoon(op); err != nil {
		return err
	}
	counts := func(pending Op) bool { return !pending.mayRepeat() }
	if err := r.settled(op, counts); err != nil {
		return err
	}
	return r.call(ctx, op, func(ctx context.Context, p maas.Permit) error { return do(ctx, permit.ForRelease(p)) },
		also...)
}

// OnHost is Call for what starts, stops or deletes a VM on its host. As long as it may still take effect, nothing is
// acquired for the object: that could be a VM of the same name.
func (r *Record) OnHost(ctx context.Context, op Op, do func(context.Context, maas.VMPermit) error) error {
	err := r.Call(ctx, op, func(ctx context.Context, p maas.Permit) error { return do(ctx, permit.ForVM(p)) })
	if err == nil {
		r.calls.Done(op) // An earlier one may be recorded, whose time was over.
	}
	return err
}

func (r *Record) call(
	ctx context.Context, op Op, do func(context.Context, maas.Permit) error, also ...func(client.Object),
) error {
	ctx, end := guard.Linger(ctx)
	defer end()
	earlier := slices.Clone(r.calls.Pending)
	granted, err := r.grant(ctx, op, also...)
	if err != nil {
		return err
	}
	err = r.tried(op, do(ctx, granted))
	if (err == nil && op.acquires()) || (err != nil && !maas.HadNoEffect(err)) {
		return err
	}
	r.calls.Pending = earlier // The outcome of this call is known; that of an earlier one is not.
	return err
}

// grant records an operation, and returns the permit for it, with which the same can be done again.
func (r *Record) grant(ctx context.Context, op Op, also ...func(client.Object)) (maas.Permit, error) {
	now := time.Now()
	earlier := r.calls.Pending
	r.calls.Pending = append(without(earlier, op), Pending{Op: op, At: asStored(now)})
	if err := r.Write(ctx, also...); err != nil {
		r.calls.Pending = earlier
		return maas.Permit{}, err
	}
	again := func(ctx context.Context) (maas.Permit, error) { return r.grant(ctx, op) }
	return permit.Before(now.Add(sendWithin), again), nil
}

func without(pending []Pending, op Op) []Pending {
	return slices.DeleteFunc(slices.Clone(pending), func(p Pending) bool { return p.Op == op })
}

// Store stores at once what change does to the record, and what also does to the object, also if others have changed
// the object meanwhile. If they have changed the record, the error is a conflict: what change knows is of before, and
// would end a call of another manager, or overwrite what became of one. After an error the record in memory is
// unchanged.
func (r *Record) Store(ctx context.Context, change func(), also ...func(client.Object)) error {
	before := r.text()
	change()
	err := r.store(ctx, nil, also...)
	if err != nil {
		// Otherwise Close would store only half of it: that a call is over, without what it acquired.
		_ = r.load(before) // It was read before.
	}
	return err
}

// merge stores at once what change does to the record, on top of what others have recorded since. So change must say
// something of an entry that several reconcilers share, and nothing of a call: see Cluster.Merge and Host.Merge.
func (r *Record) merge(ctx context.Context, change func()) error {
	before := r.text()
	change()
	err := r.store(ctx, func(now string) error {
		err := r.load(now)
		if err == nil {
			r.stored, before = now, now
			change()
		}
		return err
	})
	if err != nil {
		_ = r.load(before) // It was read before.
	}
	return err
}

// Close stores the remaining changes, also those of a manager that is told to stop. The error is a conflict if another
// process has changed the record.
func (r *Record) Close(ctx context.Context) error {
	if r.text() == r.stored {
		return nil
	}
	ctx, end := guard.Linger(ctx)
	defer end()
	return r.store(ctx, nil)
}

// Finish removes a finalizer, with which the object may go. Nobody would wait any more for what is pending, or give
// back what that takes: the error is *UnsettledError as long as a call may still take effect, also one that nothing of
// this reconcile has asked about. It is a conflict if the object was changed since this reconcile read it: an earlier
// one, which did not know of the deletion, may have recorded a call.
func (r *Record) Finish(ctx context.Context, finalizer string) error {
	if err := r.settled("", func(Op) bool { return true }); err != nil {
		return err
	}
	stored := Calls{}
	if err := read(r.stored, &stored); err != nil {
		return err
	}
	if len(stored.Pending) > len(r.calls.Pending) { // Whoever sees the object go sees that their outcome is known.
		if err := r.Write(ctx); err != nil {
			return err
		}
	}
	return r.Write(ctx, func(object client.Object) { controllerutil.RemoveFinalizer(object, finalizer) })
}

// maxConflicts is how often a change is stored again after a conflict.
const maxConflicts = 5

// store stores the record in an object that others have changed. If they have changed the record, it calls again with
// that before; if that is nil, the error is a conflict.
func (r *Record) store(ctx context.Context, again func(now string) error, also ...func(client.Object)) error {
	err := r.Write(ctx, also...)
	for range maxConflicts {
		if !apierrors.IsConflict(err) {
			break
		}
		live, failed := r.read(ctx)
		if failed != nil {
			return failed
		}
		if now := textOf(live); r.stored != now {
			if again == nil {
				return err
			}
			if err := again(now); err != nil {
				return err
			}
		}
		// The resource version stays as it was read, so that no call can be recorded there.
		_, err = r.writeAt(ctx, live.GetResourceVersion(), also...)
	}
	return err
}

// Write stores the record, and what also changes, if the object is as this reconcile read it; otherwise the error is a
// conflict. A cache may lag; and a manager that was stopped, and resumes when another one leads, must not
// repeat what that one has done.
func (r *Record) Write(ctx context.Context, also ...func(client.Object)) error {
	now, err := r.writeAt(ctx, r.object.GetResourceVersion(), also...)
	if err == nil {
		r.written = now
		r.object.SetResourceVersion(now.GetResourceVersion())
	}
	return err
}

// Written is the object as Kubernetes had it after the last Write; nil before. Nobody had changed it since this
// reconcile read it.
func (r *Record) Written() client.Object { return r.written }

func (r *Record) writeAt(ctx context.Context, version string, also ...func(client.Object)) (client.Object, error) {
	text := r.text()
	before := r.copy()
	SetAnnotation(before, infrav1.RecordAnnotation, r.stored)
	before.SetResourceVersion(version)
	after := before.DeepCopyObject().(client.Object)
	SetAnnotation(after, infrav1.RecordAnnotation, text)
	for _, change := range also {
		change(after)
	}
	makeRoom(after)
	if err := r.records.Client.Patch(ctx, after, client.MergeFromWithOptions(before,
		client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("recording on %s: %w", client.ObjectKeyFromObject(r.object), err)
	}
	r.stored = text
	SetAnnotation(r.object, infrav1.RecordAnnotation, text)
	for _, change := range also {
		change(r.object)
	}
	return after, nil
}

// read returns the object as Kubernetes has it now. An empty patch needs only the right to patch. If Kubernetes has
// another one of its name by now, the error is apierrors.IsNotFound: nothing of this record belongs to that object.
func (r *Record) read(ctx context.Context) (client.Object, error) {
	live := r.copy()
	if err := r.records.Client.Patch(ctx, live, client.RawPatch(types.MergePatchType, []byte("{}"))); err != nil {
		return nil, fmt.Errorf("reading %s again: %w", client.ObjectKeyFromObject(r.object), err)
	}
	if live.GetUID() != r.object.GetUID() {
		gone := apierrors.NewNotFound(schema.GroupResource{Group: infrav1.GroupVersion.Group}, r.object.GetName())
		return nil, fmt.Errorf("reading %s again: there is another one of its name: %w", client.ObjectKeyFromObject(r.object),
			gone)
	}
	return live, nil
}

func (r *Record) copy() client.Object { return r.object.DeepCopyObject().(client.Object) }

// SetAnnotation sets an annotation, or removes it if the value is "".
func SetAnnotation(object client.Object, key, value string) {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	if value == "" {
		delete(annotations, key)
	}
	object.SetAnnotations(annotations)
}
