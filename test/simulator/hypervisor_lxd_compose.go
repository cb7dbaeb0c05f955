// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/canonical/lxd/shared/api"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
)

// lxdProfile is MAAS's profile for VMs, in projects that have one of that name.
const lxdProfile = "maas"

// attachment is what a VM's network card is attached to: a bridge, or a device of the host.
type attachment struct {
	kind   string // LXD's nictype
	parent string
	name   string // of the device; "": eth0, eth1 ...
}

// Create composes a VM without an image, as MAAS does: first the volumes of its further disks, then the VM. LXD chooses
// the MAC addresses.
func (h *lxdHost) Create(spec vmSpec) (made vmFacts, err error) {
	defer h.link.hold(h.project, spec.name)()
	unreachable, losing := h.link.state()
	if unreachable && !losing {
		return vmFacts{}, h.connectionFailed(errors.New("broken by the tester"))
	}
	err = h.connect(func(c *lxdSession) error {
		definition, err := c.definition(spec)
		if err != nil {
			return err
		}
		if err := c.Post(c.Path("instances"), definition); err != nil {
			return err
		}
		vm, _, err := c.GetInstance(spec.name)
		if err != nil {
			return err
		}
		made, err = c.describe(vm)
		return err
	})
	if losing && err == nil {
		return vmFacts{}, h.failed("the answer was lost")
	}
	return made, err
}

// definition returns the VM in the form in which MAAS requests it from LXD.
func (c *lxdSession) definition(spec vmSpec) (api.InstancesPost, error) {
	if err := c.checkExtensions(); err != nil {
		return api.InstancesPost{}, err
	}
	profiles := []string{}
	switch _, _, err := c.GetProfile(lxdProfile); {
	case err == nil:
		profiles = append(profiles, lxdProfile)
	case !api.StatusErrorCheck(err, http.StatusNotFound):
		return api.InstancesPost{}, err
	}
	devices, err := c.disks(spec.disks)
	if err != nil {
		return api.InstancesPost{}, err
	}
	if len(spec.nics) == 0 {
		return api.InstancesPost{}, hostErrorf("No host network to attach VM interfaces to")
	}
	for i, nic := range spec.nics {
		name := orDefault(nic.name, fmt.Sprintf("eth%d", i))
		devices[name] = map[string]string{"type": "nic", "name": name, "nictype": nic.kind, "parent": nic.parent}
		if i == 0 {
			devices[name]["boot.priority"] = "1"
		}
	}
	wanted := api.InstancesPost{
		Name: spec.name, Type: api.InstanceTypeVM, Source: api.InstanceSource{Type: api.SourceTypeNone},
		InstancePut: api.InstancePut{
			Architecture: c.server.Environment.KernelArchitecture, Profiles: profiles, Devices: devices,
			Config: map[string]string{
				"limits.cpu": strconv.Itoa(spec.cores), "limits.memory": strconv.FormatInt(int64(spec.memory)<<20, 10),
				"limits.memory.hugepages": "false",
			},
		},
	}
	if c.patched {
		lxdapi.TraitsOf(c.server).SetBoot(wanted.Config, false)
	} else {
		wanted.Config["security.secureboot"] = "false"
	}
	return wanted, nil
}

// disks returns the VM's disks; each but the first is a separate volume, which is made here.
func (c *lxdSession) disks(wanted []vmDisk) (map[string]map[string]string, error) {
	devices := map[string]map[string]string{}
	for i, d := range wanted {
		pool, err := c.poolFor(d)
		if err != nil {
			return nil, err
		}
		size := strconv.FormatInt(d.size, 10)
		if i == 0 {
			devices["root"] = map[string]string{"type": "disk", "path": "/", "pool": pool, "size": size, "boot.priority": "0"}
			continue
		}
		volume := "maas-" + string(uuid.NewUUID())
		err = c.Post(c.Path("storage-pools", pool, "volumes", "custom"), api.StorageVolumesPost{
			Name: volume, Type: "custom", ContentType: "block",
			StorageVolumePut: api.StorageVolumePut{Config: map[string]string{"size": size}},
		})
		if err != nil {
			return nil, err
		}
		devices[fmt.Sprintf("disk%d", i)] = map[string]string{"type": "disk", "path": "", "pool": pool, "source": volume}
	}
	return devices, nil
}

// poolFor returns the storage pool for a disk.
func (c *lxdSession) poolFor(d vmDisk) (string, error) {
	names, err := c.GetStoragePoolNames()
	if err != nil {
		return "", err
	}
	return storagePoolFor(d, names, func(name string) (int64, error) {
		resources, err := c.GetStoragePoolResources(name)
		if err != nil {
			return 0, err
		}
		return int64(resources.Space.Total - resources.Space.Used), nil // No pool is that big.
	})
}
