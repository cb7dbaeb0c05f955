// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mixed is a cluster of Cluster API's own provider, with its control plane in that provider's memory, and workers in
// MAAS.
const mixed = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  clusterNetwork: {pods: {cidrBlocks: [10.244.0.0/16]}, services: {cidrBlocks: [10.96.0.0/12]}}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevCluster, name: %[1]s}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: %[1]s}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DevCluster
metadata:
  name: %[1]s
  namespace: %[2]s
  annotations: {example.com/applied-by: kubectl} # kubectl apply writes one, too.
spec: {backend: {inMemory: {}}}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  replicas: 1
  version: v1.35.0
  machineTemplate: {spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevMachineTemplate, name: %[1]s}}}
  kubeadmConfigSpec: {clusterConfiguration: {apiServer: {certSANs: [localhost]}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DevMachineTemplate
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  template:
    spec: {backend: {inMemory: {vm: {provisioning: {startupDuration: 1s}}}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: MaasCluster
metadata: {name: %[1]s-maas, namespace: %[2]s}
spec: {clusterName: %[1]s}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: MaasMachineTemplate
metadata: {name: %[1]s-metal, namespace: %[2]s}
spec: {template: {spec: {image: ubuntu/noble, resourcePool: capi}}}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: %[1]s-metal, namespace: %[2]s}
spec: {template: {spec: {joinConfiguration: {nodeRegistration: {name: "{{ local_hostname }}"}}}}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: %[1]s-metal, namespace: %[2]s}
spec:
  clusterName: %[1]s
  replicas: %[3]d
  template:
    spec:
      clusterName: %[1]s
      version: v1.35.0
      bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: %[1]s-metal}}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: MaasMachineTemplate, name: %[1]s-metal}
`

// ApplyMixedCluster makes a cluster of Dev, with one control plane of it, and workers in MAAS: the MaasCluster has the
// Cluster's name with "-maas".
func (s *Sandbox) ApplyMixedCluster(ctx context.Context, name client.ObjectKey, workers int) error {
	return s.ApplyYAML(ctx, strings.NewReader(fmt.Sprintf(mixed, name.Name, name.Namespace, workers)))
}

// JoinNode plays the kubelet of a machine that joins a cluster of Dev.
func (s *Sandbox) JoinNode(ctx context.Context, cluster client.ObjectKey, name string) error {
	workload, err := s.WorkloadClient(ctx, cluster)
	if err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse})
	}
	node.Status.NodeInfo.KubeletVersion = "v1.35.0"
	if err := workload.Create(ctx, node); err != nil {
		return fmt.Errorf("registering Node %s: %w", name, err)
	}
	return nil
}
