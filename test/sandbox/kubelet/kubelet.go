// SPDX-License-Identifier: Apache-2.0

// Package kubelet runs pods as local processes, without a container runtime.
//
// It is a node of the cluster: the real controllers of Deployments, ReplicaSets and DaemonSets make pods; they are
// bound to this node if they may run on it, and run here. A cluster of several nodes has one Kubelet for each. A
// process gets what a container gets from its image, mounts and network namespace in this way:
//
//   - the command is looked up in Options.Programs;
//   - volumes (secret, configMap, projected, downwardAPI, emptyDir) are written below a directory of the pod, kept up to
//     date, and absolute paths of mounts in arguments and environment are rewritten to it;
//   - hostPath volumes are places that Options.HostPaths names; paths in their mounts are rewritten to these places;
//   - container ports are mapped to free ports, and ":<port>" at the end of an argument or variable is rewritten to it,
//     so that two replicas, or the old and the new pod of a rollout, do not collide;
//   - a process that ends is restarted according to the pod's restart policy; otherwise the pod's phase shows its result;
//   - the environment is the container's own; nothing is inherited. KUBECONFIG names a file with the token of the pod's
//     ServiceAccount and nothing else.
//
// Missing: init containers, exec probes, resources, security contexts, and Services, which nothing here resolves. A pod
// that needs one of the first two is refused with a clear status.
package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/process"
)

// NodeName is the name of the node where Options have none.
const NodeName = "sandbox"

const (
	loopback = "127.0.0.1"
	// resync is how often pods that could not be bound are checked again.
	resync = 10 * time.Second
)

// Options are the node, its programs and its paths.
type Options struct {
	// Config of the cluster's administrator. Pods never see it.
	Config *rest.Config
	// CA is the certificate, PEM, that the API server's certificate is signed with.
	CA []byte
	// Namespace whose pods are run.
	Namespace string
	// NodeName is the name of the node that this is. Default: the constant NodeName.
	NodeName string
	// NodeExists means that another component makes the Node. Nothing is bound to it before it exists.
	NodeExists bool
	// HostIP is the node's address as pods see it in status.hostIP. Default: 127.0.0.1. Pods are on 127.0.0.1 all the
	// same.
	HostIP string
	// HostPaths maps absolute paths of the node to paths on this machine. A hostPath volume at or below one of them
	// gets that path. Any other path is refused; for a directory that would be created, the pod gets an empty one of
	// its own.
	HostPaths map[string]string
	// Programs maps the first word of containers' commands to local programs.
	Programs map[string]string
	// Dir is where volumes are written.
	Dir string
	// LogDir gets a log file for each container.
	LogDir string
	// Logger gets the kubelet's own messages.
	Logger logr.Logger
}

// Kubelet runs the pods of one node.
type Kubelet struct {
	options    Options
	client     kubernetes.Interface
	secrets    corelisters.SecretLister
	configMaps corelisters.ConfigMapLister
	nodes      corelisters.NodeLister
	factories  []informers.SharedInformerFactory // of the node, and of the namespace
	cancel     context.CancelFunc
	done       sync.WaitGroup

	mutex   sync.Mutex
	stopped bool
	pods    map[types.UID]*pod
	fallen  []string
}

// Start registers the node, unless another component does, and runs its pods until Stop. Pods that the API has bound to
// the node before, of an earlier Kubelet, are run too.
func Start(ctx context.Context, options Options) (*Kubelet, error) {
	options.NodeName, options.HostIP = cmp.Or(options.NodeName, NodeName), cmp.Or(options.HostIP, loopback)
	client, err := kubernetes.NewForConfig(options.Config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	if !options.NodeExists {
		if err := registerNode(ctx, client, options); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	node := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(list *metav1.ListOptions) {
		list.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, options.NodeName).String()
	}))
	factory := informers.NewSharedInformerFactoryWithOptions(client, resync, informers.WithNamespace(options.Namespace))
	k := &Kubelet{
		options:    options,
		client:     client,
		secrets:    factory.Core().V1().Secrets().Lister(),
		configMaps: factory.Core().V1().ConfigMaps().Lister(),
		nodes:      node.Core().V1().Nodes().Lister(),
		factories:  []informers.SharedInformerFactory{node, factory},
		cancel:     cancel,
		pods:       map[types.UID]*pod{},
	}
	if err := k.watch(ctx); err != nil {
		cancel()
		return nil, err
	}
	return k, nil
}

func (k *Kubelet) watch(ctx context.Context) error {
	node, factory := k.factories[0], k.factories[1]
	pods := factory.Core().V1().Pods()
	_, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { k.observe(ctx, object) },
		UpdateFunc: func(_, object any) { k.observe(ctx, object) },
		DeleteFunc: func(object any) { k.forget(object) },
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	again := func() { k.bindAll(ctx, pods.Lister()) }
	_, err = node.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { again() },
		UpdateFunc: func(any, any) { again() },
	})
	if err != nil {
		return fmt.Errorf("watching the node: %w", err)
	}
	for _, factory := range k.factories { // the node first: pods are measured by it
		factory.Start(ctx.Done())
		for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
			if !synced {
				return fmt.Errorf("watching %s: %w", kind, context.Cause(ctx))
			}
		}
	}
	return nil
}

