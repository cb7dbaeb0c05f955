// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/audit"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	// vmImage is what VMs boot.
	vmImage = "u-2204-k8s-1.35"
	// directPool has the VMs on direct hosts: nobody looks for other machines there.
	directPool = "direct"
	// neighbourVM is on each LXD, and not ours.
	neighbourVM = "theirs"
	// betweenDeaths is how many changing calls there are from the death of one LXD to the next.
	betweenDeaths = 25
	// operatorLooks is how often the operator looks at what MaasMachines say.
	operatorLooks = 5 * time.Second
)

// directHosts are LXDs on which VMs are made through LXD's own API. There are none where LXD can't run.
type directHosts struct {
	hosts map[string]*directhost.Host // by the names of their LXDHosts
	// neighbours are the neighbours' VMs as they were before, by the same names.
	neighbours map[string]string
	// alive is held for writing while an LXD is down, and for reading by whoever asks them.
	alive    sync.RWMutex
	starting sync.WaitGroup

	mutex    sync.Mutex
	attacker *assault // nil while all is calm
	changes  int
	owners   map[string]string // by the names of the clusters
}

func noDirectHosts() *directHosts {
	return &directHosts{hosts: map[string]*directhost.Host{}, neighbours: map[string]string{}, owners: map[string]string{}}
}

// startDirectHosts runs LXDs with some projects each, until the test ends. An LXDHost leads to each through a proxy.
func startDirectHosts(t *testing.T) *directHosts {
	t.Helper()
	d := noDirectHosts()
	if !lxdtest.Possible(t) {
		return d
	}
	for _, zone := range []string{"a", "b"} {
		server := directhost.Start(t)
		for i := range attack.direct {
			d.add(t, server.In(fmt.Sprintf("project%d", i)), fmt.Sprintf("direct-%s%d", zone, i), "zone-"+zone)
		}
	}
	d.awaitReady(t)
	ctx, cancel := context.WithCancel(t.Context())
	var operator sync.WaitGroup
	operator.Go(func() { wait.UntilWithContext(ctx, func(ctx context.Context) { d.mendByHand(ctx, t) }, operatorLooks) })
	t.Cleanup(func() { cancel(); operator.Wait() })
	return d
}

// leftDirectory is what LXD says of a VM that it can't delete.
var leftDirectory = regexp.MustCompile(`remove symlink "([^"]+)"`)

// mendByHand plays the operator of an LXD that was killed while it made a VM: that leaves a directory where LXD has a link,
// and LXD can't delete the VM before somebody removes it. The MaasMachine says so.
func (d *directHosts) mendByHand(ctx context.Context, t *testing.T) {
	machines := &infrav1.MaasMachineList{}
	if err := box.Client.List(ctx, machines); err != nil {
		return // It is looked at again.
	}
	for i := range machines.Items {
		found := leftDirectory.FindStringSubmatch(conditions.GetMessage(&machines.Items[i], infrav1.MachineDeployedCondition))
		if found == nil {
			continue
		}
		for _, host := range d.hosts {
			if filepath.Dir(found[1]) != filepath.Join(host.Daemon.Dir(), "virtual-machines") {
				continue
			}
			t.Logf("%s: removing %s by hand", machines.Items[i].Name, found[1])
			if err := os.RemoveAll(found[1]); err != nil {
				t.Error(err)
			}
			break
		}
	}
}

// add makes an LXDHost of a project of an LXD.
func (d *directHosts) add(t *testing.T, server *directhost.Host, name, zone string) {
	t.Helper()
	if err := errors.Join(server.Make(neighbourVM), server.AddImage(t.Context(), vmImage)); err != nil {
		t.Fatal(err)
	}
	there, err := server.Instances()
	if err != nil {
		t.Fatal(err)
	}
	d.hosts[name], d.neighbours[name] = server, identity(there[neighbourVM])
	host, secret := server.Behind(t, d.between(t, name)).Objects(client.ObjectKey{Namespace: namespace, Name: name}, zone)
	host.Spec.ResourcePool, host.Spec.Subnet = directPool, subnet
	host.Spec.OverCommit = infrav1.LXDOverCommit{CPUPercent: 1000, MemoryPercent: 1000}
	for _, object := range []client.Object{secret, host} {
		if err := box.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { d.remove(t, host) })
}

// identity is what a VM keeps as long as nobody replaces or changes it.
func identity(vm api.Instance) string {
	return fmt.Sprintf("%s %s, made at %s", vm.Name, vm.Config["volatile.uuid"], vm.CreatedAt)
}

