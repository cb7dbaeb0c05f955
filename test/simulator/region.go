// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"io"
	"slices"

	"sigs.k8s.io/yaml"
)

// Region describes a MAAS region in its first state. Objects refer to each other by name; without a name, they refer to
// the default zone, pool or domain, which always exists.
type Region struct {
	Users   []RegionUser    `json:"users,omitempty"`
	Zones   []RegionNamed   `json:"zones,omitempty"`
	Pools   []RegionNamed   `json:"pools,omitempty"`
	Domains []RegionDomain  `json:"domains,omitempty"`
	Subnets []RegionSubnet  `json:"subnets,omitempty"`
	Tags    []RegionTag     `json:"tags,omitempty"`
	Images  []RegionImage   `json:"images,omitempty"`
	Groups  []RegionMachine `json:"machines,omitempty"`
	VMHosts []RegionVMHost  `json:"vm_hosts,omitempty"`
	Scripts []RegionScript  `json:"scripts,omitempty"`
	Timings Timings         `json:"timings,omitempty"`
	// Config overrides responses of maas/?op=get_config.
	Config map[string]any `json:"config,omitempty"`
}

// RegionUser is a MAAS account and its API keys ("consumer:token:secret"). Without keys one is made up.
type RegionUser struct {
	Name  string   `json:"name"`
	Email string   `json:"email,omitempty"`
	Admin bool     `json:"admin,omitempty"`
	Keys  []string `json:"keys,omitempty"`
	// Entitlements put the user into a group that has just these, instead of MAAS's own.
	Entitlements []RegionEntitlement `json:"entitlements,omitempty"`
}

// RegionEntitlement is what a user may do from 3.8 on, such as can_edit_machines: in a resource pool or, without one, in
// all of MAAS.
type RegionEntitlement struct {
	Name string `json:"name"`
	Pool string `json:"pool,omitempty"`
}

// RegionNamed is a zone or a resource pool.
type RegionNamed struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

// RegionDomain is a DNS domain; the first is the default one, unless another is marked so.
type RegionDomain struct {
	Name    string `json:"name"`
	Default bool   `json:"default,omitempty"`
	// Authoritative is true unless it is false here.
	Authoritative *bool `json:"authoritative,omitempty"`
}

// RegionSubnet is a subnet with its VLAN. Subnets that name the same fabric and VID share the VLAN.
type RegionSubnet struct {
	Name          string        `json:"name,omitempty"`
	CIDR          string        `json:"cidr"`
	Gateway       string        `json:"gateway,omitempty"`
	Fabric        string        `json:"fabric,omitempty"`
	VID           int           `json:"vid,omitempty"`
	Space         string        `json:"space,omitempty"`
	DHCP          bool          `json:"dhcp,omitempty"`
	DNSServers    []string      `json:"dns_servers,omitempty"`
	DynamicRanges []RegionRange `json:"dynamic_ranges,omitempty"`
	Reserved      []RegionRange `json:"reserved_ranges,omitempty"`
}

// RegionRange is a range of addresses, both ends included.
type RegionRange struct {
	Start string `json:"start"`
	End   string `json:"end"`
}

// RegionTag is a tag that machines can carry.
type RegionTag struct {
	Name    string `json:"name"`
	Comment string `json:"comment,omitempty"`
}

// RegionScript is a testing script that a user has uploaded.
type RegionScript struct {
	Name string   `json:"name"`
	Tags []string `json:"tags,omitempty"`
	// Hardware is what it tests: node, cpu, memory, storage, network or gpu; default: node.
	Hardware    string   `json:"hardware,omitempty"`
	Timeout     Duration `json:"timeout,omitempty"` // default: none
	Destructive bool     `json:"destructive,omitempty"`
	// ForHardware are the machines that it runs on alone, such as system_vendor:Acme; default: all.
	ForHardware []string                `json:"for_hardware,omitempty"`
	Parameters  []RegionScriptParameter `json:"parameters,omitempty"`
}

// RegionScriptParameter is a parameter of a script. Its type is storage, interface, url, string, password, runtime or choice.
type RegionScriptParameter struct {
	Name     string   `json:"name"`
	Type     string   `json:"type"`
	Default  string   `json:"default,omitempty"`
	Choices  []string `json:"choices,omitempty"`
	Required bool     `json:"required,omitempty"`
}

// RegionImage is a boot resource: synced ones are named "ubuntu/jammy", uploaded ones have bare names.
type RegionImage struct {
	Name         string `json:"name"`
	Architecture string `json:"architecture,omitempty"`
	Uploaded     bool   `json:"uploaded,omitempty"`
}

