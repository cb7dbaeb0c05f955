// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/audit"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	// members are the machines of a cluster beside its anchor.
	members = 4
	// mostAnchors is how many control planes are tried until one is provisioned.
	mostAnchors = 6
	// agreeWithin is how long MAAS may need after the objects are settled.
	agreeWithin = eventually.Limit
)

// assault is all that is done to MAAS and to the clusters.
type assault struct {
	t         *testing.T
	weather   *weather
	endpoints *endpoints
	auditor   *audit.Auditor
	view      *view
	figures   *figures
	thieves   *thieves
	direct    *directHosts
	beside    *beside
}

// Clusters and machines come and go, while calls to MAAS fail in every way, machines break, and VM hosts forget what
// MAAS requested. Nothing is lost, nothing is taken twice, and nothing that is not ours is touched.
func TestNoMachineIsLostWhateverFails(t *testing.T) {
	t.Logf("the same again: %s", attack.replay())
	if err := others(t.Context(), box); err != nil {
		t.Fatal(err)
	}
	hosts := startDirectHosts(t)
	canBeDirect = len(hosts.hosts) > 0
	a := begin(t)
	a.direct = hosts
	hosts.attackWith(a)
	t.Cleanup(hosts.calm)
	t.Cleanup(func() {
		faults, total := a.weather.figures()
		t.Logf("%s: %s", attack.replay(), a.figures.line(faults, total))
		if t.Failed() {
			t.Logf("it failed; the same again: %s", attack.replay())
		}
	})
	a.attack(t.Context())
	a.checkEnd(t.Context())
}

