// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/controlplane"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/kubelet"
)

// The test binary is also the program that the pods run, selected by an argument that only pods have.
const podArgument = "run-as-pod"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == podArgument {
		beTheProgram()
	}
	if len(os.Args) > 1 && os.Args[1] == endArgument {
		endAsTold(os.Args[2:])
	}
	os.Exit(m.Run())
}

// report is the program's report from the pod, in the file that its variable REPORT names.
type report struct {
	PID     int
	Args    []string
	Env     map[string]string
	Files   map[string]string
	WhoAmI  string
	Forbade bool
	Socket  string // read from the socket that the variable SOCKET names, at each request
}

func beTheProgram() {
	r := report{PID: os.Getpid(), Args: os.Args[2:], Env: map[string]string{}, Files: map[string]string{}}
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		r.Env[name] = value
	}
	mounted, _ := filepath.Glob(filepath.Join(os.Args[2], "*", "*"))
	for _, file := range mounted {
		if data, err := os.ReadFile(file); err == nil {
			r.Files[filepath.Base(file)] = string(data)
		}
	}
	r.WhoAmI, r.Forbade = askAPI()
	http.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
		r := r
		if socket := os.Getenv("SOCKET"); socket != "" {
			r.Socket = readSocket(socket)
		}
		_ = json.NewEncoder(w).Encode(r)
	})
	panic(http.ListenAndServe(os.Args[3], nil)) // a test
}

func readSocket(file string) string {
	connection, err := (&net.Dialer{}).DialContext(context.Background(), "unix", file)
	if err != nil {
		return err.Error()
	}
	text, err := io.ReadAll(connection)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// askAPI returns the user of the pod's token, and whether it is forbidden to do what only an administrator may.
func askAPI() (user string, forbidden bool) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err.Error(), false
	}
	_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Secrets("kube-system").List(context.Background(), metav1.ListOptions{})
	status := apierrors.APIStatus(nil)
	if errors.As(err, &status) {
		return status.Status().Message, apierrors.IsForbidden(err)
	}
	return "", false
}

const namespace = "pods"

type cluster struct {
	controlPlane *controlplane.ControlPlane
	client       kubernetes.Interface
	kubelet      *kubelet.Kubelet
}

func start(t *testing.T) *cluster {
	t.Helper()
	c := startControlPlane(t)
	c.kubelet = c.node(t, kubelet.Options{})
	return c
}

func startControlPlane(t *testing.T) *cluster {
	t.Helper()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Dir: t.TempDir(), LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cp.Stop() })
	client := kubernetes.NewForConfigOrDie(cp.RESTConfig())
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return &cluster{controlPlane: cp, client: client}
}

// node starts a kubelet. What the options leave out is the same for all.
func (c *cluster) node(t *testing.T, options kubelet.Options) *kubelet.Kubelet {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	options.Config, options.CA, options.Namespace = c.controlPlane.RESTConfig(), c.controlPlane.CA(), namespace
	options.Programs, options.Dir, options.LogDir = map[string]string{"/program": program}, t.TempDir(), t.TempDir()
	options.Logger = logr.Discard()
	k, err := kubelet.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Stop(); err != nil {
			t.Error(err)
		}
	})
	return k
}

func deployment() *appsv1.Deployment {
	labels := map[string]string{"app": "program"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "program", Namespace: namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(2)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To(int64(5)),
					Containers: []corev1.Container{{
						Name: "main", Image: "none", Command: []string{"/program", podArgument},
						Args: []string{"/etc/mounted", "127.0.0.1:8080", "--name=$(NAME)", "$$(NAME)", "$(MISSING)"},
						Env: []corev1.EnvVar{
							{Name: "NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}},
							{Name: "SECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
								LocalObjectReference: corev1.LocalObjectReference{Name: "given"}, Key: "word",
							}}},
							{Name: "OPTIONAL", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
								LocalObjectReference: corev1.LocalObjectReference{Name: "missing"}, Key: "word", Optional: ptr.To(true),
							}}},
							{Name: "LIMIT", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory"}}},
						},
						Resources:    corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}},
						Ports:        []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
						VolumeMounts: []corev1.VolumeMount{{Name: "given", MountPath: "/etc/mounted/given"}, {Name: "optional", MountPath: "/etc/mounted/optional"}},
						ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
							HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromString("http")},
						}},
					}},
					Volumes: []corev1.Volume{
						{Name: "given", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "given"}}},
						{Name: "optional", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
							LocalObjectReference: corev1.LocalObjectReference{Name: "missing"}, Optional: ptr.To(true),
						}}},
					},
				},
			},
		},
	}
}

