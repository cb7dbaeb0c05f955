// SPDX-License-Identifier: Apache-2.0

package maascluster

import (
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// What is made for a machine is reconciled by whoever reconciles the machine.
func TestWhatGoesWithAMachineHasItsWatchFilter(t *testing.T) {
	m := &infrav1.MaasMachine{}
	m.Labels = map[string]string{clusterv1.WatchLabel: "blue"}
	if got := ownedBy(&scope.Cluster{Cluster: &clusterv1.Cluster{}}, m, "one").Labels[clusterv1.WatchLabel]; got != "blue" {
		t.Errorf("the filter is %q", got)
	}
}
