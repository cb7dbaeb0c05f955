// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

const rke2Version = "v1.35.0+rke2r1"

func TestRKE2(t *testing.T) {
	lead(t, distribution{
		provider: sandbox.RKE2, flavor: "lxd-rke2", name: "rke2", kind: "RKE2ControlPlane", version: rke2Version, newVersion: "v1.36.0+rke2r1",
	})
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
