// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

// syncTimeout is how long a read waits for the first list.
const syncTimeout = 10 * time.Second

// errNotNodes is for what a view is not made for.
var errNotNodes = errors.New("only Nodes are watched")

// view is what is known of the Nodes of one cluster through one connection. It is the store of a reflector, and the
// cache and informer of those that watch. Handlers are called by the reflector: they only fill work queues.
type view struct {
	cache.Cache    // nil: a watch calls nothing else
	cache.Informer // nil, as well
	config         *rest.Config
	life           context.Context // of the reflector
	stop           context.CancelFunc
	synced         chan struct{} // closed when the first list is known, and handlers have been told

	telling  sync.Mutex // held while handlers are told, so that they are in order
	handlers []toolscache.ResourceEventHandler
	watchers sets.Set[string]
	listed   bool

	mu    sync.RWMutex
	nodes map[string]*corev1.Node
}

func newView(ctx context.Context, config *rest.Config) *view {
	life, stop := context.WithCancel(ctx)
	return &view{
		config: config, life: life, stop: stop, synced: make(chan struct{}), watchers: sets.Set[string]{},
		nodes: map[string]*corev1.Node{},
	}
}

// watch adds a watcher, once for each name.
func (v *view) watch(watcher clustercache.Watcher) error {
	v.telling.Lock()
	has := v.watchers.Has(watcher.Name())
	v.watchers.Insert(watcher.Name())
	v.telling.Unlock()
	if has {
		return nil
	}
	err := watcher.Watch(v)
	if err != nil {
		v.telling.Lock()
		defer v.telling.Unlock()
		v.watchers.Delete(watcher.Name())
	}
	return err
}

// Transformer has the reflector keep nothing else of a list that it receives as a watch.
func (v *view) Transformer() toolscache.TransformFunc {
	return func(object any) (any, error) {
		if node, is := object.(*corev1.Node); is {
			return lean(node), nil
		}
		return object, nil
	}
}

// Add takes in a Node.
func (v *view) Add(object any) error { return v.Update(object) }

// Update takes in a Node, and tells whether it is a new one.
func (v *view) Update(object any) error {
	node, is := object.(*corev1.Node)
	if !is {
		return fmt.Errorf("%T: %w", object, errNotNodes)
	}
	v.telling.Lock()
	defer v.telling.Unlock()
	v.put(lean(node))
	return nil
}

// put stores a Node, and tells the handlers. The caller holds v.telling.
func (v *view) put(node *corev1.Node) {
	v.mu.Lock()
	before := v.nodes[node.Name]
	v.nodes[node.Name] = node
	v.mu.Unlock()
	for _, handler := range v.handlers {
		if before == nil {
			handler.OnAdd(node, !v.listed)
		} else {
			handler.OnUpdate(before, node)
		}
	}
}

// Delete drops a Node.
func (v *view) Delete(object any) error {
	node, is := object.(*corev1.Node)
	if !is {
		return fmt.Errorf("%T: %w", object, errNotNodes)
	}
	v.telling.Lock()
	defer v.telling.Unlock()
	v.drop(lean(node))
	return nil
}

// drop forgets a Node, and tells the handlers its last state. The caller holds v.telling.
func (v *view) drop(node *corev1.Node) {
	v.mu.Lock()
	_, has := v.nodes[node.Name]
	delete(v.nodes, node.Name)
	v.mu.Unlock()
	if !has {
		return
	}
	for _, handler := range v.handlers {
		handler.OnDelete(node)
	}
}

// Replace takes in a list of all Nodes.
func (v *view) Replace(list []any, _ string) error {
	v.telling.Lock()
	defer v.telling.Unlock()
	gone := v.all()
	for _, object := range list {
		node, is := object.(*corev1.Node)
		if !is {
			return fmt.Errorf("%T: %w", object, errNotNodes)
		}
		before := gone[node.Name]
		delete(gone, node.Name)
		if before == nil || before.ResourceVersion != node.ResourceVersion {
			v.put(lean(node))
		}
	}
	for _, node := range gone {
		v.drop(node)
	}
	if !v.listed {
		v.listed = true
		close(v.synced)
	}
	return nil
}

