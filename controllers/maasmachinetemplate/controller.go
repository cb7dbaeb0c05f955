// SPDX-License-Identifier: Apache-2.0

// Package maasmachinetemplate reports in the status of MaasMachineTemplates what a machine of the template has, and how
// many more would fit.
package maasmachinetemplate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/capacity"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/workers"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/plan"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

const (
	// DefaultDelay is a good Reconciler.Delay. The figures of LXDHosts are read twice a minute.
	DefaultDelay = 15 * time.Second
	// delayJitter spreads the templates: up to this part of the delay is added to it.
	delayJitter = 1.0
	// maxFits is the largest number in the status; one host more is of no interest then.
	maxFits = 1000
	// maxZones is the largest number of zones in the status.
	maxZones = 100
)

// Reconciler reports the capacity of a template's machines in its status. The cluster autoscaler reads it to scale from
// zero, when there is no Node to read it from. It also reports how many more machines would fit.
type Reconciler struct {
	reconciler.Base
	// Delay is how long changes of LXDHosts are gathered before the room is counted again.
	Delay time.Duration
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=maasmachinetemplates,verbs=list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=maasmachinetemplates/status,verbs=patch

// SetupWithManager makes the manager run the reconciler.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	setup, limited := workers.Manage(ctx, mgr, "maasmachinetemplate", r, options)
	return setup.For(&infrav1.MaasMachineTemplate{}).
		Watches(&infrav1.LXDHost{}, r.whenHostsChange(), predicate.ResourceVersionChangedPredicate{}).
		Complete(ctx, limited)
}

// Reconcile writes the status of one template.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	template := &infrav1.MaasMachineTemplate{}
	if err := r.Client.Get(ctx, req.NamespacedName, template); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !objects.Watched(template, r.WatchFilter) || !template.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	cluster, err := clusters.OwnerCluster(ctx, r.Client, template)
	if err != nil && !apierrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("reading the owner Cluster: %w", err)
	}
	if cluster != nil && annotations.IsPaused(cluster, template) {
		return ctrl.Result{}, nil
	}
	spec := template.Spec.Template.Spec
	status, result := templateStatus(template.Namespace, spec, plan.Source{}), ctrl.Result{}
	if cluster != nil {
		maasCluster, err := r.maasCluster(ctx, cluster, template)
		if apierrors.IsNotFound(err) {
			return ctrl.Result{RequeueAfter: report.MendRetry}, nil // The known status stays.
		}
		again := clusters.BareMetalMaxAge
		if guard.Is[*report.NotReadyError](err) { // The machines report the reason.
			again, err = report.MendRetry, nil
		}
		source, room := plan.Source{}, (*infrav1.TemplateRoom)(nil)
		if err == nil && maasCluster != nil {
			source, room, err = r.supply(ctx, cluster, maasCluster, template)
		}
		if err != nil {
			return report.Explain(err).Result(err) // The MaasCluster reports the reason; the known status stays.
		}
		status, result.RequeueAfter = templateStatus(template.Namespace, spec, source), wait.Jitter(again, 0.2)
		status.Room = room
	}
	status.ObservedGeneration = template.Generation
	if equality.Semantic.DeepEqual(template.Status, status) {
		return result, nil
	}
	before := template.DeepCopy()
	template.Status = status
	if err := r.Client.Status().Patch(ctx, template, client.MergeFrom(before)); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return result, nil
}

// maasCluster returns the MaasCluster of a template's machines; nil while the cluster is being deleted.
func (r *Reconciler) maasCluster(
	ctx context.Context, cluster *clusterv1.Cluster, template *infrav1.MaasMachineTemplate,
) (*infrav1.MaasCluster, error) {
	if !cluster.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	m := &infrav1.MaasMachine{Spec: template.Spec.Template.Spec}
	maasCluster, err := clusters.MaasClusterOf(ctx, r.Client, cluster, m)
	if err != nil || !maasCluster.DeletionTimestamp.IsZero() {
		return nil, err
	}
	return maasCluster, nil
}

