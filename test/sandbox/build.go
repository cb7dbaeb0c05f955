// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/capmaas/cluster-api-provider-maas/test/program"
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

func (s *Sandbox) buildTo(ctx context.Context, name, to string) *build {
	ctx, cancel := context.WithCancel(ctx)
	b := &build{program: to, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		b.err = s.buildCopy(ctx, name, to)
	}()
	return b
}

// buildCopy builds a command, and copies it: a test may build another one, or end this one's file.
func (s *Sandbox) buildCopy(ctx context.Context, name, to string) error {
	built, err := program.Build(ctx, s.root, name)
	if err != nil {
		return err
	}
	// By another process: a program that this one has written to may be busy when it is started.
	if out, err := exec.CommandContext(ctx, "cp", built, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copying %s: %w: %s", name, err, out)
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
