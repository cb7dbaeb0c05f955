// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// callTimeout is how long one command may talk to the Kubernetes API, beside waiting.
const callTimeout = 30 * time.Second

// lxdHosts reads and changes one LXDHost.
type lxdHosts struct {
	client client.Client
	key    client.ObjectKey
}

// hostCommand is one of the commands that change an LXDHost, as act does.
func hostCommand(c command, act func(context.Context, *lxdHosts, surroundings) error) command {
	c.use += " NAME"
	c.page = "maintenance.md"
	c.needsCluster, c.inNamespace = true, true
	c.names = hostNames
	c.complete = func(o *options, fs *pflag.FlagSet) { o.nameIn("NAME", fs.Arg(0)) }
	c.act = func(ctx context.Context, o options, s surroundings) int {
		return s.end(act(ctx, &lxdHosts{o.cluster, o.subject}, s))
	}
	return c
}

// hostNames are the LXDHosts, of which one is meant.
func hostNames(operands []string) ([]string, client.Object) {
	if len(operands) > 0 {
		return nil, nil
	}
	return nil, &infrav1.LXDHost{}
}

func cordonCommand() command {
	return hostCommand(command{
		use: "cordon", short: "Keep new VMs off an LXDHost; those that run there stay",
		long: "It sets spec.unschedulable.", example: "host cordon lxd-a --namespace=capmaas-system",
	}, cordonHost)
}

func uncordonCommand() command {
	return hostCommand(command{
		use: "uncordon", short: "Let VMs be placed on an LXDHost again, and stop emptying it",
		long: "It unsets spec.unschedulable and spec.evacuate.", example: "host uncordon lxd-a --namespace=capmaas-system",
	}, uncordonHost)
}

// title names the host as kubectl does.
func (h *lxdHosts) title() string { return "lxdhost." + infrav1.GroupVersion.Group + "/" + h.key.Name }

func (h *lxdHosts) read(ctx context.Context) (*infrav1.LXDHost, error) {
	host := &infrav1.LXDHost{}
	return host, elsewhere(ctx, h.client, h.client.Get(ctx, h.key, host), host, h.key)
}

// change patches the spec, and returns what it was before.
func (h *lxdHosts) change(
	ctx context.Context, change func(*infrav1.LXDHostSpec),
) (before infrav1.LXDHostSpec, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	host, err := h.read(ctx)
	if err != nil {
		return infrav1.LXDHostSpec{}, err
	}
	was := host.DeepCopy()
	change(&host.Spec)
	if host.Spec.Unschedulable == was.Spec.Unschedulable && host.Spec.Evacuate == was.Spec.Evacuate {
		return was.Spec, nil
	}
	return was.Spec, h.client.Patch(ctx, host, client.MergeFrom(was))
}

// cordonHost keeps new VMs off the host, and says so in kubectl's words.
func cordonHost(ctx context.Context, h *lxdHosts, s surroundings) error {
	before, err := h.change(ctx, func(spec *infrav1.LXDHostSpec) { spec.Unschedulable = true })
	if err == nil {
		s.say(h.title(), before.Unschedulable, "cordoned")
	}
	return err
}

func uncordonHost(ctx context.Context, h *lxdHosts, s surroundings) error {
	before, err := h.change(ctx, func(spec *infrav1.LXDHostSpec) { spec.Unschedulable, spec.Evacuate = false, false })
	if err == nil {
		s.say(h.title(), !before.Cordoned(), "uncordoned")
	}
	return err
}

// say says what was done, or that it was so already.
func (s surroundings) say(what string, already bool, done string) {
	if already {
		done = "already " + done
	}
	fmt.Fprintf(s.out, "%s %s\n", what, done)
}

// end returns the exit code for an error, which it prints as kubectl does, or with the remedy if it is one of MAAS.
func (s surroundings) end(err error) int {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return exitOK
	case guard.Is[*maas.Error](err):
		return s.endWith(inFlagsOfMAAS.Explain(err))
	case meta.IsNoMatchError(err):
		fmt.Fprintln(s.err, "error: the cluster of the kubeconfig has no LXDHosts: give the kubeconfig of the management "+
			"cluster")
	case errors.As(err, &status):
		fmt.Fprintf(s.err, "Error from server (%s): %s\n", status.Status().Reason, err)
	default:
		fmt.Fprintf(s.err, "error: %v\n", err)
	}
	return exitFailed
}

// drainPoll is the time between two looks at the host.
const drainPoll = time.Second

