// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// client-go sends each note once, and none that the API server refuses.
func TestEventsOfDifferentNotesAreSent(t *testing.T) {
	sent := make(chan eventsv1.Event, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		event := eventsv1.Event{}
		if r.Method == http.MethodPost && json.NewDecoder(r.Body).Decode(&event) == nil {
			sent <- event
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(event)
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := &Base{Recorder: NewRecorder(broadcaster.NewRecorder(scheme.Scheme, "test"), scheme.Scheme)}
	about := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cluster", Namespace: "d", UID: "1"}}
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "machine", Namespace: "d", UID: "2"}}
	long := strings.Repeat("ä", 1000)
	want := []string{"one", "two", "three", "four", "five", long[:maxNote-4] + "..."}
	for _, note := range []string{"one", "two", "three", "one"} {
		b.Tell(about, "Orphaned", "Audit", "%s", note)
	}
	for _, note := range []string{"four", "five"} {
		b.Recorder.Eventf(about, other, corev1.EventTypeNormal, "Orphaned", "Audit", "%s", note)
	}
	b.Warn(about, "Long", "Audit", "%s", long)
	var got []string
	for len(got) < len(want) {
		select {
		case event := <-sent:
			got = append(got, event.Note)
			name := "cluster"
			if event.Note == "four" || event.Note == "five" {
				name = "machine"
			}
			if event.Related == nil || event.Related.Name != name || event.Regarding.Name != "cluster" || !utf8.ValidString(event.Note) || len(event.Note) > maxNote {
				t.Errorf("the event is %+v", event)
			}
		case <-time.After(eventually.Limit):
			t.Fatalf("sent were %q", got)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the notes differ (-want +got):\n%s", diff)
	}
}
