// SPDX-License-Identifier: Apache-2.0

package stale

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	lasts   = time.Minute
	things  = "/apis/example.com/v1/namespaces/ns/things"
	watches = things + "?watch=true&resourceVersion=9"
)

// server is an API server that is asked for nothing but a watch, and what it was asked for.
type server struct {
	*testing.T
	asked  []*http.Request
	events *io.PipeWriter
}

func (s *server) RoundTrip(request *http.Request) (*http.Response, error) {
	s.asked = append(s.asked, request)
	if !request.URL.Query().Has("watch") {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}, nil
	}
	reader, writer := io.Pipe()
	s.events = writer
	return &http.Response{StatusCode: http.StatusOK, Body: reader}, nil
}

// sends sends events of a watch, written as TYPE NAME VERSION.
func (s *server) sends(events ...string) {
	s.Helper()
	for _, text := range events {
		var kind, name, version, more string
		if n, _ := fmt.Sscan(text, &kind, &name, &version, &more); n < 3 {
			s.Fatalf("%q is no event", text)
		}
		object := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: version}}
		if more != "" {
			object.Annotations = map[string]string{more: "true"}
		}
		if err := json.NewEncoder(s.events).Encode(map[string]any{"type": kind, "object": object}); err != nil {
			s.Fatal(err)
		}
	}
	synctest.Wait()
}

// manager is one, and what it was shown.
type manager struct {
	*testing.T
	*Connection
	to    *server
	shown []string
	ended bool
}

func newManager(t *testing.T, view *View, to *server) *manager {
	return &manager{T: t, Connection: view.Connect(), to: to}
}

func (m *manager) sends(method, target string) (*http.Response, error) {
	m.Helper()
	parsed, err := url.Parse(target)
	if err != nil {
		m.Fatal(err)
	}
	header := http.Header{"Accept": {"application/vnd.kubernetes.protobuf, application/json"}}
	return m.Wrap(m.to).RoundTrip((&http.Request{Method: method, URL: parsed, Header: header}).WithContext(m.Context()))
}

// asks returns the status of the answer.
func (m *manager) asks(method, target string) (int, error) {
	m.Helper()
	response, err := m.sends(method, target)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// watches begins a watch, and reads it to its end.
func (m *manager) watches(target string) {
	m.Helper()
	response, err := m.sends(http.MethodGet, target)
	if err != nil || response.StatusCode != http.StatusOK {
		m.Fatalf("the watch got %+v, %v", response, err)
	}
	m.Cleanup(func() { _ = response.Body.Close() })
	m.shown = nil
	go func() {
		defer func() { m.ended = true }()
		for in := json.NewDecoder(response.Body); ; {
			var e event
			if in.Decode(&e) != nil || json.Unmarshal(e.Object, &e.of) != nil {
				return
			}
			m.shown = append(m.shown, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Type, e.of.Name, e.of.ResourceVersion)))
		}
	}()
	synctest.Wait()
}

func (m *manager) sees(what string, want ...string) {
	m.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, m.shown); diff != "" {
		m.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestWhatAWatchShows(t *testing.T) {
	events := []string{"ADDED a 10", "MODIFIED a 11", "ADDED b 12", "MODIFIED b 13", "DELETED a 14", "BOOKMARK - 15"}
	for name, tc := range map[string]struct {
		lie         Lie
		then, after []string // while the lie lasts, and when it is over
		ended       bool
	}{
		"true":           {Lie{}, events, events, false},
		"another kind":   {Lie{Late, "others", 1}, events, events, false},
		"too few events": {Lie{Late, "things", 7}, events, events, false},
		"late":           {Lie{Late, "things", 2}, events[:1], events, false},
		"merged": {Lie{Merged, "things", 2}, events[:1],
			[]string{"ADDED a 10", "ADDED b 13", "DELETED a 14"}, false},
		"merged from the first": {Lie{Merged, "things", 1}, nil, []string{"ADDED b 13"}, false},
		"dropped":               {Lie{Dropped, "things", 4}, events[:3], append(slices.Clone(events[:3]), "ERROR"), true},
		"unanswered writes":     {Lie{Unanswered, "things", 1}, events, events, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				view, api := New(tc.lie, lasts), &server{T: t}
				m := newManager(t, view, api)
				m.watches(watches)
				api.sends(events...)
				m.sees("while it lasts", tc.then...)
				<-time.After(lasts) // On the fake clock.
				m.sees("when it is over", tc.after...)
				if lies := len(tc.then) != len(events); m.ended != tc.ended || view.Told() != lies || view.Begun() != lies {
					t.Errorf("the watch has ended: %v; the lie was told: %v", m.ended, view.Told())
				}
				if tc.ended {
					return
				}
				api.sends("ADDED a 16")
				m.sees("later", append(slices.Clone(tc.after), "ADDED a 16")...)
				if got := view.Counts()["things"]; got.Events != 6 {
					t.Errorf("counted %+v", got)
				}
			})
		})
	}
}