func drainCommand() command {
	return hostCommand(command{
		use: "drain", short: "Empty an LXDHost: have the Machines of its VMs replaced, and wait",
		long: `It sets spec.unschedulable and spec.evacuate, and waits until no VM is left: the manager has the
Machines there replaced, never two of one control plane at a time. An interrupt, or the end of
--timeout, ends only the waiting. It needs the chart's value evacuation.enabled.`,
		example: `host drain lxd-a --namespace=capmaas-system
host drain lxd-a --namespace=capmaas-system --timeout=2h`,
		hasTimeout: true, byDefault: func(o *options) { o.timeout = 0 },
	}, drainHost)
}

func drainHost(ctx context.Context, h *lxdHosts, s surroundings) error {
	if err := cordonHost(ctx, h, s); err != nil {
		return err
	}
	if _, err := h.change(ctx, func(spec *infrav1.LXDHostSpec) { spec.Evacuate = true }); err != nil {
		return err
	}
	if absent := noManager(ctx, h.client); absent != "" {
		fmt.Fprintf(s.err, "warning: %s: no VM leaves %s until one does\n", absent, h.title())
	}
	err := h.awaitEmpty(ctx, s)
	switch {
	case err == nil:
		s.say(h.title(), false, "drained")
	case ctx.Err() != nil:
		why := context.Cause(ctx)
		if errors.Is(why, context.Canceled) {
			why = errors.New("interrupted")
		}
		goesOn := "the manager goes on emptying it"
		if absent := noManager(context.WithoutCancel(ctx), h.client); absent != "" {
			goesOn = absent + "; one that is started goes on emptying it"
		}
		return fmt.Errorf("unable to drain %s: %w; %s until capmaasctl host uncordon %s --namespace=%s", h.title(), why,
			goesOn, h.key.Name, h.key.Namespace)
	}
	return err
}

// awaitEmpty shows what happens on the host until no VM is left. It retries a read that fails, unless it always will.
func (h *lxdHosts) awaitEmpty(ctx context.Context, s surroundings) error {
	shown := &progress{out: s.out, problems: s.err, said: map[string]infrav1.LXDEvacuationVM{}}
	return wait.PollUntilContextCancel(ctx, drainPoll, true, func(ctx context.Context) (bool, error) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		host, err := h.read(call)
		switch {
		case err == nil:
			return shown.see(host)
		case failsAgain(err):
			return false, err
		case ctx.Err() == nil:
			shown.retries(fmt.Sprintf("unable to read %s, retrying: %v", h.title(), err))
		}
		return false, nil
	})
}

// failsAgain reports whether a read that ended in err always will.
func failsAgain(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) ||
		meta.IsNoMatchError(err)
}

// progress is what was said of a drain so far.
type progress struct {
	out, problems io.Writer
	said          map[string]infrav1.LXDEvacuationVM // by machine
	failure       string                             // of the last read
}

// retries says why the host could not be read, once.
func (p *progress) retries(failure string) {
	if p.failure != failure {
		fmt.Fprintln(p.problems, failure)
	}
	p.failure = failure
}

// evacuationWords are what is said of a VM before its machine is named.
var evacuationWords = map[infrav1.LXDEvacuationState]string{
	infrav1.LXDVMLeaving: "evacuating", infrav1.LXDVMWaiting: "waiting for", infrav1.LXDVMHeld: "cannot evacuate",
}

// see says what is new of a host, and reports whether it is empty. The error is why it will never be.
func (p *progress) see(host *infrav1.LXDHost) (done bool, err error) {
	p.failure = ""
	c := conditions.Get(host, infrav1.EvacuatedCondition)
	if c == nil || c.ObservedGeneration < host.Generation || host.Status.Evacuation == nil {
		return false, nil // The manager has not looked yet.
	}
	if c.Reason == infrav1.EvacuationNotEnabledReason {
		return false, errors.New(c.Message)
	}
	listed := map[string]bool{}
	for _, vm := range host.Status.Evacuation.VMs {
		listed[vm.Machine] = true
		if p.said[vm.Machine] == vm {
			continue
		}
		p.said[vm.Machine] = vm
		to := p.out
		if vm.State == infrav1.LXDVMHeld {
			to = p.problems
		}
		fmt.Fprintf(to, "%s machine %s: %s\n", evacuationWords[vm.State], vm.Machine, vm.Message)
	}
	all := host.Status.Evacuation.Leaving + host.Status.Evacuation.Waiting + host.Status.Evacuation.Held
	if int(all) > len(host.Status.Evacuation.VMs) {
		return false, nil // Who is not listed may be there.
	}
	for _, machine := range slices.Sorted(maps.Keys(p.said)) {
		if !listed[machine] {
			fmt.Fprintf(p.out, "machine %s evacuated\n", machine)
			delete(p.said, machine)
		}
	}
	return c.Status == metav1.ConditionTrue, nil
}
