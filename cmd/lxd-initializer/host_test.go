// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/canonical/lxd/shared/api"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

func TestFreshNodeBecomesAHost(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	a := n.agent(map[string]string{"STORAGE_BACKEND": "btrfs", "STORAGE_SIZE": "1"})
	n.settle(a)

	host := n.wantHost()
	if host.Zone.Name != "zone-a" || host.Pool.Name != "pool-a" || host.Total.Cores == 0 || host.Total.Memory == 0 {
		t.Errorf("the VM host is %+v", host)
	}
	if !a.ready.Load() {
		t.Error("the initializer is not ready")
	}
	secret := n.secret()
	if secret.Type != corev1.SecretTypeTLS || len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0].UID != n.node().UID {
		t.Errorf("the Secret has type %s and owners %v", secret.Type, secret.OwnerReferences)
	}
	n.await("events report it", func(ctx context.Context) bool {
		events, err := admin.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + n.name})
		reasons := map[string]bool{}
		if err == nil {
			for _, event := range events.Items {
				reasons[event.Reason] = true
			}
		}
		return reasons["LXDPrepared"] && reasons["CertificateTrusted"] && reasons["VMHostRegistered"]
	})
}

func TestTheNodeFirstReportsThatItIsPrepared(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	p := &pass{agent: n.agent()}
	n.must(errors.Join(p.readNode(t.Context()), p.begin(t.Context())))
	n.wantCondition(corev1.ConditionFalse, reasonPreparing)
	n.wantLabel(false)
}

func TestSecondPassWritesNothing(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	n.settle(n.agent())
	actions := n.lxdWrites()
	n.region.ResetCalls()
	node, secret := n.node(), n.secret()

	restarted := n.agent() // It knows nothing of what its forerunner did.
	for range 2 {
		n.must(restarted.pass(t.Context()))
	}
	if got := n.node().ResourceVersion; got != node.ResourceVersion {
		t.Errorf("the Node was written: %s", cmp.Diff(node, n.node()))
	}
	if got := n.secret().ResourceVersion; got != secret.ResourceVersion {
		t.Error("the Secret was written")
	}
	if writes := n.writes(); len(writes) > 0 {
		t.Errorf("MAAS was asked to change something: %v", writes)
	}
	// LXD's event of this write comes last, after those of all before it.
	n.removeTrust()
	n.await("LXD reports a change", func(context.Context) bool { return len(actions()) > 0 })
	if got := actions(); !slices.Equal(got, []string{"certificate-deleted"}) {
		t.Errorf("LXD was changed: %v", got)
	}
}

func TestZoneAndPoolAreMoved(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	n.settle(n.agent())
	before := n.onlyHost()
	for _, c := range []struct {
		name       string
		env        map[string]string
		zone, pool string
		writes     int
	}{
		{"zone", map[string]string{"ZONE": "zone-b"}, "zone-b", "pool-a", 1},
		{"pool", map[string]string{"ZONE": "zone-b", "RESOURCE_POOL": "pool-b"}, "zone-b", "pool-b", 1},
		{"both", map[string]string{"ZONE": "default", "RESOURCE_POOL": "default"}, "default", "default", 1},
		{"what MAAS has", map[string]string{"ZONE": "", "RESOURCE_POOL": ""}, "default", "default", 0},
		{"that of the machine", map[string]string{"ZONE": "", "RESOURCE_POOL": "", "ZONE_OF_MACHINE": "true"}, "zone-b", "default", 1},
		{"nothing", map[string]string{"ZONE": "zone-b", "RESOURCE_POOL": "default"}, "zone-b", "default", 0},
	} {
		n.region.ResetCalls()
		n.settle(n.agent(c.env))
		host := n.onlyHost()
		if host.ID != before.ID || host.Zone.Name != c.zone || host.Pool.Name != c.pool {
			t.Errorf("%s: VM host %d is in zone %s and pool %s, want %d, %s, %s", c.name, host.ID, host.Zone.Name, host.Pool.Name, before.ID, c.zone, c.pool)
		}
		if writes := n.writes(); len(writes) != c.writes {
			t.Errorf("%s: MAAS was written %v, want %d times", c.name, writes, c.writes)
		}
	}
	n.wantHost()
}

