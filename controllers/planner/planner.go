// SPDX-License-Identifier: Apache-2.0

// Package planner reads a management cluster and its MAASes, and plans what an upgrade, new manifests or the emptying
// of a host would do. It changes nothing.
package planner

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	versions "k8s.io/apimachinery/pkg/util/version"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/controlplane"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/plan"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// imagesMaxAge is how old what a host says of its images may be.
const imagesMaxAge = time.Minute

// Planner plans. It reads Kubernetes as its client may, and MAAS as the manager does.
type Planner struct {
	Client client.Client
	Scopes *scope.Factory
}

// Error is a problem with what is to be planned, for the person who asked.
type Error struct{ Problem string }

// Error returns the problem.
func (e *Error) Error() string { return e.Problem }

func problem(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// Upgrade plans the rollout of a Kubernetes version: the control plane first, then one MachineDeployment after the
// other. What has the version already stays.
func (p *Planner) Upgrade(ctx context.Context, cluster client.ObjectKey, version string) (*plan.Simulation, error) {
	views, err := p.viewsOf(ctx, cluster, &objects{})
	if err != nil {
		return nil, err
	}
	owners, err := p.ownersOf(ctx, views)
	if err != nil {
		return nil, err
	}
	s := begin(views...)
	for _, o := range owners {
		if o.Version() == version {
			continue
		}
		if isOlder(version, o.Version()) {
			return nil, problem("%s of cluster %s has version %s, and %s is older: Kubernetes has no way back", o.ID(), cluster,
				o.Version(), version)
		}
		g, err := p.group(ctx, o.view, o.Owner)
		if err != nil {
			return nil, err
		}
		if !s.Roll(g) {
			break // Cluster API goes on with the workers when the control plane is done, and with one after the other.
		}
	}
	return s, nil
}

// isOlder reports whether a version of Kubernetes is before another one. What can't be read is not.
func isOlder(version, other string) bool {
	a, errA := versions.ParseSemantic(version)
	b, errB := versions.ParseSemantic(other)
	return errA == nil && errB == nil && a.LessThan(b)
}

// Drain plans how the VMs on a host go to other hosts, those of all clusters.
func (p *Planner) Drain(ctx context.Context, host client.ObjectKey) (*plan.Simulation, error) {
	object := &infrav1.LXDHost{}
	if err := p.Client.Get(ctx, host, object); err != nil {
		return nil, fmt.Errorf("reading LXDHost %s: %w", host, err)
	}
	keys, err := p.withVMs(ctx)
	if err != nil {
		return nil, err
	}
	views, err := p.views(ctx, keys, &objects{})
	if err != nil {
		return nil, err
	}
	theirs := list.Each(views, func(v *view) string { return v.Where() })
	where := object.Annotations[infrav1.MAASAnnotation]
	if object.Spec.VMHost != nil && len(theirs) > 0 && !slices.Contains(theirs, where) {
		return nil, problem("LXDHost %s is of the MAAS %q, as its annotation %s says; the clusters with VMs are in %s, so "+
			"what is on it is not known",
			host, where, infrav1.MAASAnnotation, strings.Join(slices.Compact(slices.Sorted(slices.Values(theirs))), ", "))
	}
	views = slices.DeleteFunc(views, func(v *view) bool { return !v.drains(host) })
	s := begin(views...)
	for _, v := range views {
		if err := p.drain(ctx, s, v); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// withVMs returns the clusters that have VMs on hosts. Others need not be readable.
func (p *Planner) withVMs(ctx context.Context) (keys []client.ObjectKey, err error) {
	list := &infrav1.MaasMachineList{}
	if err := p.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing MaasMachines: %w", err)
	}
	for i := range list.Items {
		m := &list.Items[i]
		key := client.ObjectKey{Namespace: m.Namespace, Name: m.Labels[clusterv1.ClusterNameLabel]}
		if m.Status.LXDHost != "" && key.Name != "" && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b client.ObjectKey) int { return strings.Compare(a.String(), b.String()) })
	return keys, nil
}

// drain plans it for one cluster.
func (p *Planner) drain(ctx context.Context, s *plan.Simulation, v *view) error {
	leaves := func(m plan.Machine) bool { return m.On != (lxd.HostKey{}) && m.On == v.drained }
	owners, err := p.owners(ctx, v)
	if err != nil {
		return err
	}
	var known []string
	for _, o := range owners {
		g, err := p.group(ctx, v, o)
		if err != nil {
			return err
		}
		known = append(known, g.Owner)
		s.Drain(g, leaves)
	}
	for _, m := range v.machines {
		if leaves(m) && !slices.Contains(known, m.Owner) {
			known = append(known, m.Owner)
			s.Drain(&plan.Group{Cluster: m.Cluster, Owner: m.Owner,
				Held: "nothing would replace it: no control plane or MachineDeployment owns it"}, leaves)
		}
	}
	return nil
}

// view is a cluster, with what is known of one of its MAASes.
type view struct {
	*scope.Cluster
	serving  *clusters.Serving
	objects  *objects
	machines []plan.Machine
	hosts    []lxd.Host
	paces    paces
	drained  lxd.HostKey // the host that takes no VMs
}

func (v *view) name() string { return v.Cluster.Cluster.Namespace + "/" + v.Cluster.Cluster.Name }

// drains marks a host as one that is emptied, and reports whether VMs of the cluster are there.
func (v *view) drains(host client.ObjectKey) bool {
	for i := range v.hosts {
		if o := v.hosts[i].Object; o != nil && o.Namespace == host.Namespace && o.Name == host.Name {
			v.drained = v.hosts[i].Key()
		}
	}
	return v.drained != (lxd.HostKey{}) && slices.ContainsFunc(v.machines,
		func(m plan.Machine) bool { return m.On == v.drained })
}

// allowed returns the hosts without those that are emptied, which stay in the list to be named in a refusal.
func (v *view) allowed(hosts []lxd.Host) []lxd.Host {
	for i := range hosts {
		if hosts[i].Key() == v.drained {
			object := *hosts[i].Object
			object.Unschedulable = true
			hosts[i].Object = &object
		}
	}
	return hosts
}

// owned is what makes machines in the MAAS of a view.
type owned struct {
	controlplane.Owner
	view *view
}

// ownersOf returns what makes the machines of views, control planes first.
func (p *Planner) ownersOf(ctx context.Context, views []*view) (all []owned, _ error) {
	for _, v := range views {
		owners, err := p.owners(ctx, v)
		if err != nil {
			return nil, err
		}
		all = append(all, list.Each(owners, func(o controlplane.Owner) owned { return owned{o, v} })...)
	}
	slices.SortStableFunc(all, func(a, b owned) int {
		switch {
		case a.IsControlPlane() == b.IsControlPlane():
			return 0
		case a.IsControlPlane():
			return -1
		}
		return 1
	})
	return all, nil
}

// views reads clusters that are there, or that are in manifests.
func (p *Planner) views(ctx context.Context, keys []client.ObjectKey, given *objects) (views []*view, _ error) {
	for _, key := range keys {
		of, err := p.viewsOf(ctx, key, given)
		if err != nil {
			return nil, err
		}
		views = append(views, of...)
	}
	return views, nil
}

// begin returns a simulation that begins with the machines of clusters.
func begin(views ...*view) *plan.Simulation {
	return plan.New(slices.Concat(list.Each(views, func(v *view) []plan.Machine { return v.machines })...))
}

// ImageUse is an image that the machines of an owner are made with.
type ImageUse struct {
	// Owner is KubeadmControlPlane/NAME, MachineDeployment/NAME and so on.
	Owner string
	// Image is as in spec.image. Architecture is amd64 and so on; empty: any.
	Image, Architecture string
	// InMAAS: MAAS deploys machines with it.
	InMAAS bool
	// MAAS is the one that has the machines.
	MAAS *maas.Client
	// Hosts are those on which LXD makes VMs from it, with a root disk of DiskGB.
	Hosts  []ImageHost
	DiskGB int
}

// ImageHost is an LXDHost, and what its LXD has; Problem says why that is not known.
type ImageHost struct {
	Key     client.ObjectKey
	Reading lxdhost.Reading
	Problem error
}

// Images returns the images that new machines of a cluster are deployed with.
func (p *Planner) Images(ctx context.Context, key client.ObjectKey) ([]ImageUse, error) {
	views, err := p.viewsOf(ctx, key, &objects{})
	if err != nil {
		return nil, err
	}
	owners, err := p.ownersOf(ctx, views)
	if err != nil {
		return nil, err
	}
	var uses []ImageUse
	for _, o := range owners {
		v := o.view
		spec, err := p.templateOf(ctx, v, o.Owner)
		if err != nil {
			return nil, err
		}
		use := ImageUse{Owner: o.ID(), Image: spec.Image, Architecture: spec.Architecture, InMAAS: true,
			MAAS: v.Cluster.Inventory.Client()}
		if spec.IsLXD() {
			use.Hosts, use.DiskGB = p.imageHosts(ctx, v, o.GetNamespace()), scope.VMSpec(o.GetNamespace(), spec).Disk
			use.InMAAS = len(use.Hosts) == 0 || len(use.Hosts) < len(v.hosts)
		}
		uses = append(uses, use)
	}
	return uses, nil
}

// versionIn finds a version of Kubernetes in the name of an image, and its patch release if it has one.
var versionIn = regexp.MustCompile(`(?:^|[^0-9.])v?(1\.[0-9]+)(\.[0-9]+)?(?:[^0-9.]|$)`)

// OutdatedImages returns the images of a cluster by whose names an upgrade would go on making machines of another
// version. A ClusterClass names another image then, if {version} is in the name.
func (p *Planner) OutdatedImages(ctx context.Context, key client.ObjectKey, version string) ([]ImageUse, error) {
	cluster := &clusterv1.Cluster{}
	if err := p.get(ctx, &objects{}, "Cluster", key, cluster); err != nil {
		return nil, err
	}
	if class, err := json.Marshal(cluster.Spec.Topology); err != nil || bytes.Contains(class, []byte("{version}")) {
		return nil, err
	}
	uses, err := p.Images(ctx, key)
	return list.Where(uses, func(use ImageUse) bool {
		found := versionIn.FindStringSubmatch(use.Image)
		return found != nil && !strings.HasPrefix(version+".", "v"+found[1]+found[2]+".")
	}), err
}

// imageHosts returns the hosts on which LXD makes VMs for MaasMachines of a namespace.
func (p *Planner) imageHosts(ctx context.Context, v *view, namespace string) (hosts []ImageHost) {
	for i := range v.hosts {
		if h := &v.hosts[i]; h.IsDirect() && h.Object.Allows(namespace) {
			host := ImageHost{Key: client.ObjectKey{Namespace: h.Object.Namespace, Name: h.Object.Name},
				Problem: h.Object.Problem}
			if host.Problem == nil {
				host.Reading, host.Problem = p.Scopes.LXD.Read(ctx, h.Object.Server, imagesMaxAge)
			}
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// viewsOf reads a cluster that is there, or that is in manifests, once for each of its MaasClusters.
func (p *Planner) viewsOf(ctx context.Context, key client.ObjectKey, given *objects) ([]*view, error) {
	cluster := &clusterv1.Cluster{}
	if err := p.get(ctx, given, "Cluster", key, cluster); err != nil {
		return nil, err
	}
	serving, err := p.serving(ctx, given, cluster)
	if err != nil {
		return nil, err
	}
	ref := cluster.Spec.InfrastructureRef
	switch class := cluster.Spec.Topology.ClassRef.Name; {
	case len(serving.All()) > 0:
	case !ref.IsDefined() && class != "":
		return nil, problem("cluster %s is of ClusterClass %s, and is there: plan upgrade plans a new version of it; other "+
			"changes can't be planned", key, class)
	case !ref.IsDefined():
		return nil, problem("cluster %s has no spec.infrastructureRef: name its MaasCluster there", key)
	default:
		return nil, problem("cluster %s is not made by this provider: spec.infrastructureRef names a %s of %s, no "+
			"MaasCluster of %s, and no MaasCluster has spec.clusterName %s", key, ref.Kind,
			cmp.Or(ref.APIGroup, "no group"), infrav1.GroupVersion.Group, key.Name)
	}
	var views []*view
	for _, maasCluster := range serving.All() {
		v, err := p.viewOf(ctx, cluster, maasCluster.DeepCopy(), serving, given)
		if err != nil {
			return nil, err
		}
		views = append(views, v)
	}
	return views, nil
}

// serving reads the MaasClusters of a cluster, those in manifests as well.
func (p *Planner) serving(
	ctx context.Context, given *objects, cluster *clusterv1.Cluster,
) (*clusters.Serving, error) {
	var all []*infrav1.MaasCluster
	if key, is := clusters.MaasClusterKey(cluster); is {
		infrastructure := &infrav1.MaasCluster{}
		if err := p.get(ctx, given, maasClusterKind, key, infrastructure); err != nil {
			return nil, err
		}
		all = append(all, infrastructure)
	}
	there := &infrav1.MaasClusterList{}
	if err := p.Client.List(ctx, there, client.InNamespace(cluster.Namespace)); err != nil {
		return nil, fmt.Errorf("listing MaasClusters: %w", err)
	}
	keys := list.Each(there.Items, func(c infrav1.MaasCluster) client.ObjectKey { return client.ObjectKeyFromObject(&c) })
	for _, u := range given.list {
		if key := client.ObjectKeyFromObject(u); u.GetKind() == maasClusterKind && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		c := &infrav1.MaasCluster{}
		if err := p.get(ctx, given, maasClusterKind, key, c); err != nil {
			return nil, err
		}
		if c.Namespace == cluster.Namespace && c.Spec.ClusterName == cluster.Name {
			all = append(all, c)
		}
	}
	return clusters.ServingOf(cluster, all), nil
}

const maasClusterKind = "MaasCluster"

// viewOf reads a cluster with one of its MaasClusters.
func (p *Planner) viewOf(
	ctx context.Context, cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster, serving *clusters.Serving,
	given *objects,
) (*view, error) {
	key := client.ObjectKeyFromObject(cluster)
	if maasCluster.Annotations[infrav1.OwnerIDAnnotation] == "" { // It is not there yet: any will do.
		id := "new/" + key.String() + "/" + maasCluster.Name
		metav1.SetMetaDataAnnotation(&maasCluster.ObjectMeta, infrav1.OwnerIDAnnotation, id)
	}
	s, err := p.Scopes.Cluster(ctx, cluster, maasCluster)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", key, err)
	}
	v := &view{Cluster: s, serving: serving, objects: given}
	if v.hosts, err = s.Machines.LXD().GetAvailableLXDHosts(ctx, lxd.VMSpec{}); err != nil && !lxd.IsRefusal(err) {
		return nil, fmt.Errorf("reading the hosts of cluster %s: %w", key, err)
	}
	return v, p.readMachines(ctx, v)
}

// makes reports whether machines are made in the MAAS of a view.
func (v *view) makes(m *infrav1.MaasMachine) bool {
	of := v.serving.Of(m)
	return of != nil && of.Name == v.MaasCluster.Name
}

// readMachines reads the machines of a cluster, the oldest first, and how long those of its namespace took.
func (p *Planner) readMachines(ctx context.Context, v *view) error {
	list := &infrav1.MaasMachineList{}
	if err := p.Client.List(ctx, list, client.InNamespace(v.Cluster.Cluster.Namespace)); err != nil {
		return fmt.Errorf("listing the MaasMachines of cluster %s: %w", v.name(), err)
	}
	v.paces = pacesOf(list.Items)
	list.Items = slices.DeleteFunc(list.Items, func(m infrav1.MaasMachine) bool {
		return m.Labels[clusterv1.ClusterNameLabel] != v.Cluster.Cluster.Name || !v.makes(&m)
	})
	known, err := p.readFacts(ctx, client.ObjectKeyFromObject(v.Cluster.Cluster))
	if err != nil {
		return err
	}
	slices.SortFunc(list.Items, func(a, b infrav1.MaasMachine) int { return older(known.object(&a), known.object(&b)) })
	now := time.Now()
	for i := range list.Items {
		m := v.machineOf(&list.Items[i], i)
		known.describe(&m, &list.Items[i], now)
		if m.Host != "" || m.SystemID != "" { // Otherwise it has no place yet, and the plan finds one for it.
			v.machines = append(v.machines, m)
		}
	}
	return nil
}

// machineOf returns a machine as the simulation knows it.
func (v *view) machineOf(m *infrav1.MaasMachine, order int) plan.Machine {
	_, isControlPlane := m.Labels[clusterv1.MachineControlPlaneLabel]
	vm := v.TemplateVM(m.Spec, isControlPlane)
	known := plan.Machine{
		Name: m.Name, Cluster: v.name(), Owner: ownerOf(m, v.Cluster.Cluster), Zone: m.Status.FailureDomain,
		Among: vm.Cluster, Order: order,
	}
	if !m.Spec.IsLXD() {
		known.SystemID, known.DeleteCalls = m.Spec.SystemID, callsFor(m.Spec).Delete
		return known
	}
	known.VM, known.Host = m.Name, m.Status.LXDHost
	if usage := m.Status.VMResourceUsage; usage != nil {
		vm.Resources = lxd.Resources{Cores: int(usage.AllocatedCores), Memory: int(usage.AllocatedMemory),
			Disk: int(usage.AllocatedDisk)}
	}
	known.Has = vm.Footprint()
	if host := v.hostOf(m); known.Host != "" && host != nil {
		known.Host, known.On, known.DeleteCalls = host.Name, host.Key(), callsFor(m.Spec).On(*host).Delete
	}
	return known
}

// hostOf returns the host of a VM, as its machine records it. nil: the host is not known.
func (v *view) hostOf(m *infrav1.MaasMachine) *lxd.Host {
	recorded, _ := record.OfMachine(m) // One that can't be read says nothing.
	return lxd.HostOf(v.hosts, recorded.HostOf(m.Status.LXDHost), m.Status.LXDHost)
}

// ownerOf returns what makes a machine.
func ownerOf(m *infrav1.MaasMachine, cluster *clusterv1.Cluster) string {
	labels := m.Labels
	if _, isControlPlane := labels[clusterv1.MachineControlPlaneLabel]; isControlPlane {
		return cluster.Spec.ControlPlaneRef.Kind + "/" + cluster.Spec.ControlPlaneRef.Name
	}
	if name := labels[clusterv1.MachineDeploymentNameLabel]; name != "" {
		return controlplane.MachineDeployment.Kind + "/" + name
	}
	if name := labels[clusterv1.MachineSetNameLabel]; name != "" {
		return controlplane.MachineSet.Kind + "/" + name
	}
	return "Machine/" + m.Name
}

// get reads an object from the manifests, or from Kubernetes.
func (p *Planner) get(
	ctx context.Context, given *objects, kind string, key client.ObjectKey, into client.Object,
) error {
	if found := given.find(kind, key); found != nil {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, into); err != nil {
			return problem("%s %s is not as its kind should be: %v", kind, key.Name, err)
		}
		return nil
	}
	if err := p.Client.Get(ctx, key, into); err != nil {
		return fmt.Errorf("reading %s %s: %w", kind, key, err)
	}
	return nil
}

// objects are those of manifests.
type objects struct{ list []*unstructured.Unstructured }

func (o *objects) find(kind string, key client.ObjectKey) *unstructured.Unstructured {
	return list.First(o.list, func(u *unstructured.Unstructured) bool {
		return u.GetKind() == kind && client.ObjectKeyFromObject(u) == key
	})
}

// paces are how long machines took until they were deployed, by their mode.
type paces map[infrav1.ProvisioningMode]time.Duration

// pacesOf returns the median of the machines of each mode. A machine counts as deployed when its condition last became
// true: one that was switched off since took less than it seems.
func pacesOf(machines []infrav1.MaasMachine) paces {
	took := map[infrav1.ProvisioningMode][]time.Duration{}
	for i := range machines {
		m := &machines[i]
		deployed := conditions.Get(m, infrav1.MachineDeployedCondition)
		if deployed == nil || deployed.Status != metav1.ConditionTrue {
			continue
		}
		// After clusterctl move the object is younger than its conditions.
		if d := deployed.LastTransitionTime.Sub(m.CreationTimestamp.Time); d > 0 {
			took[m.Spec.Mode()] = append(took[m.Spec.Mode()], d)
		}
	}
	medians := paces{}
	for mode, all := range took {
		slices.Sort(all)
		medians[mode] = all[len(all)/2]
	}
	return medians
}
