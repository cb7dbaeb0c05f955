// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"fmt"
	"slices"
	"strings"

	lxd "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"
)

// ensurePool wants a pool of the driver. A pool that exists keeps its size: LXD 5.0 takes a new size without growing
// what is below, and what a pool has is the operator's to say.
func (p *pass) ensurePool(client lxd.InstanceServer) (State, string, error) {
	pool, state, err := ensure(p.write,
		func() (*api.StoragePool, error) {
			pool, _, err := client.GetStoragePool(p.StoragePool)
			return pool, err
		},
		func() error { return p.createPool(client) })
	switch {
	case err != nil:
		return Failed, "", asError(StepPool, p.describePool(), err)
	case state == Missing:
		if err := p.checkDriver(); err != nil {
			return Failed, "", err
		}
		return Missing, fmt.Sprintf("there is no storage pool %s", p.StoragePool), nil
	}
	found := strings.TrimSpace(fmt.Sprintf("%s: %s %s", pool.Name, pool.Driver, pool.Config["size"]))
	if pool.Driver != p.StorageBackend {
		return Failed, "", &Error{Step: StepPool, Permanent: true,
			Problem: fmt.Sprintf("the storage pool %s exists with the driver %s, not %s", pool.Name, pool.Driver, p.StorageBackend),
			Remedy: fmt.Sprintf("set %s=%s to use it, or name another pool in %s",
				SettingStorageBackend, pool.Driver, SettingStoragePool)}
	}
	if err := usable(pool); err != nil {
		return Failed, "", err
	}
	return state, found, nil
}

// usable tells a pool that LXD has from one that it is making, failed to finish, or can't reach. LXD notes the source of a pool
// when it has made it; a pool without one that is not being made any more was cut off by a crash. LXD does not finish
// it, and answers questions about its size with that of the root file system.
func usable(pool *api.StoragePool) error {
	switch {
	case pool.Status == api.StoragePoolStatusCreated:
		return nil
	case pool.Status != api.StoragePoolStatusPending && pool.Config["source"] == "":
		return &Error{Step: StepPool, Permanent: true,
			Problem: fmt.Sprintf("the storage pool %s is %s: LXD was stopped while it made it", pool.Name, strings.ToLower(pool.Status)),
			Remedy:  fmt.Sprintf("`lxc storage delete %s`; it is made again then", pool.Name)}
	}
	return &Error{Step: StepPool, Problem: fmt.Sprintf("the storage pool %s is %s", pool.Name, strings.ToLower(pool.Status)),
		Remedy: "LXD may still be busy with it; if it stays so, LXD's log says why"}
}

func (p *pass) describePool() string {
	return fmt.Sprintf("storage pool %s (%s)", p.StoragePool, p.StorageBackend)
}

func (p *pass) createPool(client lxd.InstanceServer) error {
	if err := p.checkDriver(); err != nil {
		return err
	}
	config := map[string]string{}
	if p.StorageBackend != "dir" { // LXD refuses a size there
		config["size"] = fmt.Sprintf("%dGB", p.StorageSizeGB)
	}
	return client.CreateStoragePool(api.StoragePoolsPost{
		Name: p.StoragePool, Driver: p.StorageBackend,
		StoragePoolPut: api.StoragePoolPut{Description: description, Config: config},
	})
}

// checkDriver asks for the driver before LXD is asked for a pool. What is listed may still not work.
func (p *pass) checkDriver() error {
	drivers := storageDrivers(p.server)
	if slices.Contains(drivers, p.StorageBackend) {
		return nil
	}
	return &Error{Step: StepPool, Permanent: true,
		Problem: fmt.Sprintf("LXD %s has no storage driver %s here, only %s", p.server.Environment.ServerVersion,
			p.StorageBackend, strings.Join(drivers, ", ")),
		Remedy: fmt.Sprintf("install what %s needs (kernel module, tools) and restart LXD, or set %s to one of them",
			p.StorageBackend, SettingStorageBackend)}
}