func TestDeployment(t *testing.T) {
	c := start(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "given"}, Data: map[string][]byte{"word": []byte("first")}}
	secret, err := c.client.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOT_FOR_PODS", "1")
	if _, err := c.client.AppsV1().Deployments(namespace).Create(t.Context(), deployment(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitReplicas(t, 2)
	if containers := c.kubelet.Containers(); len(containers) != 2 || containers[0].PID == containers[1].PID {
		t.Fatalf("containers = %+v, want two processes", containers)
	}
	t.Run("process", func(t *testing.T) { c.checkReport(t) })
	t.Run("refresh", func(t *testing.T) { c.checkRefresh(t, secret) })
	t.Run("kill", func(t *testing.T) { c.checkKill(t) })
	t.Run("rollout", func(t *testing.T) { c.checkRollout(t) })
	t.Run("delete", func(t *testing.T) { c.checkDelete(t) })
}

func (c *cluster) awaitReplicas(t *testing.T, want int32) {
	t.Helper()
	last := ""
	err := poll(t, func(ctx context.Context) (bool, error) {
		d, err := c.client.AppsV1().Deployments(namespace).Get(ctx, "program", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		last = d.Status.String()
		status := d.Status
		return status.ObservedGeneration == d.Generation && status.AvailableReplicas == want && status.UpdatedReplicas == want && status.Replicas == want, nil
	})
	if err != nil {
		t.Fatalf("%v: %s", err, last)
	}
}

func poll(t *testing.T, check wait.ConditionWithContextFunc) error {
	t.Helper()
	return wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 3*time.Minute, true, check)
}

// ask reads the report of a container from the port that it really has.
func ask(t *testing.T, container kubelet.Container) report {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(container.PID), "cmdline"))
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Split(string(data), "\x00")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+words[3]+"/ready", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	r := report{}
	if err := json.NewDecoder(response.Body).Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r
}

func (c *cluster) checkReport(t *testing.T) {
	container := c.kubelet.Containers()[0]
	r := ask(t, container)
	if r.PID != container.PID {
		t.Errorf("process %d answers, want %d", r.PID, container.PID)
	}
	if diff := cmp.Diff([]string{"--name=pods", "$(NAME)", "$(MISSING)"}, r.Args[2:]); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	if strings.HasSuffix(r.Args[1], ":8080") {
		t.Errorf("the port is not mapped: %s", r.Args[1])
	}
	if r.Files["word"] != "first" {
		t.Errorf("mounted files = %v", r.Files)
	}
	for name, want := range map[string]string{"NAME": "pods", "SECRET": "first", "OPTIONAL": "", "LIMIT": "67108864", "NOT_FOR_PODS": ""} {
		if r.Env[name] != want {
			t.Errorf("%s = %q, want %q", name, r.Env[name], want)
		}
	}
	if !r.Forbade || !strings.Contains(r.WhoAmI, "system:serviceaccount:pods:default") {
		t.Errorf("the pod's identity: forbidden %v: %s", r.Forbade, r.WhoAmI)
	}
}

func (c *cluster) checkRefresh(t *testing.T, secret *corev1.Secret) {
	mounted := ask(t, c.kubelet.Containers()[0]).Args[0]
	secret.Data["word"], secret.Data["more"] = []byte("second"), []byte("x")
	if _, err := c.client.CoreV1().Secrets(namespace).Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := poll(t, func(context.Context) (bool, error) {
		word, err1 := os.ReadFile(filepath.Join(mounted, "given", "word"))
		more, err2 := os.ReadFile(filepath.Join(mounted, "given", "more"))
		return err1 == nil && err2 == nil && string(word) == "second" && string(more) == "x", nil
	}); err != nil {
		t.Errorf("the mounted Secret is not renewed: %v", err)
	}
}

func (c *cluster) checkKill(t *testing.T) {
	before := c.kubelet.Containers()[0]
	if err := c.kubelet.Kill("main"); err != nil {
		t.Fatal(err)
	}
	c.awaitReplicas(t, 2)
	if err := poll(t, func(ctx context.Context) (bool, error) {
		pod, err := c.client.CoreV1().Pods(namespace).Get(ctx, before.Pod, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		status := pod.Status.ContainerStatuses[0]
		return status.RestartCount == 1 && status.Ready && status.LastTerminationState.Terminated.ExitCode == 137, nil
	}); err != nil {
		t.Errorf("the pod's status does not tell of the restart: %v", err)
	}
	if err := c.kubelet.Kill("nobody"); !errors.Is(err, kubelet.ErrNotRunning) {
		t.Errorf("Kill = %v, want %v", err, kubelet.ErrNotRunning)
	}
}

// checkRollout changes the template: old and new pod must be able to run side by side.
func (c *cluster) checkRollout(t *testing.T) {
	before := map[string]bool{}
	for _, container := range c.kubelet.Containers() {
		before[container.Pod] = true
	}
	patch := []byte(`{"spec":{"template":{"metadata":{"annotations":{"changed":"yes"}}}}}`)
	if _, err := c.client.AppsV1().Deployments(namespace).Patch(t.Context(), "program", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitReplicas(t, 2)
	if err := poll(t, func(context.Context) (bool, error) {
		containers := c.kubelet.Containers()
		for _, container := range containers {
			if before[container.Pod] {
				return false, nil
			}
		}
		return len(containers) == 2, nil
	}); err != nil {
		t.Errorf("the old pods are still there: %v", err)
	}
}

func (c *cluster) checkDelete(t *testing.T) {
	foreground := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}
	if err := c.client.AppsV1().Deployments(namespace).Delete(t.Context(), "program", foreground); err != nil {
		t.Fatal(err)
	}
	if err := poll(t, func(ctx context.Context) (bool, error) {
		pods, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0 && len(c.kubelet.Containers()) == 0, err
	}); err != nil {
		t.Errorf("pods are left: %v", err)
	}
}
