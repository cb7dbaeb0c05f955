// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// plainUser is the key of a user who is no administrator, in a world that has one.
const plainUser = "joe:token:secret"

func withPlainUser(w *world) {
	w.region = strings.Replace(w.region, "users: [", `users: [{name: joe, keys: ["`+plainUser+`"]}, `, 1)
}

// refusedBeforehand waits until a machine is refused with a message that has the words, and checks that MAAS was asked for
// no machine.
func (w *world) refusedBeforehand(m *infrav1.MaasMachine, reason string, words ...string) {
	w.t.Helper()
	w.refusedWith(m, reason, words...)
	if n := w.count("allocate") + w.count("compose"); n != 0 || m.Spec.SystemID != "" {
		w.t.Errorf("MAAS was asked for a machine %d times; it has %q", n, m.Spec.SystemID)
	}
}

// refusedWith waits until a machine is refused with a message that has the words.
func (w *world) refusedWith(m *infrav1.MaasMachine, reason string, words ...string) {
	w.t.Helper()
	w.refused(m, infrav1.MachineDeployedCondition, reason)
	for _, word := range words {
		if message := conditions.GetMessage(m, infrav1.MachineDeployedCondition); !strings.Contains(message, word) {
			w.t.Errorf("the message %q does not contain %q", message, word)
		}
	}
}

// MAAS deploys an image whose upload is not complete, in vain.
func TestNoMachineIsTakenForAnImageThatIsNotComplete(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	content := []byte("an image")
	digest := fmt.Sprintf("%x", sha256.Sum256(content))
	_, err := w.maasClient().CreateImage(t.Context(), maas.Unrecorded("a test"), maas.CreateImageParams{
		Name: "custom/u", Architecture: "amd64/generic", FileType: "ddgz", SHA256: digest, Size: int64(len(content)),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.provisionedCluster()
	for name, spec := range map[string]infrav1.MaasMachineSpec{"metal": {}, "vm": vm} {
		m := w.newMachine(name, false, withSpec(spec, func(s *infrav1.MaasMachineSpec) { s.Image = "custom/u" }))
		w.refusedBeforehand(m, infrav1.ImageNotFoundReason, "custom/u", "files")
	}
}

// An older machine that can't have its address leaves the server to the younger one, and gets one when it can.
func TestAServerIsNotHeldForAnAddressThatIsTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.region = oneServer })
	w.maasCall(http.MethodPost, "ipaddresses/?op=reserve", url.Values{"ip": {"10.77.0.121"}, "subnet": {"10.77.0.0/24"}})
	w.provisionedCluster()
	waits := w.newMachine("waits", false, infrav1.MaasMachineSpec{StaticIP: "10.77.0.121"})
	w.refusedBeforehand(waits, infrav1.StaticIPInUseReason)
	sound := w.deployedMachine("sound", false, infrav1.MaasMachineSpec{})
	w.delete(sound)
	w.maasCall(http.MethodPost, "ipaddresses/?op=release", url.Values{"ip": {"10.77.0.121"}})
	w.await("it is deployed once the address is free", waits, func(ctx context.Context) bool {
		w.nudge(waits)
		return w.sees(ctx, waits) == nil && runs(waits)
	})
	if got := w.internal(waits); !slices.Equal(got, []string{"10.77.0.121"}) {
		t.Errorf("it has the addresses %v", got)
	}
}

// Of two machines of a set that names an address, only one takes a server; the other one gets it all when the first is
// gone.
func TestTwoMachinesWithOneAddressTakeOneServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.provisionedCluster()
	spec := infrav1.MaasMachineSpec{StaticIP: "10.77.0.50"}
	a, b := w.newMachine("a", false, spec), w.newMachine("b", false, spec)
	waits := func(m *infrav1.MaasMachine) bool {
		return conditions.GetReason(m, infrav1.MachineDeployedCondition) == infrav1.StaticIPInUseReason && m.Spec.SystemID == ""
	}
	w.await("one runs, and the other one waits for its address", a, func(ctx context.Context) bool {
		return w.sees(ctx, a) == nil && w.sees(ctx, b) == nil && (runs(a) && waits(b) || runs(b) && waits(a))
	})
	if n := w.count("allocate"); n != 1 {
		t.Errorf("MAAS was asked for a server %d times, want once", n)
	}
	if runs(b) {
		a, b = b, a
	}
	w.delete(a)
	w.await("the other one is deployed once the address is free", b, func(ctx context.Context) bool {
		w.nudge(b)
		return w.sees(ctx, b) == nil && runs(b)
	})
	if got := w.internal(b); !slices.Equal(got, []string{spec.StaticIP}) {
		t.Errorf("it has the addresses %v", got)
	}
}

