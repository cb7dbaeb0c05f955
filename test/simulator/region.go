// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

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
	Unmanaged     bool          `json:"unmanaged,omitempty"`
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
	Name       string `json:"name"`
	Comment    string `json:"comment,omitempty"`
	KernelOpts string `json:"kernel_opts,omitempty"`
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
	CPUSpeed     int         `json:"cpu_speed,omitempty"`
	Memory       int         `json:"memory"`              // MiB
	Disks        []int       `json:"disks"`               // GB (10^9 bytes)
	DiskTags     [][]string  `json:"disk_tags,omitempty"` // of the disks, in their order
	Tags         []string    `json:"tags,omitempty"`
	PowerType    string      `json:"power_type,omitempty"`
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
	Name                  string              `json:"name"`
	Zone                  string              `json:"zone,omitempty"`
	Pool                  string              `json:"pool,omitempty"`
	Cores                 int                 `json:"cores"`
	Memory                int                 `json:"memory"` // MiB
	CPUOverCommitRatio    float64             `json:"cpu_over_commit_ratio,omitempty"`
	MemoryOverCommitRatio float64             `json:"memory_over_commit_ratio,omitempty"`
	StoragePools          []RegionStoragePool `json:"storage_pools,omitempty"`
	Tags                  []string            `json:"tags,omitempty"`
	Project               string              `json:"project,omitempty"`
	Version               string              `json:"version,omitempty"`
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

// LoadRegion reads a region description in YAML. Unknown keys, names and values are errors that name them.
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
	if err := region.validate(); err != nil {
		return nil, fmt.Errorf("region description: %w", err)
	}
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

func (r *Region) validate() error {
	zones, pools := namedSet(r.Zones, "default"), namedSet(r.Pools, "default")
	seen := map[string]bool{}
	for _, g := range r.Groups {
		if err := r.validateMachine(g, zones, pools, seen); err != nil {
			return err
		}
	}
	for _, h := range r.VMHosts {
		if err := r.validateVMHost(h, zones, pools, seen); err != nil {
			return err
		}
	}
	for _, s := range r.Subnets {
		if err := s.validate(); err != nil {
			return err
		}
	}
	for _, u := range r.Users {
		for _, key := range u.Keys {
			if strings.Count(key, ":") != 2 {
				return fmt.Errorf("user %s: an API key has three parts, consumer:token:secret", u.Name)
			}
		}
		for _, e := range u.Entitlements {
			valid := maasEntitlements
			if e.Pool != "" {
				valid = poolEntitlements
			}
			if !slices.Contains(valid, entitlement(e.Name)) {
				return fmt.Errorf("user %s: there is no entitlement %q there", u.Name, e.Name)
			}
			if err := validatePlace("user "+u.Name, "", e.Pool, zones, pools); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Region) validateMachine(g RegionMachine, zones, pools, seen map[string]bool) error {
	names := g.hostnames()
	if len(names) == 0 {
		return fmt.Errorf("a machine group has neither name, names nor count")
	}
	for _, name := range names {
		if seen[name] {
			return fmt.Errorf("machine %s: the hostname is taken", name)
		}
		seen[name] = true
	}
	if g.Status != "" {
		if _, ok := statusByShortName(g.Status); !ok {
			return fmt.Errorf("machine %s: status %q is none of MAAS's", names[0], g.Status)
		}
	}
	if g.Cores <= 0 || g.Memory <= 0 {
		return fmt.Errorf("machine %s: cores and memory must be positive", names[0])
	}
	if err := g.StorageExtra.validate(); err != nil {
		return fmt.Errorf("machine %s: %w", names[0], err)
	}
	if err := r.validateNICs("machine "+names[0], g.NICs); err != nil {
		return err
	}
	return validatePlace("machine "+names[0], g.Zone, g.Pool, zones, pools)
}

func (r *Region) validateVMHost(h RegionVMHost, zones, pools, seen map[string]bool) error {
	if h.Name == "" || seen[h.Name] {
		return fmt.Errorf("VM host %q: the name is empty or taken", h.Name)
	}
	seen[h.Name] = true
	if h.Cores <= 0 || h.Memory <= 0 {
		return fmt.Errorf("VM host %s: cores and memory must be positive", h.Name)
	}
	if h.Subnet != "" && !r.hasSubnet(h.Subnet) {
		return fmt.Errorf("VM host %s: no subnet %q", h.Name, h.Subnet)
	}
	if err := r.validateNICs("VM host "+h.Name, h.NICs); err != nil {
		return err
	}
	return validatePlace("VM host "+h.Name, h.Zone, h.Pool, zones, pools)
}

func (r *Region) validateNICs(what string, nics []RegionNIC) error {
	for _, nic := range nics {
		if nic.Subnet != "" && !r.hasSubnet(nic.Subnet) {
			return fmt.Errorf("%s: no subnet %q", what, nic.Subnet)
		}
	}
	return nil
}

func (r *Region) hasSubnet(name string) bool {
	for _, s := range r.Subnets {
		if s.Name == name || s.CIDR == name {
			return true
		}
	}
	return false
}

func (s RegionSubnet) validate() error {
	prefix, err := netip.ParsePrefix(s.CIDR)
	if err != nil {
		return fmt.Errorf("subnet %q: %w", s.CIDR, err)
	}
	if prefix.Masked() != prefix {
		return fmt.Errorf("subnet %s: host bits are set", s.CIDR)
	}
	for _, rng := range append(append([]RegionRange{}, s.DynamicRanges...), s.Reserved...) {
		start, err1 := netip.ParseAddr(rng.Start)
		end, err2 := netip.ParseAddr(rng.End)
		if err1 != nil || err2 != nil || end.Less(start) || !prefix.Contains(start) || !prefix.Contains(end) {
			return fmt.Errorf("subnet %s: %s-%s is no range of it", s.CIDR, rng.Start, rng.End)
		}
	}
	if s.Gateway != "" {
		if _, err := netip.ParseAddr(s.Gateway); err != nil {
			return fmt.Errorf("subnet %s: gateway: %w", s.CIDR, err)
		}
	}
	return nil
}

func validatePlace(what, zone, pool string, zones, pools map[string]bool) error {
	if zone != "" && !zones[zone] {
		return fmt.Errorf("%s: no zone %q", what, zone)
	}
	if pool != "" && !pools[pool] {
		return fmt.Errorf("%s: no pool %q", what, pool)
	}
	return nil
}

func namedSet(items []RegionNamed, always string) map[string]bool {
	set := map[string]bool{always: true}
	for _, item := range items {
		set[item.Name] = true
	}
	return set
}
