// SPDX-License-Identifier: Apache-2.0

package flows_test

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capmaas/cluster-api-provider-maas/test/life"
)

const virtualIPSubnet = "10.77.0.0/24"

// A cluster of the flavor lxd-kube-vip is reached at an address that MAAS chose and reserved, and that no control plane
// has by itself. It goes with the cluster.
func TestVirtualIP(t *testing.T) {
	l := life.Begin(t, box, "vip")
	manifest, err := box.Flavor("lxd-kube-vip", map[string]string{
		"CLUSTER_NAME": "vip", "NAMESPACE": life.Namespace, "MAAS_DNS_DOMAIN": dnsDomain, "MAAS_IMAGE": image, "KUBERNETES_VERSION": kubernetesVersion,
		"MAAS_VIRTUAL_IP_SUBNET": virtualIPSubnet, "CONTROL_PLANE_MACHINE_RESOURCEPOOL": pool, "WORKER_MACHINE_RESOURCEPOOL": pool,
		"CONTROL_PLANE_MACHINE_COUNT": "3", "WORKER_MACHINE_COUNT": "0",
	})
	if err != nil {
		t.Fatal(err)
	}
	l.Create(manifest)
	l.Available(3)
	cluster := &clusterv1.Cluster{}
	if err := box.Client.Get(t.Context(), l.Key, cluster); err != nil {
		t.Fatal(err)
	}
	endpoint := cluster.Spec.ControlPlaneEndpoint.Host
	address, err := netip.ParseAddr(endpoint)
	if err != nil || !netip.MustParsePrefix(virtualIPSubnet).Contains(address) {
		t.Fatalf("the endpoint is %q, want an address of %s", endpoint, virtualIPSubnet)
	}
	var maas struct {
		Addresses []struct {
			IP string `json:"ip"`
		} `json:"ip_addresses"`
	}
	if err := json.Unmarshal(box.MAAS.State(), &maas); err != nil {
		t.Fatal(err)
	}
	if len(maas.Addresses) != 1 || maas.Addresses[0].IP != endpoint {
		t.Errorf("MAAS has reserved %v, want %s", maas.Addresses, endpoint)
	}
	for _, m := range box.MAAS.Machines() {
		if slices.Contains(m.Addresses, address) {
			t.Errorf("%s has the address %s itself", m.Hostname, address)
		}
	}
	l.Delete()
}
