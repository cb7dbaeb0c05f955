// SPDX-License-Identifier: Apache-2.0

package flows_test

import (
	"net/netip"
	"slices"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capmaas/cluster-api-provider-maas/e2e/life"
)

// The flavor lxd-kube-vip: the cluster is reached at an address that MAAS chose, which no control plane has by itself.
func TestVirtualIPFlavor(t *testing.T) {
	l := life.Begin(t, box, "vip")
	l.Create(generate(t, "vip", "lxd-kube-vip", "3", "0"))
	l.Available(3)
	checkVirtualIP(l, netip.MustParsePrefix(virtualIPSubnet))
	l.Delete()
}

// The same by ClusterClass, with an address that was asked for.
func TestVirtualIPTopology(t *testing.T) {
	const address = "10.77.0.70"
	l := life.Begin(t, box, "vip-class")
	l.Create(topology(t, "vip-class", 1, 1, map[string]any{"virtualIP": map[string]any{"address": address}}))
	l.Available(2)
	checkVirtualIP(l, netip.PrefixFrom(netip.MustParseAddr(address), 32))
	l.Delete()
}

// checkVirtualIP: the cluster, which is available, is reached at an address of a network that is no machine's own.
func checkVirtualIP(l *life.Life, in netip.Prefix) {
	l.Helper()
	cluster := &clusterv1.Cluster{}
	if err := l.Box.Client.Get(l.Context(), l.Key, cluster); err != nil {
		l.Fatal(err)
	}
	address, err := netip.ParseAddr(cluster.Spec.ControlPlaneEndpoint.Host)
	if err != nil || !in.Contains(address) {
		l.Fatalf("the endpoint is %q, want an address of %s", cluster.Spec.ControlPlaneEndpoint.Host, in)
	}
	for _, m := range l.Box.MAAS.Machines() {
		if slices.Contains(m.Addresses, address) {
			l.Errorf("%s has the address %s itself", m.Hostname, address)
		}
	}
}
