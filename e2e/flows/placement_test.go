// SPDX-License-Identifier: Apache-2.0

package flows_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/e2e/life"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
)

// More control planes than zones: no zone has two more than another, and no host has two where another of its zone has none.
func TestFiveControlPlanesAcrossThreeZones(t *testing.T) {
	l := life.Begin(t, box, "five")
	l.Create(topology(t, "five", 5, 0, lxd))
	l.Available(5)
	controlPlanes, _ := l.MaasMachines()
	zones, hosts := map[string]int{}, map[string]int{}
	for _, m := range l.Held(controlPlanes) {
		zones[m.Zone]++
		hosts[m.VMHost]++
	}
	counts := slices.Sorted(maps.Values(zones))
	if diff := cmp.Diff([]int{1, 2, 2}, counts); diff != "" {
		t.Errorf("control planes per zone, %v (-want +got):\n%s", zones, diff)
	}
	if zones["zone-a"] == 2 && (hosts["lxd-a1"] != 1 || hosts["lxd-a2"] != 1) {
		t.Errorf("the two in zone-a are on the hosts %v", hosts)
	}
	l.Delete()
}

// Control planes and workers of both kinds in one cluster, and a control plane that becomes bare metal.
func TestMixedKindsAndAChangeOfKind(t *testing.T) {
	l := life.Begin(t, box, "mixed")
	l.Create(topology(t, "mixed", 1, 1, lxd))
	l.Available(2)
	l.Change(func(cluster *clusterv1.Cluster) {
		more := clusterv1.MachineDeploymentTopology{Class: "default-worker", Name: "vms", Replicas: new(int32)}
		*more.Replicas = 1
		mode := clusterv1.ClusterVariable{Name: "workerMode"}
		mode.Value.Raw = []byte(`"lxd"`)
		more.Variables.Overrides = []clusterv1.ClusterVariable{mode}
		cluster.Spec.Topology.Workers.MachineDeployments = append(cluster.Spec.Topology.Workers.MachineDeployments, more)
	})
	l.Available(3)
	controlPlanes, workers := l.MaasMachines()
	if got := kinds(l.Held(controlPlanes)); !cmp.Equal(got, []string{"VM"}) {
		t.Errorf("the control plane is %v", got)
	}
	if got := kinds(l.Held(workers)); !cmp.Equal(got, []string{"VM", "metal"}) {
		t.Errorf("the workers are %v", got)
	}

	l.Change(func(cluster *clusterv1.Cluster) {
		cluster.Spec.Topology.Variables = slices.DeleteFunc(cluster.Spec.Topology.Variables, func(v clusterv1.ClusterVariable) bool { return v.Name == "lxdConfig" })
	})
	l.Wait("the control plane to be bare metal", func() (bool, string, error) {
		controlPlanes, _ := l.MaasMachines()
		done := len(controlPlanes) == 1 && !controlPlanes[0].Spec.IsLXD() && controlPlanes[0].Status.Ready
		return done, fmt.Sprint(len(controlPlanes)), nil
	})
	l.Available(3)
	l.Delete()
}

// kinds are VM or metal, sorted.
func kinds(machines []simulator.MachineSnapshot) []string {
	var list []string
	for _, m := range machines {
		if m.VMHost != "" {
			list = append(list, "VM")
		} else {
			list = append(list, "metal")
		}
	}
	slices.Sort(list)
	return list
}

// A VM host dies with a control plane on it. The MachineHealthCheck has it replaced, on another host.
func TestControlPlaneOfADeadHostComesUpElsewhere(t *testing.T) {
	l := life.Begin(t, box, "ha")
	l.Create(topology(t, "ha", 3, 0, lxd))
	l.Change(func(cluster *clusterv1.Cluster) {
		seconds := int32(5)
		cluster.Spec.Topology.ControlPlane.HealthCheck.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{
			{Type: "Ready", Status: "Unknown", TimeoutSeconds: &seconds}, {Type: "Ready", Status: "False", TimeoutSeconds: &seconds},
		}
	})
	l.Available(3)
	controlPlanes, _ := l.MaasMachines()
	dead := controlPlanes[0]
	host := dead.Status.LXDHost
	control(t, "machines/"+dead.Spec.SystemID+"/power", `{"power": "off", "unnoticed": true}`)
	if !box.MAAS.BreakVMHost(host, true, false) {
		t.Fatalf("there is no VM host %q", host)
	}
	t.Cleanup(func() { box.MAAS.BreakVMHost(host, false, false) })

	l.Wait("the control plane to be replaced", func() (bool, string, error) {
		now, _ := l.MaasMachines()
		ready := 0
		for _, m := range now {
			if m.Status.Ready && m.Status.LXDHost != host {
				ready++
			}
		}
		err := box.Client.Get(t.Context(), client.ObjectKeyFromObject(&dead), &infrav1.MaasMachine{})
		return ready == 3 && len(now) == 3 && client.IgnoreNotFound(err) == nil && err != nil, fmt.Sprintf("%d of %d are ready elsewhere", ready, len(now)), nil
	})
	l.Available(3)
	// The host comes back with the VM, as the event VMMayRemain has said.
	box.MAAS.BreakVMHost(host, false, false)
	if !box.MAAS.DeleteVM(host, dead.Status.Hostname) {
		t.Errorf("the VM %s is not on the host %s any more, though nobody could reach it", dead.Status.Hostname, host)
	}
	l.Delete()
}

// control has the simulator do what no MAAS API can do.
func control(t *testing.T, path, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, box.ControlURL+"/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusBadRequest {
		t.Fatalf("%s: %s", path, response.Status)
	}
}
