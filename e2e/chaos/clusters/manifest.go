// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"fmt"
	"strings"
)

// Machine describes a machine of a cluster.
type Machine struct {
	// Name of the Machine and of the MaasMachine. It is unique in the namespace.
	Name string
	// Worker tells it from a control plane, whose address the API endpoint leads to.
	Worker bool
	// VM is composed on an LXD host; otherwise it is bare metal.
	VM bool
	// StaticIP and Tags are as in the spec of a MaasMachine.
	StaticIP string
	Tags     []string
	// VMHost is the only host that a VM may be on, where it is not empty.
	VMHost string
	// Cores that it has at least. Default: 2.
	Cores int
}

const (
	defaultCores = 2
	clusterYAML  = `
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
---
apiVersion: v1
kind: Secret
metadata: {name: NAME, namespace: NAMESPACE, labels: {cluster.x-k8s.io/cluster-name: NAME}}
type: cluster.x-k8s.io/secret
stringData: {value: "#cloud-config\n{}\n", format: cloud-config}
`
	machineYAML = `---
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
)

// fill puts in the cluster's names.
func (c *Cluster) fill(text string) string {
	return strings.NewReplacer("NAMESPACE", c.Key.Namespace, "NAME", c.Key.Name).Replace(text)
}

func (c *Cluster) manifest(m Machine) string {
	labels := "cluster.x-k8s.io/cluster-name: NAME"
	if !m.Worker {
		labels += `, cluster.x-k8s.io/control-plane: ""`
	}
	cores := m.Cores
	if cores == 0 {
		cores = defaultCores
	}
	spec := fmt.Sprintf("image: u-2204-k8s-1.35, minCPU: %d, minMemory: 2048, minDiskSize: 20", cores)
	if m.VM {
		spec += ", provisioningMode: lxd"
	}
	if m.VMHost != "" {
		spec += fmt.Sprintf(", lxdConfig: {vmHost: %s}", m.VMHost)
	}
	if m.StaticIP != "" {
		spec += ", staticIP: " + m.StaticIP
	}
	if len(m.Tags) > 0 {
		spec += fmt.Sprintf(", tags: [%s]", strings.Join(m.Tags, ", "))
	}
	text := strings.NewReplacer("MACHINE", m.Name, "LABELS", labels, "SPEC", spec).Replace(machineYAML)
	return c.fill(text)
}