// A server is not taken for a Secret that is not there, or has no data.
func TestNoMachineIsTakenWithoutItsBootstrapData(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	w.setInfrastructure(false)
	machines := map[string]*infrav1.MaasMachine{}
	for name, spec := range map[string]infrav1.MaasMachineSpec{"metal": {}, "vm": vm} {
		machines[name] = w.newMachine(name, false, spec)
		w.beginDeletion(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}})
	}
	w.setInfrastructure(true)
	for name, m := range machines {
		w.refusedBeforehand(m, infrav1.WaitingForBootstrapDataReason, "Secret "+name, "spec.bootstrap.dataSecretName")
	}
	for name, m := range machines {
		w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}, StringData: map[string]string{"value": "#cloud-config"}})
		w.poke(m)
		w.deployed(m)
	}
}

// No machine reads bootstrap data of another format than cloud-config, and none is taken for them.
func TestNoMachineIsTakenForBootstrapDataThatItCantRead(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t)
	w.setInfrastructure(false)
	machines := map[string]*infrav1.MaasMachine{}
	for name, spec := range map[string]infrav1.MaasMachineSpec{"metal": {}, "vm": vm} {
		machines[name] = w.newMachine(name, false, spec)
		w.setBootstrapData(name, map[string]string{"format": "ignition", "value": `{"ignition":{"version":"3.4.0"}}`})
	}
	w.setInfrastructure(true)
	for name, m := range machines {
		w.refusedBeforehand(m, infrav1.BootstrapFormatNotSupportedReason, "Secret "+name, `"ignition"`, "cloud-config", "spec.format")
	}
	// Bytes that are no text, as those that gzip has compressed.
	const compressed = "\x1f\x8b\x08\x00\xff\xfe"
	for name, m := range machines {
		w.setBootstrapData(name, map[string]string{"format": "cloud-config", "value": compressed})
		w.poke(m)
		w.deployed(m)
		if seen, _ := w.maas.Machine(m.Spec.SystemID); string(seen.UserData) != compressed {
			t.Errorf("%s: MAAS got the user data %q, want %q", name, seen.UserData, compressed)
		}
	}
}

// setBootstrapData changes a Machine's bootstrap Secret.
func (w *world) setBootstrapData(name string, data map[string]string) {
	w.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}}
	w.patch(secret, func() {
		secret.Data = map[string][]byte{}
		for key, value := range data {
			secret.Data[key] = []byte(value)
		}
	})
}

// setInfrastructure says, as Cluster API does, whether machines may be made.
func (w *world) setInfrastructure(provisioned bool) {
	w.t.Helper()
	cluster := &clusterv1.Cluster{}
	w.must(w.client.Get(w.t.Context(), client.ObjectKeyFromObject(w.cluster), cluster))
	w.patchStatus(cluster, func() { cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(provisioned) })
}

// A key that may not do what the spec needs is told apart before anything is taken. Bare metal without more needs none.
func TestNoMachineIsTakenWithAKeyThatMayNotDeployIt(t *testing.T) {
	t.Parallel()
	bond := []infrav1.MachineInterface{{Name: "bond0", Type: infrav1.InterfaceTypeBond, Parents: []string{"enp1s0"}}}
	w := newWorld(t, withPlainUser)
	w.setKey(plainUser)
	w.provisionedCluster(withoutDomain, external("api.example.com"))
	composed := w.newMachine("vm", false, vm)
	w.refusedBeforehand(composed, infrav1.AdministratorNeededReason, "spec.provisioningMode", "joe")
	bonded := w.newMachine("bond", false, infrav1.MaasMachineSpec{Interfaces: bond})
	w.refusedBeforehand(bonded, infrav1.AdministratorNeededReason, "spec.interfaces", "joe")
	w.deployedMachine("metal", false, infrav1.MaasMachineSpec{})
	asked := 0
	for _, call := range w.maas.Calls().Log {
		if call.Endpoint == "users/" && call.Op == "whoami" {
			asked++
		}
	}
	if asked == 0 || asked > 2 {
		t.Errorf("MAAS was asked %d times who the user is", asked)
	}
}

// refusedEndpoint waits until a cluster has no endpoint, for a reason with the word.
func (w *world) refusedEndpoint(cluster *infrav1.MaasCluster, reason, word string) {
	w.t.Helper()
	w.eventually(cluster, "refused", func() bool {
		return conditions.IsFalse(cluster, infrav1.DNSReadyCondition) && conditions.GetReason(cluster, infrav1.DNSReadyCondition) == reason
	})
	if message := conditions.GetMessage(cluster, infrav1.DNSReadyCondition); !strings.Contains(message, word) {
		w.t.Errorf("the message %q does not contain %q", message, word)
	}
	w.stored(cluster)
	if ptr.Deref(cluster.Status.Initialization.Provisioned, false) || cluster.Spec.ControlPlaneEndpoint.Host != "" {
		w.t.Errorf("it has the endpoint %+v, and the status %+v", cluster.Spec.ControlPlaneEndpoint, cluster.Status.Initialization)
	}
}

