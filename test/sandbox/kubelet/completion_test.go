// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/kubelet"
)

// endArgument makes the program end at once, with one exit code after the other: the last argument of all.
const endArgument = "end-as-pod"

// endAsTold determines which of its runs in this pod it is, and ends with the exit code for it.
func endAsTold(codes []string) {
	file := filepath.Join(os.Getenv("HOME"), "runs")
	runs, _ := os.ReadFile(file) // None before the first.
	if err := os.WriteFile(file, append(runs, '.'), 0o600); err != nil {
		panic(err)
	}
	fmt.Println("run", len(runs))
	code, err := strconv.Atoi(codes[min(len(runs), len(codes)-1)])
	if err != nil {
		panic(err)
	}
	os.Exit(code)
}

// ended is how a container did.
type ended struct {
	ExitCode        int32
	Reason, Message string
	Restarts        int32
}

func endingPod(name string, policy corev1.RestartPolicy, exitCodes ...[]string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{RestartPolicy: policy}}
	for i, codes := range exitCodes {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: "c" + strconv.Itoa(i), Image: "none", Command: []string{"/program", endArgument}, Args: codes,
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		})
	}
	return pod
}

// awaitPhase waits until a pod is in a phase, and returns it.
func (c *cluster) awaitPhase(t *testing.T, name string, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	err := poll(t, func(ctx context.Context) (bool, error) {
		var err error
		pod, err = c.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		return err == nil && pod.Status.Phase == phase, err
	})
	if err != nil {
		t.Fatalf("waiting for %s to be %s: %v; its status is %v", name, phase, err, pod.Status.String())
	}
	return pod
}

// Pods that are not restarted end as their processes do, report that, and disappear when they are deleted.
func TestPodsThatEnd(t *testing.T) {
	c := startControlPlane(t)
	first := c.node(t, kubelet.Options{})
	tests := map[string]struct {
		pod   *corev1.Pod
		phase corev1.PodPhase
		want  []ended
	}{
		"success": {endingPod("success", corev1.RestartPolicyNever, []string{"0"}), corev1.PodSucceeded, []ended{{0, "Completed", "", 0}}},
		"failure": {endingPod("failure", corev1.RestartPolicyNever, []string{"3"}), corev1.PodFailed, []ended{{3, "Error", "run 0\n", 0}}},
		"one of two fails": {
			endingPod("two", corev1.RestartPolicyNever, []string{"0"}, []string{"4"}), corev1.PodFailed, nil, // They share a count of runs.
		},
		"success after failures": {
			endingPod("retry", corev1.RestartPolicyOnFailure, []string{"1", "2", "0"}), corev1.PodSucceeded, []ended{{0, "Completed", "", 2}},
		},
	}
	for _, tt := range tests {
		if _, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), tt.pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := c.awaitPhase(t, tt.pod.Name, tt.phase)
			var got []ended
			for _, status := range pod.Status.ContainerStatuses {
				if status.Ready || status.State.Terminated == nil {
					t.Fatalf("a container that has ended is %s", status.String())
				}
				got = append(got, ended{status.State.Terminated.ExitCode, status.State.Terminated.Reason, status.State.Terminated.Message, status.RestartCount})
			}
			if diff := cmp.Diff(tt.want, got); tt.want != nil && diff != "" {
				t.Errorf("how the containers ended (-want +got):\n%s", diff)
			}
		})
	}

	c.checkMadeAnew(t)
	c.checkNextKubelet(t, first)
}

// checkMadeAnew: a pod is made again under the same name, as helm test does; its logs are separate from those of the
// first one.
func (c *cluster) checkMadeAnew(t *testing.T) {
	t.Helper()
	const name = "failure"
	if err := c.client.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	again := endingPod(name, corev1.RestartPolicyNever, []string{"5"})
	if err := poll(t, func(ctx context.Context) (bool, error) {
		_, err := c.client.CoreV1().Pods(namespace).Create(ctx, again, metav1.CreateOptions{})
		return err == nil, ignoreExisting(err)
	}); err != nil {
		t.Fatal(err)
	}
	end := c.awaitPhase(t, name, corev1.PodFailed).Status.ContainerStatuses[0].State.Terminated
	if end.ExitCode != 5 || end.Message != "run 0\n" {
		t.Errorf("the new pod ended with %s", end.String())
	}
}

// checkNextKubelet: another kubelet of the node leaves ended pods alone, and reports one that ran as lost.
func (c *cluster) checkNextKubelet(t *testing.T, before *kubelet.Kubelet) {
	t.Helper()
	spec := program()
	spec.RestartPolicy = corev1.RestartPolicyNever
	lost := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lost"}, Spec: spec}
	if _, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), lost, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitPhase(t, lost.Name, corev1.PodRunning)
	if err := before.Stop(); err != nil {
		t.Fatal(err)
	}
	next := c.node(t, kubelet.Options{})
	pod := c.awaitPhase(t, lost.Name, corev1.PodFailed)
	if end := pod.Status.ContainerStatuses[0].State.Terminated; end.ExitCode == 0 {
		t.Errorf("a pod that was lost ended with %s", end.String())
	}
	for _, container := range next.Containers() {
		if container.PID != 0 || container.Pod != lost.Name {
			t.Errorf("%s, which had ended, is run once more", container.Pod)
		}
	}
}

func ignoreExisting(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
