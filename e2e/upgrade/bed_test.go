// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
)

const (
	pool = "capi" // has all machines of the region
	// overCommit lets a small computer promise enough cores.
	overCommit = 10
)

// host is an LXD, in a zone of its own.
type host struct {
	*directhost.Host
	name, zone string
}

// key is that of its LXDHost.
func (h *host) key() client.ObjectKey {
	return client.ObjectKey{Namespace: sandbox.Namespace, Name: h.name}
}

// bed are the LXDs of all rounds.
type bed []*host

func newBed(t *testing.T) bed {
	t.Helper()
	var b bed
	for i, zone := range []string{"a", "b", "c"} {
		address := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, 0, byte(180 + i)}), 24)
		h := &host{Host: directhost.StartAt(t, address), name: "lxd-" + zone, zone: "zone-" + zone}
		box.AddLXD(h.name, h.Daemon)
		for _, name := range []string{image, newImage} {
			if err := h.AddImage(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		b = append(b, h)
	}
	return b
}

// register makes VM hosts of the LXDs, in a MAAS of a version that has VM hosts, and waits for their LXDHosts.
func (b bed) register(t *testing.T, version string) {
	t.Helper()
	if err := box.MAAS.Upgrade(version); err != nil {
		t.Fatal(err)
	}
	for _, h := range b {
		err := h.RegisterAsVMHost(box.MAASURL, box.MAASAPIKey, directhost.VMHost{Name: h.name, Zone: h.zone, Pool: pool, OverCommit: overCommit})
		if err != nil {
			t.Fatal(err)
		}
	}
	b.awaitReady(t)
}

// awaitReady waits until all LXDHosts are ready.
func (b bed) awaitReady(t *testing.T) {
	t.Helper()
	for _, h := range b {
		object := &infrav1.LXDHost{}
		wait(t, "LXDHost "+h.name+" to be ready", func() (bool, string, error) {
			err := box.Client.Get(t.Context(), h.key(), object)
			return err == nil && conditions.IsTrue(object, infrav1.ReadyCondition), sandbox.Conditions(object.Status.Conditions), client.IgnoreNotFound(err)
		})
	}
}

// prepare does for the LXDHosts of some what an operator does for the upgrade.
func (b bed) prepare(t *testing.T, which []int) {
	t.Helper()
	for _, i := range which {
		if err := b[i].Prepare(t.Context(), box.Client, b[i].key()); err != nil {
			t.Fatal(err)
		}
	}
}

// forget deletes the LXDHosts: nothing holds them when no VM is left.
func (b bed) forget(t *testing.T) {
	t.Helper()
	for _, h := range b {
		object := &infrav1.LXDHost{}
		object.Namespace, object.Name = h.key().Namespace, h.key().Name
		if err := box.Client.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range b {
		object := &infrav1.LXDHost{}
		wait(t, "the deletion of LXDHost "+h.name, func() (bool, string, error) {
			err := box.Client.Get(t.Context(), h.key(), object)
			return apierrors.IsNotFound(err), sandbox.Conditions(object.Status.Conditions), client.IgnoreNotFound(err)
		})
	}
}

// instances are the names of the instances in all LXDs, by host.
func (b bed) instances(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, h := range b {
		there, err := h.Instances()
		if err != nil {
			t.Fatal(err)
		}
		if len(there) > 0 {
			all[h.name] = slices.Sorted(maps.Keys(there))
		}
	}
	return all
}

// checkEmpty wants no instance in any LXD.
func (b bed) checkEmpty(t *testing.T) {
	t.Helper()
	if left := b.instances(t); len(left) > 0 {
		t.Errorf("left in LXD: %v", left)
	}
}

// machinesInMAAS are all machines and devices of MAAS, each with what a life of a cluster may leave on it.
func machinesInMAAS() []string {
	var lines []string
	for _, m := range slices.Concat(box.MAAS.Machines(), box.MAAS.Devices()) {
		lines = append(lines, fmt.Sprintf("%s %s %s owner=%q agent=%q annotations=%v", m.SystemID, m.Hostname, m.Status, m.Owner, m.AgentName, m.Annotations))
	}
	slices.Sort(lines)
	return lines
}

// checkMAAS wants MAAS to have the machines that it had.
func checkMAAS(t *testing.T, before []string) {
	t.Helper()
	if diff := cmp.Diff(before, machinesInMAAS()); diff != "" {
		t.Errorf("left in MAAS (- before, + after):\n%s", diff)
	}
}

// dumpBed shows the LXDHosts, and what is in the LXDs.
func (b bed) dump(t *testing.T) {
	var out strings.Builder
	for _, h := range b {
		object := &infrav1.LXDHost{}
		if err := box.Client.Get(t.Context(), h.key(), object); err != nil {
			fmt.Fprintln(&out, err)
		}
		fmt.Fprintf(&out, "LXDHost %s vmHost=%v credentials=%v vms=%v: %s\n", h.name, object.Spec.VMHost, object.Spec.CredentialsRef,
			object.Status.Clusters, sandbox.Conditions(object.Status.Conditions))
		there, err := h.Instances()
		if err != nil {
			fmt.Fprintln(&out, err)
		}
		for name, instance := range there {
			fmt.Fprintf(&out, "  %s %s", name, instance.Status)
			for key, value := range instance.Config {
				if strings.HasPrefix(key, "user.capmaas.") {
					fmt.Fprintf(&out, " %s=%s", key, value)
				}
			}
			fmt.Fprintln(&out)
		}
	}
	t.Log(out.String())
}
