// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

// The names of the LXDHosts in each walker's namespace. Those of one name are the same LXD, each behind a proxy of its own.
const (
	directHost  = "direct"
	secondHost  = "second"
	directTag   = "direct" // of both
	directRange = "10.77.0.0/24"
)

// directHosts are LXDs, by the names of their LXDHosts.
type directHosts map[string]*directhost.Host

// startLXDs runs real LXDs, and returns none where they can't run: the other kinds of lives need none.
func startLXDs(t *testing.T) directHosts {
	t.Helper()
	if !lxdtest.Possible(t) {
		return nil
	}
	return directHosts{directHost: directhost.Start(t), secondHost: directhost.Start(t)}
}

// withLXD returns the kinds of lives that can be led, and are.
func withLXD(servers directHosts) []*kind {
	return slices.DeleteFunc(slices.Clone(kinds), func(k *kind) bool { return (k.direct && servers == nil) || (k.covered && !everything) })
}

// addDirectHosts makes the LXDHosts in each walker's namespace, until the test ends.
func addDirectHosts(t *testing.T, walkers []*walker, servers directHosts) {
	t.Helper()
	var hosts []*infrav1.LXDHost
	for name, server := range servers {
		if err := server.AddImage(t.Context(), image); err != nil {
			t.Fatal(err)
		}
		for _, w := range walkers {
			host, secret := server.Behind(t, w.board.between(w.user, name)).Objects(client.ObjectKey{Namespace: w.namespace, Name: name}, "zone-a")
			host.Spec.Subnet, host.Spec.Tags = directRange, []string{directTag}
			// All walkers have VMs there at once.
			host.Spec.OverCommit = infrav1.LXDOverCommit{CPUPercent: 1000, MemoryPercent: 1000}
			for _, object := range []client.Object{secret, host} {
				if err := box.Client.Create(t.Context(), object); err != nil {
					t.Fatal(err)
				}
			}
			t.Cleanup(func() { removeDirectHost(t, host) })
			w.lxds, hosts = servers, append(hosts, host)
		}
	}
	for _, host := range hosts {
		err := eventually.Wait(within(t, shortTimeout), "the LXDHosts of "+host.Namespace, func() (bool, string, error) {
			err := box.Client.Get(t.Context(), client.ObjectKeyFromObject(host), host)
			return conditions.IsTrue(host, infrav1.ReadyCondition), sandbox.Conditions(host.Status.Conditions), err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// removeDirectHost returns when LXD has no VM with our marks any more, which the manager finds out.
func removeDirectHost(t *testing.T, host *infrav1.LXDHost) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), shortTimeout)
	defer cancel()
	if err := box.Client.Delete(ctx, host); err != nil {
		t.Error(err)
		return
	}
	err := eventually.Wait(ctx, "the deletion of the LXDHost of "+host.Namespace, func() (bool, string, error) {
		err := box.Client.Get(ctx, client.ObjectKeyFromObject(host), host)
		return apierrors.IsNotFound(err), sandbox.Conditions(host.Status.Conditions), client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Error(err)
	}
}

// ownerOf returns a cluster's owner id.
func ownerOf(t *testing.T, key client.ObjectKey) string {
	t.Helper()
	cluster := &infrav1.MaasCluster{}
	if err := box.Client.Get(t.Context(), key, cluster); err != nil {
		t.Fatal(err)
	}
	return cluster.Annotations[infrav1.OwnerIDAnnotation]
}

// checkVMs wants the LXDs to have as many VMs with names of a cluster, and MAAS so many devices.
func (w *walker) checkVMs(t *testing.T, owner string, want, devices int) {
	t.Helper()
	isOurs := func(name string) bool {
		return slices.ContainsFunc(maas.HostnameSuffixes(owner), func(suffix string) bool { return strings.HasSuffix(name, suffix) })
	}
	var inLXD, inMAAS []string
	for host, server := range w.lxds {
		for name, state := range server.VMs(t) {
			if isOurs(name) {
				inLXD = append(inLXD, name+" "+state+" on "+host)
			}
		}
	}
	for _, m := range box.MAAS.Devices() {
		if isOurs(m.Hostname) {
			inMAAS = append(inMAAS, m.Hostname)
		}
	}
	if len(inLXD) != want || len(inMAAS) != devices {
		t.Errorf("LXD has %v, want %d VMs; MAAS has %v, want %d devices", inLXD, want, inMAAS, devices)
	}
}
