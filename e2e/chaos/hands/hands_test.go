// SPDX-License-Identifier: Apache-2.0

package hands_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/e2e/chaos/clusters"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/audit"
)

// cases are what other users do, each to a cluster of its own. All run at the same time.
var cases = []struct {
	what string
	tag  string
	// metal and hosts are the numbers of machines and VM hosts for the case alone.
	metal, hosts int
	do           func(*bed)
}{
	{"all control planes are powered off, and on again", "power", 1, 1, powerOffAndOn},
	{"machines are released", "release", 2, 1, releaseMachines},
	{"a machine is released, and deployed by another user", "taken", 1, 0, takenBy("operator")},
	{"a machine is released, and deployed by our own user", "taken-self", 1, 0, takenBy("admin")},
	{"a machine is released, and deployed by somebody while ours is deleted", "taken-late", 1, 0, takenWhileDeleting},
	{"machines are marked broken", "broken", 1, 1, markBroken},
	{"machines are locked", "locked", 1, 1, lock},
	{"machines are renamed", "renamed", 1, 1, rename},
	{"machines are moved to another zone and pool", "moved", 1, 1, move},
	{"a VM is deleted in MAAS", "vm-deleted", 0, 1, deleteVM},
	{"a VM is deleted on its host, and MAAS notices", "vm-lost", 0, 1, loseVM},
	{"a VM is deleted on its host, and MAAS does not notice", "vm-lost-late", 0, 1, loseVMUnnoticed},
	{"a VM host is removed from MAAS", "host-removed", 0, 1, removeHost},
	{"a VM host can't be reached while a VM is made", "host-away", 0, 1, hostAwayForCreate},
	{"one of two VM hosts can't be reached", "host-other", 0, 2, otherHost},
	{"a VM host can't be reached while a VM is deleted", "host-stays", 0, 1, hostAwayForDelete},
	{"a VM host is full", fullTag, 0, 1, waitForRoom},
	{"the VM's hostname is taken by another user's machine", "name-taken", 1, 1, takeHostname},
	{"the VM's address is taken", "vm-address", 0, 1, takeAddressOfVM},
	{"the machine's address is taken", "metal-address", 1, 0, takeAddressOfMetal},
}

// fullTag is the tag of the case whose VM host is full from the beginning.
const fullTag = "host-full"

func TestSomebodyElsesHands(t *testing.T) {
	auditor := openAudit(t)
	fillHost(clusters.As(t, box, "operator"), fullTag)
	t.Run("cases", func(t *testing.T) {
		for _, c := range cases {
			t.Run(c.what, func(t *testing.T) {
				t.Parallel()
				b := &bed{tag: c.tag, operator: clusters.As(t, box, "operator"), before: metalOf(c.tag)}
				b.Cluster = clusters.New(t, box, clusters.Options{
					Key: client.ObjectKey{Namespace: "default", Name: c.tag}, Auditor: auditor, Neighbours: true,
				})
				c.do(b)
			})
		}
	})
	stats := box.MAAS.Calls()
	t.Logf("%d cases; MAAS was called %d times, over %d connections", len(cases), stats.Total, stats.Connections)
}

func openAudit(t *testing.T) *audit.Auditor {
	t.Helper()
	auditor, err := audit.Open(box.MAAS, box.Client, audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(auditor.Close)
	return auditor
}

// bed is a cluster with its case's machines.
type bed struct {
	*clusters.Cluster
	tag      string
	operator *clusters.Person
	before   []simulator.MachineSnapshot
}

// metalOf is how the case's bare metal is.
func metalOf(tag string) []simulator.MachineSnapshot {
	var metal []simulator.MachineSnapshot
	for _, m := range box.MAAS.Machines() {
		if m.VMHost == "" && slices.Contains(m.Tags, tag) {
			metal = append(metal, m)
		}
	}
	return metal
}

// vm and metal describe workers that only this case's hosts, or bare metal, can be.
func (b *bed) vm(name string) clusters.Machine {
	return clusters.Machine{Name: b.tag + "-" + name, VM: true, Worker: true, Tags: []string{b.tag}}
}

func (b *bed) metal(name string) clusters.Machine {
	return clusters.Machine{Name: b.tag + "-" + name, Worker: true, Tags: []string{b.tag}}
}

// running adds machines, and waits until they run.
func (b *bed) running(machines ...clusters.Machine) {
	b.Helper()
	b.Add(machines...)
	for _, m := range machines {
		b.AwaitRunning(m.Name)
	}
}

// serving adds control planes, and waits until the API endpoint leads to all of them.
func (b *bed) serving(machines ...clusters.Machine) (endpoint []string) {
	b.Helper()
	for i, m := range machines {
		m.Worker = false
		b.Add(m)
		b.AwaitProvisioned(m.Name)
		b.Join(m.Name)
		b.AwaitRunning(m.Name)
		machines[i] = m
		endpoint = append(endpoint, b.address(m.Name))
	}
	b.LeadsTo(endpoint...)
	return endpoint
}

func (b *bed) address(name string) string {
	b.Helper()
	addresses := b.In(name).Addresses
	if len(addresses) == 0 {
		b.Fatalf("%s has no address", name)
	}
	return addresses[0].String()
}

// replaced waits until a machine reports that it won't run again, with a reason.
func (b *bed) replaced(name, reason string) {
	b.Helper()
	m := b.Await(name+" to say "+reason, name, func(m *infrav1.MaasMachine) bool {
		return conditions.GetReason(m, infrav1.MachineDeployedCondition) == reason && m.Status.FailureReason == reason
	})
	if conditions.IsTrue(m, infrav1.ReadyCondition) {
		b.Errorf("%s is Ready, and %s", name, reason)
	}
	b.checkEvents(name, reason, 0)
}

// mostEvents is how many events there may be of one thing: a manager whose cache lags, or that dies, repeats one.
const mostEvents = 3

// checkEvents checks that there are events for a reason, and that they are not repeated all the time.
func (b *bed) checkEvents(name, reason string, least int) {
	b.Helper()
	if n := b.Events(name)[reason]; n < least || n > mostEvents {
		b.Errorf("%s: %d events say %s, want %d to %d", name, n, reason, least, mostEvents)
	}
}

// finish deletes the cluster, if that is still to do, and checks that nothing is left and that the case's bare metal is
// unchanged.
func (b *bed) finish() {
	b.Helper()
	b.Delete()
	b.CheckNothingLeft()
	b.Wait("the machines to be back in the pool", func() (bool, string, error) {
		diff := cmp.Diff(b.before, metalOf(b.tag), cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}))
		return diff == "", diff, nil
	})
}
