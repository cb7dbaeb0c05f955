// SPDX-License-Identifier: Apache-2.0

package record

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxLeft bounds the annotation of an LXDHost.
const maxLeft = 100

// LeftVM is a VM that may be left on a host, without a MaasMachine.
type LeftVM struct {
	// Hostname is the VM's, OwnerID its cluster's.
	Hostname string `json:"hostname"`
	OwnerID  string `json:"ownerID"`
	// Namespace and Machine are those of its MaasMachine.
	Namespace string `json:"namespace"`
	Machine   string `json:"machine"`
	// Host is where it may be, in the form of lxd.HostRef.
	Host string `json:"host"`
	// Namesakes means that VMs of this name may have been made on several hosts.
	Namesakes bool `json:"namesakes,omitempty"`
	// Addresses are as in MachineData.
	Addresses []string `json:"addresses,omitempty"`
	// Device is the system id of its device in MAAS, which stays as long as the VM may be there; "" if it has none.
	Device string `json:"device,omitempty"`
	// Since is when it was left.
	Since metav1.Time `json:"since"`
	// Spared is why it is not deleted; "" if nothing speaks against it.
	Spared string `json:"kept,omitempty"`

	Unknown `json:"-"`
}

// is reports whether two are about one VM on one host.
func (v LeftVM) is(other LeftVM) bool { return v.Hostname == other.Hostname && v.Host == other.Host }

// Leave records that a VM may be left on the host. It returns false if the record is full.
func (d *HostData) Leave(vm LeftVM, now time.Time) bool {
	if slices.ContainsFunc(d.Left, vm.is) {
		return true
	}
	if len(d.Left) >= maxLeft {
		return false
	}
	vm.Since = asStored(now)
	d.Left = append(slices.Clone(d.Left), vm)
	return true
}

// IsSpared reports whether that is recorded of a VM.
func (v LeftVM) IsSpared(why string, namesake bool) bool {
	return v.Spared == brief(why) && (v.Namesakes || !namesake)
}

// Spare records why a VM that was left is not deleted. namesake means that there is another one of its name.
func (d *HostData) Spare(vm LeftVM, why string, namesake bool) {
	if at := slices.IndexFunc(d.Left, vm.is); at >= 0 {
		d.Left[at].Spared = brief(why)
		d.Left[at].Namesakes = d.Left[at].Namesakes || namesake
	}
}

// IsLeft reports whether a VM of a hostname may be left.
func (d *HostData) IsLeft(hostname string) bool {
	return slices.ContainsFunc(d.Left, func(vm LeftVM) bool { return vm.Hostname == hostname })
}

// HoldsName reports whether a VM of the name was left that has a device in MAAS: another one would get its addresses.
func (d *HostData) HoldsName(hostname string) bool {
	return slices.ContainsFunc(d.Left, func(vm LeftVM) bool { return vm.Hostname == hostname && vm.Device != "" })
}

// Settle records that a VM is not left on the host any more.
func (d *HostData) Settle(vm LeftVM) { d.Left = slices.DeleteFunc(slices.Clone(d.Left), vm.is) }
