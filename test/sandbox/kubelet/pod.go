// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// refreshInterval is how often volumes are compared with their sources; a real kubelet takes up to a minute.
const refreshInterval = time.Second

// pod is one pod that runs here.
type pod struct {
	kubelet    *Kubelet
	spec       *corev1.Pod
	dir        string
	token      token
	volumes    sync.Mutex // one writes them at a time
	containers []*container
	// changed asks for the status to be written.
	changed chan struct{}
	// ending is closed when the pod has to end; grace is set before.
	ending   chan struct{}
	endOnce  sync.Once
	grace    time.Duration
	reported corev1.PodStatus
}

func newPod(k *Kubelet, spec *corev1.Pod) *pod {
	p := &pod{
		kubelet: k,
		spec:    spec.DeepCopy(),
		dir:     filepath.Join(k.options.Dir, string(spec.UID)),
		changed: make(chan struct{}, 1),
		ending:  make(chan struct{}),
	}
	for _, c := range spec.Spec.Containers {
		p.containers = append(p.containers, newContainer(p, c))
	}
	return p
}

// end asks the pod to end. The first call counts.
func (p *pod) end(grace time.Duration) {
	p.endOnce.Do(func() {
		p.grace = grace
		close(p.ending)
	})
}

func (p *pod) notify() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// run runs the containers and reports their status until the pod ends. One whose containers have all ended for good
// stays until it is deleted.
func (p *pod) run(ctx context.Context) {
	log := p.kubelet.options.Logger.WithValues("pod", p.spec.Name)
	log.Info("Pod starts")
	defer func() { _ = os.RemoveAll(p.dir) }()
	var running sync.WaitGroup
	for _, c := range p.containers {
		running.Go(func() { c.run(ctx) })
	}
	ended := make(chan struct{})
	go func() {
		running.Wait()
		close(ended)
	}()
	tick := time.NewTicker(refreshInterval)
	defer tick.Stop()
	for {
		select {
		case <-p.changed:
		case <-tick.C:
			if err := p.refreshVolumes(ctx); err != nil && ctx.Err() == nil {
				log.V(1).Info("Volumes are not up to date", "reason", err.Error())
			}
		case <-ended:
			if p.completed() {
				p.stay(ctx)
			}
			p.finish(ctx)
			log.Info("Pod ended")
			return
		}
		if err := p.report(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "Reporting the status")
			p.notify()
		}
	}
}

// completed reports whether all containers have ended for good.
func (p *pod) completed() bool {
	return !slices.ContainsFunc(p.containers, func(c *container) bool { return c.finalState() == nil })
}

// stay reports how the pod ended, and waits until it is deleted.
func (p *pod) stay(ctx context.Context) {
	tick := time.NewTicker(refreshInterval)
	defer tick.Stop()
	for {
		if err := p.report(ctx); err != nil && ctx.Err() == nil {
			p.kubelet.options.Logger.Error(err, "Reporting the status", "pod", p.spec.Name)
		}
		select {
		case <-p.ending:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// finish reports to the API that a deleted pod is gone. It reports nothing when the kubelet itself stops.
func (p *pod) finish(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	options := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(p.spec.UID))}
	err := p.kubelet.client.CoreV1().Pods(p.spec.Namespace).Delete(ctx, p.spec.Name, options)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
		p.kubelet.options.Logger.Error(err, "Removing an ended pod", "pod", p.spec.Name)
	}
}

// unsupported returns an error if the pod needs something that is not supported.
func (p *pod) unsupported() error {
	if len(p.spec.Spec.InitContainers) > 0 {
		return fmt.Errorf("init containers are not supported")
	}
	for _, c := range p.spec.Spec.Containers {
		for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			if probe != nil && probe.HTTPGet == nil {
				return fmt.Errorf("container %s: only httpGet probes are supported", c.Name)
			}
		}
	}
	return nil
}

// report writes the pod's status when it changed.
func (p *pod) report(ctx context.Context) error {
	status := p.status()
	if equality.Semantic.DeepEqual(status, p.reported) {
		return nil
	}
	pods := p.kubelet.client.CoreV1().Pods(p.spec.Namespace)
	current, err := pods.Get(ctx, p.spec.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || (err == nil && current.UID != p.spec.UID) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the pod: %w", err)
	}
	updated := current.DeepCopy()
	qos := updated.Status.QOSClass
	updated.Status = status
	updated.Status.QOSClass = qos
	if _, err := pods.UpdateStatus(ctx, updated, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("writing the pod's status: %w", err)
	}
	p.reported = status
	return nil
}

func (p *pod) status() corev1.PodStatus {
	status := corev1.PodStatus{
		HostIP:    p.kubelet.options.HostIP,
		PodIP:     loopback,
		PodIPs:    []corev1.PodIP{{IP: loopback}},
		HostIPs:   []corev1.HostIP{{IP: p.kubelet.options.HostIP}},
		StartTime: p.spec.CreationTimestamp.DeepCopy(),
	}
	for _, c := range p.containers {
		status.ContainerStatuses = append(status.ContainerStatuses, c.status())
	}
	status.Phase = phaseOf(status.ContainerStatuses)
	unready := slices.IndexFunc(status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return !c.Ready })
	status.Conditions = []corev1.PodCondition{
		p.condition(corev1.PodScheduled, true),
		p.condition(corev1.PodInitialized, true),
		p.condition(corev1.ContainersReady, unready < 0),
		p.condition(corev1.PodReady, unready < 0),
	}
	return status
}

// phaseOf sums up the containers of a pod.
func phaseOf(containers []corev1.ContainerStatus) corev1.PodPhase {
	ended, failed, begun := 0, false, false
	for _, c := range containers {
		if end := c.State.Terminated; end != nil {
			ended++
			failed = failed || end.ExitCode != 0
		}
		begun = begun || c.State.Running != nil || c.State.Terminated != nil || c.RestartCount > 0
	}
	switch {
	case ended == len(containers) && failed:
		return corev1.PodFailed
	case ended == len(containers):
		return corev1.PodSucceeded
	case begun:
		return corev1.PodRunning
	default:
		return corev1.PodPending
	}
}

// condition keeps the time of the last transition from the previous report.
func (p *pod) condition(kind corev1.PodConditionType, holds bool) corev1.PodCondition {
	condition := corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, LastTransitionTime: metav1.Now().Rfc3339Copy()}
	if holds {
		condition.Status = corev1.ConditionTrue
	} else {
		condition.Reason = "ContainersNotReady"
	}
	for _, last := range p.reported.Conditions {
		if last.Type == kind && last.Status == condition.Status {
			condition.LastTransitionTime = last.LastTransitionTime
		}
	}
	return condition
}
