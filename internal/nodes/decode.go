// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// maxEvent bounds an event, in bytes, as client-go does.
const maxEvent = 16 << 20

// decoder reads the events of a watch of Nodes, as JSON. Between two events it has no buffer that once held one:
// client-go's keeps some 40 KiB for each watch.
type decoder struct {
	body io.ReadCloser
	left io.Reader // what was read of the next events
	end  func()    // ends the request
}

// watcherOf returns the events of a response, and ends the request with them.
func watcherOf(body io.ReadCloser, end func()) watch.Interface {
	return watch.NewStreamWatcher(&decoder{body: body, left: strings.NewReader(""), end: end},
		apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding"))
}

// Decode waits for the next event.
func (d *decoder) Decode() (watch.EventType, runtime.Object, error) {
	event := struct {
		Type   watch.EventType `json:"type"`
		Object json.RawMessage `json:"object"`
	}{}
	events := json.NewDecoder(io.LimitReader(io.MultiReader(d.left, d.body), maxEvent))
	if err := events.Decode(&event); err != nil {
		return "", nil, err // StreamWatcher knows the ends of a stream by their values.
	}
	left, err := io.ReadAll(io.MultiReader(events.Buffered(), d.left)) // It may not have needed all of what was left.
	if err != nil {
		return "", nil, err
	}
	d.left = bytes.NewReader(left)
	if event.Type == watch.Error {
		status := &metav1.Status{}
		err := json.Unmarshal(event.Object, status)
		return event.Type, status, err
	}
	node := &corev1.Node{}
	if err := json.Unmarshal(event.Object, node); err != nil {
		return "", nil, fmt.Errorf("reading a Node: %w", err)
	}
	if event.Type == watch.Bookmark { // Its annotations are for the reflector.
		return event.Type, node, nil
	}
	return event.Type, lean(node), nil
}

// Close ends the watch.
func (d *decoder) Close() {
	_ = d.body.Close() // It is over, whatever comes of it.
	d.end()
}
