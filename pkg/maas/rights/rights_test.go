// SPDX-License-Identifier: Apache-2.0

package rights_test

import (
	"bytes"
	"context"
	"errors"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

const key = "key:of:user"

// region is a MAAS with a user; nil entitlements leave it what a new user is.
func region(t *testing.T, version string, admin bool, entitlements ...simulator.RegionEntitlement) (*simulator.Simulator, rights.Direct) {
	t.Helper()
	machine := func(pool string) simulator.RegionMachine {
		return simulator.RegionMachine{Name: "metal-" + pool, Pool: pool, Cores: 4, Memory: 8192, Disks: []int{100}}
	}
	sim, err := simulator.New(&simulator.Region{
		Users:   []simulator.RegionUser{{Name: "joe", Admin: admin, Keys: []string{key}, Entitlements: entitlements}},
		Pools:   []simulator.RegionNamed{{Name: "a"}, {Name: "b"}, {Name: "empty"}},
		Subnets: []simulator.RegionSubnet{{CIDR: "10.0.0.0/24"}},
		Groups:  []simulator.RegionMachine{machine("a"), machine("b")},
	}, simulator.Options{Version: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(server.Close)
	client := simtest.Client(t, server.URL+"/MAAS", key)
	return sim, rights.Direct{Client: client}
}

// given are the entitlements that needs ask for, in one pool.
func given(pool string, needs ...rights.Need) []simulator.RegionEntitlement {
	var out []simulator.RegionEntitlement
	for _, n := range needs {
		e := simulator.RegionEntitlement{Name: string(n.Entitlement)}
		if n.InPool {
			e.Pool = pool
		}
		out = append(out, e)
	}
	return out
}

func survey(t *testing.T, a rights.Direct) map[string]rights.Finding {
	t.Helper()
	pools, err := a.ListResourcePools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found, err := rights.Survey(t.Context(), a, pools)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]rights.Finding{}
	for _, f := range found {
		byName[f.Name] = f
	}
	return byName
}

func hasPool(u rights.Use) bool {
	return slices.ContainsFunc(u.Needs, func(n rights.Need) bool { return n.InPool })
}

// A key with just what a use needs, in one pool, may be used so there; with anything less it may not, and what is missing is
// named. Asking changes nothing.
func TestAKeyMayDoWhatItHasTheEntitlementsFor(t *testing.T) {
	t.Parallel()
	nothing := simulator.RegionEntitlement{Name: "can_view_notifications"} // A group of its own.
	for _, use := range rights.Uses {
		t.Run(use.Name, func(t *testing.T) {
			t.Parallel()
			version := "4.0"
			if use.OnVMHosts {
				version = "3.8"
			}
			sim, asker := region(t, version, false, given("a", use.Needs...)...)
			before := sim.State()
			got := survey(t, asker)[use.Name]
			want := rights.Finding{Use: use, Answer: rights.Yes}
			if hasPool(use) {
				want.Pools = []string{"a"}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("with all (-want +got):\n%s", diff)
			}
			if !bytes.Equal(before, sim.State()) {
				t.Error("asking has changed MAAS")
			}
			for i, n := range use.Needs {
				less := slices.Delete(slices.Clone(use.Needs), i, i+1)
				_, asker := region(t, version, false, append(given("a", less...), nothing)...)
				got := survey(t, asker)[use.Name]
				if got.Answer != rights.No || !slices.Contains(got.Missing, n) {
					t.Errorf("without %s: %+v", n.Entitlement, got)
				}
			}
		})
	}
}

func TestAdministratorsMayDoAll(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"3.3", "3.7", "3.8", "4.0"} {
		_, asker := region(t, version, true)
		for name, f := range survey(t, asker) {
			want := rights.Yes
			if f.OnVMHosts && version == "4.0" {
				want = rights.Absent
			}
			if f.Answer != want {
				t.Errorf("%s: %s: %+v", version, name, f)
			}
		}
	}
}

// Up to MAAS 3.7, a user who is no administrator may do nothing but plain bare metal. From 3.8 on, MAAS's group of such users
// also sees the network.
func TestPlainUsers(t *testing.T) {
	t.Parallel()
	for version, want := range map[string][]string{
		"3.3": {rights.BareMetal.Name}, "3.7": {rights.BareMetal.Name}, "3.8": {rights.BareMetal.Name, rights.VirtualIP.Name},
	} {
		_, asker := region(t, version, false)
		var may []string
		for name, f := range survey(t, asker) {
			if f.Answer == rights.Yes {
				may = append(may, name)
			}
		}
		slices.Sort(may)
		if !slices.Equal(may, want) {
			t.Errorf("%s: %v, want %v", version, may, want)
		}
	}
}

// Where no machine is free, MAAS does not tell whether any would be given.
func TestAPoolWithoutMachines(t *testing.T) {
	t.Parallel()
	_, asker := region(t, "4.0", false, given("empty", rights.BareMetal.Needs...)...)
	want := rights.Finding{Use: rights.BareMetal, Answer: rights.Unknown, Pools: []string{"empty"}}
	if diff := cmp.Diff(want, survey(t, asker)[rights.BareMetal.Name]); diff != "" {
		t.Error(diff)
	}
	if err := rights.Require(t.Context(), asker, "it", rights.BareMetal, pools("empty")(asker)); err != nil {
		t.Errorf("what is not known is refused: %v", err)
	}
}

// pools returns those of a MAAS that have a name, or all.
func pools(name string) func(rights.Direct) func(context.Context) ([]maas.Ref, error) {
	return func(a rights.Direct) func(context.Context) ([]maas.Ref, error) {
		return func(ctx context.Context) ([]maas.Ref, error) {
			all, err := a.ListResourcePools(ctx)
			return slices.DeleteFunc(all, func(p maas.Ref) bool { return name != "" && p.Name != name }), err
		}
	}
}

func TestWhatIsRequired(t *testing.T) {
	t.Parallel()
	editsA := given("a", rights.VMs.Needs...)
	for name, tt := range map[string]struct {
		version string
		admin   bool
		given   []simulator.RegionEntitlement
		use     rights.Use
		pool    string
		one     bool
		missing []rights.Need
		refused bool
	}{
		"plain, and nothing is needed":    {version: "3.7", use: rights.BareMetal},
		"plain, and an administrator's":   {version: "3.7", use: rights.VMs, refused: true},
		"an administrator":                {version: "3.7", admin: true, use: rights.VMs},
		"the pool":                        {version: "3.8", given: editsA, use: rights.VMs, pool: "a"},
		"another pool":                    {version: "3.8", given: editsA, use: rights.VMs, pool: "b", missing: rights.VMs.Needs, refused: true},
		"one of several pools":            {version: "3.8", given: editsA, use: rights.VMs, one: true},
		"each of several pools":           {version: "3.8", given: editsA, use: rights.VMs, missing: rights.VMs.Needs, refused: true},
		"none of several pools":           {version: "3.8", given: given("a", rights.BareMetal.Needs...), use: rights.VMs, one: true, missing: rights.VMs.Needs, refused: true},
		"all of MAAS":                     {version: "3.8", given: editsA, use: rights.Registration, missing: rights.Registration.Needs, refused: true},
		"no such pool":                    {version: "3.8", given: editsA, use: rights.VMs, pool: "none"},
		"superuser, but not of the group": {version: "3.8", admin: true, given: editsA, use: rights.DNSEndpoint, missing: rights.DNSEndpoint.Needs, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, asker := region(t, tt.version, tt.admin, tt.given...)
			require := rights.Require
			if tt.one {
				require = rights.RequireOne
			}
			err := require(t.Context(), asker, "it", tt.use, pools(tt.pool)(asker))
			var refused *rights.Error
			if errors.As(err, &refused) != tt.refused || !tt.refused && err != nil {
				t.Fatalf("the error is %v", err)
			}
			if tt.refused {
				if diff := cmp.Diff(tt.missing, refused.Missing); diff != "" || refused.User != "joe" {
					t.Errorf("of %s are missing: %s", refused.User, diff)
				}
			}
		})
	}
}

