// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/figures"
)

var cluster = client.ObjectKey{Namespace: "tenant", Name: "c"}

// wholeNode has all that is read of a Node, and what is not.
func wholeNode() *corev1.Node {
	now := metav1.NewTime(time.Unix(1, 0).UTC())
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n", UID: "uid", ResourceVersion: "7", CreationTimestamp: now, DeletionTimestamp: &now, Finalizers: []string{"f"},
		Labels: map[string]string{
			corev1.LabelTopologyZone: "z", infrav1.ResourcePoolLabel: "p", infrav1.HostLabel: "h", corev1.LabelHostname: "other",
		},
		Annotations: map[string]string{infrav1.LXDKeysAnnotation: "keys", "csi": "other"},
	}}
	node.Spec = corev1.NodeSpec{ProviderID: "maas:///z/abc", PodCIDR: "10.0.0.0/24"}
	node.Status.NodeInfo = corev1.NodeSystemInfo{BootID: "boot", KernelVersion: "6"}
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: now}, {Type: corev1.NodeDiskPressure, Message: "other"},
		{Type: infrav1.LXDHostReadyNodeCondition, Message: "why"},
	}
	node.Status.Images = []corev1.ContainerImage{{SizeBytes: 1}}
	return node
}

// keptNode is what is read of it.
func keptNode() *corev1.Node {
	kept := wholeNode()
	delete(kept.Labels, corev1.LabelHostname)
	delete(kept.Annotations, "csi")
	kept.Spec.PodCIDR, kept.Status.NodeInfo.KernelVersion, kept.Status.Images = "", "", nil
	kept.Status.Conditions = slices.Delete(kept.Status.Conditions, 1, 2)
	return kept
}

func TestWhatIsReadOfANodeIsKept(t *testing.T) {
	if diff := cmp.Diff(keptNode(), lean(wholeNode())); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	bare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}
	if diff := cmp.Diff(bare, lean(bare)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A patch that is made of what is kept says nothing of the rest.
func TestAPatchChangesNothingElse(t *testing.T) {
	changed := lean(wholeNode())
	before := client.MergeFrom(changed.DeepCopy())
	changed.Spec.ProviderID, changed.Labels[infrav1.HostLabel] = "new", "new"
	patch, err := before.Data(changed)
	want := `{"metadata":{"labels":{"` + infrav1.HostLabel + `":"new"}},"spec":{"providerID":"new"}}`
	if err != nil || string(patch) != want {
		t.Errorf("the patch is %s, %v; want %s", patch, err, want)
	}
}

// told are what a handler was told, one line each.
type told struct {
	mu    sync.Mutex
	lines []string
}

func (h *told) note(what string, node any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, what+" "+node.(*corev1.Node).Name+" "+node.(*corev1.Node).ResourceVersion)
}

func (h *told) OnAdd(node any, _ bool) { h.note("add", node) }
func (h *told) OnUpdate(_, node any)   { h.note("update", node) }
func (h *told) OnDelete(node any)      { h.note("delete", node) }
func (h *told) told() []string         { h.mu.Lock(); defer h.mu.Unlock(); return slices.Clone(h.lines) }
func (h *told) Watch(of cache.Cache) error {
	informer, err := of.GetInformer(context.Background(), &corev1.Node{})
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
	return err
}
func (h *told) Name() string          { return "test" }
func (h *told) Object() client.Object { return &corev1.Node{} }

func named(name, version string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
}

// Handlers learn of each change once, those that come late of what is there; a list tells what a watch has missed.
func TestHandlersAreToldOfAllChanges(t *testing.T) {
	v, early, late := newView(t.Context(), &rest.Config{}), &told{}, &told{}
	if err := early.Watch(v); err != nil {
		t.Fatal(err)
	}
	registered := registration{v}
	if registered.HasSynced() {
		t.Error("it has synced before the first list")
	}
	for _, err := range []error{
		v.Replace([]any{named("a", "1"), named("b", "1")}, ""), v.Update(named("a", "2")), late.Watch(v), v.Add(named("c", "3")),
		v.Delete(named("c", "4")), v.Delete(named("c", "4")), v.Replace([]any{named("a", "2"), named("d", "5")}, ""),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if !registered.HasSynced() {
		t.Error("it has not synced after a list")
	}
	wantEarly := []string{"add a 1", "add b 1", "update a 2", "add c 3", "delete c 4", "add d 5", "delete b 1"}
	if diff := cmp.Diff(wantEarly, early.told()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	got := late.told()
	slices.Sort(got[:2]) // What is there has no order.
	if diff := cmp.Diff(append([]string{"add a 2", "add b 1"}, wantEarly[3:]...), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, err := range []error{v.Add("x"), v.Delete("x"), v.Replace([]any{"x"}, "")} {
		if !errors.Is(err, errNotNodes) {
			t.Errorf("what is no Node: %v", err)
		}
	}
}

// connections is a cluster cache that is connected as a test says.
type connections struct {
	clustercache.ClusterCache
	mu     sync.Mutex
	config *rest.Config
}

func (c *connections) connect(config *rest.Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.config = config
}

func (c *connections) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.config == nil {
		return nil, clustercache.ErrClusterNotConnected
	}
	return c.config, nil
}

func (c *connections) GetClient(ctx context.Context, key client.ObjectKey) (client.Client, error) {
	_, err := c.GetRESTConfig(ctx, key)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "of-the-cluster"}}
	return fake.NewClientBuilder().WithObjects(config).Build(), err
}

