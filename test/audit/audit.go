// SPDX-License-Identifier: Apache-2.0

// Package audit compares a simulated MAAS, and the VMs that are really on its VM hosts, with the objects in Kubernetes:
// nothing with our marks may be unclaimed, nothing may be claimed twice, and what was never ours must be unchanged.
package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/ledger"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// Kind is the kind of a finding.
type Kind string

const (
	// Leaked is a machine or a device in MAAS with our marks, or a VM on a host, that no object claims.
	Leaked Kind = "leaked"
	// Doubled is an object with two machines, or a machine with two objects.
	Doubled Kind = "doubled"
	// Lost is a machine that an object has and MAAS has not.
	Lost Kind = "lost"
	// Address is a static address or link that nothing needs any more, or that is not the requested one.
	Address Kind = "address"
	// Record is a DNS record that is left over, or has a wrong address.
	Record Kind = "record"
	// Wiped is something that was never ours and was changed.
	Wiped Kind = "wiped"
	// Stolen is a machine of another user, or of another cluster, that an object has.
	Stolen Kind = "stolen"
	// Different is any other difference in MAAS. Only Gone checks for it.
	Different Kind = "different"
	// Unseen is what can't be audited: a VM host that does not respond.
	Unseen Kind = "unseen"
)

// Finding is one thing that is wrong.
type Finding struct {
	Kind Kind
	What string
}

func (f Finding) String() string { return string(f.Kind) + ": " + f.What }

// Region is the part of a simulated MAAS that the auditor needs.
type Region interface {
	Machines() []simulator.MachineSnapshot
	Devices() []simulator.MachineSnapshot
	VMHosts() []simulator.VMHost
	State() []byte
	Lookup(fqdn string) []netip.Addr
	Subscribe(fn func(simulator.MachineSnapshot, simulator.Change)) (cancel func())
}

// Options are the machines that we may take.
type Options struct {
	// MayTake reports, for the machines that are there from the beginning, whether a machine may be taken and given
	// back. Default: bare metal that is Ready and not allocated. All others must not change.
	MayTake func(simulator.MachineSnapshot) bool
	// In reports whether the clusters of a namespace are in this MAAS. Default: all are.
	In func(namespace string) bool
}

// Who is whose things are audited. The zero value is everybody, which needs that all objects of all clusters are
// settled.
type Who struct {
	// Namespace limits it to the clusters of one namespace, Cluster to one of them (the name of its MaasCluster).
	Namespace, Cluster string
}

func (w Who) everybody() bool { return w == Who{} }

func (w Who) covers(c cluster) bool {
	return (w.Namespace == "" || w.Namespace == c.namespace) && (w.Cluster == "" || w.Cluster == c.name)
}

// Auditor knows how MAAS was before the first cluster, and which clusters there have been since.
type Auditor struct {
	region  Region
	objects client.Reader
	before  *maasState
	mayTake map[string]bool // by system id
	in      func(namespace string) bool
	cancel  func()

	mutex     sync.Mutex
	clusters  map[identity]cluster
	strangers map[string]string // what must not change, by system id
	taken     map[string]taken  // what other users took and have, by system id
	takenAt   map[string]time.Time
	everTaken map[string]bool   // what other users ever took, by system id
	touched   map[string]string // changes of what is not ours, by system id
	hadLast   map[string]holder // by system id
}

// errNeverSeen is returned for clusters that the auditor can't know the marks of.
var errNeverSeen = errors.New("the auditor has never seen such a MaasCluster with an owner id: call Learn while it is there")