// bindAll checks all pods again after the node has changed.
func (k *Kubelet) bindAll(ctx context.Context, pods corelisters.PodLister) {
	all, err := pods.Pods(k.options.Namespace).List(labels.Everything())
	if err != nil {
		k.options.Logger.Error(err, "Listing pods") // a cache doesn't fail
	}
	for _, pod := range all {
		if pod.Spec.NodeName == "" {
			k.observe(ctx, pod)
		}
	}
}

// observe binds a pod that has no node yet, and runs or stops a pod of this node.
func (k *Kubelet) observe(ctx context.Context, object any) {
	spec, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	if spec.Spec.NodeName == "" && spec.DeletionTimestamp == nil {
		if err := k.bind(ctx, spec); err != nil && ctx.Err() == nil {
			k.options.Logger.Error(err, "Binding a pod", "pod", spec.Name)
		}
		return
	}
	if spec.Spec.NodeName != k.options.NodeName {
		return
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	p, known := k.pods[spec.UID]
	if !known {
		if k.stopped || spec.Status.Phase == corev1.PodSucceeded || spec.Status.Phase == corev1.PodFailed {
			return
		}
		p = newPod(k, spec)
		k.pods[spec.UID] = p
	}
	if spec.DeletionTimestamp != nil {
		p.end(gracePeriod(spec))
	}
	if !known {
		k.done.Go(func() { p.run(ctx) })
	}
}

// forget stops a pod that was deleted without grace.
func (k *Kubelet) forget(object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	spec, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if p, known := k.pods[spec.UID]; known {
		p.end(0)
		delete(k.pods, spec.UID)
	}
}

func gracePeriod(spec *corev1.Pod) time.Duration {
	if spec.DeletionGracePeriodSeconds == nil {
		return 0
	}
	return time.Duration(*spec.DeletionGracePeriodSeconds) * time.Second
}

// Stop ends all processes, without touching the pods in the API.
func (k *Kubelet) Stop() error {
	k.mutex.Lock()
	k.stopped = true
	for _, p := range k.pods {
		p.end(0)
	}
	k.mutex.Unlock()
	k.cancel()
	for _, factory := range k.factories {
		factory.Shutdown()
	}
	return process.AwaitEnd("pods", &k.done)
}

// Container is one container that was started here.
type Container struct {
	Node string
	Pod  string
	Name string
	// PID is 0 while no process runs.
	PID      int
	Restarts int
	Ready    bool
	// Ports are where the container's ports really are, on 127.0.0.1.
	Ports   map[int32]int32
	LogFile string
}

// Containers are those of all pods that are here.
func (k *Kubelet) Containers() []Container {
	var all []Container
	for _, p := range k.snapshot() {
		for _, c := range p.containers {
			all = append(all, c.describe())
		}
	}
	return all
}

// ErrNotRunning is returned when there is nothing to kill.
var ErrNotRunning = errors.New("no such container runs")

// Kill ends the processes of the containers with that name with SIGKILL, as a crash would, and returns when they are
// gone: in the pods that are named, or in all of the node. Where they are started again, that is at once, without the
// back-off that a crash of their own brings.
func (k *Kubelet) Kill(container string, pods ...string) error {
	killed := false
	for _, p := range k.snapshot() {
		if len(pods) > 0 && !slices.Contains(pods, p.spec.Name) {
			continue
		}
		for _, c := range p.containers {
			if c.spec.Name != container {
				continue
			}
			did, err := c.kill()
			if err != nil {
				return err
			}
			killed = killed || did
		}
	}
	if !killed {
		return fmt.Errorf("killing %s: %w", container, ErrNotRunning)
	}
	return nil
}

// Fallen says, of each process that ended although it was to run on and that nobody had killed, which it was and why it
// ended. It was started again.
func (k *Kubelet) Fallen() []string {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return slices.Clone(k.fallen)
}

// fell notes that the process of a container has ended by itself.
func (k *Kubelet) fell(c *container) {
	c.mutex.Lock()
	what := fmt.Sprintf("container %s of pod %s ended with exit code %d: %s", c.spec.Name, c.pod.spec.Name, c.last.ExitCode,
		endOfLog(c.logFile, c.logged))
	c.mutex.Unlock()
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.fallen = append(k.fallen, what)
}

func (k *Kubelet) snapshot() []*pod {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	pods := make([]*pod, 0, len(k.pods))
	for _, p := range k.pods {
		pods = append(pods, p)
	}
	return pods
}
