// SPDX-License-Identifier: Apache-2.0

package simulator

import "fmt"

func renderMachineDisks(m *machine, out object) {
	disks, volumes := []any{}, []any{}
	out["boot_disk"] = nil
	for i, d := range m.disks {
		rendered := renderDisk(m, d)
		disks = append(disks, rendered)
		if i == 0 || d == m.bootDisk() {
			out["boot_disk"] = rendered
		}
	}
	out["volume_groups"], out["bcaches"], out["cache_sets"] = []any{}, []any{}, []any{}
	volumes = append(volumes, renderVolumes(m)...)
	if g := m.storage.group; g != nil {
		switch g.kind {
		case groupLVM:
			out["volume_groups"] = []any{renderVolumeGroup(m, g)}
		case groupBcache:
			out["cache_sets"], out["bcaches"] = []any{renderCacheSet(m)}, []any{renderBcache(m, g)}
		}
	}
	raids := []any{}
	for _, r := range m.storage.raids {
		raids = append(raids, renderRAID(m, r))
	}
	out["raids"] = raids
	all := append(append([]any{}, disks...), volumes...)
	out["blockdevice_set"], out["physicalblockdevice_set"], out["virtualblockdevice_set"] = all, disks, volumes
}

func deviceURI(m *machine, id int) string {
	return fmt.Sprintf("%snodes/%s/blockdevices/%d/", apiRoot, m.systemID, id)
}

func renderDisk(m *machine, d *disk) object {
	out := object{
		"id": d.id, "name": d.name, "type": "physical", "path": "/dev/disk/by-dname/" + d.name, "id_path": nilIfEmpty(d.idPath),
		"serial": d.serial, "model": d.model, "size": d.size, "block_size": d.blockSize, "tags": orNone(d.tags), "uuid": nil,
		"system_id": m.systemID, "firmware_version": nil, "numa_node": 0, "storage_pool": nilIfEmpty(d.storagePool),
		"filesystem": renderFilesystem(m.storage.whole[d]), "partition_table_type": nil, "partitions": []any{}, "used_for": "Unused",
		"used_size": m.used(d), "available_size": m.available(d), "resource_uri": deviceURI(m, d.id),
	}
	if fs := m.storage.whole[d]; fs != nil {
		out["used_for"] = usedFor(fs)
	}
	parts, partitioned := m.storage.tables[d]
	if !partitioned {
		return out
	}
	rendered := []any{}
	for _, p := range parts {
		rendered = append(rendered, renderPartition(m, d, p))
	}
	plural := "s"
	if len(parts) == 1 {
		plural = ""
	}
	out["partition_table_type"], out["partitions"] = "GPT", rendered
	out["used_for"] = fmt.Sprintf("GPT partitioned with %d partition%s", len(parts), plural)
	return out
}

func renderPartition(m *machine, d *disk, p *partition) object {
	return object{
		"id": p.id, "uuid": p.uuid, "size": p.size, "bootable": p.bootable, "tags": []string{},
		"path": fmt.Sprintf("/dev/disk/by-dname/%s-part%d", d.name, p.index), "device_id": d.id, "type": "partition",
		"used_for": usedFor(p.fs), "system_id": m.systemID, "filesystem": renderFilesystem(p.fs),
		"resource_uri": fmt.Sprintf("%spartition/%d", deviceURI(m, d.id), p.id),
	}
}

func renderFilesystem(fs *filesystem) any {
	if fs == nil {
		return nil
	}
	return object{
		"fstype": fs.fstype, "label": nilIfEmpty(fs.label), "uuid": fs.uuid, "mount_point": nilIfEmpty(fs.mount), "mount_options": nil,
	}
}

func usedFor(fs *filesystem) string {
	switch {
	case fs == nil:
		return "Unused"
	case fs.mount != "":
		return fmt.Sprintf("%s formatted filesystem mounted at %s", fs.fstype, fs.mount)
	}
	return fs.use
}

// renderVolumes renders the volumes of the group and of the RAIDs.
func renderVolumes(m *machine) (out []any) {
	if g := m.storage.group; g != nil {
		out = append(out, renderVolume(m, g.path(), g.volume))
	}
	for _, r := range m.storage.raids {
		out = append(out, renderVolume(m, r.volume.name, r.volume))
	}
	return out
}

