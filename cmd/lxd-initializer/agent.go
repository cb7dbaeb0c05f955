// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/vmhosts"
)

const (
	// passTimeout bounds one pass: LXD may take half a minute for a pool, and MAAS some minutes for a host.
	passTimeout = 10 * time.Minute
	// firstRetry is how soon a passing problem is looked at again. It doubles from try to try, up to the check interval.
	firstRetry = time.Second
	// jitter keeps the nodes of a cluster from asking MAAS all at once.
	jitter = 0.2
	// lookInterval is how often, between passes, the Node and the credentials are looked at for a change that must not wait.
	lookInterval = 10 * time.Second
)

// errDirectoryRemoved ends the initializer: where LXD is installed again, only a new container sees the new directory.
var errDirectoryRemoved = errors.New("LXD's directory was removed from the node, which a new container makes good")

// agent makes one node an LXD host and keeps it one.
type agent struct {
	options options
	kube    kubernetes.Interface
	events  record.EventRecorder
	metrics *metrics
	look    time.Duration

	ready atomic.Bool // the last pass found, or made, all as it should be

	// What is known from earlier passes.
	client   *maas.Client
	hosts    *vmhosts.Service
	identity string // of the credentials that hosts has
	hostID   int    // of the VM host in MAAS
	seen     string // identity of the credentials at the last pass
	retiring bool
	failures int    // passes in a row
	said     string // the last thing that was logged
	retry    wait.Backoff
}

func newAgent(opts options, kube kubernetes.Interface, events record.EventRecorder) *agent {
	return &agent{options: opts, kube: kube, events: events, metrics: newMetrics(), look: lookInterval}
}

// run makes passes until the context ends. An error says that a new container is needed.
func (a *agent) run(ctx context.Context) error {
	for ctx.Err() == nil {
		failed := a.pass(ctx)
		if errors.Is(failed, errDirectoryRemoved) {
			return failed
		}
		a.sleep(ctx, a.delay(failed))
	}
	return nil
}

// delay is how long to wait after a pass.
func (a *agent) delay(failed error) time.Duration {
	if failed == nil || problemOf(failed).permanent {
		a.retry = wait.Backoff{}
		return wait.Jitter(a.options.checkInterval, jitter)
	}
	if a.retry.Duration == 0 {
		a.retry = wait.Backoff{Duration: min(firstRetry, a.options.checkInterval), Factor: 2, Steps: 64, Cap: a.options.checkInterval, Jitter: jitter}
	}
	return max(a.retry.Step(), problemOf(failed).retryAfter)
}

// sleep waits, or until something changed that must not wait.
func (a *agent) sleep(ctx context.Context, duration time.Duration) {
	timer, look := time.NewTimer(duration), time.NewTicker(a.look)
	defer timer.Stop()
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-look.C:
			if a.woken(ctx) {
				return
			}
		}
	}
}

// woken reports whether the node is to retire, or no longer, or the credentials for MAAS are others.
func (a *agent) woken(ctx context.Context) bool {
	if node, err := a.getNode(ctx); err == nil && retiring(node) != a.retiring {
		return true
	}
	return a.credentialsID() != a.seen && !a.retiring
}

// credentialsID tells credentials apart; all that can't be used are the same.
func (a *agent) credentialsID() string {
	config, err := a.options.credentials.config()
	if err != nil {
		return ""
	}
	return config.ID()
}

// pass is one look at everything, with what the steps learn.
type pass struct {
	*agent
	node    *corev1.Node
	address netip.Addr
	lxd     *lxdnode.Node
	keys    lxdnode.Keys
	host    maas.VMHost
}

type step struct {
	name string
	do   func(context.Context) error
}

// steps of a host. Each looks before it writes, and the order lets the initializer be cut off anywhere: the key pair is kept
// before it is trusted, and trusted before MAAS uses it; what it replaced goes last.
func (p *pass) steps() []step {
	return []step{
		{"begin", p.begin},
		{"address", p.findAddress},
		{"connect", p.connectLXD},
		{"prepare", p.prepareLXD},
		{"keys", p.keepKeys},
		{"trust", p.trustKeys},
		{"register", p.register},
		{"distrust", p.distrustOthers},
		{"machine", p.checkMachine},
		{"resources", p.checkResources},
	}
}

// retirement is what happens instead on a node that is to leave: once, so that a node which is taken apart afterwards stays retired.
func (p *pass) retirement() []step {
	if p.retired() {
		return nil
	}
	return []step{
		{"label", p.removeLabel},
		{"distrust", p.distrustAll},
		{"keys", p.deleteKeys},
	}
}

// pass makes the node what it should be, and reports. Its error is the step's, and is logged already.
func (a *agent) pass(ctx context.Context) error {
	a.seen = a.credentialsID()
	start := time.Now()
	p := &pass{agent: a}
	err := p.walk(ctx)
	if ctx.Err() != nil {
		return err // The end of the program is no problem of the node.
	}
	if p.node != nil {
		err = errors.Join(err, p.report(ctx, err))
	}
	took := time.Since(start)
	p.note(ctx, err, took)
	p.metrics.observe(err, took)
	return err
}

func (p *pass) walk(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	p.metrics.begin()
	if err := p.run(ctx, step{"node", p.readNode}); err != nil {
		return err
	}
	steps := p.steps()
	if p.retiring {
		steps = p.retirement()
	}
	for _, s := range steps {
		if err := p.run(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) run(ctx context.Context, s step) error {
	err := s.do(ctx)
	p.metrics.step(s.name, err)
	return err
}

// note counts and logs: the same thing once, until it is another one.
func (p *pass) note(ctx context.Context, err error, took time.Duration) {
	log := logr.FromContextOrDiscard(ctx)
	p.ready.Store(err == nil)
	p.failures++
	reason, message := reasonRegistered, ""
	switch {
	case err != nil:
		problem := problemOf(err)
		reason, message = problem.reason, problem.message
	case p.retiring:
		reason, p.failures = infrav1.LXDHostRetiredReason, 0
	default:
		message, p.failures = p.condition(nil).Message, 0
	}
	if said := reason + ": " + message; said != p.said {
		p.said = said
		log.Info("State of the node", "ok", err == nil, "reason", reason, "message", message)
	}
	log.V(1).Info("Looked at everything", "ok", err == nil, "took", took.String(), "failures", p.failures)
}
