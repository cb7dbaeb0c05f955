// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/kubelet"
)

// Manager is a release of the chart: a manager of its own, in a namespace of its own.
type Manager struct {
	// Namespace that the chart is installed in.
	Namespace string
	// Kubelet runs the release's pods and nothing else: it can kill this manager alone.
	Kubelet *kubelet.Kubelet

	box     *Sandbox
	release string
	values  map[string]any
}

// ManagerOptions are the differences of a further manager from the one that Start installs.
type ManagerOptions struct {
	// Name of the release, and of the namespace that it is in.
	Name string
	// Watch is the only namespace whose objects the manager reconciles. It is made if it is missing.
	Watch string
	// User is the manager's administrator in MAAS; see RegionWithAdministrators. Default: the sandbox's, whose key all
	// managers without a User share.
	User string
	// Values are merged into those of the sandbox.
	Values map[string]any
}

// AddManager installs the chart once more, and returns when the manager is ready. The CRDs are those of the first
// release, which must watch a namespace too (Options.Values: watchNamespace): otherwise it reconciles everything. Stop
// ends it.
func (s *Sandbox) AddManager(ctx context.Context, options ManagerOptions) (*Manager, error) {
	values := map[string]any{"watchNamespace": options.Watch, "crds": map[string]any{"install": false}}
	if options.User != "" {
		key, err := administratorKey(s.MAAS, options.User)
		if err != nil {
			return nil, err
		}
		values["maas"] = map[string]any{"apiKey": key}
	}
	if err := s.createNamespace(ctx, options.Watch); err != nil {
		return nil, err
	}
	m, err := s.newManager(ctx, kubelet.Options{Namespace: options.Name, NodeExists: true})
	if err != nil {
		return nil, err
	}
	m.release, m.values = options.Name, overlay(options.Values, values)
	return m, m.install(ctx)
}

// startManager builds the manager, and installs the chart whose Deployment runs it.
func (s *Sandbox) startManager(ctx context.Context) error {
	s.options.Progress("Building the manager")
	if _, err := s.build.wait(ctx); err != nil {
		return err
	}
	m, err := s.newManager(ctx, kubelet.Options{Namespace: Namespace})
	if err != nil {
		return err
	}
	m.release = Release
	s.Manager, s.Kubelet = m, m.Kubelet
	s.options.Progress("Installing the chart")
	return m.install(ctx)
}

// newManager makes a namespace and runs the pods in it. Options need only contain what differs.
func (s *Sandbox) newManager(ctx context.Context, options kubelet.Options) (*Manager, error) {
	program, err := s.build.wait(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.createNamespace(ctx, options.Namespace); err != nil {
		return nil, err
	}
	options.Config, options.CA, options.Programs = s.RESTConfig, s.controlPlane.CA(), map[string]string{"/manager": program}
	options.Dir, options.LogDir, options.Logger = filepath.Join(s.dir, "pods"), s.LogDir, s.logger.WithName("kubelet")
	runs, err := kubelet.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	m := &Manager{Namespace: options.Namespace, Kubelet: runs, box: s}
	s.managerMutex.Lock()
	defer s.managerMutex.Unlock()
	s.managers = append(s.managers, m)
	return m, nil
}

func (s *Sandbox) createNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := s.Client.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the namespace %s: %w", name, err)
	}
	return nil
}

// Kill ends the manager's processes with SIGKILL, and returns when they are gone. It is started again at once.
func (m *Manager) Kill() error { return m.Kubelet.Kill(ManagerContainer) }

// Reload is for developers of the provider: it builds the manager from the present sources, upgrades the release to the
// present chart, and kills the manager's processes, which restart at once. If the build fails, the running one stays.
func (m *Manager) Reload(ctx context.Context) error {
	running := m.box.build.program
	next := m.box.buildTo(ctx, "manager", running+".next")
	defer next.stop()
	program, err := next.wait(ctx)
	if err != nil {
		return err
	}
	// A program that runs can be replaced, but not be written to.
	if err := os.Rename(program, running); err != nil {
		return fmt.Errorf("replacing the manager: %w", err)
	}
	if err := m.Upgrade(ctx, nil); err != nil {
		return err
	}
	return m.Kill()
}

// stopManagers ends the processes of all managers.
func (s *Sandbox) stopManagers(collect func(error)) {
	s.managerMutex.Lock()
	defer s.managerMutex.Unlock()
	for _, m := range slices.Backward(s.managers) {
		collect(m.Kubelet.Stop())
	}
}

// WorkDir is the sandbox's temporary directory. It is removed by Stop unless Options.KeepFiles is set.
func (s *Sandbox) WorkDir() string { return s.dir }
