// SPDX-License-Identifier: Apache-2.0

package hands_test

import (
	"fmt"
	"net/http"
	"strconv"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/e2e/chaos/clusters"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// The remaining one serves, and no other is made: that is up to the owner of the Machine.
func deleteVM(b *bed) {
	deleted, left := b.vm("a"), b.vm("b")
	there := b.serving(deleted, left)[1]
	b.operator.Do(http.MethodDelete, "machines/"+b.In(deleted.Name).SystemID+"/", "")
	b.replaced(deleted.Name, infrav1.MachineMissingReason)
	b.LeadsTo(there)
	if vms := b.VMs(); len(vms) != 1 {
		b.Errorf("the cluster has the VMs %v, want one", vms)
	}
	b.finish()
}

// lose deletes a VM on its host.
func (b *bed) lose(name string) {
	b.Helper()
	if vm := b.In(name); !box.MAAS.DeleteVM(vm.VMHost, vm.Hostname) {
		b.Fatalf("there is no VM %s on %s", vm.Hostname, vm.VMHost)
	}
}

// MAAS removes a VM from its database when it refreshes the host and does not find it.
func loseVM(b *bed) {
	vm := b.vm("a")
	b.running(vm)
	b.lose(vm.Name)
	b.host(b.In(vm.Name).VMHostID, http.MethodPost, "refresh")
	b.replaced(vm.Name, infrav1.MachineMissingReason)
	b.finish()
}

func (b *bed) host(id int, method, op string) {
	b.Helper()
	b.operator.Do(method, "vm-hosts/"+strconv.Itoa(id)+"/", op)
}

// There is nothing to delete on the host, and that is no reason to keep the object.
func loseVMUnnoticed(b *bed) {
	vm := b.vm("a")
	b.running(vm)
	b.lose(vm.Name)
	b.Remove(vm.Name)
	b.AwaitGone(vm.Name)
	b.finish()
}

// With the host, MAAS forgets the VMs on it, and leaves them there. We can't reach them any more.
func removeHost(b *bed) {
	vm := b.vm("a")
	b.running(vm)
	hostname := b.In(vm.Name).Hostname
	b.host(b.In(vm.Name).VMHostID, http.MethodDelete, "")
	b.replaced(vm.Name, infrav1.MachineMissingReason)
	b.Remove(vm.Name)
	b.AwaitGone(vm.Name)
	if !box.MAAS.DeleteVM(hostName(b.tag, 0), hostname) {
		b.Errorf("the VM %s is not on its host any more, and MAAS does not know the host", hostname)
	}
	b.finish()
}

// A VM that may be nowhere else waits for its host.
func hostAwayForCreate(b *bed) {
	host := hostName(b.tag, 0)
	b.away(host, true)
	vm := b.vm("a")
	vm.VMHost = host
	b.Add(vm)
	b.AwaitReason(vm.Name, infrav1.VMCreationFailedReason)
	b.away(host, false)
	b.AwaitRunning(vm.Name)
	b.Settled()
	b.finish()
}

func (b *bed) away(host string, away bool) {
	b.Helper()
	if !box.MAAS.BreakVMHost(host, away, false) {
		b.Fatalf("there is no VM host %s", host)
	}
}

// VMs that may be on either host are placed on the other.
func otherHost(b *bed) {
	b.away(hostName(b.tag, 0), true)
	first, second := b.vm("a"), b.vm("b")
	b.running(first, second)
	for _, m := range []clusters.Machine{first, second} {
		if on := b.In(m.Name).VMHost; on != hostName(b.tag, 1) {
			b.Errorf("%s is on %s, which can't be reached", m.Name, on)
		}
	}
	b.away(hostName(b.tag, 0), false)
	b.Settled()
	b.finish()
}

// MAAS reports that it deleted the VM when it could not. The VM is gone only when its host no longer has it.
func hostAwayForDelete(b *bed) {
	vm := b.vm("a")
	b.running(vm)
	host, hostID := b.In(vm.Name).VMHost, b.In(vm.Name).VMHostID
	id := b.In(vm.Name).SystemID
	b.away(host, true)
	b.Remove(vm.Name)
	b.Wait("MAAS to be asked to delete the VM", func() (bool, string, error) {
		_, there := box.MAAS.Machine(id)
		return !there, "it is there", nil
	})
	b.away(host, false)
	b.AwaitGone(vm.Name)
	if vms := b.VMs(); len(vms) > 0 {
		b.Errorf("the object is gone, and %v are on the host", vms)
	}
	// MAAS finds what is left on a host when it refreshes it.
	b.host(hostID, http.MethodPost, "refresh")
	b.finish()
}

// hostID is the id by which MAAS knows a VM host.
func hostID(by *clusters.Person, name string) int {
	by.Helper()
	for _, host := range by.List("vm-hosts/") {
		if host["name"] == name {
			return int(host["id"].(float64))
		}
	}
	by.Fatalf("MAAS has no VM host %s", name)
	return 0
}

const somebodysVM = "somebodys-vm"

// fillHost fills the VM host of a case. The manager trusts its figures of hosts for half a minute, and skips one that
// refused a VM for minutes: it must not have read them before.
func fillHost(operator *clusters.Person, tag string) {
	operator.Helper()
	operator.Do(http.MethodPost, fmt.Sprintf("vm-hosts/%d/", hostID(operator, hostName(tag, 0))), "compose",
		"hostname", somebodysVM, "cores", strconv.Itoa(hostCores-1), "memory", "2048", "storage", "root:8", "skip_commissioning", "true")
}

// It continues when there is room.
func waitForRoom(b *bed) {
	vm := b.vm("a")
	b.Add(vm)
	b.AwaitReason(vm.Name, infrav1.NoHostAvailableReason)
	for _, m := range box.MAAS.Machines() {
		if m.Hostname == somebodysVM {
			b.operator.Do(http.MethodDelete, fmt.Sprintf("machines/%s/", m.SystemID), "")
		}
	}
	b.AwaitRunning(vm.Name)
	b.Settled()
	b.finish()
}

// The machine with the name is not a VM: it is not adopted, and not deleted.
func takeHostname(b *bed) {
	vm := b.vm("a")
	theirs := b.before[0]
	b.operator.Edit(theirs.SystemID, "hostname", maas.Hostname(vm.Name, b.OwnerID()))
	b.Add(vm)
	b.AwaitReason(vm.Name, infrav1.MachineNotOursReason)
	b.operator.Edit(theirs.SystemID, "hostname", theirs.Hostname)
	b.AwaitRunning(vm.Name)
	b.Settled()
	b.finish()
}

func takeAddressOfVM(b *bed) {
	vm := b.vm("a")
	// MAAS reserves none for people in a reserved range, and gives machines those at the beginning of the others, which also
	// begin after addresses that are in use.
	vm.StaticIP = "10.77.1.100"
	b.takeAddress(vm)
}

func takeAddressOfMetal(b *bed) {
	metal := b.metal("a")
	metal.StaticIP = "10.77.1.200"
	b.takeAddress(metal)
}

// takeAddress reserves the address of a machine for a tenant, for a while.
func (b *bed) takeAddress(m clusters.Machine) {
	b.Helper()
	tenant := clusters.As(b.T, box, "tenant")
	tenant.Do(http.MethodPost, "ipaddresses/", "reserve", "ip", m.StaticIP)
	b.Add(m)
	b.AwaitReason(m.Name, infrav1.StaticIPInUseReason)
	tenant.Do(http.MethodPost, "ipaddresses/", "release", "ip", m.StaticIP)
	b.AwaitRunning(m.Name)
	if got := b.address(m.Name); got != m.StaticIP {
		b.Errorf("%s has the address %s, want %s", m.Name, got, m.StaticIP)
	}
	b.Settled()
	b.finish()
}
