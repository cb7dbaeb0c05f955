// SPDX-License-Identifier: Apache-2.0

// Package lifetest makes lives of MaasMachines for tests.
package lifetest

import (
	"testing"

	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// Of returns a machine for one reconcile, without a cluster.
func Of(t testing.TB, m *infrav1.MaasMachine) *life.Life {
	t.Helper()
	opened, err := (&record.Records{}).OpenMachine(m)
	if err != nil {
		t.Fatal(err)
	}
	return &life.Life{Machine: &scope.Machine{MaasMachine: m}, Record: opened, Clock: clock.RealClock{}}
}

// ScopeOf returns a MaasMachine of a cluster without a MAAS.
func ScopeOf(m *infrav1.MaasMachine) *scope.Machine {
	cluster := &scope.Cluster{Cluster: &clusterv1.Cluster{}, MaasCluster: &infrav1.MaasCluster{}}
	return &scope.Machine{Cluster: cluster, MaasMachine: m}
}
