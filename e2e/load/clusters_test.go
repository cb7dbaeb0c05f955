// SPDX-License-Identifier: Apache-2.0

package load_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	inmemoryapi "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server/api"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

const (
	namespace = corev1.NamespaceDefault
	stopGrace = 20 * time.Second
	logTail   = 4000
	// userDataSize is that of kubeadm's user data, in bytes.
	userDataSize = 12 << 10
	// vmImage is what machines boot.
	vmImage = "ubuntu/noble"
	// images is how many a Node lists.
	images = 30
)

// grow makes clusters until there are as many, and returns when all machines are ready.
func (w *world) grow(ctx context.Context, clusters int) error {
	for i := len(w.servers); i < clusters; i++ {
		name := fmt.Sprintf("c%d", i)
		if err := w.makeCluster(ctx, name); err != nil {
			return err
		}
		for number := range machinesPerCluster {
			// The first is the control plane, in a VM.
			if err := w.makeMachine(ctx, name, fmt.Sprintf("%s-%d", name, number), number == 0, number == 0); err != nil {
				return err
			}
		}
	}
	return w.await(ctx, clusters*machinesPerCluster)
}

// await plays the rest of Cluster API until as many machines are ready.
func (w *world) await(ctx context.Context, machines int) error {
	tick := time.NewTicker(w.playInterval)
	defer tick.Stop()
	ready := 0
	for {
		now, err := w.play(ctx)
		if err != nil {
			return fmt.Errorf("%d machines of %d are ready: %w", ready, machines, err)
		}
		ready = now
		if ready == machines {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d machines of %d are ready: %w", ready, machines, context.Cause(ctx))
		}
	}
}

// clear deletes all machines, and returns when their objects are gone.
func (w *world) clear(ctx context.Context) error {
	tick := time.NewTicker(w.playInterval)
	defer tick.Stop()
	for {
		list := &infrav1.MaasMachineList{}
		if err := w.client.List(ctx, list); err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return nil
		}
		for i := range list.Items {
			if !list.Items[i].DeletionTimestamp.IsZero() {
				continue
			}
			if err := w.client.Delete(ctx, &list.Items[i]); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d machines are still there: %w", len(list.Items), context.Cause(ctx))
		}
	}
}

func meta(name, cluster string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}}
}

// ownedBy returns Cluster API's owner references of an object of one of its objects.
func ownedBy(object client.Object, kind string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: kind, Name: object.GetName(), UID: object.GetUID(), Controller: ptr.To(true)}}
}

func (w *world) makeCluster(ctx context.Context, name string) error {
	w.workload.AddResourceGroup(name)
	api := inmemoryapi.NewAPIServerHandler(w.workload, logr.Discard(), func(string) (string, error) { return name, nil })
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			_, _ = rw.Write([]byte(`{"major": "1", "minor": "35", "gitVersion": "v1.35.0"}`))
			return
		}
		api.ServeHTTP(rw, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	w.servers = append(w.servers, server)
	kubeconfig, err := kubeconfigOf(server)
	if err != nil {
		return err
	}
	cluster := &clusterv1.Cluster{ObjectMeta: meta(name, name), Spec: clusterv1.ClusterSpec{
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "MaasCluster", Name: name},
	}}
	if err := w.client.Create(ctx, cluster); err != nil {
		return err
	}
	maasCluster := &infrav1.MaasCluster{ObjectMeta: meta(name, name), Spec: infrav1.MaasClusterSpec{DNSDomain: "maas.sim"}}
	maasCluster.OwnerReferences = ownedBy(cluster, "Cluster")
	for _, object := range []client.Object{
		maasCluster,
		&corev1.Secret{ObjectMeta: meta(secret.Name(name, secret.Kubeconfig), name), Type: clusterv1.ClusterSecretType, Data: map[string][]byte{secret.KubeconfigDataName: kubeconfig}},
		&corev1.Secret{ObjectMeta: meta(name+"-data", name), Type: clusterv1.ClusterSecretType, Data: map[string][]byte{"value": []byte("#cloud-config\n# " + strings.Repeat("x", userDataSize))}},
	} {
		if err := w.client.Create(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// makeProvisionedCluster makes a cluster, and returns when it is ready for machines.
func (w *world) makeProvisionedCluster(ctx context.Context, name string) error {
	if err := w.makeCluster(ctx, name); err != nil {
		return err
	}
	for {
		if _, err := w.play(ctx); err != nil {
			return err
		}
		cluster := &clusterv1.Cluster{}
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, cluster); err != nil {
			return err
		}
		if ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false) {
			return nil
		}
		select {
		case <-time.After(w.playInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// makeMachine makes a control plane or a worker, in a VM or on bare metal.
func (w *world) makeMachine(ctx context.Context, cluster, name string, controlPlane, vm bool) error {
	spec := infrav1.MaasMachineSpec{Image: vmImage}
	if vm {
		spec.ProvisioningMode = infrav1.ProvisioningModeLXD
	}
	return w.makeMachineWith(ctx, cluster, name, controlPlane, spec)
}

func (w *world) makeMachineWith(ctx context.Context, cluster, name string, controlPlane bool, spec infrav1.MaasMachineSpec) error {
	machine := &clusterv1.Machine{ObjectMeta: meta(name, cluster), Spec: clusterv1.MachineSpec{
		ClusterName: cluster, Version: "v1.35.0", Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To(cluster + "-data")},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "MaasMachine", Name: name},
	}}
	maasMachine := &infrav1.MaasMachine{ObjectMeta: meta(name, cluster), Spec: spec}
	if controlPlane {
		machine.Labels[clusterv1.MachineControlPlaneLabel], maasMachine.Labels[clusterv1.MachineControlPlaneLabel] = "", ""
	}
	if err := w.client.Create(ctx, machine); err != nil {
		return err
	}
	maasMachine.OwnerReferences = ownedBy(machine, "Machine")
	return w.client.Create(ctx, maasMachine)
}

func kubeconfigOf(server *httptest.Server) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	config.Clusters["it"] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: ca}
	config.AuthInfos["it"] = &clientcmdapi.AuthInfo{Token: "token"}
	config.Contexts["it"] = &clientcmdapi.Context{Cluster: "it", AuthInfo: "it"}
	config.CurrentContext = "it"
	return clientcmd.Write(*config)
}

