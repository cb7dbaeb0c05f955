// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"encoding/json"
	"testing"

	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// lifeOf returns a machine for one reconcile, without a cluster.
func lifeOf(t testing.TB, m *infrav1.MaasMachine) *life {
	t.Helper()
	opened, err := (&record.Records{}).OpenMachine(m)
	if err != nil {
		t.Fatal(err)
	}
	return &life{Machine: &scope.Machine{MaasMachine: m}, record: opened, clock: clock.RealClock{}}
}

func scopeOf(m *infrav1.MaasMachine) *scope.Machine {
	return &scope.Machine{Cluster: &scope.Cluster{Cluster: &clusterv1.Cluster{}, MaasCluster: &infrav1.MaasCluster{}}, MaasMachine: m}
}

// erasing is a spec of bare metal with a release policy.
func erasing(erase infrav1.EraseMode) infrav1.MaasMachineSpec {
	return infrav1.MaasMachineSpec{Release: infrav1.MachineRelease{Erase: erase}}
}

// recordText returns the annotation for a record.
func recordText(t testing.TB, data record.MachineData) string {
	t.Helper()
	text, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
