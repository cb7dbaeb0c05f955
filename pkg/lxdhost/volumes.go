// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
)

// keyVolumes has a VM's further disks, as POOL/VOLUME/BYTES, separated by commas. LXD makes no volumes in the call that
// makes a VM, and deletes none with it.
const keyVolumes = "user.capmaas.volumes"

// customVolume is LXD's type of volumes that are part of no instance.
const customVolume = "custom"

// volume is a further disk.
type volume struct {
	Disk
	name string
}

func diskDevice(i int) string { return fmt.Sprintf("disk%d", i+1) }

func (s Spec) volumes() []volume {
	var all []volume
	for i, disk := range s.Disks {
		all = append(all, volume{disk, s.Name + "-" + diskDevice(i)})
	}
	return all
}

func formatVolumes(volumes []volume) string {
	format := func(v volume) string { return fmt.Sprintf("%s/%s/%d", v.Pool, v.name, v.Bytes) }
	return strings.Join(list.Each(volumes, format), ",")
}

// volumesOf reads the record of a VM's volumes. What a person may have broken in it is left out.
func volumesOf(config map[string]string) []volume {
	var all []volume
	for _, each := range strings.Split(config[keyVolumes], ",") {
		if parts := strings.Split(each, "/"); len(parts) == 3 {
			size, _ := strconv.ParseInt(parts[2], 10, 64) // 0 counts for nothing
			all = append(all, volume{Disk{parts[0], size}, parts[1]})
		}
	}
	return all
}

// addDisks makes the further disks that a VM of ours lacks. Each is proven to be its own before it is made.
func (s *session) addDisks(has devices, spec Spec) error {
	missing := devices{}
	var current *api.Instance
	var etag string
	for i, v := range spec.volumes() {
		if _, there := has[diskDevice(i)]; there {
			continue
		}
		var err error
		if current, etag, err = s.prove(spec.Name, spec.Marks); err != nil {
			return err
		}
		if err := s.makeVolume(v, spec.Marks); err != nil {
			return err
		}
		missing[diskDevice(i)] = map[string]string{"type": "disk", "pool": v.Pool, "source": v.name}
	}
	if len(missing) == 0 {
		return nil
	}
	all := maps.Clone(current.Devices) // whether LXD merges or replaces
	maps.Copy(all, missing)
	return s.client.Patch(s.client.Path("instances", spec.Name), map[string]any{"devices": all}, etag)
}

// makeVolume makes a volume with marks. One that is there already has to carry them: POST
// /1.0/storage-pools/POOL/volumes/custom.
func (s *session) makeVolume(v volume, marks Marks) error {
	config := marks.config()
	config["size"] = strconv.FormatInt(v.Bytes, 10)
	made := s.client.Post(s.client.Path("storage-pools", v.Pool, "volumes", customVolume), api.StorageVolumesPost{
		Name: v.name, Type: customVolume, ContentType: "block", StorageVolumePut: api.StorageVolumePut{Config: config},
	})
	if made == nil {
		return nil
	}
	if there, err := s.proveVolume(v, marks); there {
		return err
	}
	return made
}

// proveVolume reports whether a volume is there; if it does not carry the marks that is an error. For a while it may be
// changed then.
func (s *session) proveVolume(v volume, marks Marks) (there bool, err error) {
	if err := s.turn.asks(); err != nil {
		return false, err
	}
	found, _, err := s.client.GetStoragePoolVolume(v.Pool, customVolume, v.name)
	if isNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !marksOf(found.Config).Prove(marks) {
		return true, problem(KindVolume, "there is a volume %s in the storage pool %s, which is not ours", v.name, v.Pool)
	}
	return true, nil
}

// removeVolumes detaches and deletes the further disks of a stopped VM. The VM goes last: its configuration names them.
func (s *session) removeVolumes(name string, marks Marks) error {
	found, etag, err := s.prove(name, marks)
	if err != nil {
		return err
	}
	volumes := volumesOf(found.Config)
	put := found.Writable()
	put.Devices = maps.Clone(put.Devices)
	for _, v := range volumes {
		maps.DeleteFunc(put.Devices, func(_ string, device map[string]string) bool {
			return device["type"] == "disk" && device["pool"] == v.Pool && device["source"] == v.name
		})
	}
	if len(put.Devices) < len(found.Devices) {
		if err := sent(s.client.Put(s.client.Path("instances", name), put, etag)); err != nil {
			return err
		}
	}
	for _, v := range volumes {
		there, err := s.proveVolume(v, marks)
		if err != nil {
			return err
		}
		if !there {
			continue
		}
		removed := s.client.Delete(s.client.Path("storage-pools", v.Pool, "volumes", customVolume, v.name))
		if removed == nil {
			continue
		}
		if there, err := s.proveVolume(v, marks); there || err != nil { // Otherwise another client was faster.
			return sent(removed)
		}
	}
	return nil
}