// An object that was replaced by another one of its name looks as if it had changed.
func TestMerge(t *testing.T) {
	for want, types := range map[string]string{
		"ADDED": "ADDED MODIFIED", "": "ADDED MODIFIED DELETED", "MODIFIED": "MODIFIED DELETED ADDED", "DELETED": "MODIFIED DELETED",
	} {
		var held []event
		for _, one := range strings.Fields(types) {
			e := event{}
			if err := json.Unmarshal([]byte(`{"type": "`+one+`"}`), &e); err != nil {
				t.Fatal(err)
			}
			held = append(held, e)
		}
		got := ""
		for _, e := range merge(held) {
			got += string(e.Type)
		}
		if got != want {
			t.Errorf("%s is %q, want %q", types, got, want)
		}
	}
}

// What a watch begins with is all that there is: it is shown, and is no event.
func TestAWatchThatBeginsWithAllIsTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view, api := New(Lie{Late, "things", 1}, lasts), &server{T: t}
		m := newManager(t, view, api)
		m.watches(watches + "&sendInitialEvents=true")
		api.sends("ADDED a 10", "ADDED b 11", "BOOKMARK - 12 "+metav1.InitialEventsAnnotationKey, "MODIFIED a 13")
		m.sees("at first", "ADDED a 10", "ADDED b 11", "BOOKMARK - 12")
		if got := view.Counts()["things"]; got.Events != 1 {
			t.Errorf("counted %+v", got)
		}
		if got := api.asked[0].Header.Get("Accept"); strings.Contains(got, "protobuf") {
			t.Errorf("the API server was asked for %q", got)
		}
		<-time.After(lasts)
		m.sees("later", "ADDED a 10", "ADDED b 11", "BOOKMARK - 12", "MODIFIED a 13")
	})
}

// Two watches of a kind show the same.
func TestAnEventThatTwoWatchesShowIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view, api := New(Lie{Late, "things", 2}, lasts), &server{T: t}
		m := newManager(t, view, api)
		for range 2 {
			m.watches(watches)
			api.sends("ADDED a 10", "MODIFIED a 11")
			m.sees("of it", "ADDED a 10")
		}
		if got := view.Counts()["things"]; got.Events != 2 {
			t.Errorf("counted %+v", got)
		}
	})
}

