// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
)

// maxWithEntries bounds all annotations of an object, in bytes, when an entry is added to its record. Kubernetes takes
// 256 KiB: the rest is for what becomes of the entries.
const maxWithEntries = apivalidation.TotalAnnotationSizeLimitB / 2

// maxText bounds each text in an entry, in bytes: it may change after the entry was added.
const maxText = 512

func brief(why string) string { return text.OneLine(why, maxText) }

// add is merge for what adds an entry to the record, and reports whether it did. It does not if add returns false, if
// the annotations would get too large, or if Kubernetes refuses them, as policies of others may: the record is full
// then.
func (r *Record) add(ctx context.Context, add func() bool) (added bool, err error) {
	err = r.merge(ctx, func() {
		before := r.text()
		if added = add() && r.size() <= maxWithEntries; !added {
			_ = r.load(before) // It was read before.
		}
	})
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsRequestEntityTooLargeError(err) {
		return false, nil
	}
	return added && err == nil, err
}

// size returns the size of the object's annotations with the record as it is now, in bytes.
func (r *Record) size() int {
	annotations := maps.Clone(r.object.GetAnnotations())
	delete(annotations, infrav1.RecordAnnotation)
	return sizeOf(annotations) + len(infrav1.RecordAnnotation) + len(r.text())
}

func sizeOf(annotations map[string]string) (size int) {
	for key, value := range annotations {
		size += len(key) + len(value)
	}
	return size
}

// makeRoom removes annotations of others, the largest first, from an object that is being deleted and has too many to
// be changed: they are not needed any more, and what is in MAAS is given back with the record alone.
func makeRoom(object client.Object) {
	annotations := maps.Clone(object.GetAnnotations())
	if object.GetDeletionTimestamp().IsZero() || sizeOf(annotations) <= apivalidation.TotalAnnotationSizeLimitB {
		return
	}
	others := slices.DeleteFunc(slices.Collect(maps.Keys(annotations)), isOurs)
	slices.SortFunc(others, func(a, b string) int { return len(annotations[b]) - len(annotations[a]) })
	for _, key := range others {
		if sizeOf(annotations) <= apivalidation.TotalAnnotationSizeLimitB {
			break
		}
		delete(annotations, key)
	}
	object.SetAnnotations(annotations)
}

// isOurs reports whether an annotation is the manager's, or Cluster API's.
func isOurs(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return domain == "capmaas.io" || domain == "cluster.x-k8s.io" || strings.HasSuffix(domain, ".cluster.x-k8s.io")
}
