// SPDX-License-Identifier: Apache-2.0

// Package sandbox is a management cluster without containers, for the demo, the end-to-end tests and the benchmarks.
//
// Everything that decides something is real: etcd, kube-apiserver and kube-controller-manager (package controlplane),
// Cluster API with its kubeadm providers (package capi), and this provider's chart, installed with Helm, whose pods run
// as local processes (package kubelet). Simulated are MAAS (package simulator of the provider), the operating systems
// of its machines (package guest) and the network that they are in (package network). Machines that install LXD run a
// real daemon (package lxd), and the nodes of the cluster that they are in have a kubelet of this kind each. A VM that the
// manager makes in such an LXD, or in one of AddLXD, without MAAS is a machine like MAAS's: LXD's VM is real, and boots
// nothing; its operating system is simulated, or that of a real node.
//
// Everything listens on 127.0.0.1. Processes end with the program that started the sandbox, however that ends.
package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/capi"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/controlplane"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/guest"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/kubelet"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/network"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/port"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/realnode"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// Sandbox is a started sandbox. Parts that Options.Parts excluded are nil.
type Sandbox struct {
	// RESTConfig is the management cluster's administrator's.
	RESTConfig *rest.Config
	// Client of the management cluster; it knows Cluster API's kinds and the provider's.
	Client client.Client
	// KubeconfigPath is a kubeconfig file of the management cluster's administrator.
	KubeconfigPath string
	// LogDir has a log file for each process, and for what runs in this one.
	LogDir string
	// MAAS is the simulated region.
	MAAS *simulator.Simulator
	// MAASURL and MAASAPIKey are how to reach it.
	MAASURL, MAASAPIKey string
	// ControlURL is the simulator's own endpoint, for what no MAAS API can do: switch power, fail, break.
	ControlURL string
	// Manager is the chart's release that Start installed.
	Manager *Manager
	// Kubelet runs that release's pods.
	Kubelet *kubelet.Kubelet

	options Options
	root    string // of the repository
	dir     string
	log     *os.File
	logger  logr.Logger
	env     []string // the variables before the sandbox changed them

	controlPlane *controlplane.ControlPlane
	build        *build
	providers    *capi.Providers
	externals    []*capi.Externals
	maasPort     *port.Reserved // MAAS is away now and then
	maasServer   *http.Server
	guests       *guest.Guests
	all          *machines       // MAAS's, and VMs that LXD alone knows
	realNodes    *realnode.Nodes // or nil
	// The versions of Kubernetes that real nodes can run.
	previousKubernetes, kubernetes string
	network                        *network.Network
	machines                       atomic.Pointer[network.Network] // network, once it is there

	managerMutex sync.Mutex
	managers     []*Manager // in the order in which they were added

	hostMutex        sync.Mutex
	hostNodes        map[string]HostNode // by system id
	initializerBuild *build

	stopping sync.Once
	stopped  error
}

// Start starts the parts that the options ask for. If it fails, nothing is left running. The caller ends it with Stop.
func Start(ctx context.Context, options Options) (*Sandbox, error) {
	options.setDefaults()
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "capmaas-sandbox-")
	if err != nil {
		return nil, fmt.Errorf("making the sandbox's directory: %w", err)
	}
	s := &Sandbox{
		options: options, root: root, dir: dir, LogDir: filepath.Join(dir, "logs"), env: os.Environ(),
		hostNodes: map[string]HostNode{},
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Sandbox) start(ctx context.Context) error {
	if err := os.MkdirAll(s.LogDir, 0o700); err != nil {
		return fmt.Errorf("making the directory of logs: %w", err)
	}
	parts := s.options.Parts
	if joined := s.options.joins; joined != nil {
		s.share(joined)
	} else if err := s.startLog(); err != nil {
		return err
	}
	if parts.include(Everything) && s.build == nil {
		s.build = s.buildProgram(ctx, "manager") // meanwhile
	}
	if parts.include(MAAS) && s.MAAS == nil {
		// First: it sets HTTPS_PROXY, which is read only once.
		if err := s.startMAAS(ctx); err != nil {
			return err
		}
	}
	if err := s.startControlPlane(ctx); err != nil {
		return err
	}
	if parts.include(ClusterAPI) {
		if err := s.startClusterAPI(ctx); err != nil {
			return err
		}
	}
	if parts.include(Everything) {
		return s.startManager(ctx)
	}
	return nil
}

