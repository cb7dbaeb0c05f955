// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
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

// Is reports whether two are about one VM on one host.
func (v LeftVM) Is(other LeftVM) bool { return v.Hostname == other.Hostname && v.Host == other.Host }

// LeftVMs are the VMs that may be left on a host. Several reconcilers share the list: each method says something of one
// entry alone, and removes none.
type LeftVMs []LeftVM

// Leave records that a VM may be left on the host. It returns false if there are too many.
func (l *LeftVMs) Leave(vm LeftVM, now time.Time) bool {
	if slices.ContainsFunc(*l, vm.Is) {
		return true
	}
	if len(*l) >= maxLeft {
		return false
	}
	vm.Since = asStored(now)
	*l = append(slices.Clone(*l), vm)
	return true
}

// IsSpared reports whether that is recorded of a VM.
func (v LeftVM) IsSpared(why string, namesake bool) bool {
	return v.Spared == brief(why) && (v.Namesakes || !namesake)
}

// Spare records why a VM that was left is not deleted; "": it is. namesake means that there is another one of its name.
func (l LeftVMs) Spare(vm LeftVM, why string, namesake bool) {
	if at := slices.IndexFunc(l, vm.Is); at >= 0 {
		l[at].Spared = brief(why)
		l[at].Namesakes = l[at].Namesakes || namesake
	}
}

// Of returns those of a hostname.
func (l LeftVMs) Of(hostname string) LeftVMs {
	return list.Where(l, func(vm LeftVM) bool { return vm.Hostname == hostname })
}

// HasDevice reports whether a VM of the hostname was left that has a device in MAAS: another VM would get its
// addresses.
func (l LeftVMs) HasDevice(hostname string) bool {
	return slices.ContainsFunc(l, func(vm LeftVM) bool { return vm.Hostname == hostname && vm.Device != "" })
}

// Settle records that a VM is not left on the host any more. A deletion of it that is pending would wait for nobody, so
// it is for Store alone.
func (d *HostData) Settle(vm LeftVM) { d.Left = slices.DeleteFunc(slices.Clone(d.Left), vm.Is) }

// Merge stores at once what change does to the VMs that may be left, on top of what others have recorded since. It may
// be called again, with those that are left then.
func (r *Host) Merge(ctx context.Context, change func(*LeftVMs)) error {
	return r.merge(ctx, func() { change(&r.Left) })
}

// Add is Merge for a further VM, and reports whether it was added: see Record.add.
func (r *Host) Add(ctx context.Context, add func(*LeftVMs) bool) (added bool, err error) {
	return r.add(ctx, func() bool { return add(&r.Left) })
}
