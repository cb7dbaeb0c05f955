// SPDX-License-Identifier: Apache-2.0

package flows_test

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
)

// Clusters are reached at an address that no control plane has by itself: by the flavor lxd-kube-vip, where MAAS
// chooses it, and by ClusterClass, with a requested one.
func TestVirtualIP(t *testing.T) {
	const address = "10.77.0.90"
	life.Together(t, box, map[string]func(*life.Life){
		"vip-flavor": func(l *life.Life) {
			l.Create(generate(l.T, "vip-flavor", "lxd-kube-vip", "3", "0"))
			l.Available(3)
			checkVirtualIP(l, netip.MustParsePrefix(virtualIPSubnet))
			l.Delete()
		},
		"vip-class": func(l *life.Life) {
			l.Create(topology(l.T, "vip-class", 1, 1, map[string]any{"virtualIP": map[string]any{"address": address}}))
			l.Available(2)
			checkVirtualIP(l, netip.PrefixFrom(netip.MustParseAddr(address), 32))
			l.Delete()
		},
	})
}

// checkVirtualIP checks that the cluster, which is available, is reached at an address of a network, which MAAS has
// reserved for it and which is no machine's own. When the cluster is gone, so must be the reservation: that is compared
// for all clusters together.
func checkVirtualIP(l *life.Life, in netip.Prefix) {
	l.Helper()
	endpoint := endpointOf(l)
	address, err := netip.ParseAddr(endpoint.Host)
	if err != nil || !in.Contains(address) {
		l.Fatalf("the endpoint is %q, want an address of %s", endpoint.Host, in)
	}
	if !slices.Contains(keptInMAAS(l).Reserved, endpoint.Host) {
		l.Errorf("%s is not reserved in MAAS", address)
	}
	for _, m := range l.Box.MAAS.Machines() {
		if slices.Contains(m.Addresses, address) {
			l.Errorf("%s has the address %s itself", m.Hostname, address)
		}
	}
}

// Clusters are reached at an endpoint that their operator updates from the Machines: a load balancer that ClusterClass
// names, and a name that is only given after the annotation has announced it. MAAS keeps nothing for their endpoints.
func TestExternalEndpoint(t *testing.T) {
	const loadBalancer, name = "192.0.2.10", "api.operator.test"
	keep(t, loadBalancer, "balanced")
	keep(t, name, "named")
	before := keptIn(t, box.MAAS.State())
	life.Together(t, box, map[string]func(*life.Life){
		"balanced": func(l *life.Life) {
			l.Apply(topology(l.T, "balanced", 1, 1, map[string]any{
				"lxdConfig": map[string]any{}, "controlPlaneEndpoint": map[string]any{"host": loadBalancer},
			}))
			checkExternal(l, loadBalancer, 2, before)
			l.Delete()
		},
		"named": func(l *life.Life) {
			manifest := generate(l.T, "named", "lxd", "1", "0")
			const kind = "kind: MaasCluster\nmetadata:\n"
			if strings.Count(manifest, kind) != 1 {
				l.Fatalf("the manifest can't be annotated:\n%s", manifest)
			}
			l.Apply(strings.Replace(manifest, kind, kind+"  annotations: {"+infrav1.CustomDNSAnnotation+": \"true\"}\n", 1))
			awaitEndpointCondition(l, false)
			maasCluster := maasClusterOf(l)
			if controlPlanes, _ := l.MaasMachines(); len(controlPlanes) > 0 || ptr.Deref(maasCluster.Status.Initialization.Provisioned, false) {
				l.Errorf("it goes on without an endpoint: %+v, machines: %d", maasCluster.Status, len(controlPlanes))
			}
			changed := maasCluster.DeepCopy()
			changed.Spec.ControlPlaneEndpoint.Host = name
			if err := l.Box.Client.Patch(l.Context(), changed, client.MergeFrom(maasCluster)); err != nil {
				l.Fatal(err)
			}
			checkExternal(l, name, 1, before)
			l.Delete()
		},
	})
}