// Resync does nothing: the machines of Nodes are reconciled now and then without it.
func (v *view) Resync() error { return nil }

// all returns the Nodes by name.
func (v *view) all() map[string]*corev1.Node {
	v.mu.RLock()
	defer v.mu.RUnlock()
	all := make(map[string]*corev1.Node, len(v.nodes))
	for name, node := range v.nodes {
		all[name] = node
	}
	return all
}

// GetInformer returns the view itself.
func (v *view) GetInformer(_ context.Context, object client.Object, _ ...cache.InformerGetOption) (
	cache.Informer, error,
) {
	if _, is := object.(*corev1.Node); !is {
		return nil, fmt.Errorf("%T: %w", object, errNotNodes)
	}
	return v, nil
}

// WaitForCacheSync waits for the first list; false: there will be none.
func (v *view) WaitForCacheSync(ctx context.Context) bool {
	select {
	case <-v.synced:
		return true
	case <-v.life.Done():
	case <-ctx.Done():
	}
	return false
}

// AddEventHandlerWithOptions tells a handler of all Nodes, and from then on of all changes.
func (v *view) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, _ toolscache.HandlerOptions) (
	toolscache.ResourceEventHandlerRegistration, error,
) {
	v.telling.Lock()
	defer v.telling.Unlock()
	v.handlers = append(v.handlers, handler)
	for _, node := range v.all() {
		handler.OnAdd(node, true)
	}
	return registration{v}, nil
}

// registration is that of a handler, which has been told of all Nodes when the first list is known.
type registration struct{ *view }

// HasSynced reports whether the handler has been told of the first list.
func (r registration) HasSynced() bool { return toolscache.IsDone(r) }

// HasSyncedChecker completes when it has been.
func (r registration) HasSyncedChecker() toolscache.DoneChecker { return r }

// Name says what is waited for.
func (r registration) Name() string { return "Nodes of " + r.config.Host }

// Done is closed when the handler has been told of the first list.
func (r registration) Done() <-chan struct{} { return r.synced }

// nodeClient reads Nodes from a view.
type nodeClient struct {
	client.Client
	view *view
}

// sync waits for the first list. Meanwhile the caller's worker is free for others: a cluster that responds may still
// never list its Nodes.
func (c nodeClient) sync(ctx context.Context) error {
	if toolscache.IsDone(registration{c.view}) {
		return nil
	}
	guard.At(ctx, guard.ServerAt(c.view.config.Host, c.view.config.CAData))
	defer guard.Idle(ctx)()
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if !c.view.WaitForCacheSync(ctx) {
		return apierrors.NewTimeoutError("the Nodes have not been listed yet", 0)
	}
	return nil
}

// Get reads an object, a Node from the view.
func (c nodeClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption,
) error {
	node, is := object.(*corev1.Node)
	if !is {
		return c.Client.Get(ctx, key, object, options...)
	}
	if err := c.sync(ctx); err != nil {
		return err
	}
	c.view.mu.RLock()
	defer c.view.mu.RUnlock()
	found := c.view.nodes[key.Name]
	if found == nil {
		return apierrors.NewNotFound(corev1.Resource("nodes"), key.Name)
	}
	found.DeepCopyInto(node)
	return nil
}

// List reads a list, all Nodes from the view.
func (c nodeClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	nodes, is := list.(*corev1.NodeList)
	if !is {
		return c.Client.List(ctx, list, options...)
	}
	if selects := (&client.ListOptions{}).ApplyOptions(options); selects.LabelSelector != nil ||
		selects.FieldSelector != nil {
		return fmt.Errorf("listing some Nodes: %w", errors.ErrUnsupported)
	}
	if err := c.sync(ctx); err != nil {
		return err
	}
	nodes.Items = nil
	for _, node := range c.view.all() {
		nodes.Items = append(nodes.Items, *node.DeepCopy())
	}
	return nil
}
