// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

const (
	rke2Version    = "v1.35.0+rke2r1"
	rke2NewVersion = "v1.36.0+rke2r1"
)

// A cluster of the flavor lxd-rke2 comes up, scales, leaves a host that is emptied, is upgraded and deleted.
func TestRKE2(t *testing.T) {
	require(t, sandbox.RKE2)
	l := life.Begin(t, box, "rke2")
	l.Create(flavor(t, "lxd-rke2", "rke2", rke2Version, 3, 2))
	awaitTemplate(l)
	l.Available(5)
	checkKinds(l)
	checkVersions(l, rke2Version)

	scaleControlPlane(l, "RKE2ControlPlane", 1)
	l.Available(3)
	scaleControlPlane(l, "RKE2ControlPlane", 3)
	scaleWorkers(l, 1)
	l.Available(4)
	evacuate(l)
	l.Available(4)

	change(l, controlPlane("RKE2ControlPlane"), func(o *unstructured.Unstructured) error {
		return unstructured.SetNestedField(o.Object, rke2NewVersion, "spec", "version")
	})
	l.Wait("the control planes to be upgraded", func() (bool, string, error) { return upgraded(l, true, rke2NewVersion) })
	changeWorkers(l, func(md *clusterv1.MachineDeployment) { md.Spec.Template.Spec.Version = rke2NewVersion })
	l.Wait("the workers to be upgraded", func() (bool, string, error) { return upgraded(l, false, rke2NewVersion) })
	l.Available(4)
	checkVersions(l, rke2NewVersion)
	l.Delete()
}

// A control plane that was made in the older version comes up, and its template is found.
func TestRKE2ControlPlaneOfV1alpha1(t *testing.T) {
	require(t, sandbox.RKE2)
	l := life.Begin(t, box, "older")
	manifest := flavor(t, "lxd-rke2", "older", rke2Version, 1, 0)
	for old, changed := range map[string]string{
		"controlplane.cluster.x-k8s.io/v1beta1\nkind: RKE2ControlPlane\n": "controlplane.cluster.x-k8s.io/v1alpha1\nkind: RKE2ControlPlane\n",
		"  version: \"" + rke2Version + "\"\n  replicas: 1\n":             "  replicas: 1\n",
		"  registrationMethod: control-plane-endpoint\n":                  "  registrationMethod: internal-first\n",
		"  machineTemplate:\n    infrastructureRef:\n":                    "  infrastructureRef:\n",
		"\n  agentConfig:\n": "\n  agentConfig:\n    version: " + rke2Version + "\n",
	} {
		if strings.Count(manifest, old) != 1 {
			t.Fatalf("the flavor does not have %q once", old)
		}
		manifest = strings.Replace(manifest, old, changed, 1)
	}
	l.Create(manifest)
	awaitTemplate(l)
	l.Available(1)
	l.Delete()
}