// Nothing of a cluster is made with a key that may not write its name into MAAS's DNS.
func TestAClusterNeedsAKeyThatMayWriteItsName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withPlainUser)
	w.setKey(plainUser)
	before := w.maas.State()
	cluster := w.newCluster()
	w.refusedEndpoint(cluster, infrav1.AdministratorNeededReason, "joe")
	w.unchanged(before)
	w.setKey("admin:token:secret")
	w.provisioned(cluster)
}

// A server that waits for a person goes back to the pool after a while, and is claimed again when it can be deployed.
func TestAServerThatWaitsForAPersonIsGivenBack(t *testing.T) {
	t.Parallel()
	now := testingclock.NewFakePassiveClock(time.Now())
	w, _ := clusterWorld(t, func(w *world) { w.region, w.clock = oneServer, now })
	w.fault(simulator.Fault{Op: "link_subnet", Status: http.StatusBadRequest, Body: `{"ip_address": ["no"]}`})
	waits := w.newMachine("waits", false, infrav1.MaasMachineSpec{StaticIP: "10.77.0.50"})
	w.refused(waits, infrav1.MachineDeployedCondition, infrav1.StaticIPInvalidReason)
	now.SetTime(now.Now().Add(time.Hour))
	w.await("it is back in the pool", waits, func(context.Context) bool {
		w.nudge(waits)
		return w.metal(waits.Spec.SystemID).Status == "Ready"
	})
	w.refused(waits, infrav1.MachineDeployedCondition, infrav1.GivenBackForNowReason)
	sound := w.deployedMachine("sound", false, infrav1.MaasMachineSpec{})
	w.delete(sound)
	w.maas.ClearFaults()
	w.await("it is deployed in the end", waits, func(ctx context.Context) bool {
		if w.sees(ctx, waits) == nil && conditions.GetReason(waits, infrav1.MachineDeployedCondition) == infrav1.GivenBackForNowReason {
			now.SetTime(now.Now().Add(time.Hour)) // MAAS's last refusal counts for a while, so that it may go back once more.
		}
		w.nudge(waits)
		return conditions.IsTrue(waits, infrav1.MachineDeployedCondition)
	})
}

// MAAS allocates machines of any architecture, and refuses to deploy an image that it lacks for theirs.
func TestNoMachineIsTakenOfAnArchitectureWithoutTheImage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) {
		w.region = oneServer + "  - {names: [arm], architecture: arm64/generic, cores: 8, memory: 16384, disks: [100]}\n"
	})
	w.provisionedCluster()
	first := w.newMachine("first", false, infrav1.MaasMachineSpec{})
	second := w.newMachine("second", false, infrav1.MaasMachineSpec{})
	waits, deployed := first, second
	w.await("one is deployed, and the other one waits", nil, func(ctx context.Context) bool {
		if conditions.IsTrue(first, infrav1.MachineDeployedCondition) {
			waits, deployed = second, first
		}
		seen := w.sees(ctx, first) == nil && w.sees(ctx, second) == nil
		return seen && conditions.IsTrue(deployed, infrav1.MachineDeployedCondition) &&
			conditions.GetReason(waits, infrav1.MachineDeployedCondition) == infrav1.NoMachineAvailableReason
	})
	if waits.Spec.SystemID != "" {
		t.Errorf("it has machine %s, on which MAAS can't deploy the image", waits.Spec.SystemID)
	}
	w.delete(waits)
	machines := w.maas.Machines()
	arm := machines[slices.IndexFunc(machines, func(m simulator.MachineSnapshot) bool { return m.Hostname == "arm" })]
	chosen := w.newMachine("chosen", false, infrav1.MaasMachineSpec{SystemID: arm.SystemID})
	w.refused(chosen, infrav1.MachineDeployedCondition, infrav1.MachineDoesNotFitReason)
	if now := w.metal(arm.SystemID); now.Status != "Ready" {
		t.Errorf("the machine of choice is %s", now.Status)
	}
}

// An image that MAAS has for several architectures goes on machines of each.
func TestAnImageForSeveralArchitecturesGoesOnMachinesOfEach(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) {
		w.region = strings.Replace(oneServer, "{name: ubuntu/jammy}", "{name: ubuntu/jammy}, {name: ubuntu/jammy, architecture: arm64/ga-22.04}", 1) +
			"  - {names: [arm], architecture: arm64/generic, cores: 8, memory: 16384, disks: [100]}\n"
	})
	w.provisionedCluster()
	first := w.newMachine("first", false, infrav1.MaasMachineSpec{})
	second := w.newMachine("second", false, infrav1.MaasMachineSpec{})
	w.deployed(first)
	w.deployed(second)
}