func TestWhatANewManagerSees(t *testing.T) {
	for class, version := range map[Class]string{Before: "11", First: "10", Both: "11"} {
		t.Run(string(class), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				view, api := New(Lie{class, "things", 3}, lasts), &server{T: t}
				first := newManager(t, view, api)
				first.watches(watches)
				api.sends("ADDED a 10", "MODIFIED a 11")
				select {
				case <-view.Due():
					t.Error("it is time for a new manager too soon")
				default:
				}
				api.sends("MODIFIED a 12")
				<-view.Due()
				cut := func(when string, want bool) {
					if _, err := first.asks(http.MethodGet, things); errors.Is(err, errCut) != want {
						t.Errorf("%s the last manager gets %v", when, err)
					}
				}
				cut("then", class != Both)
				if class == Both {
					first.sees("it", "ADDED a 10", "MODIFIED a 11")
				}
				if view.Told() {
					t.Error("it was told already")
				}
				second := newManager(t, view, api)
				if status, err := second.asks(http.MethodGet, watches+"&sendInitialEvents=true"); err != nil || status != http.StatusUnprocessableEntity {
					t.Fatalf("a watch with all that there is got %d, %v", status, err)
				}
				if _, err := second.asks(http.MethodGet, things+"?resourceVersion=0&limit=500"); err != nil {
					t.Fatal(err)
				}
				query := api.asked[len(api.asked)-1].URL.Query()
				if got := query.Get("resourceVersion"); got != version || query.Get("resourceVersionMatch") != "Exact" || !view.Told() {
					t.Errorf("the API server was asked for %v, want %s; told %v", query, version, view.Told())
				}
				for _, target := range []string{things, things + "/a?resourceVersion=0", "/apis/example.com/v1/namespaces/ns/others?resourceVersion=0"} {
					if _, err := second.asks(http.MethodGet, target); err != nil {
						t.Fatal(err)
					}
					if got := api.asked[len(api.asked)-1].URL.String(); got != target {
						t.Errorf("the API server was asked for %s, want %s", got, target)
					}
				}
				second.watches(watches)
				api.sends("MODIFIED a 12", "MODIFIED a 13")
				second.sees("while it lasts")
				<-time.After(lasts)
				second.sees("when it is over", "MODIFIED a 12", "MODIFIED a 13")
				cut("when it is over", true)
				third := newManager(t, view, api)
				third.watches(watches + "&sendInitialEvents=true")
				if got := view.Counts()["things"]; got.Events != 4 {
					t.Errorf("counted %+v", got)
				}
			})
		})
	}
}

func TestAWriteThatIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view, api := New(Lie{Unanswered, "things", 2}, lasts), &server{T: t}
		m := newManager(t, view, api)
		m.watches(watches) // Kinds that are not watched are not counted.
		for i, want := range []error{nil, syscall.ECONNRESET, nil} {
			_, err := m.asks([]string{http.MethodPost, http.MethodPatch, http.MethodDelete}[i], things+"/a/status")
			if !errors.Is(err, want) || len(api.asked) != i+2 || view.Told() != (i > 0) {
				t.Errorf("write %d: %v; the API server was asked %d times; told: %v", i+1, err, len(api.asked), view.Told())
			}
		}
		<-view.Over()
		if got := view.Counts()["things"]; got.Writes != 3 {
			t.Errorf("counted %+v", got)
		}
	})
}

func TestARefusedWatchIsInvalid(t *testing.T) {
	response, err := refuse(&http.Request{})
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var status metav1.Status
	if err := json.NewDecoder(response.Body).Decode(&status); err != nil || !apierrors.IsInvalid(&apierrors.StatusError{ErrStatus: status}) {
		t.Errorf("it is %+v, %v", status, err)
	}
}

func TestPoints(t *testing.T) {
	for class, want := range map[Class][]int{Late: {1, 2, 3, 4}, First: {3, 4}, Unanswered: {1, 2}} {
		var got []int
		for _, lie := range (Count{Events: 4, Writes: 2}).Points(class, "things") {
			if lie.Class != class || lie.Kind != "things" {
				t.Errorf("%s is a point of the class %s", lie, class)
			}
			got = append(got, lie.N)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s is at %v, want %v", class, got, want)
		}
	}
}

func TestKindOf(t *testing.T) {
	for path, want := range map[string]string{
		things: "things", things + "/a": "things named", things + "/a/status": "things named",
		"/apis/example.com/v1/things": "things", "/api/v1/nodes/a": "nodes named", "/api/v1/namespaces/ns": "namespaces named",
		"/api/v1/namespaces/ns/secrets": "secrets", "/apis/example.com/v1": "", "/version": "", "/": "",
	} {
		kind, named := kindOf(&http.Request{URL: &url.URL{Path: path}})
		if named {
			kind += " named"
		}
		if kind != want {
			t.Errorf("%s is about %q, want %q", path, kind, want)
		}
	}
}
