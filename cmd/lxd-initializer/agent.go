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
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/vmhosts"
)

const (
	// passTimeout bounds one pass: LXD may take half a minute for a pool, and MAAS some minutes for a host.
	passTimeout = 10 * time.Minute
	// firstRetry is the first pause after a passing problem. It doubles from try to try, up to the check interval.
	firstRetry = time.Second
	// jitter keeps the nodes of a cluster from calling MAAS all at once.
	jitter = 0.2
	// wakeInterval is how often, between passes, the Node and the credentials are checked for a change that must not
	// wait.
	wakeInterval = 10 * time.Second
)

// errDirectoryRemoved ends the initializer: if LXD is installed again, only a new container sees the new directory.
var errDirectoryRemoved = errors.New("LXD's directory was removed from the node; a new container is needed to see a " +
	"new one")

// agent makes one node an LXD host and keeps it one.
type agent struct {
	options options
	kube    kubernetes.Interface
	events  record.EventRecorder
	metrics *metrics
	wake    time.Duration

	ready atomic.Bool // the last pass succeeded

	// State from earlier passes.
	refusals  lxdnode.Refusals // of LXD
	client    *maas.Client
	hosts     *vmhosts.Service
	identity  string // of the credentials in hosts
	hostID    int    // of the VM host in MAAS
	seen      string // identity of the credentials at the last pass
	keysInUse string // what the Node says of them at the last pass: see infrav1.LXDKeysAnnotation
	retiring  bool
	failures  int    // passes in a row
	logged    string // the last logged result
	tries     int    // passes in a row with a passing problem
}

func newAgent(opts options, kube kubernetes.Interface, events record.EventRecorder) *agent {
	return &agent{options: opts, kube: kube, events: events, metrics: newMetrics(), wake: wakeInterval}
}

// run makes passes until the context ends. An error means that a new container is needed.
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

// delay returns how long to wait after a pass.
func (a *agent) delay(failed error) time.Duration {
	if failed == nil || problemOf(failed).permanent {
		a.tries = 0
		return wait.Jitter(a.options.checkInterval, jitter)
	}
	a.tries++
	pause := guard.Doubled(firstRetry, a.options.checkInterval, a.tries)
	return max(wait.Jitter(pause, jitter), problemOf(failed).retryAfter)
}

// sleep waits, until something changes that must not wait.
func (a *agent) sleep(ctx context.Context, duration time.Duration) {
	timer, wake := time.NewTimer(duration), time.NewTicker(a.wake)
	defer timer.Stop()
	defer wake.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-wake.C:
			if a.woken(ctx) {
				return
			}
		}
	}
}

// woken reports whether the node is to retire, or no longer, whether the manager uses other keys, or the credentials
// for MAAS changed.
func (a *agent) woken(ctx context.Context) bool {
	node, err := a.getNode(ctx)
	if err == nil && (retiring(node) != a.retiring || node.Annotations[infrav1.LXDKeysAnnotation] != a.keysInUse) {
		return true
	}
	return a.credentialsID() != a.seen && !a.retiring
}

// credentialsID identifies credentials; all unusable ones have the same id.
func (a *agent) credentialsID() string {
	config, err := a.options.credentials.config()
	if err != nil {
		return ""
	}
	return config.ID()
}

// pass is one check of everything, with the state that the steps share.
type pass struct {
	*agent
	node    *corev1.Node
	address netip.Addr
	lxd     *lxdnode.Node
	keys    lxdnode.Keys
	secret  *corev1.Secret // with the keys
	host    maas.VMHost
	offered []byte // LXD's own certificate, if MAAS has no VM hosts; nil otherwise
	earlier int    // earlier key pairs of this node with which MAAS still switches VMs
}

type step struct {
	name string
	do   func(context.Context) error
}

// steps returns the steps of a host, which follow begin. Each checks before it writes, and their order allows an
// interruption anywhere: the key pair is stored before it is trusted, and trusted before MAAS uses it; the one that it
// replaced is removed last.
func (p *pass) steps() []step {
	return []step{
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

// retirement returns the steps for a node that is to leave. They run once, so that a node that is dismantled afterwards
// stays retired.
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

// pass makes one pass and reports its result. Its error is the step's, and is already logged.
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
	p.record(ctx, err, took)
	p.metrics.observe(err, took)
	return err
}

func (p *pass) walk(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	p.metrics.begin()
	if err := p.run(ctx, []step{{"node", p.readNode}, {"begin", p.begin}}); err != nil {
		return err
	}
	if p.retiring {
		return p.run(ctx, p.retirement())
	}
	return p.run(ctx, p.steps())
}

// run takes steps until one fails.
func (p *pass) run(ctx context.Context, steps []step) error {
	for _, s := range steps {
		err := s.do(ctx)
		p.metrics.step(s.name, err)
		if err != nil {
			return err
		}
	}
	return nil
}

// record counts and logs the result of a pass; the same result is logged once.
func (p *pass) record(ctx context.Context, err error, took time.Duration) {
	log := logr.FromContextOrDiscard(ctx)
	p.ready.Store(err == nil)
	p.failures++
	reason, message := "", ""
	switch {
	case err != nil:
		problem := problemOf(err)
		reason, message = problem.reason, problem.message
	case p.retiring:
		reason, p.failures = infrav1.LXDHostRetiredReason, 0
	default:
		made := p.condition(nil)
		reason, message, p.failures = made.Reason, made.Message, 0
	}
	if logged := reason + ": " + message; logged != p.logged {
		p.logged = logged
		log.Info("State of the node", "ok", err == nil, "reason", reason, "message", message)
	}
	log.V(1).Info("Checked everything", "ok", err == nil, "took", took.String(), "failures", p.failures)
}
