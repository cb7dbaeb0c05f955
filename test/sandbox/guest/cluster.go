// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	inmemory "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// cluster is a workload cluster.
type cluster struct {
	manager inmemory.Manager
	// pods has the pods of kube-system, objects everything else. Both are in memory, except the objects of a host
	// cluster, which are in its real API server.
	pods, objects store
	backing       *backing // of a host cluster
	group         string   // of the objects in memory
	clusterPlan
	founder installer

	mutex   sync.Mutex
	members map[string]*member // by node name; also those that are off
}

// member is a machine as a part of its cluster.
type member struct {
	cluster      *cluster
	node         string
	etcd         string // the name of its etcd member
	systemID     string
	addresses    []netip.Addr
	port         uint16 // of the API server
	joinPort     uint16 // where machines join the cluster
	controlPlane bool
	first        bool // the one that made the cluster
	version      string
	registration nodeRegistration
	resources    corev1.ResourceList

	mutex  sync.Mutex
	server *apiServer // of a control plane that runs
}

var errClusterExists = errors.New("the cluster exists")

// found makes a cluster with its first member. It has a real control plane if its nodes are LXD hosts.
func (g *Guests) found(ctx context.Context, run installer, m simulator.MachineSnapshot, hosts bool) (*member, error) {
	plan, err := run.plan()
	if err != nil {
		return nil, err
	}
	c, err := g.newCluster(run, plan)
	if err != nil {
		return nil, err
	}
	if hosts {
		if err := g.back(ctx, c, plan.name); err != nil {
			g.forget(c)
			return nil, err
		}
	}
	joined, err := c.admitted(ctx, run, m)
	if err != nil {
		g.forget(c)
		return nil, err
	}
	joined.first = true
	return joined, nil
}

// tryJoin does what an installer does to join, once: find the cluster, check it, be checked, and become a member.
func (g *Guests) tryJoin(ctx context.Context, run installer, m simulator.MachineSnapshot) (*member, error) {
	endpoint := run.endpoint()
	server, err := g.resolve(endpoint, joinPort)
	if err != nil {
		return nil, err
	}
	c := server.member.cluster
	if !c.quorum() {
		return nil, fmt.Errorf("etcd of %s has no leader: %w", endpoint, errRefused)
	}
	if err := run.admit(ctx, c); err != nil {
		return nil, err
	}
	return c.admitted(ctx, run, m)
}

// newCluster makes an empty cluster. Its identity is its CA: it is what its founder is given, and what others check.
func (g *Guests) newCluster(run installer, plan clusterPlan) (*cluster, error) {
	group := plan.ca.hash()
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.clusters[group] != nil {
		return nil, fmt.Errorf("a second %s with the same CA: %w", run, errClusterExists)
	}
	g.inmemory.AddResourceGroup(group)
	inMemory := memory{g.inmemory.GetResourceGroup(group).GetClient()}
	c := &cluster{
		manager:     g.inmemory,
		pods:        inMemory,
		objects:     inMemory,
		group:       group,
		clusterPlan: plan,
		founder:     run,
		members:     map[string]*member{},
	}
	g.clusters[group] = c
	return c, nil
}

// back gives a cluster without members a real control plane.
func (g *Guests) back(ctx context.Context, c *cluster, name string) error {
	b, err := g.startBacking(ctx, name)
	if err != nil {
		return err
	}
	objects, err := b.store(client.Options{Scheme: g.scheme})
	if err != nil {
		return errors.Join(err, b.stop())
	}
	c.backing, c.objects = b, objects
	return nil
}

// admitted makes a machine a member.
func (c *cluster) admitted(ctx context.Context, run installer, m simulator.MachineSnapshot) (*member, error) {
	version, err := run.version(ctx, m.Image, c)
	if err != nil {
		return nil, err
	}
	joined := newMember(c, run, m, version)
	c.add(joined)
	return joined, nil
}

func newMember(c *cluster, run installer, m simulator.MachineSnapshot, version string) *member {
	registration := run.registration()
	port, join := run.ports()
	node := registration.Name
	if node == "" {
		node = m.Hostname
	}
	node = strings.ToLower(node)
	etcd := node
	if e, ok := run.(embedder); ok {
		etcd = e.etcdMember(node)
	}
	return &member{
		cluster:      c,
		node:         node,
		etcd:         etcd,
		systemID:     m.SystemID,
		addresses:    m.Addresses,
		port:         port,
		joinPort:     join,
		controlPlane: run.controlPlane(),
		version:      version,
		registration: registration,
		resources: corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewQuantity(int64(m.Cores), resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(int64(m.Memory)<<20, resource.BinarySI),
			corev1.ResourcePods:   *resource.NewQuantity(maxPods, resource.DecimalSI),
		},
	}
}

// maxPods is a kubelet's default.
const maxPods = 110

func (c *cluster) add(m *member) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.members[m.node] = m
}

// drop forgets a machine that was wiped, and the cluster with the last one.
func (g *Guests) drop(m *member) {
	c := m.cluster
	c.mutex.Lock()
	if c.members[m.node] == m {
		delete(c.members, m.node)
	}
	last := len(c.members) == 0
	c.mutex.Unlock()
	if last {
		g.forget(c)
	}
}

// forget ends a cluster. Its real control plane takes a moment.
func (g *Guests) forget(c *cluster) {
	g.mutex.Lock()
	known := g.clusters[c.group] == c
	if known {
		delete(g.clusters, c.group)
		c.manager.DeleteResourceGroup(c.group)
	}
	g.mutex.Unlock()
	if known && c.backing != nil {
		g.done.Go(func() {
			if err := c.backing.stop(); err != nil {
				g.logger.Error(err, "Ending the control plane of a host cluster")
			}
		})
	}
}

func (m *member) setServer(s *apiServer) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.server = s
}

// running is the machine's API server, or nil.
func (m *member) running() *apiServer {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.server
}

func (m *member) etcdPod() string { return "etcd-" + m.etcd }

// apiServerNames are those that kubeadm puts into the certificate.
func (m *member) apiServerNames() certs.AltNames {
	names := certs.AltNames{
		DNSNames: []string{m.node, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		IPs:      []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)},
	}
	for _, address := range m.addresses {
		names.IPs = append(names.IPs, address.AsSlice())
	}
	host, _, _ := strings.Cut(m.cluster.endpoint, ":")
	for _, name := range append([]string{host}, m.cluster.sans...) {
		if ip := net.ParseIP(name); ip != nil {
			names.IPs = append(names.IPs, ip)
		} else {
			names.DNSNames = append(names.DNSNames, name)
		}
	}
	return names
}

// serverOfPod returns the API server on the machine of a pod, or nil if that machine does not run.
func (c *cluster) serverOfPod(pod string) *apiServer {
	object := &corev1.Pod{}
	if err := c.pods.Get(noContext, key(metav1.NamespaceSystem, pod), object); err != nil {
		return nil
	}
	c.mutex.Lock()
	m := c.members[object.Spec.NodeName]
	c.mutex.Unlock()
	if m == nil {
		return nil
	}
	return m.running()
}

func key(namespace, name string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: name}
}
