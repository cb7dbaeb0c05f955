// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
)

// description marks for people what was made here. No code depends on it.
const description = "Made by Cluster API provider MAAS for MAAS's virtual machines"

// Names of the steps, in their order; checks and errors carry them.
const (
	StepConnect    = "connection"
	StepServer     = "LXD server"
	StepPool       = "storage pool"
	StepBridge     = "network bridge"
	StepInterfaces = "interfaces"
	StepProject    = "project"
	StepProfile    = "profile"
	StepListen     = "https address"
	StepTrust      = "trust"
)

// State is the result of a check.
type State string

const (
	// OK means as wanted; nothing was changed.
	OK State = "ok"
	// Changed means as wanted, because this run made or changed it.
	Changed State = "changed"
	// Missing means that it does not exist, and that Prepare would make it. Only Inspect reports it.
	Missing State = "missing"
	// Failed means not as wanted; the error has the details.
	Failed State = "failed"
)

// Check is the result for one thing.
type Check struct {
	Name   string // one of the Step constants
	State  State
	Found  string
	Remedy string // what a person can do about it; with Failed, if anything
}

// stands reports whether the named step ran and did not fail.
func stands(checks []Check, name string) bool {
	return slices.ContainsFunc(checks, func(c Check) bool { return c.Name == name && c.State != Failed })
}

// Inspect checks everything that Prepare would do, and changes nothing. The checks are in the order of the steps; a
// step that was not reached has none. The error holds a *SettingError for each setting that is wrong (nothing was
// checked then), otherwise an *Error for each failed check.
func (n *Node) Inspect(ctx context.Context, c Config) ([]Check, error) {
	return n.run(ctx, c, false)
}

// Prepare sets up the node's LXD according to the settings: storage pool, network bridge, project, profile and https
// address. On a server that can't be a VM host nothing is changed; if a step fails, steps that don't depend on it still
// run. The errors are those of Inspect.
func (n *Node) Prepare(ctx context.Context, c Config) ([]Check, error) {
	return n.run(ctx, c, true)
}

// pass is one run of the steps.
type pass struct {
	Config
	socket   string
	write    bool
	server   *api.Server
	refusals *Refusals
}

type step struct {
	name string
	// needs names the step that must succeed before this one.
	needs   string
	timeout time.Duration
	run     func(*pass, *lxdapi.Client) (State, string, error)
}

// storageTimeout is for making a pool. On a kernel without the device mapper LXD needs half a minute to find out that
// there is no lvm.
const storageTimeout = 2 * time.Minute

func steps() []step {
	return []step{
		{StepServer, "", callTimeout, (*pass).checkServer},
		{StepPool, StepServer, storageTimeout, (*pass).ensurePool},
		{StepBridge, StepServer, callTimeout, (*pass).ensureBridge},
		{StepInterfaces, StepServer, callTimeout, (*pass).checkInterfaces},
		{StepProject, StepServer, callTimeout, (*pass).ensureProject},
		{StepProfile, StepProject, callTimeout, (*pass).ensureProfile},
		{StepListen, StepServer, callTimeout, (*pass).ensureListen},
	}
}

func (n *Node) run(ctx context.Context, c Config, write bool) (checks []Check, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	var errs []error
	p := &pass{Config: c, socket: n.socket, write: write, refusals: n.refusals}
	for _, s := range steps() {
		if s.needs != "" && !stands(checks, s.needs) {
			continue
		}
		check, err := n.take(ctx, p, s)
		checks = append(checks, check)
		if err != nil {
			errs = append(errs, err)
		}
		if unanswered(err) {
			break
		}
	}
	return checks, errors.Join(errs...)
}

// CheckInterfaces reports whether MAAS can distinguish this node's machine from others, like Prepare and Inspect. If it
// can't, the error is an *Error whose cause is a *MACError.
func (n *Node) CheckInterfaces(ctx context.Context) (Check, error) {
	return n.take(ctx, &pass{}, step{StepInterfaces, "", callTimeout, (*pass).checkInterfaces})
}

// take runs one step within its timeout.
func (n *Node) take(ctx context.Context, p *pass, s step) (Check, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var state State
	var found string
	client, err := n.client(ctx)
	if err == nil {
		state, found, err = s.run(p, client)
	}
	if err != nil {
		e := asError(s.name, "calling LXD", err)
		e.Step = s.name
		return Check{Name: s.name, State: Failed, Found: e.Problem, Remedy: e.Remedy}, e
	}
	return Check{Name: s.name, State: state, Found: found}, nil
}

// ensure reads an object by its name. If there is none and the pass may write, it makes it and reads again. The result
// of the second read counts, not that of the creation: its response may have been lost, or another client may have been
// faster.
func ensure[T any](
	write bool, get func(string) (*T, string, error), name string, create func() error,
) (object *T, state State, err error) {
	object, _, err = get(name)
	switch {
	case err == nil:
		return object, OK, nil
	case !notFound(err):
		return object, Failed, err
	case !write:
		return object, Missing, nil
	}
	failed := create()
	object, _, err = get(name)
	if err == nil {
		return object, Changed, nil
	}
	return object, Failed, cmp.Or(failed, err)
}
