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
	// GivenBack means that nobody takes it any more.
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

// KeepMachine records that a machine waits: of its MaasMachine only what the next one, or giving it back, needs. It
// returns false if the record is full.
func (d *ClusterData) KeepMachine(m KeptMachine, now time.Time, lasts time.Duration) bool {
	if d.KeptNamed(m.SystemID) != nil {
		return true
	}
	if len(d.Kept) >= maxKept {
		return false
	}
	m.Since, m.Until = asStored(now), asStored(now.Add(lasts))
	m.Labels, m.Annotations, m.Spec = needed(m)
	d.Kept = append(slices.Clone(d.Kept), m)
	return true
}

// needed returns the labels, the annotations and the spec of a machine that is kept without what nobody needs any more.
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

// KeptNamed returns a machine that waits, or nil.
func (d *ClusterData) KeptNamed(systemID string) *KeptMachine {
	return list.Find(d.Kept, func(k KeptMachine) bool { return k.SystemID == systemID })
}

// TakeKept records that a MaasMachine takes a machine that waits, and returns that one: the one that it takes already,
// or the first that fits; nil if there is none.
func (d *ClusterData) TakeKept(by types.UID, fits func(KeptMachine) bool) *KeptMachine {
	waits := func(k KeptMachine) bool { return k.TakenBy == "" && !k.GivenBack && fits(k) }
	kept := cmp.Or(list.Find(d.Kept, func(k KeptMachine) bool { return k.TakenBy == by }), list.Find(d.Kept, waits))
	if kept == nil {
		return nil
	}
	kept.TakenBy = by
	return ptr.To(*kept)
}

// ReleaseKept records that MAAS is about to be asked to release a machine that is taken: the phase in which it is then.
// MAAS may remove its mark, and not release it.
func (d *ClusterData) ReleaseKept(systemID, phase string, now time.Time) {
	if k := d.KeptNamed(systemID); k != nil {
		giving := k.giving()
		giving.Enter(phase, now)
		k.Giving = &giving
	}
}

// giving returns the record of the machine's release.
func (m *KeptMachine) giving() MachineData {
	return ptr.Deref(m.Giving, MachineData{Storage: m.Storage})
}

// ReturnKept records that a MaasMachine does not take a machine any more. It is given back if giveBack is set.
func (d *ClusterData) ReturnKept(systemID string, by types.UID, giveBack bool) {
	for i := range d.Kept {
		if k := &d.Kept[i]; k.SystemID == systemID && k.TakenBy == by {
			k.TakenBy, k.GivenBack = "", k.GivenBack || giveBack
		}
	}
}

// DropKept records that a machine does not wait any more.
func (d *ClusterData) DropKept(systemID string) {
	d.Kept = slices.DeleteFunc(slices.Clone(d.Kept), func(k KeptMachine) bool { return k.SystemID == systemID })
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
		if m.kept = whole.KeptNamed(systemID); m.kept == nil {
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
