// SPDX-License-Identifier: Apache-2.0

package flows_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
)

// step is a part of a life. The next parts need it, so a failure ends the life.
func step(l *life.Life, name string, do func(*life.Life)) {
	l.Helper()
	ok := l.Run(name, func(t *testing.T) {
		part := *l
		part.T = t
		do(&part)
	})
	if !ok {
		l.FailNow()
	}
}

// Control planes of one cluster, in VMs: three, whose hosts are emptied; then more than there are zones; then a host dies.
func TestLXDControlPlanesAcrossThreeZones(t *testing.T) {
	l := life.Begin(t, box, "spread")
	l.Create(topology(t, "spread", 3, 0, lxd))
	step(l, "ThreeAcrossThreeZones", func(l *life.Life) {
		l.Available(3)
		checkSpread(l, "zone-a", "zone-b", "zone-c")
		l.CheckCost("creation", l.Began, 3)
		l.CheckIdle()
	})
	step(l, "DrainOfAHost", drain)
	step(l, "FiveAreMoreReplicasThanZones", func(l *life.Life) {
		l.Change(func(cluster *clusterv1.Cluster) { cluster.Spec.Topology.ControlPlane.Replicas = ptr.To[int32](5) })
		l.Available(5)
		checkSpread(l, "zone-a", "zone-b", "zone-c")
	})
	step(l, "HAFailover", failover)
	l.Delete()
}

// checkSpread: no zone has two control planes more than another, and no host has two where another one of its zone has
// none.
func checkSpread(l *life.Life, zones ...string) {
	l.Helper()
	controlPlanes, _ := l.MaasMachines()
	inZone, onHost := map[string]int{}, map[string]int{}
	for _, zone := range zones {
		inZone[zone] = 0
	}
	for _, m := range l.Held(controlPlanes) {
		inZone[m.Zone]++
		onHost[m.VMHost]++
	}
	counts := slices.Sorted(maps.Values(inZone))
	if len(counts) != len(zones) || counts[len(counts)-1]-counts[0] > 1 {
		l.Errorf("the %d control planes are in the zones %v", len(controlPlanes), inZone)
	}
	if apart := onHost["lxd-a1"] - onHost["lxd-a2"]; apart < -1 || apart > 1 {
		l.Errorf("the control planes in zone-a are on the hosts %v", onHost)
	}
}

// failover: a VM host dies with the control planes on it, and no other host is in its zone. The MachineHealthCheck
// replaces them.
func failover(l *life.Life) {
	l.Change(func(cluster *clusterv1.Cluster) {
		cluster.Spec.Topology.ControlPlane.HealthCheck.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, TimeoutSeconds: ptr.To[int32](5)},
		}
	})
	controlPlanes, _ := l.MaasMachines()
	onHost := map[string][]infrav1.MaasMachine{}
	for _, m := range controlPlanes {
		onHost[m.Status.LXDHost] = append(onHost[m.Status.LXDHost], m)
	}
	// The host with fewer of them, because each takes time.
	host := slices.MinFunc([]string{"lxd-b1", "lxd-c1"}, func(a, b string) int { return len(onHost[a]) - len(onHost[b]) })
	dead := onHost[host]
	if len(dead) == 0 {
		l.Fatalf("no control plane is on %s", host)
	}
	for _, m := range dead {
		l.Control("machines/"+m.Spec.SystemID+"/power", `{"power": "off", "unnoticed": true}`)
	}
	if !box.MAAS.BreakVMHost(host, true, false) {
		l.Fatalf("there is no VM host %q", host)
	}
	l.Cleanup(func() {
		box.MAAS.BreakVMHost(host, false, false)
		// A manager skips a host that did not respond for minutes. A new one does not, for the next tests.
		if err := box.Manager.Kill(); err != nil {
			l.Error(err)
		}
	})
	l.Logf("%s died with %d control planes", host, len(dead))

	l.Wait("the control planes of the dead host to be replaced", func() (bool, string, error) {
		now, _ := l.MaasMachines()
		elsewhere := 0
		for _, m := range now {
			if m.Status.Ready && m.Status.LXDHost != host {
				elsewhere++
			}
		}
		done := len(now) == len(controlPlanes) && elsewhere == len(now)
		return done, fmt.Sprintf("%d of %d are ready elsewhere", elsewhere, len(now)), nil
	})
	l.Available(len(controlPlanes))
	others := map[string]string{"lxd-b1": "zone-c", "lxd-c1": "zone-b"}
	checkSpread(l, "zone-a", others[host])
	says(l, host, dead)
	box.MAAS.BreakVMHost(host, false, false)
	l.Wait("what the host kept to be deleted", func() (bool, string, error) {
		var left []string
		for _, h := range box.MAAS.VMHosts() {
			for _, vm := range h.VMs {
				if slices.ContainsFunc(dead, func(m infrav1.MaasMachine) bool { return m.Status.Hostname == vm.Name }) {
					left = append(left, vm.Name)
				}
			}
		}
		return len(left) == 0, fmt.Sprint(left), nil
	})
	says(l, host, nil)
}

