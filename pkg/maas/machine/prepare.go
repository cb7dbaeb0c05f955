// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// A VM that MAAS did not compose must ask for PXE once before its disk is partitioned: only then does MAAS know that it
// boots with UEFI, and without that it numbers the partitions so that the installation fails. The rest of commissioning
// is not needed, and takes minutes. So it is cut short: the disk that commissioning would find is added by hand
// (AddRootDisk), the VM is stopped, and the machine is marked broken (EndCommissioning) and fixed again (MakeReady).

// rootDisk is how MAAS finds the root disk of a VM when it installs the VM: as LXD shows it to the VM.
var rootDisk = maas.BlockDevice{Name: "sda", Model: "QEMU HARDDISK", Serial: "lxd_root", BlockSize: 512}

// HasBooted reports whether a machine has booted from MAAS, so that MAAS knows how to partition its disk, and on which
// VLAN it is.
func HasBooted(machine *maas.Machine) bool {
	return machine.BIOSBootMethod != "" && machine.BootInterface != nil && machine.BootInterface.VLAN != nil
}

// IsPartitioned reports whether the machine's boot disk has partitions.
func IsPartitioned(machine *maas.Machine) bool {
	return machine.BootDisk != nil && len(machine.BootDisk.Partitions) > 0
}

// Commission makes MAAS switch a VM on and commission it. maas.Invalid: its state does not allow it.
func (s *Service) Commission(ctx context.Context, permit maas.Permit, machine *maas.Machine) error {
	return s.change(machine, "commissioning", func(client *maas.Client) (*maas.Machine, error) {
		return client.CommissionMachine(ctx, permit, machine.SystemID)
	})
}

// AddRootDisk adds a VM's root disk of a size in GB, unless MAAS knows a disk of the machine.
func (s *Service) AddRootDisk(ctx context.Context, permit maas.Permit, machine *maas.Machine, gigabytes int) error {
	if machine.BootDisk != nil {
		return nil
	}
	err := s.change(machine, "adding the root disk of", func(client *maas.Client) (*maas.Machine, error) {
		disk := rootDisk
		disk.Size = int64(gigabytes) * 1_000_000_000
		_, err := client.AddBlockDevice(ctx, permit, machine.SystemID, disk)
		return nil, err
	})
	if errors.Is(err, maas.Invalid) { // An earlier call has added it: MAAS refuses a second disk of its name.
		if now, failed := s.inventory.Read(ctx, machine.SystemID); failed == nil && now.BootDisk != nil {
			return nil
		}
	}
	return err
}

// EndCommissioning ends the commissioning of a VM: the machine is Broken afterwards. A machine that is not
// Commissioning is not changed, because MAAS would release one that is acquired.
func (s *Service) EndCommissioning(ctx context.Context, permit maas.Permit, machine *maas.Machine) (*maas.Machine, error) {
	ended, err := s.inventory.Change(machine.SystemID, func(client *maas.Client) (*maas.Machine, error) {
		now, err := client.GetMachine(ctx, machine.SystemID)
		if err != nil || (now.Status != maas.StatusCommissioning && now.Status != maas.StatusFailedCommissioning) {
			return now, err
		}
		return client.MarkBroken(ctx, permit, machine.SystemID, comment)
	})
	if err != nil {
		return machine, fmt.Errorf("ending the commissioning of machine %s: %w", machine.SystemID, err)
	}
	return ended, nil
}

// MakeReady makes a Broken machine Ready. maas.Conflict: it is not Broken.
func (s *Service) MakeReady(ctx context.Context, permit maas.Permit, machine *maas.Machine) (*maas.Machine, error) {
	ready, err := s.inventory.Change(machine.SystemID, func(client *maas.Client) (*maas.Machine, error) {
		return client.MarkFixed(ctx, permit, machine.SystemID, comment)
	})
	if err != nil {
		return nil, fmt.Errorf("making machine %s Ready: %w", machine.SystemID, err)
	}
	return ready, nil
}

// Partition partitions the boot disk of a Ready machine. maas.Conflict: it is not Ready.
func (s *Service) Partition(ctx context.Context, permit maas.Permit, machine *maas.Machine) (*maas.Machine, error) {
	return s.SetStorage(ctx, permit, machine, maas.StorageLayoutFlat)
}

// SetPower makes MAAS switch a VM in a certain way, and leaves the other VMs of its host as they are.
func (s *Service) SetPower(ctx context.Context, permit maas.Permit, machine *maas.Machine, power maas.LXDPower) error {
	return s.change(machine, "giving MAAS another key pair for", func(client *maas.Client) (*maas.Machine, error) {
		if _, err := client.DetachPower(ctx, permit, machine.SystemID); err != nil {
			return nil, err
		}
		return client.SetLXDPower(ctx, permit, machine.SystemID, power)
	})
}
