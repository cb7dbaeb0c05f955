// SPDX-License-Identifier: Apache-2.0

package flows_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"

	"github.com/capmaas/cluster-api-provider-maas/test/life"
)

// topology is a Cluster of the ClusterClass capmaas, as JSON.
func topology(t *testing.T, name string, controlPlanes, workers int, variables map[string]any) string {
	t.Helper()
	with := map[string]any{"dnsDomain": dnsDomain, "image": image}
	maps.Copy(with, variables)
	return life.Topology(t, name, kubernetesVersion, controlPlanes, workers, with)
}

// lxd opts a topology into LXD control planes.
var lxd = map[string]any{"lxdConfig": map[string]any{}}

// The main job: control planes as VMs on different hosts in different zones, workers on bare metal. Later the control
// plane is rolled to a new image.
func TestLXDTopologyAndRollout(t *testing.T) {
	l := life.Begin(t, box, "lxd")
	l.Create(topology(t, "lxd", 3, 2, lxd))
	l.Available(5)
	controlPlanes, workers := l.MaasMachines()
	zones, hosts := map[string]bool{}, map[string]bool{}
	for _, m := range l.Held(controlPlanes) {
		zones[m.Zone], hosts[m.VMHost] = true, true
	}
	want := map[string]bool{"zone-a": true, "zone-b": true, "zone-c": true}
	if diff := cmp.Diff(want, zones); diff != "" {
		t.Errorf("zones of the control planes (-want +got):\n%s", diff)
	}
	if len(hosts) != 3 || hosts[""] {
		t.Errorf("the control planes are on the hosts %v, want 3", slices.Sorted(maps.Keys(hosts)))
	}
	for _, m := range l.Held(workers) {
		if m.VMHost != "" {
			t.Errorf("the worker %s is a VM", m.Hostname)
		}
	}
	l.CheckCost("creation", l.Began, 5)
	l.CheckIdle()

	old, rolling := names(l.Machines(), util.IsControlPlaneMachine), l.Book.Mark()
	l.Change(func(cluster *clusterv1.Cluster) {
		raw, err := json.Marshal(newImage)
		if err != nil {
			t.Fatal(err)
		}
		variable := clusterv1.ClusterVariable{Name: "image"}
		variable.Value.Raw = raw
		cluster.Spec.Topology.ControlPlane.Variables.Overrides = []clusterv1.ClusterVariable{variable}
	})
	l.Wait("the control plane to be rolled", func() (bool, string, error) {
		now := names(l.Machines(), util.IsControlPlaneMachine)
		done := len(now) == 3 && !slices.ContainsFunc(now, func(name string) bool { return slices.Contains(old, name) })
		return done, fmt.Sprint(now), nil
	})
	l.Available(5)
	controlPlanes, _ = l.MaasMachines()
	for _, m := range l.Held(controlPlanes) {
		if m.Image != "custom/"+newImage {
			t.Errorf("%s has the image %s", m.Hostname, m.Image)
		}
	}
	l.CheckCost("rollout", rolling, 6)
	l.CheckConnections()
	deleting := l.Book.Mark()
	l.Delete()
	l.CheckCost("deletion", deleting, 5)
}

// Everything on bare metal, and workers that come and go.
func TestBareMetalTopologyAndScaling(t *testing.T) {
	l := life.Begin(t, box, "metal")
	l.Create(topology(t, "metal", 1, 2, nil))
	l.Available(3)
	l.CheckCost("creation", l.Began, 3)

	growing := l.Book.Mark()
	l.ScaleWorkers(4)
	l.Available(5)
	l.CheckCost("creation", growing, 2)

	shrinking := l.Book.Mark()
	l.ScaleWorkers(1)
	l.Available(2)
	l.CheckCost("deletion", shrinking, 3)

	controlPlanes, workers := l.MaasMachines()
	for _, m := range l.Held(append(controlPlanes, workers...)) {
		if m.VMHost != "" {
			t.Errorf("%s is a VM", m.Hostname)
		}
	}
	l.Delete()
}

// The only control plane has the requested address, and all machines are in the requested zone.
func TestStaticIPAndZone(t *testing.T) {
	const address, zone = "10.77.0.50", "zone-c"
	l := life.Begin(t, box, "static")
	variables := maps.Clone(lxd)
	variables["staticIP"], variables["zone"] = address, zone
	l.Create(topology(t, "static", 1, 1, variables))
	l.Available(2)
	if diff := cmp.Diff([]string{address}, l.Record.Addresses()); diff != "" {
		t.Errorf("the API endpoint (-want +got):\n%s", diff)
	}
	controlPlanes, workers := l.MaasMachines()
	for _, m := range l.Held(controlPlanes) {
		if len(m.Addresses) != 1 || m.Addresses[0].String() != address {
			t.Errorf("%s has the addresses %v, want %s", m.Hostname, m.Addresses, address)
		}
	}
	for _, m := range l.Held(append(controlPlanes, workers...)) {
		if m.Zone != zone {
			t.Errorf("%s is in zone %s", m.Hostname, m.Zone)
		}
	}
	l.CheckCost("creation", l.Began, 2)
	deleting := l.Book.Mark()
	l.Delete()
	l.CheckCost("deletion", deleting, 2)
}

func names(machines []clusterv1.Machine, which func(*clusterv1.Machine) bool) []string {
	var list []string
	for i := range machines {
		if which(&machines[i]) {
			list = append(list, machines[i].Name)
		}
	}
	return list
}