// The provider ID of a Node is immutable, and names the zone of that time.
func TestAVMHostFollowsItsMachineIntoAnotherZone(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	a := n.agent(map[string]string{"ZONE": "", "ZONE_OF_MACHINE": "true"})
	inZone := func(want string) {
		t.Helper()
		n.settle(a)
		if host := n.wantHost(); host.Zone.Name != want {
			t.Errorf("the VM host is in zone %s, want %s", host.Zone.Name, want)
		}
	}
	inZone("zone-b")
	simtest.Call(t, n.region, apiKey, http.MethodPut, "machines/"+n.machine.SystemID+"/", url.Values{"zone": {"zone-a"}})
	inZone("zone-a")
	if _, err := n.region.AddFault(simulator.Fault{Method: http.MethodGet, Endpoint: "machines/{id}/", Status: http.StatusNotFound}); err != nil {
		t.Fatal(err)
	}
	inZone("zone-b") // as the provider ID says
}

func TestWhatWasTakenAwayIsPutBack(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	a := n.agent()
	n.settle(a)
	for _, c := range []struct {
		name string
		take func()
		// same: the VM host in MAAS, and the key pair, stay the same.
		sameHost, sameKeys bool
	}{
		{"certificate", n.removeTrust, true, true},
		{"VM host", func() {
			n.must(n.client.DeleteVMHost(t.Context(), maas.Unrecorded("a test"), n.onlyHost().ID))
		}, false, true},
		{"Secret", func() {
			n.must(admin.CoreV1().Secrets(namespace).Delete(t.Context(), secretPrefix+n.name, metav1.DeleteOptions{}))
		}, true, false},
		{"key", func() { n.patchSecret(`{"data":{"tls.key":"Z29uZQ=="}}`) }, true, false},
		{"owner", func() {
			n.patchSecret(`{"metadata":{"ownerReferences":null}}`)
		}, true, true},
		{"label", func() { n.patchNode(`{"metadata":{"labels":{"` + infrav1.LXDHostLabel + `":null}}}`) }, true, true},
		{"profile", func() {
			n.must(n.local().UseProject("maas").DeleteProfile("maas"))
		}, true, true},
		{"https address", func() {
			server, etag, err := n.local().GetServer()
			if err != nil {
				t.Fatal(err)
			}
			put := server.Writable()
			delete(put.Config, "core.https_address")
			n.must(n.local().UpdateServer(put, etag))
		}, true, true},
	} {
		host, key := n.onlyHost(), n.secret().Data[corev1.TLSPrivateKeyKey]
		c.take()
		n.settle(a)
		if got := n.wantHost(); (got.ID == host.ID) != c.sameHost {
			t.Errorf("%s: VM host %d became %d", c.name, host.ID, got.ID)
		}
		if got := n.secret().Data[corev1.TLSPrivateKeyKey]; (string(got) == string(key)) != c.sameKeys {
			t.Errorf("%s: the key is the same: %v", c.name, !c.sameKeys)
		}
		if owner := n.secret().OwnerReferences; len(owner) != 1 || owner[0].UID != n.node().UID {
			t.Errorf("%s: the Secret is owned by %v", c.name, owner)
		}
		if t.Failed() {
			t.Fatalf("after %s was taken away", c.name)
		}
	}
}

// A person deletes the VM host in MAAS, or MAAS is restored from a backup without it, while its VMs run.
func TestANodeWithVMsThatMAASDoesNotKnowIsNotRegistered(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	n.settle(n.agent())
	project := n.local().UseProject("maas")
	making, err := project.CreateInstance(api.InstancesPost{
		Name: "control-plane", Type: api.InstanceTypeVM, Source: api.InstanceSource{Type: api.SourceTypeNone},
		InstancePut: api.InstancePut{Devices: map[string]map[string]string{"root": {"type": "disk", "path": "/", "pool": "default", "size": "10000000"}}},
	})
	lxdtest.Finish(t, making, err)
	if err := n.client.DeleteVMHost(t.Context(), maas.Unrecorded("a test"), n.onlyHost().ID); err != nil {
		t.Fatal(err)
	}
	n.region.ResetCalls()
	a := n.agent()
	for range 2 {
		if err := a.pass(t.Context()); err == nil || !problemOf(err).permanent {
			t.Errorf("the pass returned %v", err)
		}
		n.wantCondition(corev1.ConditionFalse, reasonVMsWouldRestart)
		n.wantLabel(true)
	}
	if message := n.condition().Message; !strings.Contains(message, "1 VM") {
		t.Errorf("%q does not say how many VMs there are", message)
	}
	if writes := n.writes(); len(writes) > 0 {
		t.Errorf("MAAS was asked to change something: %v", writes)
	}
	deleting, err := project.DeleteInstance("control-plane")
	lxdtest.Finish(t, deleting, err)
	n.settle(a)
	n.wantHost()
}

