// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"net/http"

	"github.com/canonical/lxd/shared/api"
)

// NoLimit stands for no limit in Capacity.Limits.
const NoLimit = -1

// Capacity is what a host has, and what the project's instances have been given of it.
type Capacity struct {
	// Version is LXD's. A snap is upgraded by itself.
	Version string
	// Architecture is the host's, in Linux's words: x86_64.
	Architecture string
	// Cores are the host's threads.
	Cores     int
	MemoryMiB int64
	Pools     []Pool
	Bridges   []Bridge
	// Allocated is the sum over the project's instances, running or not. Limits are the project's, each NoLimit or
	// more.
	Allocated, Limits Amount
}

// Most returns what VMs may have in all, within the project's limits: what may be promised, and the disks there are.
func (c *Capacity) Most(over Overcommit) Amount {
	var disk int64
	for _, pool := range c.Pools {
		disk += pool.TotalBytes
	}
	within := func(amount, limit int64) int64 {
		if limit == NoLimit {
			return amount
		}
		return min(amount, limit)
	}
	return Amount{
		Cores:     within(promised(int64(c.Cores), over.Cores), c.Limits.Cores),
		MemoryMiB: within(promised(c.MemoryMiB, over.Memory), c.Limits.MemoryMiB),
		DiskBytes: within(disk, c.Limits.DiskBytes),
	}
}

// Amount is an amount of each resource.
type Amount struct {
	Cores     int64
	MemoryMiB int64
	// DiskBytes are those in all storage pools. LXD counts 100 MiB more for each VM, which has a small filesystem for
	// its configuration.
	DiskBytes int64
}

// Pool is a storage pool. TotalBytes and UsedBytes are those of its medium: volumes may have been promised more.
type Pool struct {
	Name, Driver          string
	TotalBytes, UsedBytes int64
}

// Bridge is a bridge of the host. Managed means that LXD made it.
type Bridge struct {
	Name    string
	Managed bool
}

func (s *session) readServer(c *Capacity) error {
	server, _, err := s.client.GetServer()
	if err != nil {
		return err
	}
	c.Version = server.Environment.ServerVersion
	return nil
}

func (s *session) readResources(c *Capacity) error {
	resources, err := s.client.GetServerResources()
	if err != nil {
		return mayRead("the resources of the server", err)
	}
	c.Architecture, c.Cores = resources.CPU.Architecture, int(resources.CPU.Total)
	c.MemoryMiB = int64(resources.Memory.Total >> 20)
	return nil
}

// mayRead says what lacks who may not read resources. A certificate that is restricted to projects may; a fine-grained
// identity, which LXD has from 5.21.3 on, needs an entitlement for what belongs to no project.
func mayRead(what string, err error) error {
	if !api.StatusErrorCheck(err, http.StatusForbidden) {
		return err
	}
	known := problem(KindNotTrusted, "LXD does not let the client read %s: a certificate that is restricted to projects "+
		"(lxc config trust add --restricted) may; a fine-grained identity needs the entitlement can_view_resources, or "+
		"viewer, on the server", what)
	known.cause = err
	return known
}

func (s *session) readBridges(c *Capacity) error {
	networks, err := s.client.GetNetworks()
	if err != nil {
		return err
	}
	for _, network := range networks {
		if network.Type == bridgeType {
			c.Bridges = append(c.Bridges, Bridge{Name: network.Name, Managed: network.Managed})
		}
	}
	return nil
}

// readProject reads what the project has been given. LXD counts that with or without limits.
func (s *session) readProject(c *Capacity) error {
	state, err := s.client.GetProjectState(s.project)
	if err != nil {
		return err
	}
	cpu, memory, disk := state.Resources["cpu"], state.Resources["memory"], state.Resources["disk"]
	c.Allocated = Amount{Cores: cpu.Usage, MemoryMiB: memory.Usage >> 20, DiskBytes: disk.Usage}
	c.Limits = Amount{Cores: cpu.Limit, MemoryMiB: memory.Limit >> 20, DiskBytes: disk.Limit} // -1>>20 is -1
	return nil
}

func (s *session) readPools(c *Capacity) error {
	pools, err := s.client.GetStoragePools()
	if err != nil {
		return err
	}
	for _, pool := range pools {
		resources, err := s.client.GetStoragePoolResources(pool.Name)
		if err != nil {
			return mayRead("the resources of the storage pool "+pool.Name, err)
		}
		c.Pools = append(c.Pools, Pool{Name: pool.Name, Driver: pool.Driver, TotalBytes: int64(resources.Space.Total),
			UsedBytes: int64(resources.Space.Used)})
	}
	return nil
}
