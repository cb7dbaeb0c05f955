// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"errors"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Giving returns the record of giving back a machine that is kept: a part of this one, which must be opened anew
// afterwards. It is in the object that keeps the machine, so giving back makes no other.
func (r *Record) Giving(systemID string) (*Record, error) {
	giving := *r
	giving.kept = systemID
	return &giving, giving.enter(r.Data)
}

var errNotKept = errors.New("the machine is not kept any more")

// enter takes the record of the machine from that of the object.
func (r *Record) enter(whole Data) error {
	kept := whole.KeptNamed(r.kept)
	switch {
	case kept == nil:
		return errNotKept
	case kept.Giving != nil:
		r.Data = *kept.Giving
	default:
		r.Data = Data{Storage: kept.Storage}
	}
	r.whole = whole
	return nil
}

// Explain records what giving the machine back waits for. It is stored with the next change.
func (r *Record) Explain(reason, message string) { r.whole.ExplainKept(r.kept, reason, message) }

// Forget removes an annotation of the machine's object, as what it says is undone. If the machine is kept, the record
// has it.
func (r *Record) Forget(ctx context.Context, annotation string) error {
	if r.kept != "" {
		r.whole.forgetKept(r.kept, annotation)
		return r.Write(ctx)
	}
	return r.Write(ctx, func(object client.Object) {
		annotations := object.GetAnnotations()
		delete(annotations, annotation)
		object.SetAnnotations(annotations)
	})
}

// text returns the annotation's value with this record in it.
func (r *Record) text() string {
	if r.kept == "" {
		return r.Data.text()
	}
	whole, own := r.whole, r.Data
	whole.Kept = slices.Clone(whole.Kept)
	if kept := whole.KeptNamed(r.kept); kept != nil {
		kept.Giving = &own
	}
	return whole.text()
}
