// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/http"
	"slices"
)

// minBlockSize is the smallest block size that MAAS accepts, in bytes.
const minBlockSize = 512

func (rq *request) listBlockDevices() (any, error) {
	m, err := rq.machineFor(mayView)
	if err != nil {
		return nil, err
	}
	out := []any{}
	for i, d := range m.disks {
		out = append(out, renderDisk(m, d, i == 0))
	}
	return out, nil
}

// createBlockDevice adds a disk that nothing has found yet, in any status of the machine.
func (rq *request) createBlockDevice() (any, error) {
	m, err := rq.machineFor(mayAdmin)
	if err != nil {
		return nil, err
	}
	f, errs := rq.data, formErrors{}
	for _, key := range []string{"name", "size", "block_size"} {
		if f.get(key) == "" {
			errs.add(key, "This field is required.")
		}
	}
	size, block := f.integer("size", minDisk, errs), f.integer("block_size", minBlockSize, errs)
	atLeastField(errs, "size", size, minDisk)
	atLeastField(errs, "block_size", block, minBlockSize)
	if f.get("id_path") == "" && (f.get("model") == "" || f.get("serial") == "") {
		errs.add("__all__", "serial/model are required if id_path is not provided.")
	}
	if slices.ContainsFunc(m.disks, func(d *disk) bool { return d.name == f.get("name") }) {
		errs.add("__all__", "Block device with this Node config and Name already exists.")
	}
	if err := errs.err(); err != nil {
		return nil, err
	}
	rq.addDisk(m, int64(size), f.get("name"), "")
	d := m.disks[len(m.disks)-1]
	d.model, d.serial, d.idPath, d.blockSize = f.get("model"), f.get("serial"), f.get("id_path"), block
	return renderDisk(m, d, false), nil
}

// storageLayouts are the names of MAAS's layouts.
var storageLayouts = []string{"bcache", "blank", "custom", "flat", "lvm", "vmfs6", "vmfs7"}

// setStorageLayout partitions the boot disk. While MAAS does not know how the machine boots it makes no EFI partition.
func (rq *request) setStorageLayout() (any, error) {
	m, err := rq.machineFor(mayAdmin)
	if err != nil {
		return nil, err
	}
	if m.status != statusReady {
		return nil, conflict("Cannot change the storage layout on a machine that is not Ready.")
	}
	name := rq.data.get("storage_layout")
	switch {
	case name == "":
		return nil, invalidField("storage_layout", "This field is required.")
	case !slices.Contains(storageLayouts, name):
		return nil, invalidField("storage_layout", "Select a valid choice. %s is not one of the available choices.", name)
	case len(m.disks) == 0:
		return nil, badRequest("Machine is missing a boot disk; no storage layout can be applied.")
	case name == "blank":
		m.layout = layoutNone
		return rq.renderMachine(m), nil
	case name != "flat":
		return nil, textError(http.StatusNotImplemented, "Not simulated: the storage layout %s", name)
	}
	m.layout = m.flatLayout()
	return rq.renderMachine(m), nil
}

// layout is how a boot disk is partitioned.
type layout int

const (
	layoutNone layout = iota
	layoutUEFI
	// layoutPXE is for a machine of which MAAS does not know how it boots: it has no EFI partition, and its first
	// partition has the number 2. If the machine boots with UEFI then, installing it fails.
	layoutPXE
)

// flatLayout returns MAAS's default layout for what it knows of the machine.
func (m *machine) flatLayout() layout {
	if m.bootMethod == "" {
		return layoutPXE
	}
	return layoutUEFI
}

// partitionsComplaint returns how the installation of a machine fails, or "".
func (m *machine) partitionsComplaint() string {
	if m.ephemeral || m.layout == layoutUEFI {
		return ""
	}
	return "Installation failed (refer to the installation log for more information)."
}
