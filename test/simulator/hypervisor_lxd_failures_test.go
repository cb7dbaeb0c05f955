// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"
	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

// compose makes the VM vm1, Ready at once.
func (b *lxdBed) compose(path string) answer {
	b.t.Helper()
	return b.do(post, path, "op", "compose", "hostname", "vm1", "cores", "1", "memory", "1024", "storage", "root:2",
		"skip_commissioning", "true")
}

// expectRefused checks that refresh reports the host's failure, in MAAS's words.
func (b *lxdBed) expectRefused(path, words string) {
	b.t.Helper()
	got := b.do(post, path, "op", "refresh")
	if got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, words) {
		b.t.Errorf("refresh: %d %s, want 503 %q", got.status, got.body, words)
	}
}

func TestLXDHostWithAnUntrustedCertificateIsSavedAndCannotBeRefreshed(t *testing.T) {
	b := newLXDBed(t)
	b.makePool()
	certificate, key, err := newKeyPair()
	if err != nil {
		t.Fatal(err)
	}
	h := b.register("certificate", certificate, "key", key).object(t)
	path := "vm-hosts/" + jsonNumber(h["id"]) + "/"
	if h["version"] != "" || len(h["architectures"].([]any)) != 0 {
		t.Errorf("version %q, architectures %v; want none", h["version"], h["architectures"])
	}
	if got := h["host"].(map[string]any)["system_id"]; got != b.node.SystemID {
		t.Errorf("it runs on machine %v, want %s, which has its address", got, b.node.SystemID)
	}
	b.expectRefused(path, "Certificate is not trusted and no password was given")
	if got := b.compose(path); got.status != http.StatusBadRequest {
		t.Errorf("compose: %d %s", got.status, got.body)
	}
	b.trust(certificate)
	if h = b.do(post, path, "op", "refresh").object(t); h["version"] == "" {
		t.Error("trusted, it is not discovered")
	}
}

func TestLXDHostTakesATrustPassword(t *testing.T) {
	b := newLXDBed(t)
	b.makePool()
	if b.server.HasExtension("explicit_trust_token") {
		t.Skip("this LXD has no trust password")
	}
	b.configure("core.trust_password", "sesame")
	path := b.hostWithPassword("wrong", "")
	b.expectRefused(path, "Password authentication failed")
	b.do(del, path)
	server, _, err := b.server.GetServer()
	if err != nil {
		t.Fatal(err)
	}
	path = b.hostWithPassword("sesame", server.Environment.ServerVersion)
	if _, kept := b.do(get, path, "op", "parameters").object(t)["password"]; kept {
		t.Error("the password is kept")
	}
}

// hostWithPassword registers the LXD with a password instead of a certificate.
func (b *lxdBed) hostWithPassword(password, version string) (path string) {
	b.t.Helper()
	h := b.do(post, "vm-hosts/", "type", "lxd", "power_address", b.address, "name", "host", "password", password).object(b.t)
	if h["version"] != version {
		b.t.Errorf("version %q with password %s, want %q", h["version"], password, version)
	}
	return "vm-hosts/" + jsonNumber(h["id"]) + "/"
}

func TestLXDHostWithoutAStoragePoolIsNotDiscovered(t *testing.T) {
	b := newLXDBed(t)
	h := b.register().object(t)
	path := "vm-hosts/" + jsonNumber(h["id"]) + "/"
	if h["version"] != "" {
		t.Errorf("version %q", h["version"])
	}
	b.expectRefused(path, "No storage pools exists.  Please create a storage pool in LXD.")
	b.makePool()
	if h = b.do(post, path, "op", "refresh").object(t); h["version"] == "" {
		t.Error("with a pool, it is not discovered")
	}
}

func TestLXDHostThatLostItsProjectComposesAfterARefresh(t *testing.T) {
	b := newLXDBed(t)
	b.makePool()
	path := b.host()
	if err := b.server.DeleteProject(lxdProject); err != nil {
		t.Fatal(err)
	}
	if got := b.compose(path); got.status != http.StatusServiceUnavailable {
		t.Errorf("compose without the project: %d %s", got.status, got.body)
	}
	b.do(post, path, "op", "refresh").object(t)
	b.compose(path).object(t)
}

