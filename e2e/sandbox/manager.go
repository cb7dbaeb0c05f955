// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capmaas/cluster-api-provider-maas/e2e/sandbox/kubelet"
)

// startManager builds the manager, and installs the chart whose Deployment runs it.
func (s *Sandbox) startManager(ctx context.Context) error {
	s.options.Progress("Building the manager")
	program, err := s.build.wait(ctx)
	if err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}
	if err := s.Client.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the namespace of the chart: %w", err)
	}
	s.Kubelet, err = kubelet.Start(ctx, kubelet.Options{
		Config:    s.RESTConfig,
		CA:        s.controlPlane.CA(),
		Namespace: Namespace,
		Programs:  map[string]string{"/manager": program},
		Dir:       filepath.Join(s.dir, "pods"),
		LogDir:    s.LogDir,
		Logger:    s.logger.WithName("kubelet"),
	})
	if err != nil {
		return err
	}
	s.options.Progress("Installing the chart")
	return s.InstallChart(ctx)
}

// build is a program that is being built.
type build struct {
	program string
	cancel  context.CancelFunc
	done    chan struct{}
	err     error
}

// buildProgram starts building one of the commands. It leaves it to the go command to find out whether there is anything
// to do.
func (s *Sandbox) buildProgram(ctx context.Context, name string) *build {
	ctx, cancel := context.WithCancel(ctx)
	b := &build{program: filepath.Join(s.dir, name), cancel: cancel, done: make(chan struct{})}
	command := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", b.program, "./cmd/"+name)
	command.Dir, command.Env = s.root, append(slices.Clone(s.env), "CGO_ENABLED=0")
	go func() {
		defer close(b.done)
		if out, err := command.CombinedOutput(); err != nil {
			b.err = fmt.Errorf("building %s: %w: %s", name, err, out)
		}
	}()
	return b
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

// WorkDir is the sandbox's temporary directory. It is removed by Stop unless Options.KeepFiles is set.
func (s *Sandbox) WorkDir() string { return s.dir }