// nodeAPI serves a list with a Node, and sends events to those who watch. It says who watches.
type nodeAPI struct {
	events   chan any
	watchers chan context.Context
}

func (a *nodeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("sendInitialEvents") != "" {
		http.Error(w, "a list is a list here", http.StatusUnprocessableEntity)
		return
	}
	if r.URL.Query().Get("watch") == "" {
		list := &corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, Items: []corev1.Node{*wholeNode()}}
		list.ResourceVersion = "7"
		_ = json.NewEncoder(w).Encode(list) // The client may be gone.
		return
	}
	w.(http.Flusher).Flush()
	a.watchers <- r.Context()
	for {
		select {
		case event := <-a.events:
			_ = json.NewEncoder(w).Encode(event)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// Nodes are read as the cluster has them, over each connection anew; what watches over one that has ended does not stay.
func TestNodesAreThoseOfTheConnection(t *testing.T) {
	api := &nodeAPI{events: make(chan any), watchers: make(chan context.Context, 9)}
	server := httptest.NewServer(api)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	connected := &connections{config: &rest.Config{Host: server.URL}}
	c, handler := New(connected, scheme), &told{}
	t.Cleanup(c.end)
	reader, err := c.GetClient(t.Context(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{}
	if err := reader.Get(t.Context(), client.ObjectKey{Name: "n"}, node); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(keptNode(), node); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := reader.Get(t.Context(), client.ObjectKey{Name: "another"}, node); !apierrors.IsNotFound(err) {
		t.Errorf("a Node that is not there: %v", err)
	}
	if err := reader.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "of-the-cluster"}, &corev1.ConfigMap{}); err != nil {
		t.Errorf("what is no Node: %v", err)
	}
	for range 2 {
		if err := c.Watch(t.Context(), cluster, handler); err != nil {
			t.Fatal(err)
		}
	}
	first := <-api.watchers
	for _, event := range []metav1.WatchEvent{
		{Type: "ADDED", Object: runtime.RawExtension{Object: named("m", "8")}},
		{Type: "BOOKMARK", Object: runtime.RawExtension{Object: named("", "9")}},
		{Type: "DELETED", Object: runtime.RawExtension{Object: named("n", "10")}},
	} {
		api.events <- event
	}
	eventually.True(t, "the handler is told", func() bool {
		return reflect.DeepEqual(handler.told(), []string{"add n 7", "add m 8", "delete n 10"})
	})
	nodes := &corev1.NodeList{}
	if err := reader.List(t.Context(), nodes); err != nil || len(nodes.Items) != 1 || nodes.Items[0].Name != "m" {
		t.Errorf("the Nodes are %v, %v", nodes.Items, err)
	}
	if err := reader.List(t.Context(), nodes, client.MatchingLabels{"a": "b"}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("some Nodes: %v", err)
	}

	connected.connect(&rest.Config{Host: server.URL})
	if err := c.Watch(t.Context(), cluster, handler); err != nil {
		t.Fatal(err)
	}
	second := <-api.watchers
	eventually.True(t, "the first watch ends", func() bool { return first.Err() != nil })
	connected.connect(nil)
	if _, err := c.GetReader(t.Context(), client.ObjectKey{Name: "another"}); !errors.Is(err, clustercache.ErrClusterNotConnected) {
		t.Errorf("without a connection: %v", err)
	}
	c.tidy(t.Context())
	eventually.True(t, "the second watch ends", func() bool { return second.Err() != nil })
	if len(c.views) != 0 {
		t.Errorf("%d views are left", len(c.views))
	}
}

// A read ends if the cluster lists nothing, and holds no worker until then.
func TestAReadDoesNotWaitForever(t *testing.T) {
	idle, resumed := 0, 0
	ctx, cancel := context.WithCancel(guard.WithIdle(t.Context(), func() func() { idle++; return func() { resumed++ } }))
	cancel()
	of := nodeClient{view: newView(t.Context(), &rest.Config{})}
	if err := of.Get(ctx, client.ObjectKey{Name: "n"}, &corev1.Node{}); !apierrors.IsTimeout(err) {
		t.Errorf("reading a Node: %v", err)
	}
	if idle != 1 || resumed != 1 {
		t.Errorf("the worker was given away %d times, and taken back %d times", idle, resumed)
	}
	of.view.stop()
	if err := of.List(t.Context(), &corev1.NodeList{}); !apierrors.IsTimeout(err) {
		t.Errorf("listing the Nodes: %v", err)
	}
}

func describe(kind watch.EventType, object runtime.Object) string {
	switch o := object.(type) {
	case *metav1.Status:
		return fmt.Sprint(kind, " ", o.Code)
	case *corev1.Node:
		if kind == watch.Bookmark {
			return fmt.Sprint(kind, " ", o.Annotations)
		}
		return fmt.Sprint(kind, " ", o.Name, " ", o.ResourceVersion)
	}
	return fmt.Sprintf("%T", object)
}

// Events come as the server sends them, in one piece or many; what is no event ends the watch.
func TestEventsAreDecoded(t *testing.T) {
	const bookmark = `{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}`
	const added = `{"type":"ADDED","object":{"kind":"Node","metadata":{"name":"n","resourceVersion":"1"}}}`
	for name, test := range map[string]struct {
		text string
		want []string
		err  error
	}{
		"lines":      {added + "\n" + added + "\n", []string{"ADDED n 1", "ADDED n 1"}, io.EOF},
		"no lines":   {added + added, []string{"ADDED n 1", "ADDED n 1"}, io.EOF},
		"a bookmark": {bookmark, []string{"BOOKMARK map[k8s.io/initial-events-end:true]"}, io.EOF},
		"an error":   {`{"type":"ERROR","object":{"kind":"Status","code":410}}`, []string{"ERROR 410"}, io.EOF},
		"half":       {added + added[:20], []string{"ADDED n 1"}, io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			d := &decoder{body: io.NopCloser(iotest.OneByteReader(strings.NewReader(test.text))), left: strings.NewReader("")}
			var got []string
			for {
				kind, object, err := d.Decode()
				if err != nil {
					if !errors.Is(err, test.err) {
						t.Errorf("it ends with %v, want %v", err, test.err)
					}
					break
				}
				got = append(got, describe(kind, object))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// No byte is lost of events that come at once: with a large one, small ones and a part of the next are read.
func TestEventsThatComeAtOnceAreDecoded(t *testing.T) {
	const large, small = 5000, 0
	sizes := []int{large, small, small, large, small, large, small, small, small, small, small, large}
	var text strings.Builder
	for i, size := range sizes {
		node := named(fmt.Sprint("n", i), fmt.Sprint(i))
		node.Annotations = map[string]string{infrav1.LXDKeysAnnotation: strings.Repeat("x", size)}
		event := metav1.WatchEvent{Type: string(watch.Modified), Object: runtime.RawExtension{Object: node}}
		if err := json.NewEncoder(&text).Encode(event); err != nil {
			t.Fatal(err)
		}
	}
	d := &decoder{body: io.NopCloser(strings.NewReader(text.String())), left: strings.NewReader("")}
	for i, size := range sizes {
		_, object, err := d.Decode()
		if err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
		node := object.(*corev1.Node)
		if got := len(node.Annotations[infrav1.LXDKeysAnnotation]); node.ResourceVersion != fmt.Sprint(i) || got != size {
			t.Errorf("event %d is of version %s, and %d bytes long", i, node.ResourceVersion, got)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A server that neither ends a list or a watch, nor shows anything any more, holds the Nodes as they are for a while only.
func TestRequestsEndByThemselves(t *testing.T) {
	var asked []*http.Request
	config := &rest.Config{Host: "http://192.0.2.1", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		asked = append(asked, r)
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}, nil
	})}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	source, err := New(nil, scheme).source(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := toolscache.ToListerWatcherWithContext(source).ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	watching, err := toolscache.ToListerWatcherWithContext(source).WatchWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watching.Stop()
	for _, r := range asked {
		if at, limited := r.Context().Deadline(); !limited || time.Until(at) > requestTimeout {
			t.Errorf("%s ends at %s, %t", r.URL, at, limited)
		}
	}
	if ended := asked[len(asked)-1].Context(); ended.Err() == nil {
		t.Error("the request goes on after its watch has stopped")
	}
}

// What a manager keeps of 100 Nodes is what the range says, however large they are.
func TestMemoryOfAHundredNodes(t *testing.T) {
	var events bytes.Buffer
	for i := range 100 {
		node := wholeNode()
		node.Name, node.UID = fmt.Sprintf("node-%d", i), types.UID(fmt.Sprintf("uid-%d", i))
		for image := range 30 {
			names := []string{fmt.Sprintf("registry.example.com/some/where/image-%d", image)}
			node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: names})
		}
		event := metav1.WatchEvent{Type: string(watch.Added), Object: runtime.RawExtension{Object: node}}
		if err := json.NewEncoder(&events).Encode(event); err != nil {
			t.Fatal(err)
		}
	}
	v := newView(t.Context(), &rest.Config{})
	follow := func() {
		d := &decoder{body: io.NopCloser(bytes.NewReader(events.Bytes())), left: strings.NewReader("")}
		for _, object, err := d.Decode(); err == nil; _, object, err = d.Decode() {
			if err := v.Update(object); err != nil {
				t.Fatal(err)
			}
		}
	}
	follow() // What is kept for all Nodes is there by now.
	for name := range v.nodes {
		v.nodes[name] = nil
	}
	before := figures.Heap()
	follow()
	if len(v.nodes) != 100 {
		t.Fatalf("there are %d Nodes", len(v.nodes))
	}
	figures.Check(t, "100 Nodes of workload clusters", "kilobytes", (figures.Heap()-before)/1000)
	goruntime.KeepAlive(v)
	goruntime.KeepAlive(&events)
}