func TestDeletingAnLXDHostKeepsOrDeletesTheVMs(t *testing.T) {
	b := newLXDBed(t)
	b.makePool()
	path := b.host()
	b.compose(path).object(t)
	if got := b.do(del, path); got.status != http.StatusNoContent {
		t.Fatalf("deletion: %d %s", got.status, got.body)
	}
	if b.vm("vm1") == nil {
		t.Fatal("without decompose the VM is gone")
	}
	before := string(b.State())
	path = b.host()
	if m := b.named("vm1"); m.VMHost != "host" || m.Zone != "zone-b" {
		t.Errorf("registered again, MAAS has the VM as %+v", m)
	}
	target := path + "?decompose=true"
	if got := b.do(del, target); got.status != http.StatusNoContent {
		t.Fatalf("deletion: %d %s", got.status, got.body)
	}
	if b.vm("vm1") != nil {
		t.Error("with decompose the VM stayed")
	}
	if diff := cmp.Diff(before, string(b.State())); diff != "" {
		t.Errorf("the region is not as it was before the second registration:\n%s", diff)
	}
}

func TestVMThatIsGoneFromLXDIsGoneFromMAASAtTheNextRefresh(t *testing.T) {
	b := newLXDBed(t)
	b.makePool()
	path := b.host()
	id := b.compose(path).object(t)["system_id"].(string)
	if all := b.VMHosts()[0].VMs; len(all) != 1 || all[0].SystemID != id {
		t.Errorf("VMs %+v, want the one that MAAS has as %s", all, id)
	}
	if !b.DeleteVM("host", "vm1") || b.vm("vm1") != nil {
		t.Fatal("the VM could not be deleted")
	}
	if got := b.do(get, "machines/"+id+"/", "op", "query_power_state").object(t)["state"]; got != "error" {
		t.Errorf("power state %v", got)
	}
	b.do(post, path, "op", "refresh").object(t)
	if m, ok := b.Machine(id); ok {
		t.Errorf("MAAS still has %+v", m)
	}
}

func TestVMOfAnotherProjectUsesTheHostAndIsNoMachine(t *testing.T) {
	b := newLXDBed(t)
	b.makePool()
	b.makeGuest(nil)
	h := b.do(get, b.host()).object(t)
	want := map[string]any{"cores": 2.0, "memory": 2048.0, "local_storage": 3e9}
	if diff := cmp.Diff(want, h["used"]); diff != "" {
		t.Errorf("used (-want +got):\n%s", diff)
	}
	if slices.ContainsFunc(b.Machines(), func(m MachineSnapshot) bool { return m.VMHost != "" }) {
		t.Error("the VM of another project is a machine")
	}
}

// MAAS's driver wants to know what each card hangs on, in whichever project the VM is.
func TestVMWithoutANetworkBehindItsCardBreaksDiscovery(t *testing.T) {
	b := newLXDBed(t)
	b.makePool()
	path := b.host()
	b.makeGuest(map[string]string{"type": "nic", "nictype": "p2p"})
	b.expectRefused(path, "'parent'")
}

// makeGuest makes a VM in LXD's default project, with a network card if one is given.
func (b *lxdBed) makeGuest(card map[string]string) {
	b.t.Helper()
	devices := map[string]map[string]string{"root": {"type": "disk", "path": "/", "pool": "default", "size": "3GB"}}
	if card != nil {
		devices["eth0"] = card
	}
	op, err := b.server.CreateInstance(api.InstancesPost{
		Name: "guest", Type: api.InstanceTypeVM, Source: api.InstanceSource{Type: api.SourceTypeNone},
		InstancePut: api.InstancePut{Config: map[string]string{"limits.cpu": "0-1", "limits.memory": "2GiB"}, Devices: devices},
	})
	lxdtest.Finish(b.t, op, err)
}

func TestVMThatIsDeletedWhileItStartsIsGone(t *testing.T) {
	b := newLXDBed(t)
	b.makePool()
	path := b.host()
	id := b.compose(path).object(t)["system_id"].(string)
	b.do(post, "machines/"+id+"/", "op", "deploy").object(t)
	b.pass(2 * time.Second) // LXD is asked to start it
	if got := b.do(del, "machines/"+id+"/"); got.status != http.StatusNoContent {
		t.Fatalf("deletion: %d %s", got.status, got.body)
	}
	if b.vm("vm1") != nil {
		t.Error("the VM is left")
	}
}

