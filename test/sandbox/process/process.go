// SPDX-License-Identifier: Apache-2.0

// Package process runs local programs that never outlive the program that started them.
package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// Spec is the program to run.
type Spec struct {
	// Name is used in errors.
	Name string
	// Path of the program.
	Path string
	// Args without the program's own name.
	Args []string
	// Env is the whole environment: nothing is inherited.
	Env []string
	// Dir is the working directory.
	Dir string
	// LogFile gets the program's output; it is appended to.
	LogFile string
}

// Process is a program that runs or ran.
type Process struct {
	name string
	cmd  *exec.Cmd
	log  io.Closer
	done chan struct{}
	err  error
}

// Start runs a program. It is killed when this process dies, however it dies.
func Start(spec Spec) (*Process, error) {
	log, err := os.OpenFile(filepath.Clean(spec.LogFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", spec.Name, err)
	}
	cmd := exec.Command(spec.Path, spec.Args...) //nolint:noctx // it ends by Stop or Kill
	cmd.Env = spec.Env
	if cmd.Env == nil {
		cmd.Env = []string{}
	}
	cmd.Dir = spec.Dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = attributes()

	p := &Process{name: spec.Name, cmd: cmd, log: log, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	return p, nil
}

// run keeps its operating-system thread for as long as the program runs: the kernel
// sends the parent-death signal when the thread that forked ends, not the process.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer func() { _ = p.log.Close() }()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	started <- nil
	p.err = p.cmd.Wait()
	close(p.done)
}

// Name is the program's in errors.
func (p *Process) Name() string { return p.name }

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns how the program ended: nil for exit code 0. It is nil while the program runs.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// ExitCode is the program's exit code, 128 plus the signal that ended it, or -1 while it runs.
func (p *Process) ExitCode() int {
	select {
	case <-p.done:
	default:
		return -1
	}
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// Kill ends the program with SIGKILL and waits until it is gone.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// Stop asks the program to end with SIGTERM, and kills it when it has not ended after the grace period.
func (p *Process) Stop(grace time.Duration) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping %s: %w", p.name, err)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return p.Kill()
	}
}
