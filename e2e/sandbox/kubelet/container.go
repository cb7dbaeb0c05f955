// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/capmaas/cluster-api-provider-maas/e2e/sandbox/process"
)

const (
	// A process that ends by itself is started again after a pause that doubles from the first to the longest, and is
	// the first again once the process ran for as long as backoffReset.
	backoffFirst = 500 * time.Millisecond
	backoffMost  = 10 * time.Second
	backoffReset = 20 * time.Second
)

// container is one container of a pod: at most one process at a time.
type container struct {
	pod     *pod
	spec    corev1.Container
	logFile string

	mutex      sync.Mutex
	process    *process.Process
	ports      map[int32]int32
	reserved   portMap // ports, while the process runs
	started    time.Time
	deliberate bool // the process was killed through Kill
	ready      bool
	restarts   int32
	waiting    *corev1.ContainerStateWaiting
	last       *corev1.ContainerStateTerminated
}

func newContainer(p *pod, spec corev1.Container) *container {
	c := &container{
		pod:     p,
		spec:    spec,
		logFile: filepath.Join(p.kubelet.options.LogDir, p.spec.Name+"_"+spec.Name+".log"),
		waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"},
	}
	for _, before := range p.spec.Status.ContainerStatuses {
		if before.Name == spec.Name && before.ContainerID != "" { // it ran here before this kubelet was started
			c.restarts = before.RestartCount + 1
		}
	}
	return c
}

// run starts the process again and again until the pod ends. What keeps it from being started is looked at again as
// often as volumes are.
func (c *container) run(ctx context.Context) {
	backoff, rest := backoffFirst, time.Duration(0)
	for c.goesOn(ctx, rest) {
		started := time.Now()
		if err := c.start(ctx); err != nil {
			c.wait("CreateContainerConfigError", err.Error())
			rest = refreshInterval
			continue
		}
		if c.attend(ctx) {
			return
		}
		rest = 0
		if time.Since(started) > backoffReset || c.wasDeliberate() {
			backoff = backoffFirst
		}
		if c.wasDeliberate() {
			c.setDeliberate(false)
			continue
		}
		rest, backoff = backoff, min(2*backoff, backoffMost)
	}
}

// goesOn lets some time pass, and tells whether the pod has to end instead.
func (c *container) goesOn(ctx context.Context, after time.Duration) bool {
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-c.pod.ending:
		return false
	case <-ctx.Done():
		return false
	case <-timer.C:
	}
	select {
	case <-c.pod.ending: // as long as the time was up
		return false
	default:
		return true
	}
}

func (c *container) start(ctx context.Context) error {
	if err := c.pod.unsupported(); err != nil {
		return err
	}
	if err := c.pod.refreshVolumes(ctx); err != nil {
		return err
	}
	reserved, err := mapPorts(c.spec.Ports)
	if err != nil {
		return err
	}
	ports := reserved.numbers()
	spec, err := c.processSpec(ports)
	if err != nil {
		return errors.Join(err, reserved.release())
	}
	p, err := process.Start(spec)
	if err != nil {
		return errors.Join(err, reserved.release())
	}
	c.mutex.Lock()
	c.process, c.ports, c.reserved = p, ports, reserved
	c.started, c.waiting, c.ready = time.Now(), nil, c.spec.ReadinessProbe == nil
	c.mutex.Unlock()
	c.pod.notify()
	return nil
}

// attend stays with the process until it ended. It tells whether the pod is to end.
func (c *container) attend(ctx context.Context) (last bool) {
	probing, cancel := context.WithCancel(ctx)
	var probes sync.WaitGroup
	probes.Go(func() { c.probe(probing) })
	defer probes.Wait()
	defer cancel()
	select {
	case <-c.process.Done():
		c.ended()
		return false
	case <-c.pod.ending:
	case <-ctx.Done():
	}
	if err := c.process.Stop(c.grace()); err != nil {
		c.pod.kubelet.options.Logger.Error(err, "Stopping a container", "pod", c.pod.spec.Name, "container", c.spec.Name)
	}
	c.ended()
	return true
}

// grace is the pod's period where it was deleted, and a short one where all of the sandbox ends.
func (c *container) grace() time.Duration {
	select {
	case <-c.pod.ending:
		if c.pod.grace > 0 {
			return c.pod.grace
		}
	default:
	}
	return 5 * time.Second
}

func (c *container) ended() {
	c.mutex.Lock()
	c.last = &corev1.ContainerStateTerminated{
		ExitCode:   int32(c.process.ExitCode()),
		Reason:     "Error",
		StartedAt:  metav1.NewTime(c.started).Rfc3339Copy(),
		FinishedAt: metav1.Now().Rfc3339Copy(),
	}
	if c.last.ExitCode == 0 {
		c.last.Reason = "Completed"
	}
	failed := c.reserved.release()
	c.process, c.reserved, c.ready = nil, nil, false
	c.restarts++
	c.waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: fmt.Sprintf("it ended with exit code %d; see its log", c.last.ExitCode)}
	c.mutex.Unlock()
	if failed != nil {
		c.pod.kubelet.options.Logger.Error(failed, "Giving back a container's ports", "pod", c.pod.spec.Name, "container", c.spec.Name)
	}
	c.pod.notify()
}

func (c *container) wait(reason, message string) {
	c.mutex.Lock()
	c.waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
	c.mutex.Unlock()
	c.pod.notify()
}

func (c *container) kill() (bool, error) {
	c.mutex.Lock()
	p := c.process
	if p != nil {
		c.deliberate = true
	}
	c.mutex.Unlock()
	if p == nil {
		return false, nil
	}
	return true, p.Kill()
}

func (c *container) wasDeliberate() bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.deliberate
}

func (c *container) setDeliberate(deliberate bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.deliberate = deliberate
}

func (c *container) setReady(ready bool) {
	c.mutex.Lock()
	changed := c.ready != ready
	c.ready = ready
	c.mutex.Unlock()
	if changed {
		c.pod.notify()
	}
}

func (c *container) describe() Container {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	described := Container{
		Node: c.pod.kubelet.options.NodeName, Pod: c.pod.spec.Name, Name: c.spec.Name,
		Restarts: int(c.restarts), Ready: c.ready, Ports: maps.Clone(c.ports), LogFile: c.logFile,
	}
	if c.process != nil {
		described.PID = c.process.PID()
	}
	return described
}

func (c *container) status() corev1.ContainerStatus {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	status := corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, RestartCount: c.restarts, Ready: c.ready, Started: ptr.To(c.process != nil),
		LastTerminationState: corev1.ContainerState{Terminated: c.last},
	}
	if c.process != nil {
		status.ContainerID = fmt.Sprintf("process://%d", c.process.PID())
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.started).Rfc3339Copy()}
	} else {
		status.State.Waiting = c.waiting
	}
	return status
}
