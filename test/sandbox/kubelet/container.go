// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/process"
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
	last       *corev1.ContainerStateTerminated // how the process ended that ran before
	final      *corev1.ContainerStateTerminated // its result, if it is not restarted
	logged     int64                            // where in its log the process began
}

func newContainer(p *pod, spec corev1.Container) *container {
	c := &container{
		pod:     p,
		spec:    spec,
		logFile: filepath.Join(p.kubelet.options.LogDir, p.spec.Name+"_"+spec.Name+".log"),
		waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"},
	}
	for _, before := range p.spec.Status.ContainerStatuses {
		if before.Name == spec.Name {
			c.resume(before)
		}
	}
	return c
}

// lostExitCode is reported for a process that ended with the kubelet that had started it.
const lostExitCode = 137

// resume continues from the status that an earlier kubelet reported of the container.
func (c *container) resume(before corev1.ContainerStatus) {
	ran := before.ContainerID != ""
	switch {
	case before.State.Terminated != nil:
		c.final = before.State.Terminated
	case ran && !startsAgain(c.pod.spec.Spec.RestartPolicy, lostExitCode):
		c.final = &corev1.ContainerStateTerminated{ExitCode: lostExitCode, Reason: "ContainerStatusUnknown", FinishedAt: metav1.Now().Rfc3339Copy()}
	case ran:
		c.restarts = before.RestartCount + 1
	}
}

// run starts the process again and again until the pod ends, or as its restart policy requires. An obstacle to its
// start is checked as often as volumes are.
func (c *container) run(ctx context.Context) {
	backoff, rest := backoffFirst, time.Duration(0)
	for c.finalState() == nil && c.goesOn(ctx, rest) {
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

// goesOn waits. It reports whether the pod continues, instead of having to end.
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
	before := logSize(c.logFile)
	p, err := process.Start(spec)
	if err != nil {
		return errors.Join(err, reserved.release())
	}
	c.mutex.Lock()
	c.process, c.ports, c.reserved, c.logged = p, ports, reserved, before
	c.started, c.waiting, c.ready = time.Now(), nil, c.spec.ReadinessProbe == nil
	c.mutex.Unlock()
	c.pod.notify()
	return nil
}

// attend stays with the process until it ended. It reports whether the pod is to end.
func (c *container) attend(ctx context.Context) (last bool) {
	probing, cancel := context.WithCancel(ctx)
	var probes sync.WaitGroup
	probes.Go(func() { c.probe(probing) })
	defer probes.Wait()
	defer cancel()
	select {
	case <-c.process.Done():
		c.ended(true)
		if c.finalState() == nil && !c.wasDeliberate() {
			c.pod.kubelet.fell(c)
		}
		return false
	case <-c.pod.ending:
	case <-ctx.Done():
	}
	if err := c.process.Stop(c.grace()); err != nil {
		c.pod.kubelet.options.Logger.Error(err, "Stopping a container", "pod", c.pod.spec.Name, "container", c.spec.Name)
	}
	c.ended(false)
	return true
}

// grace returns the pod's period if it was deleted, and a short one if the whole sandbox ends.
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

// ended records how the process ended: by itself, or because the pod does.
func (c *container) ended(byItself bool) {
	c.mutex.Lock()
	state := &corev1.ContainerStateTerminated{
		ExitCode:   int32(c.process.ExitCode()),
		Reason:     "Error",
		StartedAt:  metav1.NewTime(c.started).Rfc3339Copy(),
		FinishedAt: metav1.Now().Rfc3339Copy(),
	}
	if state.ExitCode == 0 {
		state.Reason = "Completed"
	} else if c.spec.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
		state.Message = endOfLog(c.logFile, c.logged)
	}
	failed := c.reserved.release()
	c.process, c.reserved, c.ready = nil, nil, false
	if byItself && !startsAgain(c.pod.spec.Spec.RestartPolicy, state.ExitCode) {
		c.final = state
	} else {
		c.last = state
		c.restarts++
		c.waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: fmt.Sprintf("it ended with exit code %d; see its log", state.ExitCode)}
	}
	c.mutex.Unlock()
	if failed != nil {
		c.pod.kubelet.options.Logger.Error(failed, "Giving back a container's ports", "pod", c.pod.spec.Name, "container", c.spec.Name)
	}
	c.pod.notify()
}

// startsAgain reports whether a container whose process ended with an exit code is started once more.
func startsAgain(policy corev1.RestartPolicy, exitCode int32) bool {
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return exitCode != 0
	default:
		return true
	}
}

// mostOfLog is how much of the end of a log becomes a message, in bytes, as in a real kubelet.
const mostOfLog = 2048

func logSize(file string) int64 {
	info, err := os.Stat(file)
	if err != nil {
		return 0 // It is made with the process.
	}
	return info.Size()
}

// endOfLog returns the end of a log after an offset, for a message.
func endOfLog(file string, after int64) string {
	log, err := os.ReadFile(filepath.Clean(file))
	if err != nil || int64(len(log)) < after {
		return ""
	}
	log = log[after:]
	return string(log[max(0, len(log)-mostOfLog):])
}

// finalState is how the container ended for good, or nil.
func (c *container) finalState() *corev1.ContainerStateTerminated {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.final
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
	switch {
	case c.process != nil:
		status.ContainerID = fmt.Sprintf("process://%d", c.process.PID())
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.started).Rfc3339Copy()}
	case c.final != nil:
		status.State.Terminated = c.final
	default:
		status.State.Waiting = c.waiting
	}
	return status
}
