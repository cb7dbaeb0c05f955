// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/kubelet"
)

// agentSocket is where the nodes' agent has its socket, as far as pods know.
const agentSocket = "/var/lib/vendor/agent/common/unix.socket"

// lateDir is a directory that the second node can have, and makes for the first pod that wants it.
const lateDir = "/var/lib/late"

// agent serves a socket that sends a word to each client that connects.
func agent(t *testing.T, file, word string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(connection, word)
			_ = connection.Close()
		}
	}()
}

// shortDir is a directory in which a socket's path stays below the limit of 108 bytes.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "node") //nolint:usetesting // t.TempDir is too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func hostVolume(path string, kind corev1.HostPathType) corev1.Volume {
	return corev1.Volume{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}}
}

func fieldVariable(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

// program is a pod that runs the test's program.
func program() corev1.PodSpec {
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To(int64(5)),
		Containers: []corev1.Container{{
			Name: "main", Image: "none", Command: []string{"/program", podArgument}, Args: []string{"/none", "127.0.0.1:8080"},
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromString("http")},
			}},
		}},
	}
}

// daemonSet runs on every node, with the node's socket.
func daemonSet() *appsv1.DaemonSet {
	labels := map[string]string{"app": "agent"}
	spec := program()
	spec.Volumes = []corev1.Volume{hostVolume(agentSocket, corev1.HostPathSocket)}
	main := &spec.Containers[0]
	main.VolumeMounts = []corev1.VolumeMount{{Name: "host", MountPath: agentSocket}}
	main.Env = []corev1.EnvVar{
		fieldVariable("NODE_NAME", "spec.nodeName"), fieldVariable("NODE_IP", "status.hostIP"),
		{Name: "LISTEN", Value: "$(NODE_IP):8443"}, {Name: "SOCKET", Value: agentSocket},
	}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: namespace},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
}

// two are the nodes: the first registers itself, another component makes the second, and its agent comes late.
type two struct {
	*cluster
	whole         *testing.T // processes that a part of the test starts stay until its end
	first, second *kubelet.Kubelet
	options       kubelet.Options // of the second
	socket        string          // of the second's agent
}

func startTwo(t *testing.T) *two {
	t.Helper()
	socket := filepath.Join(shortDir(t), "unix.socket")
	agent(t, socket, "agent of one")
	c := &two{whole: t, cluster: startControlPlane(t), socket: filepath.Join(shortDir(t), "unix.socket")}
	c.first = c.node(t, kubelet.Options{NodeName: "one", HostIP: "10.1.0.1", HostPaths: map[string]string{agentSocket: socket}})
	c.options = kubelet.Options{
		NodeName: "two", NodeExists: true, HostIP: "10.1.0.2",
		HostPaths: map[string]string{filepath.Dir(agentSocket): filepath.Dir(c.socket), lateDir: filepath.Join(shortDir(t), "d")},
	}
	c.startSecond()
	return c
}

func (c *two) startSecond() { c.second = c.node(c.whole, c.options) }

func (c *two) stopSecond(t *testing.T) {
	t.Helper()
	if err := c.second.Stop(); err != nil {
		t.Fatal(err)
	}
}

func TestTwoNodes(t *testing.T) {
	c := startTwo(t)
	if _, err := c.client.AppsV1().DaemonSets(namespace).Create(t.Context(), daemonSet(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "two"}}
	if _, err := c.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.setTaints(t, nil) // the API server gives a new node one
	t.Run("a missing socket is waited for", func(t *testing.T) { c.checkLateSocket(t) })
	t.Run("each pod has its own node", func(t *testing.T) { c.checkOwnNode(t) })
	t.Run("a plain pod runs on one of them", func(t *testing.T) { c.checkPlainPod(t) })
	t.Run("a taint keeps pods away until it is gone", func(t *testing.T) { c.checkTaint(t) })
	t.Run("a hostPath that the node has not is refused", func(t *testing.T) { c.checkRefused(t) })
	t.Run("a directory is made", func(t *testing.T) { c.checkDirectory(t) })
	t.Run("one pod can be killed", func(t *testing.T) { c.checkKillOne(t) })
	t.Run("a kubelet that starts again runs its pods", func(t *testing.T) { c.checkRestart(t) })
	t.Run("delete", func(t *testing.T) { c.checkDeletion(t) })
}

func (c *two) setTaints(t *testing.T, taints []corev1.Taint) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": taints}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.CoreV1().Nodes().Patch(t.Context(), "two", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// agentOf waits for the one pod of the DaemonSet on a node.
func (c *two) agentOf(t *testing.T, node string, accept func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	if err := poll(t, func(ctx context.Context) (bool, error) {
		pods, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=agent", FieldSelector: "spec.nodeName=" + node})
		if err != nil || len(pods.Items) != 1 {
			return false, err
		}
		found = &pods.Items[0]
		return accept(found), nil
	}); err != nil {
		t.Fatalf("the agent of node %s: %v: %v", node, err, statusOf(found))
	}
	return found
}

