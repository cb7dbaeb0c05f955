// SPDX-License-Identifier: Apache-2.0

// Package nodes keeps what is read of the Nodes of workload clusters, and watches them, with as little memory as that
// takes: an informer for each cluster would need more than all else that the manager keeps of it.
package nodes

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

const (
	// requestTimeout bounds a list, and a watch, which a server ends after 5 to 10 minutes: one that does not, and shows
	// nothing any more, would leave the Nodes as they are for ever.
	requestTimeout = 11 * time.Minute
	// tidyInterval is how often what belongs to connections that have ended is dropped.
	tidyInterval = 10 * time.Second
)

// Cache is a cluster cache whose clients read Nodes, and only these, from a view of its own. Its Watch is for Nodes.
type Cache struct {
	clustercache.ClusterCache

	parameters runtime.ParameterCodec
	codecs     serializer.CodecFactory
	life       context.Context // ends with Start
	end        context.CancelFunc

	mu    sync.Mutex
	views map[client.ObjectKey]*view
}

// New returns a cache on top of another one, which connects to the clusters. Start must run.
func New(connections clustercache.ClusterCache, scheme *runtime.Scheme) *Cache {
	life, end := context.WithCancel(context.Background())
	return &Cache{
		ClusterCache: connections, parameters: runtime.NewParameterCodec(scheme),
		codecs: serializer.NewCodecFactory(scheme), life: life, end: end, views: map[client.ObjectKey]*view{},
	}
}

// Start drops the views of connections that have ended, and all when the context ends.
func (c *Cache) Start(ctx context.Context) error {
	defer c.end()
	tick := time.NewTicker(tidyInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.tidy(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *Cache) tidy(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for cluster, v := range c.views {
		if config, err := c.ClusterCache.GetRESTConfig(ctx, cluster); err != nil || config != v.config {
			v.stop()
			delete(c.views, cluster)
		}
	}
}

// GetClient returns a client that reads Nodes from the view of a cluster.
func (c *Cache) GetClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	connected, err := c.ClusterCache.GetClient(ctx, cluster)
	if err != nil {
		return nil, err
	}
	v, err := c.of(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return nodeClient{Client: connected, view: v}, nil
}

// GetReader is GetClient for who only reads.
func (c *Cache) GetReader(ctx context.Context, cluster client.ObjectKey) (client.Reader, error) {
	return c.GetClient(ctx, cluster)
}

// Watch has a controller watch the Nodes of a cluster, once for each name and connection. It sees of them what clients
// read.
func (c *Cache) Watch(ctx context.Context, cluster client.ObjectKey, watcher clustercache.Watcher) error {
	if _, is := watcher.Object().(*corev1.Node); !is {
		return c.ClusterCache.Watch(ctx, cluster, watcher)
	}
	v, err := c.of(ctx, cluster)
	if err != nil {
		return err
	}
	return v.watch(watcher)
}

// of returns the view of a cluster, as long as there is a connection. Each connection has another one.
func (c *Cache) of(ctx context.Context, cluster client.ObjectKey) (*view, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	config, err := c.ClusterCache.GetRESTConfig(ctx, cluster)
	v := c.views[cluster]
	if v != nil && (err != nil || config != v.config) {
		v.stop()
		delete(c.views, cluster)
		v = nil
	}
	if v != nil || err != nil {
		return v, err
	}
	source, err := c.source(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to watch the Nodes of cluster %s: %w", cluster, err)
	}
	v = newView(c.life, config)
	c.views[cluster] = v
	go toolscache.NewReflectorWithOptions(source, &corev1.Node{}, v,
		toolscache.ReflectorOptions{Name: "nodes of " + cluster.String()}).RunWithContext(v.life)
	return v, nil
}

// source lists and watches the Nodes of a cluster, over the connection that its clients have.
func (c *Cache) source(config *rest.Config) (toolscache.ListerWatcher, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 0 // It would cost a goroutine for each watch.
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	const asJSON = true
	nodes, err := apiutil.RESTClientForGVK(corev1.SchemeGroupVersion.WithKind("Node"), asJSON, false, config, c.codecs,
		httpClient)
	if err != nil {
		return nil, err
	}
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			list := &corev1.NodeList{}
			return list, nodes.Get().Resource("nodes").VersionedParams(&options, c.parameters).Do(ctx).Into(list)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch, options.AllowWatchBookmarks = true, true
			ctx, cancel := context.WithTimeout(ctx, requestTimeout)
			body, err := nodes.Get().Resource("nodes").VersionedParams(&options, c.parameters).Stream(ctx)
			if err != nil {
				cancel()
				return nil, err
			}
			return watcherOf(body, cancel), nil
		},
	}, nil
}