func TestLXDHostWhoseDaemonIsDown(t *testing.T) {
	b := newLXDBed(t)
	b.makePool()
	path := b.host()
	id := b.compose(path).object(t)["system_id"].(string)
	if err := b.daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := b.do(post, path, "op", "compose", "hostname", "vm2", "memory", "1024"); got.status != http.StatusServiceUnavailable {
		t.Errorf("compose: %d %s", got.status, got.body)
	}
	b.expectRefused(path, "Failed to connect to the LXD REST API")
	b.do(post, "machines/"+id+"/", "op", "deploy").object(t)
	b.passUntil("the deployment has failed", func() bool { m, _ := b.Machine(id); return m.Status == "Failed deployment" })
	if m, _ := b.Machine(id); m.Power != "error" {
		t.Errorf("power %s", m.Power)
	}
	// MAAS forgets a machine whose VM it cannot delete.
	b.do(post, "machines/"+id+"/", "op", "release").object(t)
	if got := b.do(del, "machines/"+id+"/"); got.status != http.StatusNoContent {
		t.Fatalf("deletion: %d %s", got.status, got.body)
	}
	if err := b.daemon.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b.vm("vm1") == nil {
		t.Error("the VM is gone")
	}
	b.do(post, path, "op", "refresh").object(t)
	if m := b.named("vm1"); m.SystemID == id {
		t.Error("the VM did not come back as another machine")
	}
}

func TestBrokenWayToAnLXDHost(t *testing.T) {
	b := newLXDBed(t)
	b.makePool()
	path := b.host()
	if !b.BreakVMHost("host", true, false) {
		t.Fatal("the host is not known")
	}
	b.expectRefused(path, "Failed to connect to the LXD REST API")
	b.BreakVMHost("host", false, true)
	if got := b.compose(path); got.status != http.StatusServiceUnavailable || b.vm("vm1") == nil {
		t.Errorf("composing with a lost response: %d %s", got.status, got.body)
	}
	b.BreakVMHost("host", false, false)
	b.do(post, path, "op", "refresh").object(t)
	b.named("vm1")
}

func TestLXDHostOnAnUnknownMachine(t *testing.T) {
	b := &lxdBed{}
	lxdtest.Require(t)
	b.bed = newBedWith(t, lxdRegion, Options{Seed: 1, PatchedLXDDriver: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		return b.daemon.Dial(ctx, network, address)
	}})
	b.daemon = lxdtest.Start(t, lxd.Options{Address: netip.MustParsePrefix("10.9.9.2/24")})
	b.address = "10.9.9.2:8443"
	b.connectTo()
	b.makePool()
	path := b.host()
	m := b.named("host")
	if m.Status != "Deployed" || m.Zone != "default" || m.Pool != "default" || len(m.Interfaces) == 0 {
		t.Errorf("made as %+v, want Deployed, in the default zone and pool, with its network cards", m)
	}
	if got := b.compose(path); got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, "No host network to attach VM interfaces to") {
		t.Errorf("compose without a network of MAAS's: %d %s", got.status, got.body)
	}
	b.do(del, path)
	if got := b.register("name", "node"); got.status != http.StatusBadRequest {
		t.Errorf("registering with another machine's hostname: %d %s", got.status, got.body)
	}
}

// connectTo opens LXD to the region.
func (b *lxdBed) connectTo() {
	b.t.Helper()
	var err error
	b.server = lxdtest.Connect(b.t, b.daemon.Socket())
	b.configure("core.https_address", b.address)
	if b.certificate, b.key, err = newKeyPair(); err != nil {
		b.t.Fatal(err)
	}
	b.trust(b.certificate)
}

// silent is a dialer to hosts that never respond. It signals when it is called, and what ended the call.
type silent struct {
	dialled chan struct{}
	ended   chan error
}

func (s silent) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	s.dialled <- struct{}{}
	<-ctx.Done()
	s.ended <- ctx.Err()
	return nil, ctx.Err()
}

func TestSilentLXDHostHoldsUpNobodyAndEndsWithTheRegion(t *testing.T) {
	host := silent{make(chan struct{}, 100), make(chan error, 100)}
	b := newBedWith(t, lxdRegion, Options{Dial: host.dial, PatchedLXDDriver: true})
	answered := make(chan answer, 1)
	go func() {
		got, err := b.send(adminKey, post, "vm-hosts/", url.Values{"type": {"lxd"}, "power_address": {"10.0.2.9"}})
		if err != nil {
			got.body = err.Error()
		}
		answered <- got
	}()
	<-host.dialled
	if len(b.Machines()) == 0 {
		t.Error("the region has no machines")
	}
	select {
	case got := <-answered:
		t.Errorf("responded before the host: %d %s", got.status, got.body)
	default:
	}
	b.Close()
	select {
	case got := <-answered:
		if got.status != http.StatusOK {
			t.Errorf("%d %s", got.status, got.body)
		}
		if err := <-host.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the call to the host ended with %v, and not with the region", err)
		}
	case <-time.After(eventually.Limit):
		t.Error("the call to the host outlives the region")
	}
}
