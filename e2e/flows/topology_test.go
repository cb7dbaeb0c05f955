// SPDX-License-Identifier: Apache-2.0

package flows_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

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
