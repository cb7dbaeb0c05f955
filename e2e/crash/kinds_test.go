// SPDX-License-Identifier: Apache-2.0

package crash_test

import "strings"

// kind is a kind of life. There is no bootstrap provider, and no kubeadm in the user data: whether a cluster comes of it
// does not matter here.
type kind struct {
	name string
	// machine is the spec of the MaasMachine, with ADDRESS for the static address; "" where the cluster has no machine.
	machine string
	// worker says that the machine is none of the control plane, and that the API endpoint leads nowhere.
	worker bool
	// calls are what no such life goes without, by operation, or by method and endpoint where there is none: a manager has to die at each of them.
	calls []string
}

// leads reports whether the API endpoint leads to the machine, which then has the static address.
func (k *kind) leads() bool { return k.machine != "" && !k.worker }

var (
	aCluster = &kind{name: "cluster"}
	aVM      = &kind{
		name:    "VM",
		machine: "{provisioningMode: lxd, image: u-2204-k8s-1.35, staticIP: ADDRESS, minCPU: 2, minMemory: 4096, minDiskSize: 20}",
		calls:   []string{"compose", "deploy", "DELETE machines/{id}/"},
	}
	bareMetal = &kind{
		name: "bare metal", worker: true,
		machine: "{image: u-2204-k8s-1.35, minCPU: 2, minMemory: 4096, resourcePool: capi}",
		calls:   []string{"allocate", "deploy", "release"},
	}
	bareMetalWithAddress = &kind{
		name:    "bare metal with an address",
		machine: "{image: u-2204-k8s-1.35, staticIP: ADDRESS, minCPU: 2, minMemory: 4096, resourcePool: capi}",
		calls:   []string{"allocate", "link_subnet", "deploy", "release"},
	}
)

// kinds are the lives that are walked through.
var kinds = []*kind{aCluster, aVM, bareMetal, bareMetalWithAddress}

const clusterManifest = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: NAME, namespace: NAMESPACE}
spec:
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: MaasCluster, name: NAME}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: MaasCluster
metadata: {name: NAME, namespace: NAMESPACE}
spec: {dnsDomain: maas.sim}
`

const machineManifest = `
---
apiVersion: v1
kind: Secret
metadata: {name: NAME, namespace: NAMESPACE, labels: {cluster.x-k8s.io/cluster-name: NAME}}
type: cluster.x-k8s.io/secret
stringData: {value: "#cloud-config\n{}\n", format: cloud-config}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: MaasMachine
metadata: {name: NAME, namespace: NAMESPACE, labels: LABELS}
spec: SPEC
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {name: NAME, namespace: NAMESPACE, labels: LABELS}
spec:
  clusterName: NAME
  version: v1.35.0
  bootstrap: {dataSecretName: NAME}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: MaasMachine, name: NAME}
`

// manifest is what a life of this kind begins with.
func (k *kind) manifest(namespace, name, address string) string {
	manifest, labels := clusterManifest, `{cluster.x-k8s.io/cluster-name: NAME, cluster.x-k8s.io/control-plane: ""}`
	if k.worker {
		labels = "{cluster.x-k8s.io/cluster-name: NAME}"
	}
	if k.machine != "" {
		manifest += machineManifest
	}
	return strings.NewReplacer("NAMESPACE", namespace, "NAME", name, "ADDRESS", address).
		Replace(strings.NewReplacer("LABELS", labels, "SPEC", k.machine).Replace(manifest))
}
