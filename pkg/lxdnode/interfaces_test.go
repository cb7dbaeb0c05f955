// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	lxdbed "github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

// ip changes the node's network, by a command line of ip.
func ip(t *testing.T, d *lxdbed.Daemon, line string) {
	t.Helper()
	if err := d.Run(t.Context(), "ip", strings.Fields(line)...); err != nil {
		t.Fatal(err)
	}
}

func TestNodeThatMAASWouldMixUpIsRefused(t *testing.T) {
	t.Parallel()
	d := lxdtest.Start(t, lxdbed.Options{MAC: "52:54:00:00:00:01"}) // eth0 and the bridge over it share it
	n := connectNode(t, d.Socket())
	for _, c := range []struct {
		name         string
		make, remove []string
		want         *MACError
	}{
		{name: "eth0 in the bridge"},
		{
			name:   "a CNI that gives each veth a MAC of its own",
			make:   []string{"link add veth1 address 02:00:00:00:00:01 type veth peer name pod1", "link add veth2 address 02:00:00:00:00:02 type veth peer name pod2"},
			remove: []string{"link del veth1", "link del veth2"},
		},
		{
			name:   "Calico with one pod",
			make:   []string{"link add cali1 address ee:ee:ee:ee:ee:ee type veth peer name pod1"},
			remove: []string{"link del cali1"},
			want:   &MACError{"ee:ee:ee:ee:ee:ee", []string{"cali1"}},
		},
		{
			name: "Calico with two pods",
			make: []string{
				"link add cali2 address ee:ee:ee:ee:ee:ee type veth peer name pod2", "link add cali1 address ee:ee:ee:ee:ee:ee type veth peer name pod1",
			},
			remove: []string{"link del cali1", "link del cali2"},
			want:   &MACError{"ee:ee:ee:ee:ee:ee", []string{"cali1", "cali2"}},
		},
		{
			name:   "two interfaces with one MAC",
			make:   []string{"link add twin address 52:54:00:00:00:01 type veth peer name other"},
			remove: []string{"link del twin"},
			want:   &MACError{"52:54:00:00:00:01", []string{"eth0", "twin"}},
		},
	} {
		for _, line := range c.make {
			ip(t, d, line)
		}
		_, err := n.Prepare(t.Context(), named("mac"))
		wantMACError(t, c.name, err, c.want)
		if _, err := n.CheckInterfaces(t.Context()); (err != nil) != (c.want != nil) {
			t.Errorf("%s: alone, the check returned %v", c.name, err)
		}
		for _, line := range c.remove {
			ip(t, d, line)
		}
	}
}

// wantMACError wants the cause of a permanent error that names interface, MAC and remedy, or no error.
func wantMACError(t *testing.T, name string, err error, want *MACError) {
	t.Helper()
	var got *MACError
	errors.As(err, &got)
	if diff := cmp.Diff(want, got); diff != "" || (want == nil) != (err == nil) {
		t.Errorf("%s: the error is %v (-want +got):\n%s", name, err, diff)
	}
	if want == nil || err == nil {
		return
	}
	e := stepError(t, err, StepInterfaces)
	if !e.Permanent {
		t.Errorf("%s: %#v is to be permanent", name, e)
	}
	wantMentioned(t, e.Problem, want.MAC, want.Interfaces[0])
	wantMentioned(t, e.Remedy, "flannel", "Cilium")
}

// Few kernels of test machines have bonds.
func TestMembersOfABondShareItsMAC(t *testing.T) {
	t.Parallel()
	const mac, zero = "52:54:00:00:00:01", "00:00:00:00:00:00"
	for _, c := range []struct {
		name  string
		taken map[string][]string
		bonds map[string]string
		want  *MACError
	}{
		{name: "a bond", taken: map[string][]string{mac: {"eth1", "eth0"}}, bonds: map[string]string{"eth0": "bond0", "eth1": "bond0"}},
		{
			"a bond and something else", map[string][]string{mac: {"tap1", "eth1", "eth0"}}, map[string]string{"eth0": "bond0", "eth1": "bond0"},
			&MACError{mac, []string{"eth0", "eth1", "tap1"}},
		},
		{"two bonds", map[string][]string{mac: {"eth0", "eth1"}}, map[string]string{"eth0": "bond0", "eth1": "bond1"}, &MACError{mac, []string{"eth0", "eth1"}}},
		{"no MAC", map[string][]string{zero: {"eth2"}, "02:00:00:00:00:01": {"eth0"}}, nil, &MACError{zero, []string{"eth2"}}},
	} {
		if diff := cmp.Diff(c.want, ambiguousMAC(c.taken, c.bonds)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestInterfaceThatGoesMeanwhileIsNoProblem(t *testing.T) {
	t.Parallel()
	d := lxdtest.Start(t, lxdbed.Options{})
	ip(t, d, "link add cali1 address ee:ee:ee:ee:ee:ee type veth peer name pod1")
	between := startProxy(t, d.Socket())
	between.set(func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/1.0/networks/cali1/state" {
				ip(t, d, "link del cali1")
			}
			lxd.ServeHTTP(w, r)
		})
	})
	if check, err := (&Node{socket: between.socket}).CheckInterfaces(t.Context()); err != nil || check.State != OK {
		t.Errorf("got %+v, %v", check, err)
	}
}