func statusOf(pod *corev1.Pod) string {
	if pod == nil {
		return "no pod"
	}
	return pod.Status.String()
}

func ready(pod *corev1.Pod) bool {
	return len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].Ready
}

func refused(pod *corev1.Pod) bool {
	if len(pod.Status.ContainerStatuses) != 1 {
		return false
	}
	waiting := pod.Status.ContainerStatuses[0].State.Waiting
	return waiting != nil && waiting.Reason == "CreateContainerConfigError" && waiting.Message != ""
}

func (c *two) checkLateSocket(t *testing.T) {
	c.agentOf(t, "two", refused)
	if err := os.WriteFile(c.socket, nil, 0o600); err != nil { // no socket
		t.Fatal(err)
	}
	c.agentOf(t, "two", refused)
	if err := os.Remove(c.socket); err != nil {
		t.Fatal(err)
	}
	agent(c.whole, c.socket, "agent of two")
	c.agentOf(t, "two", ready)
}

func (c *two) checkOwnNode(t *testing.T) {
	for node, k := range map[string]*kubelet.Kubelet{"one": c.first, "two": c.second} {
		pod := c.agentOf(t, node, ready)
		containers := k.Containers()
		if len(containers) != 1 || containers[0].Pod != pod.Name || containers[0].Node != node {
			t.Fatalf("containers of node %s = %+v, want one, of pod %s", node, containers, pod.Name)
		}
		ip := map[string]string{"one": "10.1.0.1", "two": "10.1.0.2"}[node]
		if pod.Status.HostIP != ip || pod.Status.PodIP != "127.0.0.1" {
			t.Errorf("pod of node %s: host %s, pod %s", node, pod.Status.HostIP, pod.Status.PodIP)
		}
		r := ask(t, containers[0])
		if want := "agent of " + node; r.Socket != want {
			t.Errorf("node %s: the socket %s says %q, want %q", node, r.Env["SOCKET"], r.Socket, want)
		}
		for name, want := range map[string]string{"NODE_NAME": node, "NODE_IP": ip, "LISTEN": ip + ":8443"} {
			if r.Env[name] != want {
				t.Errorf("node %s: %s = %q, want %q", node, name, r.Env[name], want)
			}
		}
	}
}

// create makes a pod.
func (c *two) create(t *testing.T, name string, spec corev1.PodSpec) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	if _, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := c.client.CoreV1().Pods(namespace).Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))})
		if err != nil {
			t.Error(err)
		}
	})
}

func (c *two) await(t *testing.T, name string, accept func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	if err := poll(t, func(ctx context.Context) (found bool, err error) {
		pod, err = c.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		return err == nil && accept(pod), err
	}); err != nil {
		t.Fatalf("pod %s: %v: %v", name, err, statusOf(pod))
	}
	return pod
}

func (c *two) checkPlainPod(t *testing.T) {
	c.create(t, "plain", program())
	pod := c.await(t, "plain", ready)
	containers := slices.DeleteFunc(slices.Concat(c.first.Containers(), c.second.Containers()), func(c kubelet.Container) bool { return c.Pod != "plain" })
	if len(containers) != 1 || containers[0].Node != pod.Spec.NodeName {
		t.Errorf("containers = %+v, want one on node %s", containers, pod.Spec.NodeName)
	}
}

func (c *two) checkTaint(t *testing.T) {
	taint := corev1.Taint{Key: "special", Effect: corev1.TaintEffectNoSchedule}
	c.stopSecond(t)
	c.setTaints(t, []corev1.Taint{taint})
	c.startSecond() // it knows the taint from the beginning
	onTwo := program()
	onTwo.Affinity = daemonAffinity("two")
	tolerant := *onTwo.DeepCopy()
	tolerant.Tolerations = []corev1.Toleration{{Key: taint.Key, Operator: corev1.TolerationOpExists}}
	// Pods are checked one after the other: when the second runs, the first was checked.
	c.create(t, "intolerant", onTwo)
	c.create(t, "tolerant", tolerant)
	c.await(t, "tolerant", ready)
	if pod := c.await(t, "intolerant", func(*corev1.Pod) bool { return true }); pod.Spec.NodeName != "" {
		t.Errorf("the pod that does not tolerate the taint is bound to %s", pod.Spec.NodeName)
	}
	c.setTaints(t, nil)
	if pod := c.await(t, "intolerant", ready); pod.Spec.NodeName != "two" {
		t.Errorf("the pod is on %s", pod.Spec.NodeName)
	}
}

