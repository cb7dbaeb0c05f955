// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"io"
	"time"
)

// Parts is how much of the sandbox is started. Each value includes the ones before it.
type Parts int

// The parts, in the order in which they build on each other.
const (
	// Everything is the default: down to the chart, with its manager.
	Everything Parts = iota
	// ControlPlane is etcd, kube-apiserver and kube-controller-manager.
	ControlPlane
	// ClusterAPI adds Cluster API's core and kubeadm providers.
	ClusterAPI
	// MAAS adds the simulated region, and the operating systems of its machines.
	MAAS
)

// include reports whether a part is wanted.
func (p Parts) include(part Parts) bool {
	return p == Everything || (part != Everything && p >= part)
}

// Options are the parts to start and their settings. The zero value starts everything.
type Options struct {
	// Parts that are started.
	Parts Parts
	// Region describes the simulated MAAS. Default: region.yaml of this package.
	Region io.Reader
	// MAASVersion is the version that the simulated MAAS is, as simulator.ParseVersion takes it.
	MAASVersion string
	// TimeScale is how much faster than real time machines deploy. Default: 60.
	TimeScale float64
	// Seed makes the simulated MAAS's choices repeatable.
	Seed int64
	// PollActive and PollIdle are how often the manager asks MAAS. Default: 1 s and 5 s.
	PollActive, PollIdle time.Duration
	// Lease is how long a killed manager delays its successor; a manager that gets no response for three quarters of it
	// ends. Default: 20 s, which a busy computer needs: with less, a test must hold when its manager ends by itself.
	Lease time.Duration
	// Eager makes Cluster API reconcile an object whenever it changed, as with its feature gate ReconcilerRateLimiting
	// switched off. By default it does so once in a second, which takes most of a cluster's life.
	Eager bool
	// NoDeprecated serves no deprecated versions of Cluster API's kinds, into which the API server would convert all that is
	// written.
	NoDeprecated bool
	// LXD is whether machines that install LXD run a real daemon.
	LXD LXDMode
	// RealNodes has each machine of MAAS be a real operating system, with kubelet and kubeadm (package realnode), in
	// place of one that is played. Those that install LXD stay played. It takes the tools of `make tools-node`.
	RealNodes bool
	// RealHosts has those be real, too; the initializer's image is realnode.InitializerImage then, and MAAS is at
	// NodesMAAS for machines and pods.
	RealHosts bool
	// BeforeKubeadm does what commands of a machine's user data would do before kubeadm, which waits for it. The context
	// ends when the machine's power does.
	BeforeKubeadm func(ctx context.Context, commands []string) error
	// Audit has each API server keep an audit log of what ServiceAccounts ask; see AuditLog and HostAuditLog.
	Audit bool
	// Outside has the sandbox's network lead to all other servers, for the programs of a person who tries it.
	Outside bool
	// Values are merged into the values of the chart.
	Values map[string]any
	// Progress gets the current step, in a few words. It is called from one goroutine at a time.
	Progress func(string)
	// KeepFiles leaves the temporary directory, with all logs, after Stop.
	KeepFiles bool

	// joins is the sandbox whose MAAS is used.
	joins *Sandbox
}

const (
	defaultTimeScale  = 60
	defaultPollActive = time.Second
	defaultPollIdle   = 5 * time.Second
	defaultLease      = 20 * time.Second
)

func (o *Options) setDefaults() {
	if o.TimeScale == 0 {
		o.TimeScale = defaultTimeScale
	}
	if o.PollActive == 0 {
		o.PollActive = defaultPollActive
	}
	if o.PollIdle == 0 {
		o.PollIdle = defaultPollIdle
	}
	if o.Lease == 0 {
		o.Lease = defaultLease
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
}
