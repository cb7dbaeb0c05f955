// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
)

const adminKey = "admin:token:secret"

// withVMHostsToCome is a MAAS 3.8, the last with VM hosts, as fast as real LXDs can follow, whose VM hosts the test registers.
func withVMHostsToCome(w *world) {
	withLXDHosts(w)
	w.version, w.hostInterval = "3.8", readOften
}

// upgraded is a MAAS with VMs on the VM host lxd-a, a real LXD, which has VM hosts no more.
type upgraded struct {
	*world
	server *directhost.Host
	host   *infrav1.LXDHost
}

// upgradeWith upgrades MAAS when it has composed the VMs of MaasMachines.
func upgradeWith(t *testing.T, names ...string) (u *upgraded, vms []*infrav1.MaasMachine) {
	t.Helper()
	u = &upgraded{server: directhost.StartAt(t, netip.MustParsePrefix("10.77.0.11/24")), world: newWorld(t, withVMHostsToCome)}
	as := directhost.VMHost{Name: "lxd-a", Zone: "zone-a", Pool: "default", OverCommit: 10}
	if err := u.server.RegisterAsVMHost(u.maasURL, adminKey, as); err != nil {
		t.Fatal(err)
	}
	u.provisioned(u.newCluster())
	u.host = u.lxdHost(u.hostName("lxd-a"))
	for _, name := range names {
		m := u.newMachine(name, false, vm)
		u.deployed(m)
		vms = append(vms, m)
	}
	if err := u.maas.Upgrade("4.0"); err != nil {
		t.Fatal(err)
	}
	u.hostSays(u.host, infrav1.RegisteredCondition, metav1.ConditionFalse, infrav1.VMHostsNotSupportedReason)
	return u, vms
}

// prepare lets the manager reach LXD, as an operator does.
func (u *upgraded) prepare() {
	u.t.Helper()
	u.must(u.server.Prepare(u.t.Context(), u.client, client.ObjectKeyFromObject(u.host)))
	u.must(u.server.AddImage(u.t.Context(), vmImage))
	u.change(u.host, func(s *infrav1.LXDHostSpec) {
		s.MAASCredentialsRef, s.Subnet = &infrav1.LocalObjectReference{Name: "maas"}, "10.77.0.0/24"
	})
	u.hostSays(u.host, infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason)
}

// marked reports whether the VM of a MaasMachine carries our marks in LXD.
func (u *upgraded) marked(m *infrav1.MaasMachine) bool {
	u.t.Helper()
	all, err := u.server.Instances()
	if err != nil {
		u.t.Fatal(err)
	}
	return all[m.Status.Hostname].Config["user.capmaas.machine"] != ""
}

// VMs that MAAS composed live on when it has VM hosts no more, and are deleted in LXD as they are proven there.
func TestVMsOfFormerVMHostsLiveOnAndAreDeleted(t *testing.T) {
	t.Parallel()
	u, vms := upgradeWith(t, "cp-0", "cp-1")
	stays, goes := vms[0], vms[1]
	if u.marked(stays) {
		t.Fatal("MAAS marked the VM")
	}
	u.beginDeletion(goes)
	u.refused(goes, infrav1.MachineDeployedCondition, infrav1.VMHostsNotSupportedReason)
	if left := u.server.VMs(t); len(left) != 2 {
		t.Errorf("LXD has %v", left)
	}
	before := stays.DeepCopy()
	u.prepare()
	u.await("the VM is deleted", goes, u.hostGone(goes))
	if stays.Spec.ProviderID != before.Spec.ProviderID || !conditions.IsTrue(stays, infrav1.MachineDeployedCondition) {
		t.Errorf("the VM has the provider ID %s, not %s, and %+v", stays.Spec.ProviderID, before.Spec.ProviderID, stays.Status.Conditions)
	}
	next := u.newMachine("cp-2", false, vm)
	u.deployed(next)
	want := slices.Sorted(slices.Values([]string{stays.Status.Hostname, next.Status.Hostname}))
	if got := slices.Sorted(maps.Keys(u.server.VMs(t))); !slices.Equal(got, want) {
		t.Errorf("LXD has %v, want %v", got, want)
	}
	for _, m := range []*infrav1.MaasMachine{stays, next} {
		u.delete(m)
	}
	if left := u.server.VMs(t); len(left) > 0 || u.acquiredMachines() > 0 {
		t.Errorf("LXD has %v, MAAS has\n%s", left, u.machines())
	}
	u.beginDeletion(u.host)
	u.await("the LXDHost is gone", u.host, u.hostGone(u.host))
}

// A VM whose machine MAAS has deleted, and that its VM host kept, is found when its LXDHost leads to LXD.
func TestAVMThatAFormerVMHostKeptIsDeleted(t *testing.T) {
	t.Parallel()
	u, vms := upgradeWith(t, "cp-0")
	m := vms[0]
	u.maasCall("DELETE", "machines/"+m.Spec.SystemID+"/", nil)
	u.beginDeletion(m)
	u.refused(m, infrav1.MachineDeployedCondition, infrav1.VMHostsNotSupportedReason)
	u.prepare()
	u.await("the VM is deleted", m, u.hostGone(m))
	if left := u.server.VMs(t); len(left) > 0 {
		t.Errorf("LXD has %v", left)
	}
}

// A VM that has only the name of one which MAAS has deleted is another's, and stays.
func TestANameAloneProvesNothingOfAVMThatAFormerVMHostHas(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*upgraded, *infrav1.MaasMachine) error{
		"it has another address": func(u *upgraded, m *infrav1.MaasMachine) error {
			return u.server.Replace(m.Status.Hostname, lxdhost.DeriveMAC("another", "vm").String())
		},
		"the address is not known": func(u *upgraded, m *infrav1.MaasMachine) error {
			u.changeRecord(m, func(d *record.MachineData) { d.Addresses = nil })
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, vms := upgradeWith(t, "cp-0")
			m := vms[0]
			u.maasCall("DELETE", "machines/"+m.Spec.SystemID+"/", nil)
			u.refused(m, infrav1.MachineDeployedCondition, infrav1.MachineMissingReason)
			if err := change(u, m); err != nil {
				t.Fatal(err)
			}
			u.prepare()
			if err := u.client.Delete(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			u.await("it is deleted", m, u.hostGone(m))
			if left := u.server.VMs(t); len(left) != 1 || u.marked(m) {
				t.Errorf("LXD has %v", left)
			}
		})
	}
}

// A VM of our VM's name with another MAC address is none that MAAS composed for us.
func TestAVMWithAnotherAddressIsNotAdopted(t *testing.T) {
	t.Parallel()
	u, vms := upgradeWith(t, "cp-0")
	m := vms[0]
	u.must(u.server.Replace(m.Status.Hostname, lxdhost.DeriveMAC("another", "vm").String()))
	u.prepare()
	u.beginDeletion(m)
	u.refused(m, infrav1.MachineDeployedCondition, infrav1.MachineNotOursReason)
	if left := u.server.VMs(t); len(left) != 1 || u.marked(m) {
		t.Errorf("LXD has %v", left)
	}
}
