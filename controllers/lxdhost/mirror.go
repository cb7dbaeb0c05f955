// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

const (
	// machinesMaxAge is the maximum age of what MAAS says of the machines of VM hosts.
	machinesMaxAge = 5 * time.Minute
	// patience is how long the conditions of a VM host stay as they were while its MAAS can't be asked.
	patience = 5 * time.Minute
	// maxVMHosts is how many VM hosts of one MAAS are mirrored: whoever names a MAAS of their own could fill this
	// cluster.
	maxVMHosts = 1000
	// jitter spreads the rounds of several managers: up to this part of the interval is added to it.
	jitter = 0.1
	// rest is how many intervals a MAAS without VM hosts is not asked again, unless others ask it.
	rest = 10
)

// Mirror makes an LXDHost for each LXD VM host of MAAS, and keeps it as MAAS has the VM host. People set whether it is
// schedulable. Of each MAAS it asks for one list in a round, however many identities are used there; of one without VM
// hosts, in one round of ten.
type Mirror struct {
	reconciler.Base
	// Interval is the time between two rounds.
	Interval time.Duration
	// Namespace has the LXDHosts of VM hosts that are no MaasMachine.
	Namespace string

	once  sync.Once
	wakes chan struct{}

	// Of Start's goroutine.
	round    int
	rounds   scope.Rounds[*view]
	known    map[string]asked // by MAAS
	refusals map[client.ObjectKey]bool
	proofs   map[claimed]proof
	proving  scope.Rounds[map[claimed]proof]
}

// asked is what is known of one MAAS from earlier rounds.
type asked struct {
	answered   time.Time // when it last returned its VM hosts
	problem    string    // why it did not, the last time
	empty      bool      // it has no VM hosts, and there are no objects of any
	machines   map[string]*maas.Machine
	machinesAt time.Time
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=lxdhosts,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=lxdhosts/status,verbs=patch

// NeedLeaderElection makes only the leader mirror.
func (m *Mirror) NeedLeaderElection() bool { return true }

// Start mirrors until the context ends.
func (m *Mirror) Start(ctx context.Context) error {
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithName("vm-hosts"))
	for {
		m.Sync(ctx)
		next := time.NewTimer(wait.Jitter(m.Interval, jitter))
		select {
		case <-ctx.Done():
			next.Stop()
			return nil
		case <-m.woken():
			next.Stop()
		case <-next.C:
		}
	}
}

// Wake makes a round begin now.
func (m *Mirror) Wake() {
	select {
	case m.woken() <- struct{}{}:
	default:
	}
}

func (m *Mirror) woken() chan struct{} {
	m.once.Do(func() { m.wakes = make(chan struct{}, 1) })
	return m.wakes
}

// Sync does one round. What fails is done in the next.
func (m *Mirror) Sync(ctx context.Context) {
	if m.known == nil {
		m.known, m.refusals, m.proofs = map[string]asked{}, map[client.ObjectKey]bool{}, map[claimed]proof{}
	}
	own := m.own(ctx)
	there, err := readObjects(ctx, m.Client)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to read the objects of VM hosts")
		return
	}
	regions := m.Scopes.Regions()
	views := m.views(ctx, regions, there)
	if ctx.Err() != nil {
		return
	}
	m.forget(there, regions, views)
	if err := m.apply(ctx, there, views, regions, own); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to bring some LXDHosts up to date")
	}
}

// own returns which MAAS is that of the manager's own credentials; "" if it has none.
func (m *Mirror) own(ctx context.Context) string {
	region, err := m.Scopes.Own()
	if err != nil && !guard.Is[*scope.CredentialsError](err) {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to use the manager's own MAAS")
	}
	if err != nil {
		return ""
	}
	return region.Where()
}

// views asks all MAASes at the same time, and returns what they show. One that takes long is missing: its objects stay.
func (m *Mirror) views(ctx context.Context, regions []*scope.Region, there *existing) map[string]*view {
	known, mirrored, round := map[string]asked{}, map[string][]int{}, m.round
	for _, region := range regions {
		where := region.Where()
		known[where], mirrored[where] = m.of(where), there.mirrored(where)
	}
	m.round++
	views := map[string]*view{}
	answers := m.rounds.Ask(ctx, regions, func(ctx context.Context, regions []*scope.Region) *view {
		where := regions[0].Where()
		return m.look(ctx, known[where], round, regions, mirrored[where])
	})
	for server, v := range answers {
		views[server.Address()], m.known[server.Address()] = v, v.asked
	}
	return views
}

// view is what one MAAS showed in this round.
type view struct {
	asked
	hosts map[int]maas.VMHost // by id
	// complete: no identity sees another VM host, and MAAS has none that lists lack.
	complete bool
	// gone: this MAAS has no VM hosts any more.
	gone bool
	// overdue: it has not been possible to ask for long.
	overdue bool
}

