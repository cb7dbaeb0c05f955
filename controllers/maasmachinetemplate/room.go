// SPDX-License-Identifier: Apache-2.0

package maasmachinetemplate

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/capacity"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
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
