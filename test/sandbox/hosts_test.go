// SPDX-License-Identifier: Apache-2.0

package sandbox_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	lxdclient "github.com/canonical/lxd/client"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

// hostCluster has machines that install LXD, and nothing that makes VM hosts of them.
const hostCluster = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: hosts, namespace: default}
spec:
  clusterNetwork: {pods: {cidrBlocks: [10.244.0.0/16]}, services: {cidrBlocks: [10.96.0.0/12]}}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: MaasCluster, name: hosts}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: hosts}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: MaasCluster
metadata: {name: hosts, namespace: default}
spec: {dnsDomain: maas.sim}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: hosts, namespace: default}
spec:
  version: v1.35.0
  replicas: 1
  machineTemplate:
    spec:
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: MaasMachineTemplate, name: hosts}
  kubeadmConfigSpec:
    initConfiguration: {nodeRegistration: {name: "{{ local_hostname }}"}}
    joinConfiguration: {nodeRegistration: {name: "{{ local_hostname }}"}}
    preKubeadmCommands: ["snap list lxd || snap install lxd --channel=5.21/stable"]
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: MaasMachineTemplate
metadata: {name: hosts, namespace: default}
spec: {template: {spec: {image: u-2204-k8s-1.35, minCPU: 2, minMemory: 4096, tags: [bare-metal]}}}
`

// hostFlow is a cluster of one node with LXD, in a sandbox.
type hostFlow struct {
	*flow
	config  *rest.Config // of the cluster's administrator, as users have it
	machine simulator.MachineSnapshot
}

func leadHost(t *testing.T, box *sandbox.Sandbox) {
	lxdtest.Require(t)
	f := &hostFlow{flow: &flow{Sandbox: box, name: client.ObjectKey{Namespace: "default", Name: "hosts"}}}
	if err := f.ApplyYAML(within(t, 3*time.Minute), strings.NewReader(hostCluster)); err != nil {
		t.Fatal(err)
	}
	if err := f.WaitAvailable(within(t, 5*time.Minute), f.name, 1); err != nil {
		t.Fatal(err)
	}
	f.connect(t)
	t.Run("LXD serves the machine's address", f.checkLXD)
	t.Run("rights are the real ones", f.checkRights)
	t.Run("a DaemonSet has a pod on the node", f.checkDaemonSet)
	t.Run("power", f.checkPower)
	t.Run("the end", f.checkEnd)
}

func (f *hostFlow) connect(t *testing.T) {
	file, err := f.WriteWorkloadKubeconfig(t.Context(), f.name)
	if err != nil {
		t.Fatal(err)
	}
	if f.config, err = clientcmd.BuildConfigFromFlags("", file); err != nil {
		t.Fatal(err)
	}
	if f.workload, err = f.WorkloadClient(t.Context(), f.name); err != nil {
		t.Fatal(err)
	}
	f.awaitKubelet(t)
	machine, ok := f.MAAS.Machine(f.HostNodes()[0].SystemID)
	if !ok {
		t.Fatalf("MAAS does not have the machine of %v", f.HostNodes())
	}
	f.machine = machine
}

// awaitKubelet waits until the node has a kubelet; for the first one a program is built.
func (f *hostFlow) awaitKubelet(t *testing.T) {
	t.Helper()
	if err := sandbox.WaitFor(within(t, 3*time.Minute), "the node's kubelet", func() (bool, string, error) {
		return len(f.HostNodes()) == 1, fmt.Sprint(f.HostNodes()), nil
	}); err != nil {
		t.Fatal(err)
	}
}

func (f *hostFlow) checkLXD(t *testing.T) {
	node := f.HostNodes()[0]
	if node.LXD == nil || node.LXD != f.LXD(node.SystemID) {
		t.Fatalf("the node's LXD is %p, the machine's %p", node.LXD, f.LXD(node.SystemID))
	}
	server := lxdtest.Connect(t, node.LXD.Socket())
	state, err := server.GetNetworkState("br0")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, address := range state.Addresses {
		found = found || address.Address == node.Address.String()
	}
	if !found || state.Hwaddr != f.machine.Interfaces[0].MAC {
		t.Errorf("br0 has %s and %v, want %s and %s", state.Hwaddr, state.Addresses, f.machine.Interfaces[0].MAC, node.Address)
	}
	f.checkReachable(t, server, net.JoinHostPort(node.Address.String(), "8443"))
}

// checkReachable has LXD serve the machine's network, and calls it as others in the sandbox's network do.
func (f *hostFlow) checkReachable(t *testing.T, server lxdclient.InstanceServer, address string) {
	settings, etag, err := server.GetServer()
	if err != nil {
		t.Fatal(err)
	}
	put := settings.Writable()
	put.Config["core.https_address"] = address
	if err := server.UpdateServer(put, etag); err != nil {
		t.Fatal(err)
	}
	remote, err := lxdclient.ConnectLXDWithContext(t.Context(), "https://"+address, &lxdclient.ConnectionArgs{
		HTTPClient: &http.Client{Timeout: lxd.CallTimeout}, Proxy: f.config.Proxy, TLSServerCert: settings.Environment.Certificate, SkipGetServer: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer remote.Disconnect()
	seen, _, err := remote.GetServer()
	if err != nil {
		t.Fatal(err)
	}
	if seen.Auth != "untrusted" {
		t.Errorf("over the network we are %s", seen.Auth)
	}
}

func (f *hostFlow) checkRights(t *testing.T) {
	admin := kubernetes.NewForConfigOrDie(f.config)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "nobody"}}
	if _, err := admin.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	request, err := admin.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(f.config)
	config.BearerToken = request.Status.Token
	nobody := kubernetes.NewForConfigOrDie(config)
	review, err := nobody.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := review.Status.UserInfo.Username; got != "system:serviceaccount:default:nobody" {
		t.Errorf("the token is %q's", got)
	}
	for _, namespace := range []string{"default", metav1.NamespaceSystem} {
		if _, err := nobody.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("without rights, pods of %s: %v, want forbidden", namespace, err)
		}
	}
	nobodyKnown := kubernetes.NewForConfigOrDie(rest.AnonymousClientConfig(f.config))
	if _, err := nobodyKnown.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		t.Errorf("without a name, secrets: %v, want a refusal", err)
	}
}

func (f *hostFlow) checkDaemonSet(t *testing.T) {
	labels := map[string]string{"app": "probe"}
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sandbox.Namespace}},
		&appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.Namespace, Name: "probe"},
			Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					Containers:  []corev1.Container{{Name: "probe", Image: "probe", Command: []string{"/lxd-initializer", "--help"}}},
				},
			}},
		},
	}
	for _, object := range objects {
		if err := f.workload.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	f.awaitPod(t)
}

// awaitPod waits until the DaemonSet's pod is on the node, and one of its containers has run there.
func (f *hostFlow) awaitPod(t *testing.T) {
	t.Helper()
	if err := sandbox.WaitFor(within(t, 3*time.Minute), "the pod", func() (bool, string, error) {
		pods := &corev1.PodList{}
		if err := f.workload.List(t.Context(), pods, client.InNamespace(sandbox.Namespace)); err != nil {
			return false, "", err
		}
		if len(pods.Items) != 1 || len(pods.Items[0].Status.ContainerStatuses) == 0 {
			return false, fmt.Sprint(pods.Items), nil
		}
		pod := pods.Items[0]
		ran := pod.Status.ContainerStatuses[0]
		done := ran.RestartCount > 0 || ran.State.Terminated != nil || ran.LastTerminationState.Terminated != nil
		return done && pod.Spec.NodeName == f.machine.Hostname, fmt.Sprint(pod.Status), nil
	}); err != nil {
		t.Fatal(err)
	}
}

// checkPower cuts the power of the machine: the node, its LXD and its pods stop, and come back.
func (f *hostFlow) checkPower(t *testing.T) {
	daemon := f.LXD(f.machine.SystemID)
	f.power(t, f.machine, "off")
	f.awaitDown(t)
	if conn, err := daemon.Dial(t.Context(), "tcp", "127.0.0.1:8443"); err == nil {
		_ = conn.Close()
		t.Error("LXD has power")
	}
	f.power(t, f.machine, "on")
	f.awaitNode(t, f.machine, corev1.ConditionTrue)
	f.awaitKubelet(t)
	if got := f.LXD(f.machine.SystemID); got != daemon {
		t.Error("the machine has another LXD than before")
	}
	lxdtest.Connect(t, daemon.Socket())
}

// awaitDown waits until no server responds as the cluster any more.
func (f *hostFlow) awaitDown(t *testing.T) {
	t.Helper()
	if err := sandbox.WaitFor(within(t, 3*time.Minute), "the cluster to be down", func() (bool, string, error) {
		err := f.workload.List(t.Context(), &corev1.NodeList{})
		return err != nil && len(f.HostNodes()) == 0, fmt.Sprint(err), nil
	}); err != nil {
		t.Fatal(err)
	}
}

// checkEnd deletes the cluster with everything that belongs to it.
func (f *hostFlow) checkEnd(t *testing.T) {
	daemon := f.LXD(f.machine.SystemID)
	if err := f.DeleteCluster(within(t, 3*time.Minute), f.name); err != nil {
		t.Fatal(err)
	}
	if got := f.LXD(f.machine.SystemID); got != nil {
		t.Error("a released machine has LXD")
	}
	if _, err := lxd.Connect(t.Context(), daemon.Socket()); err == nil {
		t.Error("the LXD of a released machine answers")
	}
}
