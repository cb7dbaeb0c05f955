// SPDX-License-Identifier: Apache-2.0

package drains_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/audit"
	"github.com/capmaas/cluster-api-provider-maas/test/document"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/kubelet"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

// pool has all VM hosts.
const pool = "capi"

// betweenDeaths is the most by which the time between two deaths of the manager is longer than its lease.
const betweenDeaths = 20 * time.Second

// TestHostsAreEmptiedInRandomOrder: each host is empty when that was asked for, no cluster has ever more than one control
// plane less than it should have, or none, and nothing is left over.
func TestHostsAreEmptiedInRandomOrder(t *testing.T) {
	t.Logf("again: %s", attack.replay())
	dice := rand.New(rand.NewPCG(uint64(attack.seed), 0))
	if attack.real {
		startHosts(t)
	}
	auditor, err := audit.Open(box.MAAS, box.Client, audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer auditor.Close()

	a := &assault{lives: startClusters(t), auditor: auditor, dice: dice}
	var watched []life.Replicas
	for i, l := range a.lives {
		watched = append(watched, life.Replicas{Life: l, ControlPlanes: attack.clusters[i].controlPlanes})
	}
	endWatch := life.WatchQuorum(t, watched...)
	for range attack.rounds {
		names := hostNames()
		dice.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for _, name := range names[:cmp.Or(attack.hosts, len(names))] {
			a.drain(t, name)
		}
	}
	endWatch()
	t.Logf("the manager was killed %d times, and had ended by itself %d times; %d VMs left hosts", a.deaths, a.absent, a.left)
	for _, l := range a.lives {
		l.Delete()
	}
	findings, err := auditor.Gone(t.Context(), audit.Who{})
	report(t, "when the clusters were gone", findings, err)
}

func report(t *testing.T, when string, findings []audit.Finding, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("the audit %s: %v", when, err)
	}
	for _, finding := range findings {
		t.Errorf("%s: %s", when, finding)
	}
}

// assault is the attack on the clusters.
type assault struct {
	lives        []*life.Life
	auditor      *audit.Auditor
	dice         *rand.Rand
	deaths, left int
	// byHand is whether a host is emptied as docs/maintenance.md says: every second one is, beginning with the first.
	byHand bool
	// absent is how often the manager was not running when it was to die.
	absent int
}

// drain empties a host, and returns it into service.
func (a *assault) drain(t *testing.T, name string) {
	t.Helper()
	had := vmsOn(t, name)
	began := time.Now()
	host := &infrav1.LXDHost{}
	host.Namespace, host.Name = sandbox.Namespace, name
	var shell *document.Shell
	var end func()
	if a.byHand = !a.byHand; a.byHand {
		shell = maintenance(t, name)
		end = beginDrain(t, shell)
	} else {
		life.ChangeLXDHost(t, box, host, func(spec *infrav1.LXDHostSpec) { spec.Evacuate = true })
	}
	l := a.lives[0]
	next := time.Now().Add(a.pause() - lease)
	l.Wait("host "+name+" to be empty", func() (bool, string, error) {
		if time.Now().After(next) {
			next = time.Now().Add(a.pause())
			if err := a.killManager(); err != nil {
				return false, "", err
			}
		}
		return a.has(t, host, infrav1.EvacuatedCondition)
	})
	if there := vmsOn(t, name); len(there) > 0 {
		t.Errorf("%s is Evacuated, and has %s", name, strings.Join(there, ", "))
	}
	t.Logf("%s was emptied of %d VMs in %v", name, len(had), time.Since(began).Round(time.Second))
	a.left += len(had)
	if a.byHand {
		end()
		maintain(t, shell, name)
	} else {
		life.ChangeLXDHost(t, box, host, func(spec *infrav1.LXDHostSpec) { spec.Evacuate = false })
	}
	l.Wait("host "+name+" to take VMs again", func() (bool, string, error) {
		return a.has(t, host, infrav1.SchedulableCondition)
	})
	for i, l := range a.lives {
		l.Available(attack.clusters[i].controlPlanes + attack.clusters[i].workers)
	}
	findings, err := a.auditor.Steady(t.Context(), audit.Who{})
	report(t, "after the drain of "+name, findings, err)
}

// killManager ends the manager. One that has ended by itself is no failure: it does when it can't renew its lease.
func (a *assault) killManager() error {
	err := box.Manager.Kill()
	if errors.Is(err, kubelet.ErrNotRunning) {
		a.absent++
		return nil
	}
	a.deaths++
	return err
}

// has reads an LXDHost, and reports whether a condition is true. A computer that is too busy to respond is no failure.
func (a *assault) has(t *testing.T, host *infrav1.LXDHost, condition string) (bool, string, error) {
	if err := box.Client.Get(t.Context(), client.ObjectKeyFromObject(host), host); err != nil {
		return false, err.Error(), t.Context().Err()
	}
	return conditions.IsTrue(host, condition), conditions.GetMessage(host, condition), nil
}

// pause is the time from one death of the manager to the next.
func (a *assault) pause() time.Duration {
	return lease + time.Duration(a.dice.Int64N(int64(betweenDeaths)))
}

// hostNames are the VM hosts of MAAS, which are named like their LXDHosts.
func hostNames() (names []string) {
	for _, host := range box.MAAS.VMHosts() {
		names = append(names, host.Name)
	}
	return names
}

// vmsOn are the VMs that really are on a host.
func vmsOn(t *testing.T, name string) (vms []string) {
	t.Helper()
	for _, host := range box.MAAS.VMHosts() {
		if host.Name == name && host.Unreachable {
			t.Errorf("%s does not respond", name)
		}
		for _, vm := range host.VMs {
			if host.Name == name {
				vms = append(vms, vm.Name)
			}
		}
	}
	return vms
}

// startHosts runs three real LXDs, and makes VM hosts of them. Any two have room for all VMs.
func startHosts(t *testing.T) {
	t.Helper()
	lxdtest.Require(t)
	for i, zone := range []string{"a", "b", "c"} {
		address := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, 0, byte(180 + i)}), 24)
		as := directhost.VMHost{Name: "lxd-" + zone, Zone: "zone-" + zone, Pool: pool, OverCommit: 10}
		if err := directhost.StartAt(t, address).RegisterAsVMHost(box.MAASURL, box.MAASAPIKey, as); err != nil {
			t.Fatal(err)
		}
	}
}

// small is the size of all VMs: the computer that runs the test is small, too.
var small = map[string]any{"minCPU": 1, "minMemory": 2048, "minDiskSize": 8}

// startClusters creates the clusters, and returns when all are available.
func startClusters(t *testing.T) []*life.Life {
	t.Helper()
	var names []string
	for i := range attack.clusters {
		names = append(names, fmt.Sprintf("fleet-%d", i))
	}
	lives := life.Several(t, box, names...)
	for i, l := range lives {
		l.Create(life.Topology(t, l.Key.Name, "v1.35.0", attack.clusters[i].controlPlanes, attack.clusters[i].workers, map[string]any{
			"dnsDomain": "maas.sim", "image": "u-2204-k8s-1.35", "lxdConfig": map[string]any{},
			"workerMode": "lxd", "workerLXDConfig": map[string]any{}, "controlPlane": small, "worker": small,
		}))
	}
	for i, l := range lives {
		l.Available(attack.clusters[i].controlPlanes + attack.clusters[i].workers)
	}
	return lives
}
