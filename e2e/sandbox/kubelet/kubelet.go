// SPDX-License-Identifier: Apache-2.0

// Package kubelet runs pods as local processes, where there is no container runtime.
//
// It is a node of the cluster: pods are made by the real controllers of Deployments, ReplicaSets and DaemonSets, are
// bound to this node, and run here. What a container gets from its image, mounts and network namespace, a process gets
// this way:
//
//   - the command is looked up in Options.Programs;
//   - volumes (secret, configMap, projected, downwardAPI, emptyDir) are written below a directory of the pod, kept up to
//     date, and absolute paths of mounts in arguments and environment are rewritten to it;
//   - container ports are mapped to free ports, and ":<port>" at the end of an argument or variable is rewritten to it,
//     so that two replicas, or the old and the new pod of a rollout, do not collide;
//   - the environment is the container's own; nothing is inherited. KUBECONFIG names a file with the token of the pod's
//     ServiceAccount and nothing else.
//
// Not there: init containers, exec probes, resources, security contexts, and Services, for nothing here resolves them.
// A pod that needs one of the first two is refused with a clear status.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// NodeName is the name of the node that this is.
const NodeName = "sandbox"

const (
	loopback    = "127.0.0.1"
	stopTimeout = 60 * time.Second
)

// Options say what runs where.
type Options struct {
	// Config of the cluster's administrator. Pods never see it.
	Config *rest.Config
	// CA is the certificate, PEM, that the API server's certificate is signed with.
	CA []byte
	// Namespace whose pods are run.
	Namespace string
	// Programs maps the first word of containers' commands to local programs.
	Programs map[string]string
	// Dir is where volumes are written.
	Dir string
	// LogDir gets a log file for each container.
	LogDir string
	// Logger gets what the kubelet itself has to say.
	Logger logr.Logger
}

// Kubelet runs the pods of one node.
type Kubelet struct {
	options    Options
	client     kubernetes.Interface
	secrets    corelisters.SecretLister
	configMaps corelisters.ConfigMapLister
	factory    informers.SharedInformerFactory
	cancel     context.CancelFunc
	done       sync.WaitGroup

	mutex   sync.Mutex
	stopped bool
	pods    map[types.UID]*pod
}

// Start registers the node and runs its pods until Stop.
func Start(ctx context.Context, options Options) (*Kubelet, error) {
	client, err := kubernetes.NewForConfig(options.Config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	if err := registerNode(ctx, client); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(options.Namespace))
	k := &Kubelet{
		options:    options,
		client:     client,
		secrets:    factory.Core().V1().Secrets().Lister(),
		configMaps: factory.Core().V1().ConfigMaps().Lister(),
		factory:    factory,
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
	_, err := k.factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { k.observe(ctx, object) },
		UpdateFunc: func(_, object any) { k.observe(ctx, object) },
		DeleteFunc: func(object any) { k.forget(object) },
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	k.factory.Start(ctx.Done())
	for kind, synced := range k.factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("watching %s: %w", kind, context.Cause(ctx))
		}
	}
	return nil
}

// observe binds a pod that has no node yet, and runs or stops one that is ours.
func (k *Kubelet) observe(ctx context.Context, object any) {
	spec, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	if spec.Spec.NodeName == "" && spec.DeletionTimestamp == nil {
		if err := bind(ctx, k.client, spec); err != nil && ctx.Err() == nil {
			k.options.Logger.Error(err, "Binding a pod", "pod", spec.Name)
		}
		return
	}
	if spec.Spec.NodeName != NodeName {
		return
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	p, known := k.pods[spec.UID]
	if !known {
		if k.stopped {
			return
		}
		p = newPod(k, spec)
		k.pods[spec.UID] = p
		k.done.Go(func() { p.run(ctx) })
	}
	if spec.DeletionTimestamp != nil {
		p.end(gracePeriod(spec))
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
	k.factory.Shutdown()
	ended := make(chan struct{})
	go func() {
		k.done.Wait()
		close(ended)
	}()
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
		return fmt.Errorf("pods have not ended after %s: %w", stopTimeout, context.DeadlineExceeded)
	}
}

// Container is one container that was started here.
type Container struct {
	Pod  string
	Name string
	// PID is 0 while no process runs.
	PID      int
	Restarts int
	Ready    bool
	LogFile  string
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
// gone. They are started again at once, without the back-off that a crash of their own brings.
func (k *Kubelet) Kill(container string) error {
	killed := false
	for _, p := range k.snapshot() {
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

func (k *Kubelet) snapshot() []*pod {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	pods := make([]*pod, 0, len(k.pods))
	for _, p := range k.pods {
		pods = append(pods, p)
	}
	return pods
}