// keep has a host lead to a cluster's control planes until the test ends, as their operator's DNS or load balancer
// does.
func keep(t *testing.T, host, cluster string) {
	t.Helper()
	t.Cleanup(box.Lead(host, func() []netip.Addr {
		machines := &clusterv1.MachineList{}
		err := box.Client.List(context.Background(), machines, client.InNamespace(life.Namespace),
			client.MatchingLabels{clusterv1.ClusterNameLabel: cluster}, client.HasLabels{clusterv1.MachineControlPlaneLabel})
		if err != nil {
			return nil // It can't be reached at this moment.
		}
		var addresses []netip.Addr
		for _, m := range machines.Items {
			for _, address := range m.Status.Addresses {
				if ip, err := netip.ParseAddr(address.Address); err == nil && address.Type == clusterv1.MachineInternalIP {
					addresses = append(addresses, ip)
				}
			}
		}
		return addresses
	}))
}

// checkExternal waits for the cluster, which is reached at a host; MAAS keeps nothing new for endpoints.
func checkExternal(l *life.Life, host string, machines int, before kept) {
	l.Helper()
	l.Available(machines)
	if got := endpointOf(l); got.Host != host || got.Port != infrav1.DefaultAPIServerPort {
		l.Errorf("the endpoint is %s:%d, want %s:%d", got.Host, got.Port, host, infrav1.DefaultAPIServerPort)
	}
	awaitEndpointCondition(l, true)
	controlPlanes, _ := l.MaasMachines()
	for _, m := range controlPlanes {
		if reason := conditions.GetReason(&m, infrav1.DNSAttachedCondition); reason != infrav1.ExternalEndpointReason {
			l.Errorf("%s of %s has the reason %s, want %s", infrav1.DNSAttachedCondition, m.Name, reason, infrav1.ExternalEndpointReason)
		}
	}
	if diff := cmp.Diff(before, keptInMAAS(l)); diff != "" {
		l.Errorf("DNS records and reserved addresses in MAAS (-before +now):\n%s", diff)
	}
}

// awaitEndpointCondition waits until the MaasCluster reports that the endpoint is the user's, and known or not.
func awaitEndpointCondition(l *life.Life, known bool) {
	l.Helper()
	l.Wait("the MaasCluster to tell of the endpoint", func() (bool, string, error) {
		c := conditions.Get(maasClusterOf(l), infrav1.DNSReadyCondition)
		if c == nil {
			return false, "nothing", nil
		}
		return c.Reason == infrav1.ExternalEndpointReason && (c.Status == "True") == known, c.Reason + ": " + c.Message, nil
	})
}

func maasClusterOf(l *life.Life) *infrav1.MaasCluster {
	l.Helper()
	list := &infrav1.MaasClusterList{}
	err := l.Box.Client.List(l.Context(), list, client.InNamespace(l.Key.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: l.Key.Name})
	if err != nil {
		l.Fatal(err)
	}
	if len(list.Items) == 0 {
		return &infrav1.MaasCluster{}
	}
	return &list.Items[0]
}

func endpointOf(l *life.Life) clusterv1.APIEndpoint {
	l.Helper()
	cluster := &clusterv1.Cluster{}
	if err := l.Box.Client.Get(l.Context(), l.Key, cluster); err != nil {
		l.Fatal(err)
	}
	return cluster.Spec.ControlPlaneEndpoint
}

// kept is what MAAS may keep for endpoints.
type kept struct{ Records, Reserved []string }

func keptInMAAS(l *life.Life) kept {
	l.Helper()
	return keptIn(l.T, l.Box.MAAS.State())
}

func keptIn(t *testing.T, state []byte) (k kept) {
	t.Helper()
	var all struct {
		Records []struct {
			FQDN string `json:"fqdn"`
		} `json:"dns_resources"`
		Addresses []struct {
			IP string `json:"ip"`
		} `json:"ip_addresses"`
	}
	if err := json.Unmarshal(state, &all); err != nil {
		t.Fatal(err)
	}
	for _, record := range all.Records {
		k.Records = append(k.Records, record.FQDN)
	}
	for _, address := range all.Addresses {
		k.Reserved = append(k.Reserved, address.IP)
	}
	return k
}