// look lists the VM hosts of a MAAS with one identity, another one in each round: some may see more than others. Only
// if a VM host is missing that has an object, all are asked.
func (m *Mirror) look(ctx context.Context, before asked, round int, regions []*scope.Region, mirrored []int) *view {
	v := &view{asked: before, hosts: map[int]maas.VMHost{}, complete: true}
	v.problem = ""
	for i := range regions {
		hosts, has, err := m.list(ctx, &v.asked, regions[(round+i)%len(regions)])
		if err != nil {
			v.complete, v.problem = false, err.Error()
			continue
		}
		if !has {
			v.complete, v.gone = false, true
			continue
		}
		v.answered = m.Clock.Now()
		for _, host := range hosts {
			if _, listed := v.hosts[host.ID]; host.Type == maas.VMHostTypeLXD && (listed || len(v.hosts) < maxVMHosts) {
				v.hosts[host.ID] = host
			}
		}
		if len(v.missing(mirrored)) == 0 {
			break
		}
	}
	if v.complete {
		if err := proveGone(ctx, regions[0], v.missing(mirrored)); err != nil {
			v.complete, v.problem = false, err.Error()
		}
	}
	if v.problem != "" && v.problem != before.problem && !v.gone && ctx.Err() == nil {
		ctrl.LoggerFrom(ctx).Info("Failed to list the VM hosts of a MAAS; their LXDHosts stay", "maas", regions[0].Where(),
			"error", v.problem)
	}
	v.empty = (v.problem == "" || v.gone) && len(v.hosts) == 0 && len(mirrored) == 0
	v.overdue = m.Clock.Since(v.answered) > patience
	return v
}

// missing returns those of the VM hosts that no list has.
func (v *view) missing(ids []int) []int {
	return list.Where(ids, func(id int) bool { _, listed := v.hosts[id]; return !listed })
}

// proveGone returns nil if MAAS has none of the VM hosts (GET vm-hosts/{id}/): that lists lack them is no proof.
func proveGone(ctx context.Context, region *scope.Region, ids []int) error {
	for _, id := range ids {
		switch _, err := region.Inventory.Client().GetVMHost(ctx, id); {
		case err == nil:
			return fmt.Errorf("the list of VM hosts lacks VM host %d, which MAAS has", id)
		case !errors.Is(err, maas.NotFound):
			return fmt.Errorf("looking whether VM host %d is gone: %w", id, err)
		}
	}
	return nil
}

// list lists the VM hosts, or, now and then, their machines instead: the VM hosts may be older then. has reports
// whether MAAS has VM hosts still.
func (m *Mirror) list(
	ctx context.Context, known *asked, region *scope.Region,
) (hosts []maas.VMHost, has bool, err error) {
	maxAge := m.Interval - m.Interval/10
	if known.empty {
		maxAge = rest * m.Interval
	}
	due := m.Clock.Since(known.machinesAt) > machinesMaxAge
	if due && known.machines != nil {
		maxAge = 2 * m.Interval
	}
	hosts, has, err = region.Inventory.AnyVMHosts(ctx, maxAge)
	if err != nil {
		return nil, false, fmt.Errorf("listing VM hosts: %w", err)
	}
	if !due || len(hosts) == 0 {
		return hosts, has, nil
	}
	known.machinesAt = m.Clock.Now()
	// Otherwise they are as they were.
	if machines, err := region.Inventory.HostMachines(ctx, machinesMaxAge); err == nil {
		known.machines = machines
	}
	return hosts, has, nil
}

// forget forgets the MAASes that are not used any more, and the VM hosts that a MAAS has no more, and that have no
// object: each round may show others.
func (m *Mirror) forget(there *existing, regions []*scope.Region, views map[string]*view) {
	maps.DeleteFunc(m.known, func(where string, _ asked) bool { return !isUsed(there, regions, where) })
	gone := func(where string, id int) bool {
		if v := views[where]; v != nil && v.complete {
			_, listed := v.hosts[id]
			return !listed && !slices.Contains(there.mirrored(where), id)
		}
		return !isUsed(there, regions, where)
	}
	maps.DeleteFunc(m.proofs, func(c claimed, _ proof) bool { return gone(c.where, c.id) })
	m.Scopes.Places.Forget(gone)
}

func isUsed(there *existing, regions []*scope.Region, where string) bool {
	return len(there.mirrored(where)) > 0 ||
		slices.ContainsFunc(regions, func(region *scope.Region) bool { return region.Where() == where })
}

// of returns what is known of a MAAS. One that is new counts as asked now.
func (m *Mirror) of(where string) asked {
	if _, known := m.known[where]; !known {
		m.known[where] = asked{answered: m.Clock.Now()}
	}
	return m.known[where]
}
