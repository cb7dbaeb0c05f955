// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/canonical/lxd/shared/api"
	"github.com/canonical/lxd/shared/units"
)

// Discover reads in MAAS's order, and makes the project if there is none.
func (h *lxdHost) Discover() (facts hostFacts, err error) {
	err = h.session(func(c *lxdSession) error {
		if err := c.checkExtensions(); err != nil {
			return err
		}
		if err := c.ensureProject(); err != nil {
			return err
		}
		facts.name, facts.version = c.server.Environment.ServerName, c.server.Environment.ServerVersion
		if facts.member, err = c.member(h.address); err != nil {
			return err
		}
		facts.architecture = debianArchitecture(c.server.Environment.KernelArchitecture)
		if facts.networks, err = c.networks(); err != nil {
			return err
		}
		facts.macs = macsOf(facts.networks)
		if facts.pools, err = c.pools(); err != nil {
			return err
		}
		return h.load(c, &facts)
	})
	return facts, err
}

// load reads the resources of a host and its VMs.
func (h *lxdHost) load(c *lxdSession, facts *hostFacts) error {
	resources, err := c.GetServerResources()
	if err != nil {
		return err
	}
	facts.cores, facts.memory = int(resources.CPU.Total), int(resources.Memory.Total>>20) // no machine is that big
	if facts.vms, err = c.machines(c.project); err != nil {
		return err
	}
	projects, err := c.GetProjectNames()
	if err != nil {
		return err
	}
	for _, project := range projects {
		if project == c.project {
			continue
		}
		found, err := c.machines(project)
		if err != nil {
			return err
		}
		facts.foreign = append(facts.foreign, found...)
	}
	return nil
}

// inspect is Discover for testers: it changes nothing. A project that does not exist has no VMs.
func (h *lxdHost) inspect() (facts hostFacts, err error) {
	err = h.session(func(c *lxdSession) error {
		err := h.load(c, &facts)
		if api.StatusErrorCheck(err, http.StatusNotFound) {
			return nil
		}
		return err
	})
	return facts, err
}

func (c *lxdSession) checkExtensions() error {
	missing := slices.DeleteFunc(slices.Clone(lxdExtensions), func(name string) bool {
		return slices.Contains(c.server.APIExtensions, name)
	})
	if len(missing) > 0 {
		return hostErrorf("Please upgrade your LXD host to 4.16 or higher to support the following extensions: %s",
			strings.Join(missing, ","))
	}
	return nil
}

func (c *lxdSession) ensureProject() error {
	_, _, err := c.GetProject(c.project)
	if !api.StatusErrorCheck(err, http.StatusNotFound) {
		return err
	}
	return c.Post(c.Path("projects"), api.ProjectsPost{
		Name: c.project,
		// MAAS sends no configuration. LXD reads an empty one as defaults, but null, which the client would send, as no
		// settings at all.
		ProjectPut: api.ProjectPut{Description: "Project managed by MAAS", Config: map[string]string{}},
	})
}

// member returns the name of the only member of a cluster, or "" if LXD is not clustered: then MAAS ignores the
// location of VMs, which is "none" (pylxd: models/instance.py). Of a cluster, MAAS makes all members VM hosts, and this
// one again if the cluster knows it at another address (maasserver/vmhost.py: sync_vmcluster). That is not simulated.
func (c *lxdSession) member(address string) (string, error) {
	if !c.server.Environment.ServerClustered {
		return "", nil
	}
	members, err := c.GetClusterMembers()
	if err != nil {
		return "", err
	}
	if len(members) != 1 || members[0].URL != address {
		return "", hostErrorf("Not simulated: a cluster of LXDs with other members, or other addresses, than %s", address)
	}
	return members[0].ServerName, nil
}

// debianArchitecture returns MAAS's name of a kernel's architecture.
func debianArchitecture(kernel string) string {
	name := map[string]string{
		"x86_64": "amd64", "i686": "i386", "aarch64": "arm64", "ppc64le": "ppc64el",
	}[kernel]
	return orDefault(name, kernel) + "/generic"
}