// RegionMachine is one machine (Name) or several alike: Names, or Count machines called Prefix1, Prefix2, ...
type RegionMachine struct {
	Name         string      `json:"name,omitempty"`
	Names        []string    `json:"names,omitempty"`
	Prefix       string      `json:"prefix,omitempty"`
	Count        int         `json:"count,omitempty"`
	Zone         string      `json:"zone,omitempty"`
	Pool         string      `json:"pool,omitempty"`
	Domain       string      `json:"domain,omitempty"`
	Architecture string      `json:"architecture,omitempty"`
	Cores        int         `json:"cores"`
	Memory       int         `json:"memory"`              // MiB
	Disks        []int       `json:"disks"`               // GB (10^9 bytes)
	DiskTags     [][]string  `json:"disk_tags,omitempty"` // of the disks, in their order
	Tags         []string    `json:"tags,omitempty"`
	Status       string      `json:"status,omitempty"` // a filter's short name; default "ready"
	DPU          bool        `json:"dpu,omitempty"`    // as MAAS 3.7 and newer has them
	NICs         []RegionNIC `json:"nics,omitempty"`
	// Hardware is what commissioning found, by MAAS's keys, such as system_vendor.
	Hardware map[string]string `json:"hardware,omitempty"`
	// StorageExtra is what a commissioning script wrote for the layout custom.
	StorageExtra *StorageExtra `json:"storage_extra,omitempty"`
}

// RegionNIC is a network card on a subnet (named by CIDR or name); default: the first subnet.
type RegionNIC struct {
	Name   string `json:"name,omitempty"`
	Subnet string `json:"subnet,omitempty"`
}

// RegionVMHost is a registered LXD VM host, together with the Deployed machine it runs on.
type RegionVMHost struct {
	Name         string              `json:"name"`
	Zone         string              `json:"zone,omitempty"`
	Pool         string              `json:"pool,omitempty"`
	Cores        int                 `json:"cores"`
	Memory       int                 `json:"memory"` // MiB
	StoragePools []RegionStoragePool `json:"storage_pools,omitempty"`
	Tags         []string            `json:"tags,omitempty"`
	Project      string              `json:"project,omitempty"`
	Version      string              `json:"version,omitempty"`
	// Serial hosts make and delete VMs one after the other: a request waits for earlier ones.
	Serial bool   `json:"serial,omitempty"`
	Subnet string `json:"subnet,omitempty"`
	// NICs replace Subnet.
	NICs []RegionNIC `json:"nics,omitempty"`
	// Unregistered hosts run LXD, but must be registered in MAAS (POST vm-hosts/ with power_address Address).
	Unregistered bool   `json:"unregistered,omitempty"`
	Address      string `json:"address,omitempty"`
}

// RegionStoragePool is a storage pool of a VM host; the first is the default one.
type RegionStoragePool struct {
	Name string `json:"name"`
	Type string `json:"type,omitempty"` // default "zfs"
	Size int    `json:"size"`           // GB (10^9 bytes)
}

// LoadRegion reads a region description in YAML. Unknown keys are errors that name them, and so are unknown names for New.
func LoadRegion(r io.Reader) (*Region, error) {
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("reading the region description: %w", err)
	}
	region := &Region{}
	if err := yaml.UnmarshalStrict(raw, region); err != nil {
		return nil, fmt.Errorf("reading the region description: %w", err)
	}
	region.setDefaults()
	return region, nil
}

func (r *Region) setDefaults() {
	if len(r.Users) == 0 {
		r.Users = []RegionUser{{Name: "admin", Admin: true, Keys: []string{"admin:admin:admin"}}}
	}
	if len(r.Domains) == 0 {
		r.Domains = []RegionDomain{{Name: "maas", Default: true}}
	}
	if len(r.Images) == 0 {
		r.Images = []RegionImage{{Name: "ubuntu/jammy"}}
	}
	r.VMHosts = slices.Clone(r.VMHosts)
	for i := range r.VMHosts {
		if len(r.VMHosts[i].StoragePools) == 0 {
			r.VMHosts[i].StoragePools = []RegionStoragePool{{Name: "default", Type: "zfs", Size: 500}}
		}
	}
}

// hostnames returns the names of the machines of the group.
func (g RegionMachine) hostnames() []string {
	names := append([]string{}, g.Names...)
	if g.Name != "" {
		names = append(names, g.Name)
	}
	for i := range g.Count {
		names = append(names, fmt.Sprintf("%s%d", g.Prefix, i+1))
	}
	return names
}