func (d *directHosts) awaitReady(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), attack.limit)
	defer cancel()
	for name := range d.hosts {
		host := &infrav1.LXDHost{}
		err := eventually.Wait(ctx, "LXDHost "+name+" to be ready", func() (bool, string, error) {
			err := box.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, host)
			return conditions.IsTrue(host, infrav1.ReadyCondition), sandbox.Conditions(host.Status.Conditions), err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// remove returns when LXD has no VM with our marks any more, which the manager finds out.
func (d *directHosts) remove(t *testing.T, host *infrav1.LXDHost) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), agreeWithin)
	defer cancel()
	if err := box.Client.Delete(ctx, host); err != nil {
		t.Error(err)
		return
	}
	if err := eventually.Wait(ctx, "the deletion of LXDHost "+host.Name, func() (bool, string, error) {
		err := box.Client.Get(ctx, client.ObjectKeyFromObject(host), host)
		return apierrors.IsNotFound(err), sandbox.Conditions(host.Status.Conditions), client.IgnoreNotFound(err)
	}); err != nil {
		t.Error(err)
	}
}

// attackWith makes calls to the LXDs fail from now on, as an assault chooses; with nil, everything works.
func (d *directHosts) attackWith(a *assault) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.attacker = a
}

// attackedBy returns who chooses the faults of calls; nil while all is calm.
func (d *directHosts) attackedBy() *assault {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.attacker
}

// between is what is in front of an LXD.
func (d *directHosts) between(t *testing.T, name string) lxdtest.Middleware {
	return func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			call, ours := directhost.CallOf(r)
			if a := d.attackedBy(); a != nil && ours {
				d.wear(t, a, call, name)
				befall(a.weather.choose(call), lxd, w, r)
				return
			}
			lxd.ServeHTTP(w, r)
		})
	}
}

// wear kills an LXD once in so many changing calls, during one to it. Its VMs run on, and it is started again at once.
func (d *directHosts) wear(t *testing.T, a *assault, call simulator.Call, name string) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if call.Method == http.MethodGet || d.attacker == nil {
		return
	}
	d.changes++
	if d.changes%betweenDeaths != 0 {
		return
	}
	a.figures.add("deaths of an LXD", 1)
	d.starting.Go(func() {
		d.alive.Lock()
		defer d.alive.Unlock()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), attack.limit)
		defer cancel()
		if err := d.hosts[name].Daemon.Restart(ctx); err != nil {
			t.Error(err)
		}
	})
}

// learn records the owner id of a cluster.
func (d *directHosts) learn(cluster, owner string) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.owners[cluster] = owner
}

// ownerOf is the owner id of a cluster that was learned.
func (d *directHosts) ownerOf(cluster string) string {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.owners[cluster]
}

// findings are what is wrong in the LXDs about a cluster: a VM with its mark that no object has.
func (d *directHosts) findings(ctx context.Context, cluster string) ([]audit.Finding, error) {
	d.alive.RLock()
	defer d.alive.RUnlock()
	owner := d.ownerOf(cluster)
	list := &infrav1.MaasMachineList{}
	if err := box.Client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster}); err != nil {
		return nil, fmt.Errorf("listing the machines of %s: %w", cluster, err)
	}
	var findings []audit.Finding
	for name, host := range d.hosts {
		there, err := host.Instances()
		if err != nil {
			return nil, err
		}
		for vm, instance := range there {
			if instance.Config[directhost.OwnerMark] != owner {
				continue
			}
			at := slices.IndexFunc(list.Items, func(m infrav1.MaasMachine) bool { return maas.Hostname(m.Name, owner) == vm })
			switch {
			case at < 0:
				findings = append(findings, audit.Finding{Kind: audit.Leaked, What: fmt.Sprintf("no object claims VM %s in the LXD %s", vm, name)})
			case !mayBeOn(&list.Items[at], name):
				findings = append(findings, audit.Finding{Kind: audit.Doubled,
					What: fmt.Sprintf("VM %s is in the LXD %s, and %s has that in %s", vm, name, list.Items[at].Name, list.Items[at].Status.LXDHost)})
			}
		}
	}
	return findings, nil
}

// mayBeOn reports whether a host has the machine's VM, or is to be searched for it.
func mayBeOn(m *infrav1.MaasMachine, host string) bool {
	recorded, err := record.OfMachine(m)
	return m.Status.LXDHost == host || err == nil && slices.Contains(recorded.Hosts, lxd.DirectRef(namespace, host))
}

// remains are what is in the LXDs besides what was there before.
func (d *directHosts) remains() ([]audit.Finding, error) {
	d.alive.RLock()
	defer d.alive.RUnlock()
	var findings []audit.Finding
	for name, host := range d.hosts {
		there, err := host.Instances()
		if err != nil {
			return nil, err
		}
		if now := identity(there[neighbourVM]); now != d.neighbours[name] {
			findings = append(findings, audit.Finding{Kind: audit.Wiped, What: fmt.Sprintf("VM %s in the LXD %s changed from %s to %s", neighbourVM, name, d.neighbours[name], now)})
		}
		delete(there, neighbourVM)
		for vm := range there {
			findings = append(findings, audit.Finding{Kind: audit.Leaked, What: fmt.Sprintf("VM %s is left in the LXD %s", vm, name)})
		}
	}
	return findings, nil
}

// calm ends the attack.
func (d *directHosts) calm() {
	d.attackWith(nil)
	d.starting.Wait()
}
