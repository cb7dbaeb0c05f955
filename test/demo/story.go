// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/ledger"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// The clusters: the user's, and the host cluster for its VMs.
var (
	clusterName = client.ObjectKey{Namespace: "default", Name: "demo"}
	hostsName   = client.ObjectKey{Namespace: "default", Name: "hosts"}
)

const (
	clusterFlavor = "lxd-topology"
	clusterClass  = "clusterclass/clusterclass-capmaas.yaml"
	workers       = 2
	resourcePool  = "capi"
	vmImage       = "u-2204-k8s-1.35"

	applyTimeout  = eventually.Limit
	createTimeout = 2 * eventually.Limit
	deleteTimeout = eventually.Limit
)

// options are the flags.
type options struct {
	once, drain, real, upgrade, empty, dev, keep, mixed bool
	timeScale                                           float64
	maasVersion                                         string
}

// settings are those of a sandbox that the flags ask for.
func (o options) settings(steps *steps, parts sandbox.Parts) sandbox.Options {
	return sandbox.Options{
		Parts: parts, MAASVersion: o.maasVersion, TimeScale: o.timeScale, KeepFiles: o.keep, Progress: steps.begin, RealNodes: o.real,
		Outside: true,
	}
}

// direct reports whether MAAS has no VM hosts, and VMs are LXD's alone.
func (o options) direct() bool {
	version, err := simulator.ParseVersion(o.maasVersion)
	return err == nil && version.AtLeast(4, 0, 0)
}

// hostKind is what the nodes of the host cluster become.
func (o options) hostKind() string {
	if o.direct() {
		return "LXD hosts"
	}
	return "VM hosts"
}

// oneAtMost reports whether no two flags ask for different things.
func (o options) oneAtMost() bool {
	if o.mixed && (o.drain || o.empty || o.dev || o.real) || o.drain && (o.empty || o.dev || o.real) || o.upgrade && (!o.real || o.empty || o.dev) {
		return false
	}
	asked := 0
	for _, flag := range []bool{o.once, o.empty, o.dev} {
		if flag {
			asked++
		}
	}
	return asked <= 1
}

var (
	errInterrupted = errors.New("interrupted")
	errLeftovers   = errors.New("something is left")
)

// runStory runs the story, and leaves nothing running.
func runStory(ctx context.Context, out *screen, opts options) (err error) {
	steps := &steps{out: out}
	settings := opts.settings(steps, sandbox.Everything)
	// The calls to LXD are counted by the manager's metrics, which are read without credentials.
	settings.Values = map[string]any{"diagnostics": map[string]any{"insecure": true}, "evacuation": map[string]any{"enabled": opts.drain}}
	simulated := lxd.Missing()
	switch {
	case opts.mixed:
		settings.LXD = sandbox.LXDOff
	case simulated == nil:
		if settings.Region, err = sandbox.RegionWithoutVMHosts(); err != nil {
			return err
		}
	default:
		settings.LXD = sandbox.LXDOff
		out.print("The LXD hosts are simulated: " + simulated.Error())
	}
	if opts.real {
		out.print(realNews...)
	}
	box, err := sandbox.Start(ctx, settings)
	steps.end()
	if err != nil {
		return interruptedOr(ctx, fmt.Errorf("starting the sandbox: %w", err))
	}
	defer func() {
		out.keep()
		if err != nil && !errors.Is(err, errInterrupted) {
			showTrouble(out, box)
		}
		if ctx.Err() != nil {
			out.print("", "Stopping")
		}
		if opts.keep {
			out.print("Logs are in " + box.LogDir)
		}
		if stopped := box.Stop(); stopped != nil {
			err = errors.Join(err, fmt.Errorf("stopping the sandbox: %w", stopped))
		}
	}()
	s := &story{box: box, out: out, opts: opts, before: box.MAAS.State(), book: ledger.Open(box), controlPlanes: 3, createTimeout: createTimeout}
	if opts.real {
		s.controlPlanes, s.createTimeout = 1, realTimeout
	}
	defer s.book.Close()
	if opts.mixed {
		if err := box.AddBootstrapProvider(ctx, sandbox.Dev); err != nil {
			return interruptedOr(ctx, err)
		}
		steps.end()
	} else if simulated == nil {
		s.hosts = newHosts(s)
		defer s.hosts.daemons.Close()
	}
	return interruptedOr(ctx, s.play(ctx))
}

