// SPDX-License-Identifier: Apache-2.0

package rights_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

const key = "key:of:user"

// region is a MAAS with a machine, a VM host, and a user, joe, with these entitlements.
func region(t *testing.T, version string, admin bool, entitlements string) (sim *simulator.Simulator, client *maas.Client, machine string) {
	t.Helper()
	described := `
users: [{name: joe, admin: ` + map[bool]string{true: "true", false: "false"}[admin] + `, keys: ["` + key + `"]` + entitlements + `}]
pools: [{name: capi}]
domains: [{name: maas.sim, default: true}]
subnets: [{cidr: 10.0.0.0/24}]
machines: [{names: [metal], pool: capi, cores: 4, memory: 8192, disks: [100]}]
vm_hosts: [{name: lxd, pool: capi, cores: 4, memory: 8192, storage_pools: [{name: default, size: 100}]}]
`
	if version == "4.0" {
		described = described[:len(described)-len("vm_hosts: [{name: lxd, pool: capi, cores: 4, memory: 8192, storage_pools: [{name: default, size: 100}]}]\n")]
	}
	sim, endpoint := simtest.Start(t, described, simulator.Options{Version: version})
	for _, m := range sim.Machines() {
		machine = m.SystemID
	}
	return sim, simtest.Client(t, endpoint, key), machine
}

// given are entitlements, for the pool capi where that is enough.
func given(needs ...rights.Need) string {
	text := ", entitlements: [{name: can_view_notifications}" // A group of its own.
	for _, n := range needs {
		pool := ""
		if n.InPool {
			pool = ", pool: capi"
		}
		text += ", {name: " + string(n.Entitlement) + pool + "}"
	}
	return text + "]"
}

// MAAS forbids each call without the entitlement that the refusal names, and with that alone it does not.
func TestRefusalNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	permit := maas.Unrecorded("a test")
	bond := maas.InterfaceSpec{Type: maas.InterfaceBond, Name: "bond0", Parents: []int{1}}
	for name, tt := range map[string]struct {
		call func(ctx context.Context, c *maas.Client, machine string) error
		use  rights.Use
		need rights.Need
	}{
		"the project of a VM host": {func(ctx context.Context, c *maas.Client, _ string) error {
			_, err := c.VMHostPower(ctx, 1)
			return err
		}, rights.VMs, rights.VMs.Needs[0]},
		"a refresh": {func(ctx context.Context, c *maas.Client, _ string) error {
			_, err := c.RefreshVMHost(ctx, 1)
			return err
		}, rights.VMs, rights.VMs.Needs[0]},
		"the deletion of a machine": {func(ctx context.Context, c *maas.Client, machine string) error {
			return c.DeleteMachine(ctx, permit, machine)
		}, rights.VMs, rights.VMs.Needs[0]},
		"a VM host's deletion": {func(ctx context.Context, c *maas.Client, _ string) error {
			return c.DeleteVMHost(ctx, permit, 1)
		}, rights.Registration, rights.Registration.Needs[0]},
		"how machines are switched": {func(ctx context.Context, c *maas.Client, _ string) error {
			_, err := c.Instances(ctx)
			return err
		}, rights.Registration, rights.Registration.Needs[0]},
		"a bond": {func(ctx context.Context, c *maas.Client, machine string) error {
			_, err := c.CreateInterface(ctx, permit, machine, bond)
			return err
		}, rights.Interfaces, rights.Interfaces.Needs[0]},
		"a hardware test": {func(ctx context.Context, c *maas.Client, machine string) error {
			_, err := c.StartTests(ctx, permit, machine, maas.TestParams{})
			return err
		}, rights.HardwareTests, rights.HardwareTests.Needs[0]},
		"a tag": {func(ctx context.Context, c *maas.Client, _ string) error {
			return c.CreateTag(ctx, permit, maas.Tag{Name: "t"})
		}, rights.Tags, rights.Tags.Needs[0]},
		"a subnet's addresses": {func(ctx context.Context, c *maas.Client, _ string) error {
			_, err := c.SubnetAddresses(ctx, 1)
			return err
		}, rights.StaticAddresses, rights.StaticAddresses.Needs[1]},
		"a DNS record": {func(ctx context.Context, c *maas.Client, _ string) error {
			_, err := c.CreateDNSResource(ctx, permit, "api.maas.sim", []string{"10.0.0.9"}, 30)
			return err
		}, rights.DNSEndpoint, rights.DNSEndpoint.Needs[0]},
		"an image": {func(ctx context.Context, c *maas.Client, _ string) error {
			_, err := c.CreateImage(ctx, permit, maas.CreateImageParams{Name: "custom/u", Architecture: "amd64/generic"})
			return err
		}, rights.ImageUpload, rights.ImageUpload.Needs[0]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, client, machine := region(t, "3.8", false, given())
			err := tt.call(t.Context(), client, machine)
			lacking := rights.Refusal(err)
			if lacking == nil {
				t.Fatalf("without it, the error is %v", err)
			}
			if diff := cmp.Diff([]rights.Need{tt.need}, lacking.Missing); diff != "" || !errors.Is(lacking, maas.Forbidden) {
				t.Errorf("%v: %s", lacking, diff)
			}
			_, client, machine = region(t, "3.8", false, given(tt.need))
			if err := tt.call(t.Context(), client, machine); errors.Is(err, maas.Forbidden) {
				t.Errorf("with %s, the error is %v", tt.need.Entitlement, err)
			}
		})
	}
}

// A call that every user may make is forbidden for the machine, and not for a right.
func TestNoRightIsMissingForALockedMachine(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		&maas.Error{Kind: maas.Forbidden, Method: "POST", Endpoint: "machines/{id}/", Op: "release"},
		&maas.Error{Kind: maas.Forbidden, Method: "GET", Endpoint: "machines/{id}/"},
		&maas.Error{Kind: maas.Forbidden, Method: "DELETE", Endpoint: "devices/{id}/"},
		&maas.Error{Kind: maas.Conflict, Method: "POST", Endpoint: "tags/"},
		errors.New("no error of MAAS"), nil,
	} {
		if lacking := rights.Refusal(err); lacking != nil {
			t.Errorf("%v: %v", err, lacking)
		}
	}
}

// asker is what MAAS tells of a key.
type asker struct{ *maas.Client }

func (a asker) HasEntitlements(ctx context.Context) (bool, error) {
	version, err := a.Version(ctx)
	return version.HasEntitlements(), err
}

func (a asker) User(ctx context.Context) (maas.User, error) { return a.WhoAmI(ctx) }

// Up to MAAS 3.7, MAAS tells whether the user is an administrator; from 3.8 on, nothing is known before a call.
func TestAdministratorsAreRequired(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		version string
		admin   bool
		use     rights.Use
		refused bool
	}{
		"an administrator": {version: "3.7", admin: true, use: rights.Storage},
		"a plain user":     {version: "3.7", use: rights.Storage, refused: true},
		"bare metal":       {version: "3.7", use: rights.BareMetal},
		"with groups":      {version: "4.0", use: rights.Storage},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, client, _ := region(t, tt.version, tt.admin, "")
			err := rights.Require(t.Context(), asker{client}, "it", tt.use)
			var refused *rights.Error
			if errors.As(err, &refused) != tt.refused || !tt.refused && err != nil {
				t.Fatalf("the error is %v", err)
			}
			if tt.refused && (refused.User != "joe" || len(refused.Missing) > 0) {
				t.Errorf("the error is %+v", refused)
			}
		})
	}
}
