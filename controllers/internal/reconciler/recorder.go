// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"fmt"
	"hash/fnv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/reference"
)

// maxNote is how many bytes of a note the API server accepts.
const maxNote = 1024

// Recorder emits events. client-go counts an event instead of sending it if all but its note is as before, so the
// related object says that the note is another one; and it sends notes that the API server refuses.
type Recorder struct {
	events.EventRecorder
	scheme *runtime.Scheme
}

// NewRecorder returns a Recorder that emits through another one.
func NewRecorder(through events.EventRecorder, scheme *runtime.Scheme) *Recorder {
	return &Recorder{through, scheme}
}

// Eventf emits an event, whose related object is the regarded one if none is given.
func (r *Recorder) Eventf(
	regarding, related runtime.Object, eventtype, reason, action, note string, args ...any,
) {
	text := cut(fmt.Sprintf(note, args...))
	if related == nil {
		related = regarding
	}
	if to, err := reference.GetReference(r.scheme, related); err == nil {
		sum := fnv.New32a()
		_, _ = sum.Write([]byte(text)) // It returns no error.
		to = to.DeepCopy()
		to.ResourceVersion, to.FieldPath = "", fmt.Sprintf("note/%08x", sum.Sum32())
		related = to
	}
	r.EventRecorder.Eventf(regarding, related, eventtype, reason, action, "%s", text)
}

// cut returns the part of a note that the API server accepts.
func cut(note string) string {
	const more = "..."
	if len(note) <= maxNote {
		return note
	}
	return strings.ToValidUTF8(note[:maxNote-len(more)], "") + more
}
