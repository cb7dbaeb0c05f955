// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// callTimeout is how long one command may talk to the Kubernetes API, beside waiting.
const callTimeout = 30 * time.Second

// lxdHosts reads and changes one LXDHost.
type lxdHosts struct {
	client client.Client
	key    client.ObjectKey
}

// hostCommand is one of the commands that change an LXDHost.
func hostCommand(c command) command {
	c.use += " NAME"
	c.page = "maintenance.md"
	c.needsCluster, c.inNamespace = true, true
	c.complete = func(o *options, fs *pflag.FlagSet, _ surroundings) []string { return o.nameIn("NAME", fs.Arg(0)) }
	return c
}

func cordonCommand() command {
	return hostCommand(command{
		use: "cordon", short: "Keep new VMs off an LXDHost; those that run there stay",
		long: "It sets spec.unschedulable.", example: "host cordon lxd-a --namespace=capmaas-system", act: cordonHost,
	})
}

func uncordonCommand() command {
	return hostCommand(command{
		use: "uncordon", short: "Let VMs be placed on an LXDHost again, and stop emptying it",
		long: "It unsets spec.unschedulable and spec.evacuate.", example: "host uncordon lxd-a --namespace=capmaas-system",
		act: uncordonHost,
	})
}

func openHost(o options) (*lxdHosts, error) {
	c, err := kubernetesClient(o)
	return &lxdHosts{c, o.subject}, err
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

func cordonHost(ctx context.Context, o options, s surroundings) int {
	h, err := openHost(o)
	if err == nil {
		err = h.cordon(ctx, s)
	}
	return s.end(err)
}

// cordon keeps new VMs off the host, and says so in kubectl's words.
func (h *lxdHosts) cordon(ctx context.Context, s surroundings) error {
	before, err := h.change(ctx, func(spec *infrav1.LXDHostSpec) { spec.Unschedulable = true })
	if err != nil {
		return err
	}
	s.say(h.title(), before.Unschedulable, "cordoned")
	return nil
}

func uncordonHost(ctx context.Context, o options, s surroundings) int {
	h, err := openHost(o)
	if err != nil {
		return s.end(err)
	}
	before, err := h.change(ctx, func(spec *infrav1.LXDHostSpec) { spec.Unschedulable, spec.Evacuate = false, false })
	if err == nil {
		s.say(h.title(), !before.Cordoned(), "uncordoned")
	}
	return s.end(err)
}

// say says what was done, or that it was so already.
func (s surroundings) say(what string, already bool, done string) {
	if already {
		done = "already " + done
	}
	fmt.Fprintf(s.out, "%s %s\n", what, done)
}

// end returns the exit code for an error, which it prints as kubectl does.
func (s surroundings) end(err error) int {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return exitOK
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
