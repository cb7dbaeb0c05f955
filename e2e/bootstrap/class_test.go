// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"testing"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

func TestRKE2Class(t *testing.T) {
	leadTopology(t, sandbox.RKE2, "rke2", rke2Version, "v1.36.0+rke2r1")
}

func TestK3sClass(t *testing.T) {
	leadTopology(t, sandbox.K3s, "k3s", "v1.35.0+k3s1", "v1.36.0+k3s1")
}

// leadTopology leads a cluster of a distribution's ClusterClass through its life, in which all changes are made to the
// Cluster: it comes up, scales, is upgraded by one line, and is deleted.
func leadTopology(t *testing.T, provider sandbox.BootstrapProvider, distribution, version, newVersion string) {
	t.Helper()
	require(t, provider)
	if err := box.ApplyFile(t.Context(), "clusterclass/clusterclass-capmaas-"+distribution+".yaml"); err != nil {
		t.Fatal(err)
	}
	name := distribution + "-class"
	l := life.Begin(t, box, name)
	l.Create(flavor(t, "lxd-"+distribution+"-topology", name, version, 3, 2))
	l.Available(5)
	checkKinds(l)
	checkVersions(l, version)

	l.Change(func(c *clusterv1.Cluster) {
		c.Spec.Topology.ControlPlane.Replicas = ptr.To[int32](1)
		c.Spec.Topology.Workers.MachineDeployments[0].Replicas = ptr.To[int32](1)
	})
	l.Available(2)

	l.Change(func(c *clusterv1.Cluster) { c.Spec.Topology.Version = newVersion })
	for _, controlPlanes := range []bool{true, false} {
		l.Wait("the upgrade", func() (bool, string, error) { return upgraded(l, controlPlanes, newVersion) })
	}
	l.Available(2)
	checkVersions(l, newVersion)
	l.Delete()
}