// says waits until the LXDHost of a VM host names these VMs, and no others, as left on it.
func says(l *life.Life, host string, left []infrav1.MaasMachine) {
	l.Wait(fmt.Sprintf("LXDHost %s to name %d VMs", host, len(left)), func() (bool, string, error) {
		list := &infrav1.LXDHostList{}
		if err := box.Client.List(l.Context(), list); err != nil {
			return false, "", err
		}
		at := slices.IndexFunc(list.Items, func(h infrav1.LXDHost) bool { return strings.HasPrefix(h.Name, host+"-") || h.Name == host })
		if at < 0 {
			return false, "there is none", nil
		}
		c := conditions.Get(&list.Items[at], infrav1.NoVMsLeftCondition)
		if c == nil {
			return len(left) == 0, "it names none", nil
		}
		named := !slices.ContainsFunc(left, func(m infrav1.MaasMachine) bool { return !strings.Contains(c.Message, m.Status.Hostname) })
		return named && len(left) > 0, c.Message, nil
	})
}

// Control planes and workers of both kinds in one cluster.
func TestMixedBareMetalAndLXD(t *testing.T) {
	l := life.Begin(t, box, "mixed")
	l.Create(topology(t, "mixed", 1, 1, lxd))
	l.Change(func(cluster *clusterv1.Cluster) {
		more := clusterv1.MachineDeploymentTopology{Class: "default-worker", Name: "vms", Replicas: ptr.To[int32](1)}
		mode := clusterv1.ClusterVariable{Name: "workerMode"}
		mode.Value.Raw = []byte(`"lxd"`)
		more.Variables.Overrides = []clusterv1.ClusterVariable{mode}
		cluster.Spec.Topology.Workers.MachineDeployments = append(cluster.Spec.Topology.Workers.MachineDeployments, more)
	})
	step(l, "SingleLXDControlPlaneAndWorkersOfBothKinds", func(l *life.Life) {
		l.Available(3)
		controlPlanes, workers := l.MaasMachines()
		checkKinds(l, controlPlanes, "VM")
		checkKinds(l, workers, "VM", "metal")
	})
	step(l, "ControlPlanesOfBothKinds", func(l *life.Life) {
		machines := l.Machines()
		release := hold(l, machines[slices.IndexFunc(machines, isControlPlane)])
		l.Change(func(cluster *clusterv1.Cluster) {
			cluster.Spec.Topology.Variables = slices.DeleteFunc(cluster.Spec.Topology.Variables, func(v clusterv1.ClusterVariable) bool { return v.Name == "lxdConfig" })
		})
		l.Wait("the control plane to have a second one beside it", func() (bool, string, error) {
			nodes := 0
			for _, m := range l.Machines() {
				if isControlPlane(m) && m.Status.NodeRef.IsDefined() {
					nodes++
				}
			}
			return nodes == 2, fmt.Sprint(nodes), nil
		})
		controlPlanes, _ := l.MaasMachines()
		checkKinds(l, controlPlanes, "VM", "metal")
		release()
	})
	step(l, "BareMetalControlPlane", func(l *life.Life) {
		l.Available(3)
		controlPlanes, _ := l.MaasMachines()
		checkKinds(l, controlPlanes, "metal")
	})
	l.Delete()
}

func isControlPlane(m clusterv1.Machine) bool { return util.IsControlPlaneMachine(&m) }

// hold keeps a Machine from being drained, when it is deleted, until it is released or the step ends.
func hold(l *life.Life, machine clusterv1.Machine) (release func()) {
	l.Helper()
	annotate := func(value any) error {
		patch := fmt.Sprintf(`{"metadata": {"annotations": {"%s/e2e": %v}}}`, clusterv1.PreDrainDeleteHookAnnotationPrefix, value)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.Context()), time.Minute)
		defer cancel()
		return box.Client.Patch(ctx, &machine, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	if err := annotate(`"true"`); err != nil {
		l.Fatal(err)
	}
	release = sync.OnceFunc(func() {
		if err := annotate("null"); client.IgnoreNotFound(err) != nil {
			l.Error(err)
		}
	})
	l.Cleanup(release)
	return release
}

// checkKinds wants machines to be, in MAAS, VMs or metal; the kinds are sorted.
func checkKinds(l *life.Life, machines []infrav1.MaasMachine, want ...string) {
	l.Helper()
	var got []string
	for _, m := range l.Held(machines) {
		if m.VMHost != "" {
			got = append(got, "VM")
		} else {
			got = append(got, "metal")
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		l.Errorf("the machines are (-want +got):\n%s", diff)
	}
}
