// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"fmt"
	"slices"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// dataDir is where a machine has its data disks mounted, by their names.
const dataDir = "/srv/"

// dataDisks are the disks of a machine that MAAS does not list, as devices of its container. Each is made at the first
// deployment. MAAS's installer does not touch them: they hold what they held when the machine was deployed before.
func (h *hardware) dataDisks(m simulator.MachineSnapshot) (map[string]map[string]string, error) {
	all := map[string]map[string]string{}
	for _, name := range m.Unlisted {
		volume := h.name + "-" + name
		all["disk-"+name] = map[string]string{"type": "disk", "pool": pool, "source": volume, "path": dataDir + name}
		if slices.Contains(h.disks, volume) {
			continue
		}
		err := h.nodes.containers.CreateStoragePoolVolume(pool, api.StorageVolumesPost{Name: volume, Type: "custom", ContentType: "filesystem"})
		if err != nil {
			return nil, fmt.Errorf("making the disk %s of %s: %w", name, m.Hostname, err)
		}
		h.disks = append(h.disks, volume)
	}
	return all, nil
}

// eraseDataDisks does what MAAS's eraser does, which finds all disks itself.
func (h *hardware) eraseDataDisks() error {
	for len(h.disks) > 0 {
		if err := h.nodes.containers.DeleteStoragePoolVolume(pool, "custom", h.disks[0]); err != nil {
			return fmt.Errorf("erasing the disk %s: %w", h.disks[0], err)
		}
		h.disks = h.disks[1:]
	}
	return nil
}
