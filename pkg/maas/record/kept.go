// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
)

// maxKept bounds the annotation of a MaasCluster.
const maxKept = 50

// KeptMachine is a bare-metal machine without a MaasMachine. In MAAS it is Deployed, off, and has the mark of the one
// that is gone.
type KeptMachine struct {
	SystemID string `json:"systemID"`
	Hostname string `json:"hostname"`
	Zone     string `json:"zone,omitempty"`
	// For is whose next Machine gets it, in the form of keep.OwnerOf.
	For string `json:"for"`
	// Since is when it was kept, Until when it is given back.
	Since metav1.Time `json:"since"`
	Until metav1.Time `json:"until"`
	// TakenBy is the MaasMachine that takes it; "" if none does.
	TakenBy types.UID `json:"takenBy,omitempty"`
	// GivenBack means that no Machine takes it any more.
	GivenBack bool `json:"givenBack,omitempty"`

	// What follows is of the MaasMachine that is gone, as far as the next one, or giving the machine back, goes on with
	// it.

	Machine     string                  `json:"machine"`
	Labels      map[string]string       `json:"labels,omitempty"`
	Annotations map[string]string       `json:"annotations,omitempty"`
	Spec        infrav1.MaasMachineSpec `json:"spec"`
	Storage     *StorageLayout          `json:"storage,omitempty"`

	// Giving is how far its release is, for the next one or to give it back: its own record; nil before that began.
	Giving *MachineData `json:"giving,omitempty"`
	// Reason and Message say what it waits for then.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`

	Unknown `json:"-"`
}

// KeptMachines are the machines that a MaasCluster keeps. The reconcilers of its MaasMachines and of what is kept share
// the list: each method says something of one entry alone, and removes none that has calls of its own.
type KeptMachines []KeptMachine

// Keep records that a machine waits: of its MaasMachine only what the next one, or giving it back, needs. It returns
// false if there are too many, or if it is still recorded that the machine waited after an earlier MaasMachine.
func (k *KeptMachines) Keep(m KeptMachine, now time.Time, lasts time.Duration) bool {
	if earlier := k.Named(m.SystemID); earlier != nil {
		return earlier.Machine == m.Machine && !earlier.GivenBack
	}
	if len(*k) >= maxKept {
		return false
	}
	m.Since, m.Until = asStored(now), asStored(now.Add(lasts))
	m.Labels, m.Annotations, m.Spec = needed(m)
	*k = append(slices.Clone(*k), m)
	return true
}

// needed returns the labels, the annotations and the spec of a machine that is kept, as far as they are still needed.
func needed(m KeptMachine) (labels, annotations map[string]string, spec infrav1.MaasMachineSpec) {
	only := func(of map[string]string, keys ...string) map[string]string {
		of = maps.Clone(of)
		maps.DeleteFunc(of, func(key, _ string) bool { return !slices.Contains(keys, key) })
		return of
	}
	spec = infrav1.MaasMachineSpec{ProvisioningMode: m.Spec.ProvisioningMode, SystemID: m.SystemID,
		Storage: m.Spec.Storage}
	spec.Release.Erase = m.Spec.Release.Erase
	return only(m.Labels, clusterv1.ClusterNameLabel),
		only(m.Annotations, infrav1.OwnerIDAnnotation, infrav1.StaticIPAnnotation, infrav1.InterfacesAnnotation), spec
}

// Named returns a machine that waits, or nil.
func (k KeptMachines) Named(systemID string) *KeptMachine {
	return list.Find(k, func(m KeptMachine) bool { return m.SystemID == systemID })
}

// Take records that a MaasMachine takes a machine that waits, and returns that one: the one that it takes already, or
// the first that fits; nil if there is none.
func (k KeptMachines) Take(by types.UID, fits func(KeptMachine) bool) *KeptMachine {
	waits := func(m KeptMachine) bool { return m.TakenBy == "" && !m.GivenBack && fits(m) }
	kept := cmp.Or(list.Find(k, func(m KeptMachine) bool { return m.TakenBy == by }), list.Find(k, waits))
	if kept == nil {
		return nil
	}
	kept.TakenBy = by
	return ptr.To(*kept)
}

