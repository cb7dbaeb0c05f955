// SPDX-License-Identifier: Apache-2.0

package life

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// ofALaterVersion is a field of the record that no version knows.
const ofALaterVersion = "ofALaterVersion"

// RolledBack are objects that a later version of the manager has recorded something on, before it was rolled back.
type RolledBack struct {
	kube client.Client
	in   []client.ListOption
	by   map[types.UID]string // their names
}

// RollBack does what a manager of a later version leaves, which ran for a moment and was rolled back: each record
// gets a field that this version does not know, in each of its parts. The manager should not run meanwhile.
func RollBack(ctx context.Context, kube client.Client, in ...client.ListOption) (*RolledBack, error) {
	r := &RolledBack{kube: kube, in: in, by: map[types.UID]string{}}
	objects, err := r.read(ctx)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		done, err := r.record(ctx, object)
		if err != nil {
			return nil, err
		}
		if done {
			r.by[object.GetUID()] = fmt.Sprintf("%T %s", object, client.ObjectKeyFromObject(object))
		}
	}
	return r, nil
}

// Objects is how many there are.
func (r *RolledBack) Objects() int { return len(r.by) }

// Lost returns those that are there and have lost what the later version recorded. Each is returned once.
func (r *RolledBack) Lost(ctx context.Context) (lost []string, err error) {
	objects, err := r.read(ctx)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		name, marked := r.by[object.GetUID()]
		if marked && !strings.Contains(object.GetAnnotations()[infrav1.RecordAnnotation], ofALaterVersion) {
			lost = append(lost, fmt.Sprintf("%s: the record is %q", name, object.GetAnnotations()[infrav1.RecordAnnotation]))
			delete(r.by, object.GetUID())
		}
	}
	return lost, nil
}

// read returns the objects with records.
func (r *RolledBack) read(ctx context.Context) (objects []client.Object, err error) {
	lists := []client.ObjectList{&infrav1.MaasClusterList{}, &infrav1.MaasMachineList{}, &infrav1.LXDHostList{}}
	for _, list := range lists {
		if err := r.kube.List(ctx, list, r.in...); err != nil {
			return nil, fmt.Errorf("reading records: %w", err)
		}
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			objects = append(objects, item.(client.Object))
			return nil
		}); err != nil {
			return nil, fmt.Errorf("reading records: %w", err)
		}
	}
	return objects, nil
}

// record adds the field; false if the object is gone.
func (r *RolledBack) record(ctx context.Context, object client.Object) (done bool, err error) {
	for {
		before := object.DeepCopyObject().(client.Object)
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		if annotations[infrav1.RecordAnnotation], err = later(annotations[infrav1.RecordAnnotation]); err != nil {
			return false, err
		}
		object.SetAnnotations(annotations)
		err = r.kube.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsConflict(err) {
			err = r.kube.Get(ctx, client.ObjectKeyFromObject(object), object)
			if err == nil {
				continue
			}
		}
		if err != nil {
			return false, client.IgnoreNotFound(err)
		}
		return true, nil
	}
}

// later is a record as a later version would write it.
func later(text string) (string, error) {
	record := map[string]any{}
	if text != "" {
		numbers := json.NewDecoder(bytes.NewReader([]byte(text)))
		numbers.UseNumber()
		if err := numbers.Decode(&record); err != nil {
			return "", fmt.Errorf("reading a record: %w", err)
		}
	}
	extend(record)
	extended, err := json.Marshal(record)
	if err != nil {
		return "", fmt.Errorf("writing a record: %w", err)
	}
	return string(extended), nil
}

func extend(part map[string]any) {
	for name, value := range part {
		list, is := value.([]any)
		if !is {
			list = []any{value}
		}
		for _, one := range list {
			inner, is := one.(map[string]any)
			switch {
			case !is || name == "labels" || name == "annotations": // Their fields are names.
			case name == "spec": // In it there may be such, too.
				inner[ofALaterVersion] = "what this version does not know"
			default:
				extend(inner)
			}
		}
	}
	part[ofALaterVersion] = map[string]any{"undo": "what this version does not know"}
}