func begin(t *testing.T) *assault {
	t.Helper()
	hosts, err := vmHosts(t.Context(), box)
	if err != nil {
		t.Fatal(err)
	}
	lossy := newLossyHosts(box.MAAS, hosts)
	a := &assault{t: t, weather: newWeather(attack, lossy.begin), figures: newFigures(box.MAAS), direct: noDirectHosts(), beside: &beside{}}
	a.auditor, err = audit.Open(box.MAAS, box.Client, audit.Options{MayTake: mayTake, In: isHere})
	if err != nil {
		t.Fatal(err)
	}
	a.endpoints = watchEndpoints(box.MAAS, func(cluster, what string) { t.Errorf("%s\n%s", what, a.dump(t.Context(), cluster)) })
	if a.thieves, err = newThieves(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	var watching sync.WaitGroup
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	a.view = watchObjects(ctx, box.Client, &watching)
	t.Cleanup(func() {
		box.MAAS.ClearFaults()
		box.MAAS.SetHook(nil)
		a.thieves.stay.Wait()
		stop()
		watching.Wait()
		a.endpoints.close()
		a.figures.close()
		a.auditor.Close()
	})
	box.MAAS.SetHook(func(call simulator.Call, phase simulator.Phase) error {
		a.thieves.hook(call, phase)
		return lossy.hook(call, phase)
	})
	box.MAAS.ChooseFaults(a.choose)
	return a
}

// mayTake reports whether a machine that is there from the beginning is for clusters.
func mayTake(m simulator.MachineSnapshot) bool {
	return m.Status == "Ready" && (m.Pool == "capi" || m.Pool == shapedPool) && m.VMHost == ""
}

// choose returns the fault of a call of ours; calls of others have none.
func (a *assault) choose(call simulator.Call) *simulator.Fault {
	if call.User != ourUser && call.User != lesserUser {
		return nil
	}
	fault := a.weather.choose(call)
	a.thieves.expect(call, fault)
	return fault
}

// attack leads all clusters through their lives, some at once.
func (a *assault) attack(ctx context.Context) {
	numbers := make(chan int)
	var working sync.WaitGroup
	for range attack.atOnce {
		working.Go(func() {
			for number := range numbers {
				a.lead(ctx, fmt.Sprintf("chaos-%d", number), number)
			}
		})
	}
	for number := range attack.clusters {
		if a.t.Failed() {
			break
		}
		numbers <- number
	}
	close(numbers)
	working.Wait()
	a.beside.end(ctx, a)
}

// lead runs a cluster's life from its creation until nothing of it is left. Errors are reported, and other lives
// continue.
func (a *assault) lead(ctx context.Context, name string, number int) {
	key := client.ObjectKey{Namespace: namespace, Name: name}
	a.figures.add("clusters", 1)
	began := time.Now()
	err := a.live(ctx, key, number)
	if err != nil {
		a.t.Errorf("%s: %v\n%s", name, err, a.dump(ctx, name))
	}
	a.endpoints.endOf(name)
	ctx, cancel := context.WithTimeout(ctx, attack.limit)
	defer cancel()
	if err := box.DeleteCluster(ctx, key); err != nil {
		a.t.Errorf("%s: %v\n%s", name, err, a.dump(ctx, name))
		return
	}
	if err := forgetKey(ctx, key); err != nil {
		a.t.Error(err)
	}
	a.t.Logf("%s came and went in %s", name, time.Since(began).Round(time.Second))
	findings, err := a.auditor.Gone(ctx, audit.Who{Namespace: namespace, Cluster: name})
	a.report("when "+name+" was gone", findings, err)
	a.agreeInLXD(ctx, "when "+name+" was gone", name)
}

func (a *assault) live(ctx context.Context, key client.ObjectKey, number int) error {
	does := meddlingWith(number)
	if err := box.ApplyYAML(ctx, strings.NewReader(manifestOf(key, does))); err != nil {
		return err
	}
	if err := a.meet(ctx, key); err != nil {
		return err
	}
	roll := dice(number, 0)
	if roll.IntN(5) == 0 {
		return a.abandon(ctx, key.Name, number, time.Duration(roll.IntN(8000))*time.Millisecond)
	}
	first, next, err := a.anchored(ctx, key.Name, number, does)
	if err != nil {
		return err
	}
	var leave []string
	var each sync.WaitGroup
	var joined [members]member
	errs := make([]error, members+1)
	each.Go(func() { errs[members] = a.invade(ctx, key, does, first) })
	for i := range members {
		m := newMember(dice(number, next+i), key.Name, next+i, number*spread+next+i)
		each.Go(func() { joined[i], errs[i] = a.join(ctx, m) })
	}
	each.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, m := range joined {
		if m.Cut == 0 && !m.Stays {
			leave = append(leave, m.Name)
		}
	}
	a.agree(ctx, "with all machines of "+key.Name, key.Name)
	a.beside.begin(ctx, a)
	if err := a.meddle(ctx, key, does, leave); err != nil {
		return err
	}
	a.agree(ctx, "after "+string(does)+" of "+key.Name, key.Name)
	if err := a.removeAll(ctx, leave); err != nil {
		return err
	}
	a.agree(ctx, "after machines of "+key.Name+" were deleted", key.Name)
	return nil
}

// spread keeps the static addresses of clusters apart that live side by side.
const spread = mostAnchors + members

// dice are those of one machine of one cluster.
func dice(cluster, machine int) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(attack.seed), uint64(cluster*1000+machine)))
}

// meet waits until a cluster has its owner id and its endpoint, and has both watched.
func (a *assault) meet(ctx context.Context, key client.ObjectKey) error {
	ctx, cancel := context.WithTimeout(ctx, attack.limit)
	defer cancel()
	cluster := &infrav1.MaasCluster{}
	err := eventually.Wait(ctx, key.Name+" to have an endpoint", func() (bool, string, error) {
		err := box.Client.Get(ctx, key, cluster)
		return cluster.Spec.ControlPlaneEndpoint.Host != "", sandbox.Conditions(cluster.Status.Conditions), err
	})
	if err != nil {
		return err
	}
	a.endpoints.begin(key.Name, cluster.Spec.ControlPlaneEndpoint.Host)
	a.direct.learn(key.Name, cluster.Annotations[infrav1.OwnerIDAnnotation])
	return a.auditor.Learn(ctx)
}