// play does what the rest of Cluster API and the machines would do next, and returns how many machines are ready.
func (w *world) play(ctx context.Context) (ready int, err error) {
	clusters, maasClusters := &clusterv1.ClusterList{}, &infrav1.MaasClusterList{}
	machines, maasMachines := &clusterv1.MachineList{}, &infrav1.MaasMachineList{}
	for _, list := range []client.ObjectList{clusters, maasClusters, machines, maasMachines} {
		if err := w.client.List(ctx, list); err != nil {
			return 0, err
		}
	}
	provisioned := map[string]infrav1.APIEndpoint{}
	for _, c := range maasClusters.Items {
		if ptr.Deref(c.Status.Initialization.Provisioned, false) {
			provisioned[c.Name] = c.Spec.ControlPlaneEndpoint
		}
	}
	for i := range clusters.Items {
		if endpoint, ok := provisioned[clusters.Items[i].Name]; ok {
			if err := w.provision(ctx, &clusters.Items[i], endpoint); err != nil {
				return 0, err
			}
		}
	}
	byName := map[string]*clusterv1.Machine{}
	for i := range machines.Items {
		byName[machines.Items[i].Name] = &machines.Items[i]
	}
	for i := range maasMachines.Items {
		m := &maasMachines.Items[i]
		joined, err := w.join(ctx, m, byName[m.Name])
		if err != nil {
			return 0, err
		}
		if joined && m.Status.Ready {
			ready++
		}
	}
	return ready, nil
}

// provision does what the controller of Clusters does when the infrastructure is provisioned.
func (w *world) provision(ctx context.Context, cluster *clusterv1.Cluster, endpoint infrav1.APIEndpoint) error {
	if ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false) {
		return nil
	}
	before := cluster.DeepCopy()
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: endpoint.Host, Port: endpoint.Port}
	if err := w.client.Patch(ctx, cluster, client.MergeFrom(before)); err != nil {
		return err
	}
	before = cluster.DeepCopy()
	cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	return w.client.Status().Patch(ctx, cluster, client.MergeFrom(before))
}

// join makes the Node of a machine that runs, and has the Machine refer to it once it has its provider ID. It reports
// whether the Machine does.
func (w *world) join(ctx context.Context, m *infrav1.MaasMachine, machine *clusterv1.Machine) (bool, error) {
	if machine.Status.NodeRef.IsDefined() {
		return true, nil
	}
	if !ptr.Deref(m.Status.Initialization.Provisioned, false) {
		return false, nil
	}
	there := w.workload.GetResourceGroup(machine.Spec.ClusterName).GetClient()
	node := newNode(strings.ToLower(m.Status.Hostname))
	if err := there.Get(ctx, client.ObjectKeyFromObject(node), node); client.IgnoreNotFound(err) != nil {
		return false, err
	} else if err != nil {
		return false, there.Create(ctx, node)
	}
	if node.Spec.ProviderID == "" {
		return false, nil
	}
	before := machine.DeepCopy()
	machine.Status.NodeRef = clusterv1.MachineNodeReference{Name: node.Name}
	return true, w.client.Status().Patch(ctx, machine, client.MergeFrom(before))
}

// newNode is as large as a Node usually is.
func newNode(name string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}}
	for i := range 12 {
		node.Labels[fmt.Sprintf("feature.node.kubernetes.io/label-%d", i)] = "some-value"
		node.Annotations[fmt.Sprintf("csi.example.com/annotation-%d", i)] = strings.Repeat("x", 40)
	}
	for i := range images {
		image := fmt.Sprintf("registry.example.com/some/where/image-%d", i)
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{image + "@sha256:" + strings.Repeat("0", 64), image + ":v1.2.3"}, SizeBytes: 1 << 26})
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeNetworkUnavailable} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue, Reason: "Kubelet", Message: "kubelet is posting status", LastTransitionTime: metav1.Now()})
	}
	node.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi")}
	return node
}