// interruptedOr is the error, unless it came about because the user wanted an end.
func interruptedOr(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// story is what happens to the clusters.
type story struct {
	box    *sandbox.Sandbox
	out    *screen
	opts   options
	before []byte // MAAS's state
	book   *ledger.Ledger
	hosts  *hosts // nil where they are simulated

	controlPlanes int
	createTimeout time.Duration

	// begin is before the cluster is made, up when it is there, ready before it is deleted, and gone afterwards.
	begin, up, ready, gone ledger.Mark
	came, emptied, went    time.Duration
	greeted, upgraded      time.Duration // with real nodes
	lxd                    lxdCalls
}

func (s *story) play(ctx context.Context) error {
	showing, stopShowing := context.WithCancel(ctx)
	defer stopShowing()
	var shown sync.WaitGroup
	defer shown.Wait()
	defer stopShowing()
	shown.Go(func() { show(showing, s.out, s.box.Client, hostsName, clusterName) })

	for _, chapter := range s.chapters() {
		s.out.print("", chapter.caption)
		if err := chapter.play(ctx); err != nil {
			return err
		}
	}
	if !s.opts.once {
		if err := s.invite(ctx); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
	stopShowing()
	shown.Wait()
	s.out.keep()
	return s.report()
}

// chapter is a part of the story.
type chapter struct {
	caption string
	play    func(context.Context) error
}

// chapters are those that the flags ask for.
func (s *story) chapters() (all []chapter) {
	tell := func(when bool, caption string, play func(context.Context) error) {
		if when {
			all = append(all, chapter{caption, play})
		}
	}
	hosts := s.hosts
	tell(hosts != nil, fmt.Sprintf("%d servers are deployed, and become LXD hosts", hostNodes), hosts.create)
	tell(s.opts.mixed, fmt.Sprintf("a cluster of another provider, with %d workers in MAAS as bare metal", workers), s.createMixed)
	tell(!s.opts.mixed, fmt.Sprintf("a cluster: %d control plane(s) as VMs, %d workers as bare metal", s.controlPlanes, workers), s.create)
	tell(s.opts.drain, "a host is emptied, and takes VMs again", s.drain)
	tell(s.opts.real, "pods on two nodes reach each other through a Service", s.use)
	tell(s.opts.upgrade, "one line upgrades Kubernetes", s.upgrade)
	tell(true, map[bool]string{true: "the cluster is deleted", false: "it is yours"}[s.opts.once], s.end)
	tell(hosts != nil && s.opts.once, "the LXD hosts become free servers again", hosts.delete)
	for i := range all {
		all[i].caption = fmt.Sprintf("%d/%d: %s", i+1, len(all), all[i].caption)
	}
	return all
}

// end deletes the cluster, unless the user keeps it.
func (s *story) end(ctx context.Context) error {
	s.ready = s.book.Mark()
	if !s.opts.once {
		return nil
	}
	return s.delete(ctx)
}

// create makes the cluster and waits until it is available and all machines run.
func (s *story) create(ctx context.Context) error {
	applying, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	s.begin = s.book.Mark()
	if err := s.box.ApplyFile(applying, clusterClass); err != nil {
		return fmt.Errorf("creating the ClusterClass: %w", err)
	}
	started := time.Now()
	settings := variables(clusterName, s.controlPlanes, workers)
	settings["CONTROL_PLANE_MACHINE_MINDISKSIZE"] = sandbox.VMDiskGB
	if s.opts.real {
		s.setReal(settings)
	}
	if s.opts.drain { // The LXD hosts have the cores of this computer, and one more VM must fit on them.
		settings["CONTROL_PLANE_MACHINE_MINCPU"], settings["CONTROL_PLANE_MACHINE_MINMEMORY"] = "1", "2048"
	}
	if err := s.apply(applying, clusterFlavor, settings); err != nil {
		return fmt.Errorf("creating the cluster: %w", err)
	}
	creating, cancel := s.bounded(ctx, s.createTimeout)
	defer cancel()
	if s.opts.real {
		if err := s.box.InstallPodNetwork(creating, clusterName); err != nil {
			return err
		}
	}
	if err := s.box.WaitAvailable(creating, clusterName, s.controlPlanes+workers); err != nil {
		return err
	}
	s.came, s.up = time.Since(started), s.book.Mark()
	requests, err := s.lxdRequests(ctx)
	s.lxd.create = requests.forOne
	return err
}

// apply creates the objects of a flavor.
func (s *story) apply(ctx context.Context, flavor string, settings map[string]string) error {
	manifest, err := s.box.Flavor(flavor, settings)
	if err != nil {
		return err
	}
	return s.box.ApplyYAML(ctx, strings.NewReader(manifest))
}

// variables returns clusterctl's environment variables for the region of the sandbox.
func variables(name client.ObjectKey, controlPlanes, workers int) map[string]string {
	return map[string]string{
		"NAMESPACE": name.Namespace, "CLUSTER_NAME": name.Name, "KUBERNETES_VERSION": "v1.35.0",
		"MAAS_DNS_DOMAIN": "maas.sim", "MAAS_IMAGE": vmImage,
		"CONTROL_PLANE_MACHINE_COUNT": strconv.Itoa(controlPlanes), "CONTROL_PLANE_MACHINE_RESOURCEPOOL": resourcePool,
		"WORKER_MACHINE_COUNT": strconv.Itoa(workers), "WORKER_MACHINE_RESOURCEPOOL": resourcePool,
	}
}

func (s *story) delete(ctx context.Context) error {
	deleting, cancel := s.bounded(ctx, deleteTimeout)
	defer cancel()
	before, err := s.lxdRequests(ctx)
	if err != nil {
		return err
	}
	started := time.Now()
	if err := s.box.DeleteCluster(deleting, clusterName); err != nil {
		return err
	}
	s.went, s.gone = time.Since(started), s.book.Mark()
	after, err := s.lxdRequests(ctx)
	s.lxd.remove, s.lxd.read = after.forOne-before.forOne, after.forAll
	return err
}

// bounded ends a wait after some time, and when something that should run has ended.
func (s *story) bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	ctx, fail := context.WithCancelCause(ctx)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := s.box.Err(); err != nil {
					fail(err)
				}
			}
		}
	}()
	return ctx, func() { fail(nil); cancel() }
}