// path returns the name of the volume's device.
func (g *volumeGroup) path() string {
	if g.kind == groupLVM {
		return g.name + "-" + g.volume.name
	}
	return g.volume.name
}

// renderVolume renders a volume as a block device.
func renderVolume(m *machine, name string, v *volume) object {
	used := v.size
	if v.fs == nil {
		used = 0
	}
	return object{
		"id": v.id, "name": name, "type": "virtual", "path": "/dev/" + name, "id_path": nil, "serial": nil, "model": nil,
		"size": v.size, "block_size": minBlockSize, "tags": []string{}, "uuid": v.uuid, "system_id": m.systemID, "firmware_version": nil,
		"numa_node": nil, "storage_pool": nil, "filesystem": renderFilesystem(v.fs), "partition_table_type": nil, "partitions": []any{},
		"used_for": usedFor(v.fs), "used_size": used, "available_size": v.size - used, "resource_uri": deviceURI(m, v.id),
	}
}

func renderVolumeGroup(m *machine, g *volumeGroup) object {
	free := g.size - g.volume.size
	return object{
		"system_id": m.systemID, "id": g.id, "uuid": g.uuid, "name": g.name, "devices": []any{renderPartition(m, g.on, g.member)},
		"size": g.size, "human_size": humanBytes(g.size), "available_size": free, "human_available_size": humanBytes(free),
		"used_size": g.volume.size, "human_used_size": humanBytes(g.volume.size), "logical_volumes": []any{renderVolume(m, g.path(), g.volume)},
		"resource_uri": fmt.Sprintf("%snodes/%s/volume-group/%d/", apiRoot, m.systemID, g.id),
	}
}

func renderCacheSet(m *machine) object {
	set := m.storage.cache
	device := renderDisk(m, set.on)
	if set.part != nil {
		device = renderPartition(m, set.on, set.part)
	}
	return object{
		"system_id": m.systemID, "id": set.id, "name": "cache0", "cache_device": device,
		"resource_uri": fmt.Sprintf("%snodes/%s/bcache-cache-set/%d/", apiRoot, m.systemID, set.id),
	}
}

func renderBcache(m *machine, g *volumeGroup) object {
	return object{
		"system_id": m.systemID, "id": g.id, "uuid": g.uuid, "name": g.name, "cache_set": renderCacheSet(m),
		"backing_device": renderPartition(m, g.on, g.member), "size": g.size, "human_size": humanBytes(g.size),
		"virtual_device": renderVolume(m, g.path(), g.volume), "cache_mode": g.cacheMode,
		"resource_uri": fmt.Sprintf("%snodes/%s/bcache/%d/", apiRoot, m.systemID, g.id),
	}
}

func renderRAID(m *machine, r *raid) object {
	devices := func(list []blockDevice) []any {
		out := []any{}
		for _, d := range list {
			if d.part != nil {
				out = append(out, renderPartition(m, d.on, d.part))
			} else {
				out = append(out, renderDisk(m, d.on))
			}
		}
		return out
	}
	return object{
		"system_id": m.systemID, "id": r.id, "uuid": r.uuid, "name": r.volume.name, "level": r.kind(), "devices": devices(r.members),
		"spare_devices": devices(r.spares), "size": r.volume.size, "human_size": humanBytes(r.volume.size),
		"virtual_device": renderVolume(m, r.volume.name, r.volume),
		"resource_uri":   fmt.Sprintf("%snodes/%s/raid/%d/", apiRoot, m.systemID, r.id),
	}
}

// humanBytes is human_readable_bytes in maasserver/utils/converters.py.
func humanBytes(size int64) string {
	value, units := float64(size), []string{"bytes", "KB", "MB", "GB", "TB", "PB"}
	for len(units) > 1 && value >= 1000 {
		value, units = value/1000, units[1:]
	}
	if units[0] == "bytes" {
		return fmt.Sprintf("%.0f bytes", value)
	}
	return fmt.Sprintf("%.1f %s", value, units[0])
}