// takenBy returns a machine that a MaasMachine takes; nil if it takes it no more.
func (k KeptMachines) takenBy(systemID string, by types.UID) *KeptMachine {
	return list.Find(k, func(m KeptMachine) bool { return m.SystemID == systemID && m.TakenBy == by })
}

// Release records that MAAS is about to be asked to release a machine that a MaasMachine takes: the phase in which it
// is then. MAAS may remove its mark, and not release it. It returns false if the MaasMachine takes it no more.
func (k KeptMachines) Release(systemID string, by types.UID, phase string, now time.Time) bool {
	kept := k.takenBy(systemID, by)
	if kept == nil {
		return false
	}
	giving := kept.giving()
	giving.Enter(phase, now)
	kept.Giving = &giving
	return true
}

// giving returns the record of the machine's release.
func (m *KeptMachine) giving() MachineData {
	return ptr.Deref(m.Giving, MachineData{Storage: m.Storage})
}

// StopTaking records that a MaasMachine, "" for none, does not take a machine over any more. It is given back if
// giveBack is set.
func (k KeptMachines) StopTaking(systemID string, by types.UID, giveBack bool) {
	if kept := k.takenBy(systemID, by); kept != nil {
		kept.TakenBy, kept.GivenBack = "", kept.GivenBack || giveBack
	}
}

// Drop records that a machine does not wait any more for the MaasMachine that takes it. Nothing is asked for that is
// recorded here, as long as a MaasMachine takes it.
func (k *KeptMachines) Drop(systemID string, by types.UID) {
	if kept := k.takenBy(systemID, by); by != "" && kept != nil {
		*k = slices.DeleteFunc(slices.Clone(*k), func(m KeptMachine) bool { return m.SystemID == systemID })
	}
}

// GaveBack records that a machine was given back. What is pending of it goes, so it is for Store alone.
func (d *ClusterData) GaveBack(systemID string) {
	d.Kept = slices.DeleteFunc(slices.Clone(d.Kept), func(m KeptMachine) bool { return m.SystemID == systemID })
}

// Merge stores at once what change does to the machines that are kept, on top of what others have recorded since. It
// may be called again, with those that are kept then.
func (r *Cluster) Merge(ctx context.Context, change func(*KeptMachines)) error {
	return r.merge(ctx, func() { change(&r.Kept) })
}

// Add is Merge for a further machine, and reports whether it was added: see Record.add.
func (r *Cluster) Add(ctx context.Context, add func(*KeptMachines) bool) (added bool, err error) {
	return r.add(ctx, func() bool { return add(&r.Kept) })
}

var errNotKept = errors.New("the machine is not kept any more")

// Giving returns the record of giving back a machine that is kept: a part of this one, which must be opened anew
// afterwards. It is in the object that keeps the machine, so giving back makes no other.
func (r *Cluster) Giving(systemID string) (*Machine, error) {
	m, whole := &Machine{Record: r.Record}, &ClusterData{}
	m.About(systemID)
	m.calls = &m.Calls
	m.load = func(text string) error {
		if err := read(text, whole); err != nil {
			return err
		}
		if m.kept = whole.Kept.Named(systemID); m.kept == nil {
			return errNotKept
		}
		m.MachineData = m.kept.giving()
		return nil
	}
	m.text = func() string {
		own := m.MachineData
		m.kept.Giving = &own
		return write(whole)
	}
	return m, m.load(r.text())
}

// Explain records what giving the machine back waits for. It is stored with the next change.
func (r *Machine) Explain(reason, message string) {
	r.kept.Reason, r.kept.Message = reason, brief(message)
}

// Forget removes an annotation of the machine's object, as what it says is undone. If the machine is kept, the record
// has it.
func (r *Machine) Forget(ctx context.Context, annotation string) error {
	if r.kept != nil {
		delete(r.kept.Annotations, annotation)
		return r.Write(ctx)
	}
	return r.Write(ctx, func(object client.Object) { SetAnnotation(object, annotation, "") })
}