// Open begins an audit with how MAAS is now. The caller ends it with Close.
func Open(region Region, objects client.Reader, options Options) (*Auditor, error) {
	if options.MayTake == nil {
		options.MayTake = isFree
	}
	if options.In == nil {
		options.In = func(string) bool { return true }
	}
	a := &Auditor{
		region: region, objects: objects, mayTake: map[string]bool{}, in: options.In,
		clusters: map[identity]cluster{}, strangers: map[string]string{},
		taken: map[string]taken{}, takenAt: map[string]time.Time{}, everTaken: map[string]bool{}, touched: map[string]string{}, hadLast: map[string]holder{},
	}
	a.cancel = region.Subscribe(a.watch)
	var err error
	if a.before, err = readState(region); err != nil {
		a.Close()
		return nil, err
	}
	for _, m := range a.before.snapshots {
		if options.MayTake(m) {
			a.mayTake[m.SystemID] = true
			continue
		}
		a.strangers[m.SystemID] = a.before.machines[m.SystemID].text
	}
	return a, nil
}

func isFree(m simulator.MachineSnapshot) bool {
	return m.Status == "Ready" && m.Owner == "" && m.AgentName == "" && m.VMHost == ""
}

// Close ends the audit.
func (a *Auditor) Close() { a.cancel() }

// Learn records the clusters that exist now. Steady does that, too.
func (a *Auditor) Learn(ctx context.Context) error {
	_, err := a.learn(ctx)
	return err
}

func (a *Auditor) learn(ctx context.Context) (*claims, error) {
	c, err := readClaims(ctx, a.objects, a.in)
	if err != nil {
		return nil, err
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for _, one := range c.clusters {
		a.clusters[one.identity()] = one
	}
	return c, nil
}

// read reads MAAS, and before and after it the claims in Kubernetes: while clusters that are not audited live on, a
// machine can be given back and taken again between the two.
func (a *Auditor) read(ctx context.Context) (*maasState, *claims, error) {
	before, err := a.learn(ctx)
	if err != nil {
		return nil, nil, err
	}
	now, err := readState(a.region)
	if err != nil {
		return nil, nil, err
	}
	c, err := a.learn(ctx)
	if err != nil {
		return nil, nil, err
	}
	c.since(before)
	return now, c, nil
}

// Steady audits clusters in the middle of their lives, while none of their objects is changing: each is deployed, or
// has reported why it is not, or is gone.
func (a *Auditor) Steady(ctx context.Context, who Who) ([]Finding, error) {
	now, c, err := a.read(ctx)
	if err != nil {
		return nil, err
	}
	return a.audit(now, c, who), nil
}

// Gone audits clusters that were deleted: nothing of theirs is left. For everybody it compares all of MAAS with how it
// was.
func (a *Auditor) Gone(ctx context.Context, who Who) ([]Finding, error) {
	now, c, err := a.read(ctx)
	if err != nil {
		return nil, err
	}
	if !who.everybody() && len(a.known(who)) == 0 {
		return nil, fmt.Errorf("auditing %s/%s: %w", who.Namespace, who.Cluster, errNeverSeen)
	}
	findings := c.left(who)
	findings = append(findings, a.audit(now, c.without(who), who)...)
	if !who.everybody() {
		return findings, nil
	}
	remains, err := ledger.Remains(a.before.raw, now.raw)
	if err != nil {
		return nil, fmt.Errorf("comparing MAAS with how it was: %w", err)
	}
	for _, line := range remains {
		findings = append(findings, Finding{Different, line})
	}
	return findings, nil
}

// known are the clusters that there are or were.
func (a *Auditor) known(who Who) []cluster {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	var list []cluster
	for _, c := range a.clusters {
		if who.covers(c) {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(x, y cluster) int {
		return cmp.Or(strings.Compare(x.owner, y.owner), strings.Compare(x.namespace, y.namespace), strings.Compare(x.name, y.name))
	})
	return list
}

func (a *Auditor) audit(now *maasState, c *claims, who Who) []Finding {
	marks := a.marks(who)
	findings := slices.Concat(
		a.auditMachines(now, c, marks), a.auditObjects(now, c, who), a.auditHosts(now, c, marks),
		a.auditAddresses(now, c, marks), a.auditRecords(now, c, marks), a.auditStrangers(now),
	)
	slices.SortFunc(findings, func(x, y Finding) int { return strings.Compare(x.String(), y.String()) })
	return slices.Compact(findings)
}