// anchored makes control planes until one is provisioned; it returns that one, and the number of the next machine.
func (a *assault) anchored(ctx context.Context, cluster string, number int, does meddling) (first member, next int, err error) {
	for next = 1; next <= mostAnchors; next++ {
		m := anchor(dice(number, next), cluster, next, number*spread+next, does)
		if err := a.create(ctx, m); err != nil {
			return m, next, err
		}
		provisioned, err := a.settle(ctx, m)
		if err != nil || provisioned {
			return m, next + 1, err
		}
		if err := a.remove(ctx, m.Name); err != nil {
			return m, next, err
		}
	}
	return first, next, fmt.Errorf("none of %d control planes was provisioned", mostAnchors)
}

// join makes a machine, and waits until it is settled, or deletes it in the middle. It returns the member, or the one that
// took its machine over.
func (a *assault) join(ctx context.Context, m member) (member, error) {
	if err := a.create(ctx, m); err != nil {
		return m, err
	}
	if m.Cut > 0 {
		if err := pause(ctx, m.Cut); err != nil {
			return m, err
		}
		a.figures.add("machine lives cut short", 1)
		return m, a.remove(ctx, m.Name)
	}
	provisioned, err := a.settle(ctx, m)
	if err != nil || !provisioned {
		return m, err
	}
	a.figures.add("machine lives with a provisioned machine", 1)
	if m.Remedied {
		if err := a.remedy(ctx, m); err != nil {
			return m, err
		}
	}
	if m.Of != "" {
		return a.handOver(ctx, m)
	}
	return m, nil
}

// abandon makes machines, all at once, and leaves them after a while as they are.
func (a *assault) abandon(ctx context.Context, cluster string, number int, after time.Duration) error {
	for i := range members + 1 {
		m := newMember(dice(number, i+1), cluster, i+1, number*spread+i+1)
		if err := a.create(ctx, m); err != nil {
			return err
		}
		a.figures.add("machine lives cut short", 1)
	}
	return pause(ctx, after)
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (a *assault) removeAll(ctx context.Context, names []string) error {
	errs := make([]error, len(names))
	var each sync.WaitGroup
	for i, name := range names {
		each.Go(func() { errs[i] = a.remove(ctx, name) })
	}
	each.Wait()
	return errors.Join(errs...)
}

// agree checks that MAAS and Kubernetes agree about a cluster, which may take MAAS a moment.
func (a *assault) agree(ctx context.Context, when, cluster string) {
	a.auditUntil(ctx, when, func(ctx context.Context) ([]audit.Finding, error) {
		return a.auditor.Steady(ctx, audit.Who{Namespace: namespace, Cluster: cluster})
	})
	a.agreeInLXD(ctx, when, cluster)
}

// agreeInLXD is agree for the direct hosts and Kubernetes.
func (a *assault) agreeInLXD(ctx context.Context, when, cluster string) {
	a.auditUntil(ctx, when, func(ctx context.Context) ([]audit.Finding, error) { return a.direct.findings(ctx, cluster) })
}

// auditUntil audits until there are no findings, or the time is over.
func (a *assault) auditUntil(ctx context.Context, when string, look func(context.Context) ([]audit.Finding, error)) {
	limited, cancel := context.WithTimeout(ctx, agreeWithin)
	defer cancel()
	var last []audit.Finding
	err := eventually.Wait(limited, "MAAS and Kubernetes to agree", func() (bool, string, error) {
		findings, err := look(ctx)
		last = findings
		return len(findings) == 0, fmt.Sprint(findings), err
	})
	if len(last) > 0 {
		err = nil // The findings describe it better.
	}
	a.report(when, last, err)
}

// checkEnd checks that MAAS is as it was before the first cluster.
func (a *assault) checkEnd(ctx context.Context) {
	box.MAAS.ClearFaults()
	box.MAAS.SetHook(nil)
	a.thieves.stay.Wait()
	a.direct.calm()
	a.auditUntil(ctx, "at the end", func(ctx context.Context) ([]audit.Finding, error) { return a.auditor.Gone(ctx, audit.Who{}) })
	findings, err := a.direct.remains()
	a.report("at the end", findings, err)
}

// report fails the test for each new finding.
func (a *assault) report(when string, findings []audit.Finding, err error) {
	if err != nil {
		a.t.Errorf("%s: %v", when, err)
	}
	for _, finding := range a.figures.found(findings) {
		a.t.Errorf("%s: %s%s", when, finding, history(finding.What))
	}
}