func (s *Sandbox) startLog() error {
	log, err := os.Create(filepath.Join(s.LogDir, "sandbox.log"))
	if err != nil {
		return fmt.Errorf("making the log: %w", err)
	}
	s.log = log
	s.logger = logTo(log)
	return nil
}

func (s *Sandbox) startControlPlane(ctx context.Context) error {
	s.options.Progress("Starting etcd, kube-apiserver and kube-controller-manager")
	var err error
	s.controlPlane, err = controlplane.Start(ctx, controlplane.Options{
		Dir: filepath.Join(s.dir, "control-plane"), LogDir: s.LogDir, Audit: s.options.Audit,
	})
	if err != nil {
		return err
	}
	s.RESTConfig = s.controlPlane.RESTConfig()
	s.KubeconfigPath = filepath.Join(s.dir, "kubeconfig")
	if err := s.controlPlane.WriteKubeconfig(s.KubeconfigPath); err != nil {
		return err
	}
	s.Client, err = newClient(s.RESTConfig)
	return err
}

func (s *Sandbox) startClusterAPI(ctx context.Context) error {
	s.options.Progress("Installing and starting Cluster API")
	var err error
	s.providers, err = capi.Start(ctx, capi.Options{
		Config: s.RESTConfig, ModuleDir: s.root, Env: s.env, Dir: filepath.Join(s.dir, "webhooks"), Logger: s.logger,
		Eager: s.options.Eager, NoDeprecated: s.options.NoDeprecated,
	})
	return err
}

// Stop ends everything in reverse order of its start, and removes the sandbox's files. It takes a bounded time, and may
// be called more than once.
func (s *Sandbox) Stop() error {
	s.stopping.Do(func() { s.stopped = s.stop() })
	return s.stopped
}

func (s *Sandbox) stop() error {
	var failures []error
	collect := func(err error) { failures = append(failures, err) }
	for _, b := range []*build{s.build, s.startedInitializerBuild()} {
		if b != nil {
			b.stop()
		}
	}
	s.stopManagers(collect)
	for _, e := range slices.Backward(s.externals) {
		collect(e.Err())
		collect(e.Stop())
	}
	if s.providers != nil {
		collect(s.providers.Err())
		collect(s.providers.Stop())
	}
	if s.controlPlane != nil {
		collect(s.controlPlane.Stop())
	}
	if s.options.joins == nil {
		s.stopMachines(collect)
	}
	if s.log != nil {
		logTarget.unset(s.log)
		collect(s.log.Close())
	}
	if !s.options.KeepFiles {
		collect(os.RemoveAll(s.dir))
	}
	return errors.Join(failures...)
}

// stopMachines ends MAAS and what runs on its machines.
func (s *Sandbox) stopMachines(collect func(error)) {
	if s.network != nil {
		collect(s.network.Close())
	}
	if s.all != nil {
		s.all.stop()
	}
	if s.realNodes != nil {
		collect(s.realNodes.Stop())
	}
	if s.guests != nil {
		collect(s.guests.Stop())
	}
	s.stopMAAS(collect)
}

// Err returns why something that should run does not.
func (s *Sandbox) Err() error {
	if s.providers == nil {
		return nil
	}
	return s.providers.Err()
}

// module is this project's main module. Others of its modules are in directories below it.
const module = "module github.com/capmaas/cluster-api-provider-maas\n"

// moduleRoot returns the directory of the main module, upwards from the working directory: tests run in their package's
// directory.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	for {
		if text, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && bytes.HasPrefix(text, []byte(module)) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("finding the repository: the main module's go.mod is not in the working directory or above it: %w", os.ErrNotExist)
		}
		dir = parent
	}
}
