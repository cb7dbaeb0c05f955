// SPDX-License-Identifier: Apache-2.0

package maascluster

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// MAAS may show no subnet for a moment. What it showed stays, as long as LXD is where it was.
func TestTheSubnetOfAnLXDHostStays(t *testing.T) {
	host := &infrav1.LXDHost{Spec: infrav1.LXDHostSpec{Address: "10.0.0.1:8443", Subnet: "10.0.0.0/24"}}
	for name, tc := range map[string]struct {
		host           *infrav1.LXDHost
		address, shown string
		want           string
	}{
		"MAAS shows it":       {host, "10.0.0.1:8443", "10.1.0.0/24", "10.1.0.0/24"},
		"MAAS shows none":     {host, "10.0.0.1:8443", "", "10.0.0.0/24"},
		"LXD is elsewhere":    {host, "10.2.0.1:8443", "", ""},
		"there was no object": {nil, "10.0.0.1:8443", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			wanted, err := apply(&infrav1.LXDHost{Spec: infrav1.LXDHostSpec{Address: tc.address, Subnet: tc.shown}})
			if err != nil {
				t.Fatal(err)
			}
			if err := keepSubnet(wanted, tc.host); err != nil {
				t.Fatal(err)
			}
			if got, _, _ := unstructured.NestedString(wanted.Object, "spec", "subnet"); got != tc.want {
				t.Errorf("the subnet is %q, want %q", got, tc.want)
			}
		})
	}
}

// What is made for a machine is reconciled by whoever reconciles the machine.
func TestWhatGoesWithAMachineHasItsWatchFilter(t *testing.T) {
	m := &infrav1.MaasMachine{}
	m.Labels = map[string]string{clusterv1.WatchLabel: "blue"}
	if got := ownedBy(&scope.Cluster{Cluster: &clusterv1.Cluster{}}, m, "one").Labels[clusterv1.WatchLabel]; got != "blue" {
		t.Errorf("the filter is %q", got)
	}
}

// A node may have its address from DHCP, beside an interface with one that MAAS assigned.
func TestAddressesThatMAASDiscoveredAreTheMachinesToo(t *testing.T) {
	discovered := &maas.Interface{Discovered: []maas.Link{{IPAddress: "10.1.0.9"}, {IPAddress: "10.0.0.1"}, {}}}
	got := addressesOf(&maas.Machine{IPAddresses: []string{"10.0.0.1", "FD00::1"}, Interfaces: []*maas.Interface{{}, discovered}})
	want := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.1.0.9")}
	if !slices.Equal(got, want) {
		t.Errorf("the addresses are %v, want %v", got, want)
	}
}

// What somebody else made a moment ago, under the machine's name, is not taken for the machine's, though the cache does not
// have it yet.
func TestAnLXDHostThatTheCacheLacksIsNotOverwritten(t *testing.T) {
	m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m", UID: "m"}}
	theirs := &infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m"}, Spec: infrav1.LXDHostSpec{Tags: []string{"theirs"}}}
	now := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(m, theirs).Build()
	lags := interceptor.NewClient(now, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			if _, is := into.(*infrav1.LXDHost); is {
				return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
			}
			return c.Get(ctx, key, into, options...)
		},
	})
	r := &Reconciler{Base: reconciler.Base{Client: lags, APIReader: now}}
	wanted, err := apply(&infrav1.LXDHost{
		TypeMeta:   metav1.TypeMeta{APIVersion: infrav1.GroupVersion.String(), Kind: "LXDHost"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m"}, Spec: infrav1.LXDHostSpec{AllowedNamespaces: []string{infrav1.AllNamespaces}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.applyOwned(t.Context(), m, wanted, &infrav1.LXDHost{}); err == nil {
		t.Error("it is the machine's by now")
	}
	if err := now.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); err != nil || len(theirs.Spec.AllowedNamespaces) > 0 {
		t.Errorf("it is for the namespaces %v: %v", theirs.Spec.AllowedNamespaces, err)
	}
}