// What is done with a machine that MAAS gives must be allowed in each pool of which MAAS gives one, and in no other.
func TestWhatIsRequiredInEachPoolOfWhichMAASGivesMachines(t *testing.T) {
	t.Parallel()
	takes := func(pool string) []simulator.RegionEntitlement { return given(pool, rights.BareMetal.Needs...) }
	edits := func(pool string) []simulator.RegionEntitlement { return given(pool, rights.Storage.Needs...) }
	for name, tt := range map[string]struct {
		given   []simulator.RegionEntitlement
		refused string
	}{
		"the one":       {given: slices.Concat(takes("a"), edits("a"))},
		"both":          {given: slices.Concat(takes("a"), edits("a"), takes("b"), edits("b"))},
		"one of both":   {given: slices.Concat(takes("a"), edits("a"), takes("b")), refused: "b"},
		"the other one": {given: slices.Concat(takes("b"), edits("a")), refused: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, asker := region(t, "3.8", false, tt.given...)
			err := rights.Require(t.Context(), asker, "it", rights.Storage, rights.Where(asker, rights.BareMetal, pools("")(asker)))
			var refused *rights.Error
			if errors.As(err, &refused) != (tt.refused != "") || (err != nil && refused == nil) {
				t.Fatalf("the error is %v", err)
			}
			if refused != nil && refused.Pool != tt.refused {
				t.Errorf("it is missing in %q, want %q", refused.Pool, tt.refused)
			}
		})
	}
}
