// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// mixed is a cluster of Cluster API's own provider, with its control plane in that provider's memory, and workers in MAAS.
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
  replicas: 2
  template:
    spec:
      clusterName: %[1]s
      version: v1.35.0
      bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: %[1]s-metal}}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: MaasMachineTemplate, name: %[1]s-metal}
`

// A Cluster of Cluster API's own provider, with a KubeadmControlPlane of its DevMachines, has workers in MAAS: they get
// user data, Nodes and provider IDs, and go with the cluster, and the MaasCluster after them. The test plays their
// kubelets alone.
func TestMixedCluster(t *testing.T) {
	require(t, sandbox.Dev)
	l := life.Begin(t, box, "mixed")
	l.Apply(fmt.Sprintf(mixed, l.Key.Name, l.Key.Namespace))
	l.Wait("the workers to be deployed", func() (bool, string, error) {
		_, workers := l.MaasMachines()
		running, text := 0, ""
		for _, m := range workers {
			text += m.Name + ": " + sandbox.Conditions(m.Status.Conditions) + "; "
			if m.Status.Ready || m.Spec.ProviderID != "" {
				running++
			}
		}
		return running == 2, text, nil
	})
	workload, err := box.WorkloadClient(l.Context(), l.Key)
	if err != nil {
		t.Fatal(err)
	}
	_, workers := l.MaasMachines()
	for _, m := range workers {
		registerNode(l, workload, m.Status.Hostname)
	}
	if err := box.WaitAvailable(l.Within(5*time.Minute), l.Key, 3); err != nil {
		t.Fatal(err)
	}
	for _, m := range workers {
		node := &corev1.Node{}
		if err := workload.Get(l.Context(), client.ObjectKey{Name: m.Status.Hostname}, node); err != nil {
			t.Fatal(err)
		}
		if node.Spec.ProviderID != m.Spec.ProviderID || node.Spec.ProviderID == "" {
			t.Errorf("Node %s has the provider ID %q, want %q", node.Name, node.Spec.ProviderID, m.Spec.ProviderID)
		}
	}
	l.Delete()
	maasCluster := client.ObjectKey{Namespace: l.Key.Namespace, Name: l.Key.Name + "-maas"}
	l.Wait("the MaasCluster to be collected", func() (bool, string, error) {
		c := &infrav1.MaasCluster{}
		err := box.Client.Get(l.Context(), maasCluster, c)
		return apierrors.IsNotFound(err), sandbox.Conditions(c.Status.Conditions), client.IgnoreNotFound(err)
	})
}

// registerNode plays a kubelet.
func registerNode(l *life.Life, workload client.Client, name string) {
	l.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse})
	}
	node.Status.NodeInfo.KubeletVersion = "v1.35.0"
	if err := workload.Create(context.WithoutCancel(l.Context()), node); err != nil {
		l.Fatal(err)
	}
}
