// SPDX-License-Identifier: Apache-2.0

// Package presence reads whether an object of Kubernetes is there. No response, a right that is missing, and a kind
// that is not served prove nothing: gone is only what the API server, which serves the kind, did not have twice, with
// the settle time between.
package presence

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// UnknownError means that it is not known whether an object is there.
type UnknownError struct {
	// Object is what was read: its kind, and its name.
	Object string
	// Remaining is how much longer it must be missing before it counts as gone; 0: it can't be read at all.
	Remaining time.Duration
	cause     error
}

// Error says why, and what to do if it does not end by itself.
func (e *UnknownError) Error() string {
	switch {
	case e.IsMissing():
		return e.Object + " is not there; waiting until that is certain"
	case apierrors.IsForbidden(e.cause):
		return fmt.Sprintf("%s can't be read: grant the manager the verb get for its kind: %v", e.Object, e.cause)
	case meta.IsNoMatchError(e.cause), apierrors.IsNotFound(e.cause):
		return fmt.Sprintf("%s can't be read: the API server does not serve its kind: install its CRD: %v", e.Object, e.cause)
	}
	return fmt.Sprintf("%s can't be read: %v", e.Object, e.cause)
}

// Unwrap returns what the API server said.
func (e *UnknownError) Unwrap() error { return e.cause }

// IsMissing reports whether the API server serves the kind, and does not have the object now.
func (e *UnknownError) IsMissing() bool { return e.Remaining > 0 }

// IsUnknown reports whether err means that it is not known whether an object is there, though the API server responds.
func IsUnknown(err error) bool {
	unknown := (*UnknownError)(nil)
	return errors.As(err, &unknown)
}

// IsAbsent reports whether err is the word of an API server that serves the kind that it does not have an object of a
// name. What is served says which object it did not find; a proxy, or the path of a kind that is not served, does not.
func IsAbsent(err error, name string) bool {
	if !apierrors.IsNotFound(err) || apierrors.IsUnexpectedServerError(err) {
		return false
	}
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name == name
}

// Reader reads from the API server, and remembers what was missing there.
type Reader struct {
	client.Reader
	settle time.Duration
	now    func() time.Time

	mu      sync.Mutex
	missing map[object]*absence
}

// NewReader returns a Reader for which an object is gone that is missing for the settle time.
func NewReader(from client.Reader, settle time.Duration) *Reader {
	return &Reader{Reader: from, settle: settle, now: time.Now, missing: map[object]*absence{}}
}

type object struct {
	kind schema.GroupKind
	key  types.NamespacedName
}

// absence is since when an object is missing, and when it was looked for last.
type absence struct{ since, seen time.Time }

// recall is how long after a look an absence is remembered, beside the settle time: it is not known what was meanwhile.
const recall = 10 * time.Minute

// Look reads an object of a kind, and reports whether it is there. It is not, without an error, only if it is proven to
// be gone; a reader that is no Reader proves that of nothing. *UnknownError: it is not known.
func Look(
	ctx context.Context, reader client.Reader, kind schema.GroupKind, key client.ObjectKey, into client.Object,
) (bool, error) {
	memory, _ := reader.(*Reader)
	err := reader.Get(ctx, key, into)
	if !IsAbsent(err, key.Name) {
		memory.forget(object{kind, key})
		return err == nil, Unreadable(kind, key, err)
	}
	if left := memory.awaits(object{kind, key}); left > 0 {
		return false, &UnknownError{Object: kind.Kind + " " + key.String(), Remaining: left, cause: err}
	}
	return false, nil
}

// Unreadable returns the error of a read of an object: *UnknownError if the API server refused it, or does not serve
// its kind; nil if err is.
func Unreadable(kind schema.GroupKind, key client.ObjectKey, err error) error {
	named := kind.Kind + " " + key.String()
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), meta.IsNoMatchError(err):
		return &UnknownError{Object: named, cause: err}
	}
	return fmt.Errorf("reading %s: %w", named, err)
}

// awaits returns how much longer an object must be missing before it is gone. It is missing now.
func (r *Reader) awaits(this object) time.Duration {
	if r == nil {
		return recall
	}
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for other, a := range r.missing {
		if now.Sub(a.seen) > r.settle+recall {
			delete(r.missing, other)
		}
	}
	a := r.missing[this]
	if a == nil {
		r.missing[this] = &absence{since: now, seen: now}
		return max(r.settle, time.Nanosecond)
	}
	a.seen = now
	return r.settle - now.Sub(a.since)
}

// forget forgets that an object was missing: it is there, or that is not known.
func (r *Reader) forget(this object) {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.missing, this)
	}
}