// daemonAffinity is how the DaemonSet controller assigns a pod to a node.
func daemonAffinity(node string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
		}}},
	}}}
}

func (c *two) checkRefused(t *testing.T) {
	for name, volume := range map[string]corev1.Volume{
		"unknown-path": hostVolume("/etc", corev1.HostPathDirectory),
		"unknown-type": hostVolume(agentSocket, corev1.HostPathFileOrCreate),
	} {
		spec := program()
		spec.Volumes = []corev1.Volume{volume}
		spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "host", MountPath: "/host"}}
		c.create(t, name, spec)
		c.await(t, name, refused)
	}
}

// checkDirectory has two pods, one on each node, wait for a socket in a directory that is made for them. The first node
// can't have it.
func (c *two) checkDirectory(t *testing.T) {
	reports := map[string]func() report{}
	for node, k := range map[string]*kubelet.Kubelet{"one": c.first, "two": c.second} {
		spec := program()
		spec.Affinity = daemonAffinity(node)
		spec.Volumes = []corev1.Volume{hostVolume(lateDir, corev1.HostPathDirectoryOrCreate)}
		spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "host", MountPath: lateDir, ReadOnly: true}}
		spec.Containers[0].Env = []corev1.EnvVar{{Name: "SOCKET", Value: lateDir + "/unix.socket"}}
		c.create(t, "late-"+node, spec)
		c.await(t, "late-"+node, ready)
		reports[node] = func() report {
			for _, container := range k.Containers() {
				if container.Pod == "late-"+node {
					return ask(t, container)
				}
			}
			t.Fatalf("the pod of node %s does not run", node)
			return report{}
		}
	}
	const word = "late agent"
	if r := reports["two"](); r.Socket == word {
		t.Errorf("before there is a socket at %s, it says %q", r.Env["SOCKET"], r.Socket)
	}
	agent(c.whole, filepath.Join(c.options.HostPaths[lateDir], "unix.socket"), word)
	for node, want := range map[string]bool{"one": false, "two": true} {
		if r := reports[node](); (r.Socket == word) != want {
			t.Errorf("node %s: the socket %s says %q", node, r.Env["SOCKET"], r.Socket)
		}
	}
}

func (c *two) checkKillOne(t *testing.T) {
	pod := c.agentOf(t, "one", ready)
	if err := c.first.Kill("main", "another"); !errors.Is(err, kubelet.ErrNotRunning) {
		t.Errorf("Kill = %v, want %v", err, kubelet.ErrNotRunning)
	}
	if err := c.first.Kill("main", pod.Name); err != nil {
		t.Fatal(err)
	}
	c.agentOf(t, "one", func(pod *corev1.Pod) bool { return ready(pod) && pod.Status.ContainerStatuses[0].RestartCount == 1 })
}

func (c *two) checkRestart(t *testing.T) {
	before := c.agentOf(t, "two", ready)
	restarts := before.Status.ContainerStatuses[0].RestartCount
	c.stopSecond(t)
	c.startSecond()
	after := c.agentOf(t, "two", func(pod *corev1.Pod) bool {
		return ready(pod) && pod.Status.ContainerStatuses[0].RestartCount == restarts+1
	})
	if after.UID != before.UID {
		t.Errorf("another pod runs: %s, want %s", after.Name, before.Name)
	}
	if containers := c.second.Containers(); len(containers) != 1 || ask(t, containers[0]).Socket != "agent of two" {
		t.Errorf("containers = %+v", containers)
	}
}

// checkDeletion deletes a pod while its kubelet is away, and then the DaemonSet.
func (c *two) checkDeletion(t *testing.T) {
	gone := c.agentOf(t, "two", ready).UID
	c.stopSecond(t)
	foreground := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}
	if err := c.client.AppsV1().DaemonSets(namespace).Delete(t.Context(), "agent", foreground); err != nil {
		t.Fatal(err)
	}
	left := func(ctx context.Context) ([]types.UID, error) {
		pods, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=agent"})
		if err != nil {
			return nil, err
		}
		var uids []types.UID
		for _, pod := range pods.Items {
			uids = append(uids, pod.UID)
		}
		return uids, nil
	}
	if err := poll(t, func(ctx context.Context) (bool, error) {
		uids, err := left(ctx)
		return slices.Equal(uids, []types.UID{gone}), err
	}); err != nil {
		t.Errorf("the pod of the node that is there is not gone, or the other is: %v", err)
	}
	c.startSecond()
	if err := poll(t, func(ctx context.Context) (bool, error) {
		uids, err := left(ctx)
		return len(uids) == 0 && len(c.first.Containers())+len(c.second.Containers()) == 0, err
	}); err != nil {
		t.Errorf("pods are left: %v", err)
	}
}
