// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"slices"
	"strconv"
)

// minBlockSize is the smallest block size that MAAS accepts, in bytes.
const minBlockSize = 512

func (rq *request) listBlockDevices() (any, error) {
	m, err := rq.machineFor(mayView)
	if err != nil {
		return nil, err
	}
	out := []any{}
	for _, d := range m.disks {
		out = append(out, renderDisk(m, d))
	}
	return append(out, renderVolumes(m)...), nil
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
	return renderDisk(m, d), nil
}

// tagBlockDevice adds a tag to a physical disk of a Ready machine.
func (rq *request) tagBlockDevice() (any, error) {
	m, err := rq.machineFor(mayAdmin)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(m.disks, func(d *disk) bool { return strconv.Itoa(d.id) == rq.vars[1] })
	switch {
	case at < 0:
		return nil, notFound("BlockDevice")
	case m.status != statusReady:
		return nil, conflict("Cannot update block device because the machine is not Ready.")
	case rq.data.get("tag") == "":
		return nil, badRequest("No provided tag!")
	}
	if d := m.disks[at]; !slices.Contains(d.tags, rq.data.get("tag")) {
		d.tags = append(slices.Clone(d.tags), rq.data.get("tag"))
	}
	return renderDisk(m, m.disks[at]), nil
}
