// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
)

// build is a program that is being built.
type build struct {
	program string
	cancel  context.CancelFunc
	done    chan struct{}
	err     error
}

// buildProgram starts building one of the commands.
func (s *Sandbox) buildProgram(ctx context.Context, name string) *build {
	return s.buildTo(ctx, name, filepath.Join(s.dir, name))
}

func (s *Sandbox) buildTo(ctx context.Context, name, program string) *build {
	ctx, cancel := context.WithCancel(ctx)
	b := &build{program: program, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		if err := s.buildShared(ctx, name, program); err != nil {
			b.err = fmt.Errorf("building %s: %w", name, err)
		}
	}()
	return b
}

// buildShared builds a command in a directory that all sandboxes share, one at a time, and copies it. The go command finds
// out whether there is anything to do: otherwise each sandbox would link it again.
func (s *Sandbox) buildShared(ctx context.Context, name, program string) error {
	shared := filepath.Join(s.root, "bin", "sandbox", name)
	if err := os.MkdirAll(filepath.Dir(shared), 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(shared+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("locking %s: %w", lock.Name(), err)
	}
	// Without debugging data, which takes half the time of linking.
	command := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", shared, "./cmd/"+name)
	command.Dir, command.Env = s.root, append(slices.Clone(s.env), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	// By another process: a program that this one has written to may be busy when it is started.
	if out, err := exec.CommandContext(ctx, "cp", shared, program).CombinedOutput(); err != nil {
		return fmt.Errorf("copying it: %w: %s", err, out)
	}
	return nil
}

func (b *build) wait(ctx context.Context) (string, error) {
	select {
	case <-b.done:
		return b.program, b.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (b *build) stop() {
	b.cancel()
	<-b.done
}