// supply reads from MAAS what there is for machines of a template, and the room for more.
func (r *Reconciler) supply(
	ctx context.Context, cluster *clusterv1.Cluster, maasCluster *infrav1.MaasCluster,
	template *infrav1.MaasMachineTemplate,
) (none plan.Source, _ *infrav1.TemplateRoom, _ error) {
	s, err := r.Scopes.Cluster(ctx, cluster, maasCluster)
	if err != nil {
		return none, nil, err
	}
	controlPlane, err := clusters.ControlPlaneTemplate(ctx, r.Client, r.APIReader, cluster)
	if err != nil {
		return none, nil, err
	}
	q := capacity.Question{Spec: template.Spec.Template.Spec, ControlPlane: controlPlane == template.Name, ForReport: true}
	supply, err := capacity.Gather(ctx, s, q)
	if err != nil {
		return none, nil, err
	}
	zones, err := supply.Zones(ctx, r.Client)
	return supply.Source, templateRoom(zones, maasCluster, q), err
}

// templateStatus returns what a Node has.
func templateStatus(
	namespace string, spec infrav1.MaasMachineSpec, from plan.Source,
) infrav1.MaasMachineTemplateStatus {
	status := machineStatus(namespace, spec, from)
	for name, count := range extendedResources(spec) {
		if count > 0 {
			status.Capacity[name] = *resource.NewQuantity(int64(count), resource.DecimalSI)
		}
	}
	return status
}

// gpus are the resources that device plugins make of GPUs, by the vendor of the PCI device.
var gpus = map[string]corev1.ResourceName{"10de": "nvidia.com/gpu", "1002": "amd.com/gpu"}

// extendedResources returns those that the spec names, which count before those of the VM's GPUs: a driver may share or
// split a GPU. LXD gives a VM one GPU for each such device. MAAS tells the devices of one machine at a time.
func extendedResources(spec infrav1.MaasMachineSpec) map[corev1.ResourceName]infrav1.ResourceCount {
	all := map[corev1.ResourceName]infrav1.ResourceCount{}
	if config := spec.LXDConfig; config != nil {
		for _, device := range config.Devices {
			if name := gpus[strings.ToLower(device.Properties["vendorid"])]; device.Type == "gpu" && name != "" {
				all[name]++
			}
		}
	}
	for name, count := range spec.ExtendedResources {
		all[corev1.ResourceName(name)] = count
	}
	return all
}

// machineStatus returns the capacity: for a VM that of its spec, with the architecture of its hosts. For bare metal
// the spec gives only minima, and maybe the architecture; the matching machines have the real values: the smallest of
// each, because a pod must fit on whichever machine is acquired.
func machineStatus(
	namespace string, spec infrav1.MaasMachineSpec, from plan.Source,
) infrav1.MaasMachineTemplateStatus {
	status := infrav1.MaasMachineTemplateStatus{NodeInfo: infrav1.NodeInfo{OperatingSystem: "linux"}}
	if spec.IsLXD() {
		vm := scope.VMSpec(namespace, spec)
		status.Capacity = resources(vm.Cores, vm.Memory, vm.Disk)
		if architectures := lxd.Architectures(from.Hosts, vm); len(architectures) == 1 {
			status.NodeInfo.Architecture = architecture(architectures[0])
		}
		return status
	}
	constraints := scope.Constraints(spec)
	cores, memory, disk := constraints.MinCPU, constraints.MinMemory, constraints.MinDiskSize
	architectures := map[infrav1.Architecture]bool{}
	first := true
	for _, m := range from.Metal {
		if !machine.Fits(m, constraints) {
			continue
		}
		if first {
			cores, memory, disk, first = m.CPUCount, m.Memory, machine.DiskGB(m), false
		}
		cores, memory, disk = min(cores, m.CPUCount), min(memory, m.Memory), min(disk, machine.DiskGB(m))
		architectures[architecture(m.Architecture)] = true
	}
	if spec.DeployInMemory {
		disk = 0 // Files that pods write are in memory.
	}
	status.Capacity = resources(cores, memory, disk)
	status.NodeInfo.Architecture = architecture(constraints.Architecture) // Also while no machine matches.
	for only := range architectures {
		if len(architectures) == 1 {
			status.NodeInfo.Architecture = only
		}
	}
	return status
}

