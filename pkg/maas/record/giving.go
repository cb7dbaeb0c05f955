// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"errors"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var errNotKept = errors.New("the machine is not kept any more")

// Giving returns the record of giving back a machine that is kept: a part of this one, which must be opened anew
// afterwards. It is in the object that keeps the machine, so giving back makes no other.
func (r *Cluster) Giving(systemID string) (*Machine, error) {
	m, whole := &Machine{Record: r.Record}, &ClusterData{}
	m.calls = &m.Calls
	m.load = func(text string) error {
		if err := read(text, whole); err != nil {
			return err
		}
		if m.kept = whole.KeptNamed(systemID); m.kept == nil {
			return errNotKept
		}
		m.MachineData = ptr.Deref(m.kept.Giving, MachineData{Storage: m.kept.Storage})
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