// networks returns all network devices except loopbacks. Devices that disappear meanwhile, like those of VMs, are left
// out.
func (c *lxdSession) networks() ([]HostNetwork, error) {
	listed, err := c.GetNetworks()
	if err != nil {
		return nil, err
	}
	out := []HostNetwork{}
	for _, n := range listed {
		if n.Type == "loopback" {
			continue
		}
		state, err := c.GetNetworkState(n.Name)
		if api.StatusErrorCheck(err, http.StatusNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found := HostNetwork{Name: n.Name, Kind: n.Type, MAC: state.Hwaddr}
		for _, a := range state.Addresses {
			if p, err := netip.ParsePrefix(a.Address + "/" + a.Netmask); err == nil && a.Scope == "global" {
				found.Addresses = append(found.Addresses, p)
			}
		}
		if state.Bridge != nil {
			found.Ports = state.Bridge.UpperDevices
		}
		out = append(out, found)
	}
	return out, nil
}

// macsOf returns the MAC addresses by which MAAS finds the host's machine: of devices only, not of bridges.
func macsOf(networks []HostNetwork) []string {
	out := []string{}
	for _, n := range networks {
		if n.isDevice() && n.MAC != "" && !slices.Contains(out, n.MAC) {
			out = append(out, n.MAC)
		}
	}
	return out
}

func (c *lxdSession) pools() ([]storagePool, error) {
	listed, err := c.GetStoragePools()
	if err != nil {
		return nil, err
	}
	if len(listed) == 0 {
		return nil, hostErrorf("No storage pools exists.  Please create a storage pool in LXD.")
	}
	var out []storagePool
	for _, p := range listed {
		resources, err := c.GetStoragePoolResources(p.Name)
		if err != nil {
			return nil, err
		}
		out = append(out, storagePool{
			id: p.Name, name: p.Name, kind: p.Driver, path: orDefault(p.Config["source"], "Unknown"),
			total: int64(resources.Space.Total), // no disk is that big
		})
	}
	return out, nil
}

// machines returns a project's VMs.
func (c *lxdSession) machines(project string) ([]vmFacts, error) {
	c = &lxdSession{Client: c.In(project), server: c.server, project: project, patched: c.patched}
	if !c.knowsDriver() {
		return nil, hostErrorf("not found") // pylxd asks for /1.0/virtual-machines, which LXD 6.7 and newer do not have.
	}
	listed, err := c.GetInstances(api.InstanceTypeVM)
	if err != nil {
		return nil, err
	}
	out := make([]vmFacts, 0, len(listed))
	for _, vm := range listed {
		facts, err := c.describe(&vm)
		if err != nil {
			return nil, err
		}
		out = append(out, facts)
	}
	return out, nil
}

// LXD's defaults of a VM.
const (
	lxdDefaultCores  = 1
	lxdDefaultMemory = 1024 // MiB
	lxdDefaultDisk   = "10GB"
)

// describe reads an instance as MAAS does. The root disk comes first, like that of a composed VM in MAAS.
func (c *lxdSession) describe(vm *api.Instance) (vmFacts, error) {
	facts := vmFacts{Name: vm.Name, Project: c.project, Cores: cpuLimit(vm.ExpandedConfig["limits.cpu"]), Memory: lxdDefaultMemory}
	if limit := vm.ExpandedConfig["limits.memory"]; limit != "" {
		bytes, err := units.ParseByteSizeString(limit)
		if err != nil {
			return facts, fmt.Errorf("memory of %s: %w", vm.Name, err)
		}
		facts.Memory = int(bytes >> 20)
	}
	// A power state that MAAS does not know counts as off here; MAAS shows "unknown".
	facts.Running = vm.StatusCode == api.Started || vm.StatusCode == api.Running
	names := slices.SortedFunc(maps.Keys(vm.ExpandedDevices), func(a, b string) int {
		if (a == "root") != (b == "root") {
			return strings.Compare(strconv.FormatBool(b == "root"), strconv.FormatBool(a == "root"))
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		device := vm.ExpandedDevices[name]
		switch device["type"] {
		case "disk":
			size, err := c.diskSize(device)
			if err != nil {
				return facts, err
			}
			facts.Disks = append(facts.Disks, size)
			facts.pools = append(facts.pools, device["pool"])
		case "nic":
			if device["network"] == "" && device["parent"] == "" {
				// As with p2p: MAAS's driver needs one of them (drivers/pod/lxd.py: _get_discovered_machine).
				return facts, hostErrorf("'parent'")
			}
			facts.MACs = append(facts.MACs, orDefault(device["hwaddr"], vm.ExpandedConfig["volatile."+name+".hwaddr"]))
		}
	}
	return facts, nil
}

// diskSize returns a disk's size in bytes; that of a separate volume is stored with the volume.
func (c *lxdSession) diskSize(device map[string]string) (int64, error) {
	size := device["size"]
	if device["source"] != "" && device["pool"] != "" {
		volume, _, err := c.GetStoragePoolVolume(device["pool"], "custom", device["source"])
		if err != nil {
			return 0, fmt.Errorf("volume %s: %w", device["source"], err)
		}
		size = volume.Config["size"]
	}
	return units.ParseByteSizeString(orDefault(size, lxdDefaultDisk))
}

// cpuLimit counts the cores of limits.cpu: a number, or a list such as "0,2-3".
func cpuLimit(text string) int {
	if text == "" {
		return lxdDefaultCores
	}
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	count := 0
	for _, part := range strings.Split(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if isRange && err1 == nil && err2 == nil && to >= from {
			count += to - from
		}
		count++
	}
	return count
}
