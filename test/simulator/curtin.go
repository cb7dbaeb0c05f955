// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"slices"
	"strconv"

	"sigs.k8s.io/yaml"
)

// curtinConfig tells what MAAS's installer does to the disks, and how it configures network and cloud-init
// (get_curtin_config in maasserver/api/machines.py). The rest of the document is left out.
func (rq *request) curtinConfig() (any, error) {
	m, err := rq.machineFor(mayView)
	if err != nil {
		return nil, err
	}
	if !slices.Contains([]status{statusDeploying, statusDeployed, statusFailedDeployment}, m.status) {
		return nil, badRequest("Machine %s is not in a deployment state.", m.hostname)
	}
	cloudConfig, err := rq.cloudConfig(m, "http://"+rq.http.Host+metadataRoot)
	if err != nil {
		return nil, err
	}
	text, err := yaml.Marshal(object{
		"storage": object{"version": 1, "config": curtinDisks(m)}, "network": rq.netplan(m), "cloudconfig": cloudConfig,
	})
	if err != nil {
		return nil, fmt.Errorf("writing the curtin config: %w", err)
	}
	return textReply(text), nil
}

// curtinDisks has an entry for each physical disk, whether it is used or not (_generate_disk_operation in
// maasserver/preseed_storage.py).
func curtinDisks(m *machine) []any {
	out := []any{}
	for _, d := range m.disks {
		one := object{"id": d.name, "name": d.name, "type": "disk", "wipe": "superblock"}
		if d.model != "" && d.serial != "" {
			one["model"], one["serial"] = d.model, d.serial
		} else {
			one["path"] = d.idPath
		}
		out = append(out, one)
	}
	return out
}

// install does to the disks what curtin does: it removes the signatures of all disks in its config before it partitions. A disk
// that MAAS does not list stays as it is, and so do all with a deployment to memory.
func (m *machine) install() {
	for _, d := range m.disks {
		if !m.ephemeral {
			d.data = ""
		}
	}
}

// eraseAll does to the disks what the eraser does, which finds them itself.
func (m *machine) eraseAll() {
	for _, d := range slices.Concat(m.disks, m.unlisted) {
		d.data = ""
	}
}

// WriteDisk makes a disk hold something, as a workload does. Machine shows it until MAAS's installer or eraser removes it.
func (s *Simulator) WriteDisk(systemID, name, data string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machineByID(systemID)
	if m == nil {
		return fmt.Errorf("there is no machine %s", systemID)
	}
	disks := slices.Concat(m.disks, m.unlisted)
	at := slices.IndexFunc(disks, func(d *disk) bool { return d.name == name })
	if at < 0 {
		return fmt.Errorf("machine %s has no disk %s", systemID, name)
	}
	disks[at].data = data
	return nil
}

// contents returns what disks hold, by name.
func (m *machine) contents() map[string]string {
	var out map[string]string
	for _, d := range slices.Concat(m.disks, m.unlisted) {
		if d.data != "" {
			if out == nil {
				out = map[string]string{}
			}
			out[d.name] = d.data
		}
	}
	return out
}

// deleteBlockDevice takes a disk off MAAS's list (BlockDevice.delete in maasserver/models/blockdevice.py). The machine has it
// still.
func (rq *request) deleteBlockDevice() (any, error) {
	m, err := rq.machineFor(mayAdmin)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(m.disks, func(d *disk) bool { return strconv.Itoa(d.id) == rq.vars[1] })
	switch {
	case at < 0:
		return nil, notFound("BlockDevice")
	case m.status != statusReady:
		return nil, conflict("Cannot delete block device because the machine is not Ready.")
	}
	d := m.disks[at]
	if _, partitioned := m.storage.tables[d]; partitioned || m.storage.whole[d] != nil {
		return nil, badRequest("The simulator deletes only disks that are not used.")
	}
	m.hide(at)
	return noContent{}, nil
}

// hide takes a disk off MAAS's list.
func (m *machine) hide(at int) {
	m.unlisted = append(m.unlisted, m.disks[at])
	m.disks = slices.Delete(slices.Clone(m.disks), at, at+1)
}

// HideDisk makes MAAS not list a disk that nothing uses, as an administrator who deletes its block device.
func (s *Simulator) HideDisk(systemID, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machineByID(systemID)
	if m == nil {
		return fmt.Errorf("there is no machine %s", systemID)
	}
	at := slices.IndexFunc(m.disks, func(d *disk) bool { return d.name == name })
	if at < 0 {
		return fmt.Errorf("MAAS lists no disk %s of machine %s", name, systemID)
	}
	m.hide(at)
	return nil
}
