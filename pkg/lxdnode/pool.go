// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
)

// ensurePool ensures a pool with the driver. An existing pool keeps its size: LXD 5.0 accepts a new size without
// growing what is below, and the size is the operator's choice.
func (p *pass) ensurePool(client *lxdapi.Client) (State, string, error) {
	pool, state, err := ensure(p.write, client.GetStoragePool, p.StoragePool,
		func() error { return p.createPool(client) })
	switch {
	case err != nil:
		return Failed, "", asError(StepPool, fmt.Sprintf("storage pool %s (%s)", p.StoragePool, p.StorageBackend), err)
	case state == Missing:
		if err := p.checkNewPool(); err != nil {
			return Failed, "", err
		}
		return Missing, fmt.Sprintf("there is no storage pool %s", p.StoragePool), nil
	}
	found := strings.TrimSpace(fmt.Sprintf("%s: %s %s", pool.Name, pool.Driver, pool.Config["size"]))
	if pool.Driver != p.StorageBackend {
		return Failed, "", wrong(
			"set "+SettingStorageBackend+"="+pool.Driver+" to use it, or name another pool in "+SettingStoragePool,
			"the storage pool %s exists with the driver %s, not %s", pool.Name, pool.Driver, p.StorageBackend)
	}
	if err := usable(pool); err != nil {
		return Failed, "", err
	}
	return state, found, nil
}

// usable returns an error for a pool that LXD is still making, failed to finish, or can't reach. LXD records the source
// of a pool when it has made it; a pool without a source that is no longer being made was interrupted by a crash. LXD
// does not finish it, and reports the size of the root file system as its size.
func usable(pool *api.StoragePool) error {
	switch {
	case pool.Status == api.StoragePoolStatusCreated:
		return nil
	case pool.Status != api.StoragePoolStatusPending && pool.Config["source"] == "":
		return wrong("`lxc storage delete "+pool.Name+"`; it is made again then",
			"the storage pool %s is %s: LXD was stopped while it made it", pool.Name, strings.ToLower(pool.Status))
	}
	return &Error{Problem: fmt.Sprintf("the storage pool %s is %s", pool.Name, strings.ToLower(pool.Status)),
		Remedy: "LXD may still be busy with it; if it stays so, LXD's log has the reason"}
}

func (p *pass) createPool(client *lxdapi.Client) error {
	if err := p.checkNewPool(); err != nil {
		return err
	}
	config := map[string]string{}
	if p.StorageBackend != "dir" { // LXD refuses a size there
		config["size"] = fmt.Sprintf("%dGB", p.StorageSizeGB)
	}
	return p.create(client, client.Path("storage-pools"), api.StoragePoolsPost{
		Name: p.StoragePool, Driver: p.StorageBackend,
		StoragePoolPut: api.StoragePoolPut{Description: description, Config: config},
	})
}

// checkNewPool runs checks before LXD is asked for a pool.
func (p *pass) checkNewPool() error {
	if err := p.checkDriver(); err != nil || p.StorageBackend == "dir" {
		return err
	}
	return p.checkRoom()
}

// checkRoom refuses a loop file that may outgrow its disk: it is sparse, LXD makes it of any size, and MAAS composes
// VMs for all of it until the node's file system is full. LXD reports the sizes of disks (/1.0/resources), but not what
// is mounted and free. So checkRoom reads the file system of LXD's socket, which is in the directory with the loop
// files. If another disk is mounted for the loop files, the pool has to be made by hand.
func (p *pass) checkRoom() error {
	free, err := freeBytes(p.socket)
	if err != nil {
		return &Error{Step: StepPool, Problem: "reading the free space of the node's disk: " + err.Error(), cause: err}
	}
	free /= 1_000_000_000
	if uint64(p.StorageSizeGB) <= free {
		return nil
	}
	return wrong("set "+SettingStorageSize+" (storageSize in lxdConfig) to less, leaving room for the node, use machines "+
		"with larger disks, or make the pool by hand: one that exists is used as it is",
		"a storage pool of %d GB does not fit: the disk of %s has %d GB free", p.StorageSizeGB, filepath.Dir(p.socket), free)
}

// checkDriver checks for the driver before LXD is asked for a pool. A listed driver may still not work.
func (p *pass) checkDriver() error {
	drivers := storageDrivers(p.server)
	if slices.Contains(drivers, p.StorageBackend) {
		return nil
	}
	return wrong("install what "+p.StorageBackend+" needs (kernel module, tools) and restart LXD, or set "+
		SettingStorageBackend+" to one of them", "LXD %s has no storage driver %s here, only %s",
		p.server.Environment.ServerVersion, p.StorageBackend, strings.Join(drivers, ", "))
}
