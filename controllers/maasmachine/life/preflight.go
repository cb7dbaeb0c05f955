// SPDX-License-Identifier: Apache-2.0

package life

import (
	"context"
	"slices"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
)

// check returns why no machine is taken for an object yet; nil if nothing speaks against it.
type check func(ctx context.Context, l *Life) error

// Before stops, before a machine is taken, at what MAAS refuses afterwards, or what Kubernetes lacks: other clusters
// could use the machine that would wait for it.
func (s *Steps) Before(ctx context.Context, l *Life, checks ...check) (Outcome, error) {
	if isTaken(l) || WasProvisioned(l.MaasMachine) {
		return Proceed, nil
	}
	for _, check := range checks {
		if err := check(ctx, l); err != nil {
			return Proceed, err
		}
	}
	return Proceed, s.soleUser(ctx, l)
}

// Image checks that MAAS has the image, before a machine is acquired or composed for it.
func (s *Steps) Image(ctx context.Context, l *Life) (Outcome, error) {
	if isTaken(l) {
		return Proceed, nil
	}
	return Proceed, l.Machines.CheckImage(ctx, l.MaasMachine.Spec.Image, l.MaasMachine.Spec.Architecture)
}

// isTaken reports whether the machine is there already: a VM, or bare metal that is not free.
func isTaken(l *Life) bool { return l.MAAS != nil && (l.IsLXD() || l.MAAS.Status != maas.StatusReady) }

// Names checks that MAAS has the zone, the pool and the tags of a machine. The tags of VM hosts are their own.
func Names(ctx context.Context, l *Life) error {
	wanted := l.Constraints()
	if l.IsLXD() {
		wanted.Tags = nil
	}
	return l.Machines.CheckNames(ctx, wanted)
}

// Connections checks the static address, and the subnets of the interfaces of bare metal. For VMs, the choice of a host
// names those that it lacks.
func Connections(ctx context.Context, l *Life) error {
	nics := l.NICs(l.MaasMachine.Status.StaticIP)
	if l.IsLXD() {
		nics = slices.DeleteFunc(nics, func(nic machine.NIC) bool { return nic.Address == "" })
	}
	return ofField(l, l.Machines.CheckNICs(ctx, nics, l.isOwn))
}

// isOwn reports whether the machine has an address already. Whether a device of the VM's name is ours is proven before
// it is used.
func (l *Life) isOwn(a maas.SubnetAddress) bool {
	if l.MAAS != nil {
		return a.Node.SystemID == l.MAAS.SystemID
	}
	return l.Record.Registers && a.Node.Hostname == l.Identity().Hostname
}

// BootstrapData checks that the user data are there, in a format that the machine reads.
func BootstrapData(ctx context.Context, l *Life) error {
	_, err := l.UserData(ctx)
	return err
}
