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
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

// directHost is the name of the LXDHost in each walker's namespace. All are the same LXD, each behind a proxy of its own.
const directHost = "direct"

// startLXD runs a real LXD, and returns nil where it can't run: the other kinds of lives need none.
func startLXD(t *testing.T) *directhost.Host {
	t.Helper()
	if !lxdtest.Possible(t) {
		return nil
	}
	return directhost.Start(t)
}

// withLXD returns the kinds of lives that can be led, and are.
func withLXD(server *directhost.Host) []*kind {
	return slices.DeleteFunc(slices.Clone(kinds), func(k *kind) bool { return (k.direct && server == nil) || (k.covered && !everything) })
}

// addDirectHosts makes an LXDHost in each walker's namespace, until the test ends.
func addDirectHosts(t *testing.T, walkers []*walker, server *directhost.Host) {
	t.Helper()
	if server == nil {
		return
	}
	if err := server.AddImage(t.Context(), image); err != nil {
		t.Fatal(err)
	}
	for _, w := range walkers {
		w.lxd = server
		host, secret := server.Behind(t, w.board.between(w.user)).Objects(client.ObjectKey{Namespace: w.namespace, Name: directHost}, "zone-a")
		host.Spec.Subnet = "10.77.0.0/24"
		// All walkers have VMs there at once.
		host.Spec.OverCommit = infrav1.LXDOverCommit{CPUPercent: 1000, MemoryPercent: 1000}
		for _, object := range []client.Object{secret, host} {
			if err := box.Client.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { removeDirectHost(t, host) })
	}
	for _, w := range walkers {
		host := &infrav1.LXDHost{}
		err := sandbox.WaitFor(within(t, shortTimeout), "the LXDHost of "+w.namespace, func() (bool, string, error) {
			err := box.Client.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: directHost}, host)
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
	err := sandbox.WaitFor(ctx, "the deletion of the LXDHost of "+host.Namespace, func() (bool, string, error) {
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

// checkVMs wants LXD to have as many VMs with names of a cluster, and MAAS as many devices.
func (w *walker) checkVMs(t *testing.T, owner string, want int) {
	t.Helper()
	isOurs := func(name string) bool {
		return slices.ContainsFunc(maas.HostnameSuffixes(owner), func(suffix string) bool { return strings.HasSuffix(name, suffix) })
	}
	var inLXD, inMAAS []string
	for name, state := range w.lxd.VMs(t) {
		if isOurs(name) {
			inLXD = append(inLXD, name+" "+state)
		}
	}
	for _, m := range box.MAAS.Devices() {
		if isOurs(m.Hostname) {
			inMAAS = append(inMAAS, m.Hostname)
		}
	}
	if len(inLXD) != want || len(inMAAS) != want {
		t.Errorf("LXD has %v, and MAAS %v, want %d VMs with a device each", inLXD, inMAAS, want)
	}
}
