// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"cmp"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// Plain is a cheap cluster, for tests of its machines in MAAS: it has no ClusterClass, and neither a control plane
// provider nor a bootstrap provider. Its machines boot with user data that does nothing, so that no Kubernetes cluster
// results.
type Plain struct {
	// Key is the name of the Cluster and of the MaasCluster.
	Key client.ObjectKey
	// OwnerID that the MaasCluster begins with. Default: the manager chooses one.
	OwnerID string
	// Credentials is the Secret of its credentialsRef. Default: the manager's own credentials.
	Credentials string
	// VirtualIP is the address of its API endpoint. Default: a name.
	VirtualIP string
}

// PlainMachine is a machine of a Plain cluster.
type PlainMachine struct {
	// Name of the Machine and of the MaasMachine. Default: that of the cluster.
	Name string
	// Worker is false for a control plane, whose address the API endpoint contains.
	Worker bool
	// Spec of the MaasMachine: the part between the braces of YAML's flow style.
	Spec string
	// Deployment is the MachineDeployment that it is of; "" if none.
	Deployment string
}

const (
	plainCluster = `---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: NAME, namespace: NAMESPACE}
spec:
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: MaasCluster, name: NAME}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: MaasCluster
metadata: {ANNOTATIONSname: NAME, namespace: NAMESPACE}
spec: {SPEC}
---
apiVersion: v1
kind: Secret
metadata: {name: NAME, namespace: NAMESPACE, labels: {cluster.x-k8s.io/cluster-name: NAME}}
type: cluster.x-k8s.io/secret
stringData: {value: "#cloud-config\n{}\n", format: cloud-config}
`
	plainMachine = `---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: MaasMachine
metadata: {name: MACHINE, namespace: NAMESPACE, labels: {LABELS}}
spec: {SPEC}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {name: MACHINE, namespace: NAMESPACE, labels: {LABELS}}
spec:
  clusterName: NAME
  version: v1.35.0
  bootstrap: {dataSecretName: NAME}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: MaasMachine, name: MACHINE}
`
	// Cluster API makes no Machine of a MachineDeployment that is paused and has no MachineSet. Its template is not there.
	plainDeployment = `---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: DEPLOYMENT, namespace: NAMESPACE, labels: {cluster.x-k8s.io/cluster-name: NAME}}
spec:
  clusterName: NAME
  paused: true
  replicas: 1
  selector: {matchLabels: {cluster.x-k8s.io/deployment-name: DEPLOYMENT}}
  template:
    metadata: {labels: {cluster.x-k8s.io/deployment-name: DEPLOYMENT}}
    spec:
      clusterName: NAME
      bootstrap: {dataSecretName: NAME}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: MaasMachineTemplate, name: DEPLOYMENT}
`
)

// Manifest is what ApplyYAML makes the cluster and machines of it from.
func (p Plain) Manifest(machines ...PlainMachine) string {
	spec, annotations := "dnsDomain: maas.sim", ""
	if p.Credentials != "" {
		spec += fmt.Sprintf(", credentialsRef: {name: %s}", p.Credentials)
	}
	if p.VirtualIP != "" {
		spec += fmt.Sprintf(", virtualIP: {address: %s}", p.VirtualIP)
	}
	if p.OwnerID != "" {
		annotations = fmt.Sprintf("annotations: {%s: %q}, ", infrav1.OwnerIDAnnotation, p.OwnerID)
	}
	return p.fill(plainCluster, "SPEC", spec, "ANNOTATIONS", annotations) + p.Machines(machines...)
}

// Machines is what ApplyYAML adds machines to the cluster from.
func (p Plain) Machines(machines ...PlainMachine) string {
	var all strings.Builder
	for _, m := range machines {
		labels := "cluster.x-k8s.io/cluster-name: " + p.Key.Name
		if !m.Worker {
			labels += `, cluster.x-k8s.io/control-plane: ""`
		}
		if m.Deployment != "" {
			labels += ", cluster.x-k8s.io/deployment-name: " + m.Deployment
		}
		all.WriteString(p.fill(plainMachine, "MACHINE", cmp.Or(m.Name, p.Key.Name), "LABELS", labels, "SPEC", m.Spec))
	}
	return all.String()
}

// Deployment is what ApplyYAML makes a MachineDeployment from that wants one Machine, and makes none itself.
func (p Plain) Deployment(name string) string {
	return p.fill(plainDeployment, "DEPLOYMENT", name)
}

func (p Plain) fill(manifest string, more ...string) string {
	return strings.NewReplacer(append(more, "NAMESPACE", p.Key.Namespace, "NAME", p.Key.Name)...).Replace(manifest)
}