// resources leaves out unknown values. Memory is in MiB, the disk in GB.
func resources(cores, memory, disk int) corev1.ResourceList {
	list := corev1.ResourceList{}
	if cores > 0 {
		list[corev1.ResourceCPU] = *resource.NewQuantity(int64(cores), resource.DecimalSI)
	}
	if memory > 0 {
		list[corev1.ResourceMemory] = *resource.NewQuantity(int64(memory)<<20, resource.BinarySI)
	}
	if disk > 0 {
		list[corev1.ResourceEphemeralStorage] = *resource.NewScaledQuantity(int64(disk), resource.Giga)
	}
	return list
}

// architecture returns Kubernetes' name for an architecture of MAAS (amd64/generic); "" if Cluster API does not know
// it.
func architecture(inMAAS string) infrav1.Architecture {
	name, _, _ := strings.Cut(inMAAS, "/")
	switch name {
	case "amd64", "arm64", "s390x":
		return infrav1.Architecture(name)
	case "ppc64el":
		return "ppc64le"
	}
	return ""
}

// templateRoom returns what fits by zone: a control plane's are the failure domains. Bare metal is counted.
func templateRoom(
	zones map[string]capacity.Zone, cluster *infrav1.MaasCluster, q capacity.Question,
) *infrav1.TemplateRoom {
	counts := func(s machine.Supply) *infrav1.MachineCounts {
		if q.Spec.IsLXD() {
			return nil
		}
		return &infrav1.MachineCounts{Ready: atMost(s[machine.Ready]), InUse: atMost(s[machine.InUse]),
			Broken: atMost(s[machine.Broken]), CoolingDown: atMost(s[machine.CoolingDown])}
	}
	room, total := &infrav1.TemplateRoom{ControlPlane: q.ControlPlane}, machine.Supply{}
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		wanted := cluster.Spec.FailureDomains
		if q.ControlPlane && len(wanted) > 0 && !slices.Contains(wanted, zone) {
			continue
		}
		supply := zones[zone].Supply
		for fate, n := range supply {
			total[fate] += n
		}
		room.Zones = append(room.Zones, infrav1.ZoneRoom{Name: zone, Fits: atMost(supply[machine.Ready]),
			Machines: counts(supply)})
	}
	room.Fits, room.Machines, room.Zones = atMost(total[machine.Ready]), counts(total),
		room.Zones[:min(len(room.Zones), maxZones)]
	return room
}

func atMost(n int) int32 { return int32(min(n, maxFits)) }

// requests is the queue of a reconciler.
type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

// whenHostsChange counts the room of all templates of VMs again, once for the changes of many hosts.
func (r *Reconciler) whenHostsChange() handler.EventHandler {
	enqueue := func(ctx context.Context, queue requests) {
		for _, request := range objects.Wake(ctx, r.Client, &infrav1.MaasMachineTemplateList{}, isOfVMs) {
			queue.AddAfter(request, wait.Jitter(r.Delay, delayJitter))
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, _ event.CreateEvent, q requests) { enqueue(ctx, q) },
		UpdateFunc: func(ctx context.Context, _ event.UpdateEvent, q requests) { enqueue(ctx, q) },
		DeleteFunc: func(ctx context.Context, _ event.DeleteEvent, q requests) { enqueue(ctx, q) },
	}
}

// isOfVMs reports whether a template is of VMs, and belongs to a cluster.
func isOfVMs(template client.Object) bool {
	return template.(*infrav1.MaasMachineTemplate).Spec.Template.Spec.IsLXD() && len(template.GetOwnerReferences()) > 0
}