func TestRetirementTakesBackWhatIsOurs(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	if err := n.local().CreateCertificate(api.CertificatesPost{
		Name: "somebody-else", Type: api.CertificateTypeClient, Certificate: newCertificate(t, "somebody-else"),
	}); err != nil {
		t.Fatal(err)
	}
	foreign := n.trusted()
	a := n.agent()
	n.settle(a)
	host := n.onlyHost()

	n.retire(true)
	if !a.woken(t.Context()) {
		t.Error("the initializer does not notice between two passes")
	}
	n.region.ResetCalls()
	n.settle(a)
	n.wantCondition(corev1.ConditionFalse, infrav1.LXDHostRetiredReason)
	n.wantLabel(false)
	if n.secret() != nil {
		t.Error("the Secret is still there")
	}
	if diff := cmp.Diff(foreign, n.trusted()); diff != "" {
		t.Errorf("LXD trusts others than before: %s", diff)
	}
	if _, _, err := n.local().GetStoragePool("default"); err != nil {
		t.Errorf("the storage pool: %v", err)
	}
	if calls := n.region.Calls(); calls.Total > 0 {
		t.Errorf("MAAS was asked: %v", calls.Log)
	}

	// The machine is taken apart: that is no news on a node that is retired, also after a restart.
	version := n.node().ResourceVersion
	n.must(n.lxd.Kill())
	for _, retired := range []*agent{a, n.agent()} {
		if err := retired.pass(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if got := n.node().ResourceVersion; got != version {
		t.Errorf("the Node was written: %+v", n.condition())
	}

	n.must(n.lxd.Restart(t.Context()))
	n.retire(false)
	if !a.woken(t.Context()) {
		t.Error("the initializer does not notice that the retirement is withdrawn")
	}
	n.settle(a)
	n.removeForeign(foreign)
	if got := n.wantHost(); got.ID != host.ID {
		t.Errorf("VM host %d became %d", host.ID, got.ID)
	}
}

func TestHostThatMAASHasAlreadyIsAdopted(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	// An operator registered it, without a certificate that LXD trusts, in a zone and a pool of his choice.
	params := registered(n.name, n.ip)
	params.Zone, params.Pool = "zone-a", "pool-b"
	if _, err := n.client.CreateLXDHost(t.Context(), maas.Unrecorded("a test"), params); err != nil {
		t.Fatal(err)
	}
	host := n.onlyHost()
	n.replaceNode("") // of a cluster that the provider did not make
	n.settle(n.agent(map[string]string{"ZONE": "", "RESOURCE_POOL": ""}))
	if got := n.wantHost(); got.ID != host.ID || got.Zone != host.Zone || got.Pool != host.Pool {
		t.Errorf("VM host %+v became %+v", host, got)
	}
}

func TestAddressComesFromTheNode(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	a := n.agent()
	n.settle(a)
	n.wantPowerAddress()
	t.Run("also when it changes while the pod runs", func(t *testing.T) {
		n.ip = "10.0.2.99"
		n.mu.Lock()
		n.hosts[n.ip] = n.lxd
		n.mu.Unlock()
		n.must(n.lxd.Run(t.Context(), "ip", "address", "add", n.ip+"/24", "dev", "br0"))
		n.setAddress(n.node())
		n.settle(a)
		n.wantPowerAddress()
	})
}

func (n *testNode) wantPowerAddress() {
	n.t.Helper()
	power, err := n.client.VMHostPower(n.t.Context(), n.wantHost().ID)
	if err != nil {
		n.t.Fatal(err)
	}
	if want := net.JoinHostPort(n.ip, "8443"); power.PowerAddress != want {
		n.t.Errorf("MAAS reaches the host at %s, want %s", power.PowerAddress, want)
	}
}

func TestDaemonThatRestartsIsNoNews(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	a := n.agent()
	n.settle(a)
	version := n.node().ResourceVersion
	n.must(n.lxd.Kill())
	if err := a.pass(t.Context()); err == nil || problemOf(err).permanent {
		t.Errorf("without LXD the pass returned %v", err)
	}
	if a.ready.Load() {
		t.Error("the initializer is ready without LXD")
	}
	if got := n.node().ResourceVersion; got != version {
		t.Errorf("the Node was written: %+v", n.condition())
	}
	if err := a.pass(t.Context()); err == nil {
		t.Error("without LXD the pass succeeds")
	}
	n.wantCondition(corev1.ConditionFalse, reasonLXDNotReady)
	n.wantLabel(true)
	n.must(n.lxd.Restart(t.Context()))
	n.settle(a)
	n.wantHost()
}

func TestMAASThatIsDownLeavesHostsAlone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	host, fresh := b.newNode(), b.newNode()
	a, other := host.agent(), fresh.agent()
	host.settle(a)
	b.down.Store(true)
	for range 2 {
		if err := a.pass(t.Context()); err == nil || problemOf(err).permanent {
			t.Errorf("without MAAS the pass returned %v", err)
		}
	}
	host.wantCondition(corev1.ConditionUnknown, infrav1.MAASUnavailableReason)
	host.wantLabel(true)
	if err := other.pass(t.Context()); err == nil {
		t.Error("a fresh node is registered without MAAS")
	}
	fresh.wantCondition(corev1.ConditionUnknown, infrav1.MAASUnavailableReason)
	fresh.wantLabel(false)
	for range 3 {
		_ = other.pass(t.Context()) // Now the client knows that MAAS is away, and since when.
	}
	version := fresh.node().ResourceVersion
	for range 3 {
		_ = other.pass(t.Context())
	}
	if got := fresh.node().ResourceVersion; got != version {
		t.Error("the Node is written again and again")
	}

	b.down.Store(false)
	host.settle(a)
	fresh.settle(other)
	host.wantHost()
	fresh.wantHost()
}

func TestProblemsThatPeopleMustMend(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	a := n.agent()
	const wrongKey = "admin:token:psst"
	for _, c := range []struct {
		name   string
		agent  *agent
		key    string
		status corev1.ConditionStatus
		reason string
	}{
		{"wrong key", a, wrongKey, corev1.ConditionUnknown, infrav1.CredentialsInvalidReason},
		{"key of a plain user", a, "plain:token:hush", corev1.ConditionUnknown, infrav1.CredentialsInvalidReason},
		{"no key", a, "", corev1.ConditionUnknown, infrav1.CredentialsInvalidReason},
		{"no such zone", n.agent(map[string]string{"ZONE": "nowhere"}), apiKey, corev1.ConditionFalse, infrav1.MAASRefusedReason},
		{"no such pool", n.agent(map[string]string{"RESOURCE_POOL": "nothing"}), apiKey, corev1.ConditionFalse, infrav1.MAASRefusedReason},
		{"no such bridge", n.agent(map[string]string{"NETWORK_BRIDGE": "br9"}), apiKey, corev1.ConditionFalse, reasonLXDNotReady},
		{"pool of another driver", n.agent(map[string]string{"STORAGE_BACKEND": "btrfs"}), apiKey, corev1.ConditionFalse, reasonLXDNotReady},
	} {
		n.writeCredentials(c.key)
		err := c.agent.pass(t.Context())
		if err == nil || !problemOf(err).permanent {
			t.Errorf("%s: the pass returned %v", c.name, err)
		}
		n.wantCondition(c.status, c.reason)
		if message := n.condition().Message; strings.Contains(message, "psst") || strings.Contains(message, "hush") || strings.Contains(message, "\n") {
			t.Errorf("%s: the message is %q", c.name, message)
		}
		if hosts := n.vmHosts(); len(hosts) > 0 {
			t.Errorf("%s: MAAS has %+v", c.name, hosts)
		}
		version := n.node().ResourceVersion
		_ = c.agent.pass(t.Context())
		if n.node().ResourceVersion != version {
			t.Errorf("%s: it is reported twice", c.name)
		}
		if t.Failed() {
			t.Fatalf("%s: %+v", c.name, n.condition())
		}
	}
	n.writeCredentials(apiKey)
	if !a.woken(t.Context()) {
		t.Error("the initializer does not notice that it has another key")
	}
	n.settle(a)
	n.wantHost()
}

func TestNodeThatMAASWouldMixUpIsNotRegistered(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	fresh, host := b.newNode(), b.newNode()
	a := host.agent()
	host.settle(a)
	b.region.ResetCalls()
	for _, n := range []*testNode{fresh, host} {
		b.must(n.lxd.Run(t.Context(), "ip", strings.Fields("link add cali1 address ee:ee:ee:ee:ee:ee type veth peer name pod1")...))
	}
	moved := host.agent(map[string]string{"ZONE": "zone-b"})
	for n, a := range map[*testNode]*agent{fresh: fresh.agent(), host: moved} {
		if err := a.pass(t.Context()); err == nil || !problemOf(err).permanent {
			t.Errorf("%s: the pass returned %v", n.name, err)
		}
		n.wantCondition(corev1.ConditionFalse, reasonMACNotUnique)
		for _, word := range []string{"cali1", "ee:ee:ee:ee:ee:ee", "flannel", "Cilium"} {
			if message := n.condition().Message; !strings.Contains(message, word) {
				t.Errorf("%s: %q does not mention %s", n.name, message, word)
			}
		}
	}
	if calls := b.region.Calls(); calls.Total > 0 {
		t.Errorf("MAAS was asked: %v", calls.Log)
	}
	fresh.wantLabel(false)

	for n, a := range map[*testNode]*agent{fresh: fresh.agent(), host: moved} {
		b.must(n.lxd.Run(t.Context(), "ip", "link", "del", "cali1"))
		n.settle(a)
		n.wantHost()
	}
}

func TestVMHostOnAnotherMachineIsNeverRegistered(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	const other = "abc123"
	// MAAS finds the machine by its MACs, and takes another one for the node's.
	n.replaceNode("maas://zone-b/" + other)
	a := n.agent()
	for range 2 {
		n.await("MAAS knows the host", func(ctx context.Context) bool {
			var found *problem
			err := a.pass(ctx)
			return errors.As(err, &found) && found.reason == reasonWrongMachine && found.permanent
		})
		n.wantCondition(corev1.ConditionFalse, reasonWrongMachine)
		n.wantLabel(false)
		for _, word := range []string{other, n.machine.SystemID} {
			if message := n.condition().Message; !strings.Contains(message, word) {
				t.Errorf("%q does not mention %s", message, word)
			}
		}
		a = n.agent() // as after a restart
	}
	n.replaceNode("maas://zone-b/" + n.machine.SystemID)
	n.settle(n.agent())
	n.wantHost()
}

// Two clusters may have a Node of one name, and each an initializer. MAAS would delete the machines of the VMs on one of
// them, when its VM host leads to the other's LXD.
func TestAVMHostOfTheNodesNameThatIsAnothersIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	theirs, ours := b.newNode(), b.newNode()
	theirs.settle(theirs.agent())
	host := theirs.onlyHost()
	named := func(name string) {
		t.Helper()
		if _, err := b.client.UpdateVMHost(t.Context(), maas.Unrecorded("a test"), host.ID, maas.VMHostParams{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	power := func() maas.VMHostPower {
		t.Helper()
		power, err := b.client.VMHostPower(t.Context(), host.ID)
		if err != nil {
			t.Fatal(err)
		}
		return power
	}
	named(ours.name)
	before := power()
	b.region.ResetCalls()
	a := ours.agent()
	for range 2 {
		if err := a.pass(t.Context()); err == nil || !problemOf(err).permanent {
			t.Errorf("the pass returned %v", err)
		}
		ours.wantCondition(corev1.ConditionFalse, reasonVMHostNameTaken)
		ours.wantLabel(false)
		a = ours.agent() // as after a restart
	}
	if writes := b.writes(); len(writes) > 0 {
		t.Errorf("MAAS was asked to change something: %v", writes)
	}
	if diff := cmp.Diff(before, power()); diff != "" {
		t.Errorf("how MAAS reaches their VM host (-before +after):\n%s", diff)
	}
	named(theirs.name)
	ours.settle(ours.agent())
	ours.wantHost()
	theirs.wantHost()
}

// Another machine gets the name of a Node that is gone, before its Secret is. The key pair in that is no proof then.
func TestAVMHostOfAMachineThatHadTheNodesNameIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	former, n := b.newNode(), b.newNode()
	former.settle(former.agent())
	host, before := former.onlyHost(), former.secret().Data[corev1.TLSCertKey]
	n.name, n.token = former.name, former.token
	n.patchSecret(`{"metadata":{"ownerReferences":null}}`) // Otherwise it may go with the Node, now or later.
	n.replaceNode("maas://zone-b/" + n.machine.SystemID)
	b.region.ResetCalls()
	if err := n.agent().pass(t.Context()); err == nil || !problemOf(err).permanent {
		t.Errorf("the pass returned %v", err)
	}
	n.wantCondition(corev1.ConditionFalse, reasonVMHostNameTaken)
	if writes := b.writes(); len(writes) > 0 {
		t.Errorf("MAAS was asked to change something: %v", writes)
	}
	if after := n.secret(); string(after.Data[corev1.TLSCertKey]) == string(before) || after.OwnerReferences[0].UID != n.node().UID {
		t.Error("the machine has the key pair of another one")
	}
	b.must(b.client.DeleteVMHost(t.Context(), maas.Unrecorded("a test"), host.ID))
	n.settle(n.agent())
	n.wantHost()
}

// The node has no provider ID, MAAS another address of it, and its key pair was lost: LXD still trusts the former one.
func TestAVMHostWithAFormerKeyOfTheNodeIsTheNodes(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	n.replaceNode("")
	n.settle(n.agent())
	host := n.onlyHost()
	elsewhere := maas.VMHostParams{VMHostPower: maas.VMHostPower{PowerAddress: "127.0.0.1:1"}}
	if _, err := n.client.UpdateVMHost(t.Context(), maas.Unrecorded("a test"), host.ID, elsewhere); err != nil {
		t.Fatal(err)
	}
	n.must(admin.CoreV1().Secrets(namespace).Delete(t.Context(), secretPrefix+n.name, metav1.DeleteOptions{}))
	n.settle(n.agent())
	if got := n.wantHost(); got.ID != host.ID {
		t.Errorf("VM host %d became %d", host.ID, got.ID)
	}
}

func TestKeyOfAnEarlierNameOfTheNodeIsTakenBack(t *testing.T) {
	t.Parallel()
	n := newBed(t).newNode()
	const former = secretPrefix + "former"
	// A person's certificate with such a name in LXD, or with such a common name, is not ours.
	for name, commonName := range map[string]string{former: former, secretPrefix + "by-hand": "person", "person": former, secretPrefix + n.name: "person"} {
		if err := n.local().CreateCertificate(api.CertificatesPost{
			Name: name, Type: api.CertificateTypeClient, Certificate: newCertificate(t, commonName),
		}); err != nil {
			t.Fatal(err)
		}
	}
	foreign := []string{secretPrefix + "by-hand", secretPrefix + n.name, "person"}
	wantNames := func(when string, want ...string) {
		t.Helper()
		all, err := n.local().GetCertificates()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, c := range all {
			names = append(names, c.Name)
		}
		want = append(want, foreign...)
		slices.Sort(names)
		slices.Sort(want)
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("%s: what LXD trusts (-want +got):\n%s", when, diff)
		}
	}
	a := n.agent()
	n.settle(a)
	_, current := n.keys()
	wantNames("on a host", secretPrefix+n.name+"-"+current[:12])
	n.retire(true)
	n.settle(a)
	wantNames("after the retirement")
}
