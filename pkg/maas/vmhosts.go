// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"net/url"
	"strconv"
)

// VMHostTypeLXD is VMHost.Type of LXD hosts.
const VMHostTypeLXD = "lxd"

// VMHost is the part of MAAS's VM host object that the provider uses (GET vm-hosts/).
type VMHost struct {
	ID           int             `json:"id"`
	Name         string          `json:"name"`
	Type         string          `json:"type"`
	Version      string          `json:"version"` // "" until MAAS reached the host
	Total        VMHostResources `json:"total"`
	Used         VMHostResources `json:"used"`
	Available    VMHostResources `json:"available"`
	Zone         Ref             `json:"zone"`
	Pool         Ref             `json:"pool"`
	Tags         []string        `json:"tags"`
	StoragePools []StoragePool   `json:"storage_pools"`
	// Architectures of VMs there, in the form of a machine's; none until MAAS reached the host. For an LXD host it is
	// that of its kernel.
	Architectures []string `json:"architectures"`
	// CPUOverCommit and MemoryOverCommit multiply Total.
	CPUOverCommit    float64 `json:"cpu_over_commit_ratio"`
	MemoryOverCommit float64 `json:"memory_over_commit_ratio"`
	// Host is the machine that the VM host runs on.
	Host struct {
		SystemID string `json:"system_id"`
	} `json:"host"`
}

// VMHostResources are cores, memory in MiB and storage in bytes. MAAS updates them only on refresh and compose.
type VMHostResources struct {
	Cores        int   `json:"cores"`
	Memory       int   `json:"memory"`
	LocalStorage int64 `json:"local_storage"`
}

// StoragePool is a storage pool of a VM host; sizes are in bytes.
type StoragePool struct {
	Name      string `json:"name"`
	Type      string `json:"type"` // LXD's storage driver
	Total     int64  `json:"total"`
	Available int64  `json:"available"`
	Default   bool   `json:"default"`
}

// ListVMHosts returns the VM hosts (GET vm-hosts/). Gone: this MAAS has no VM hosts.
func (c *Client) ListVMHosts(ctx context.Context) ([]VMHost, error) {
	return askAll[VMHost](ctx, c, "vm-hosts/")
}

// GetVMHost returns a VM host (GET vm-hosts/{id}/). NotFound: it is gone.
func (c *Client) GetVMHost(ctx context.Context, hostID int) (VMHost, error) {
	return ask[VMHost](ctx, c, on("vm-hosts/{id}/", hostID).get())
}

// ResourcesKnown reports whether MAAS has reached the host and knows its cores and memory, so that VMs can be composed
// there.
func (h VMHost) ResourcesKnown() bool {
	return h.Version != "" && h.Total.Cores > 0 && h.Total.Memory > 0
}

// VMHostPower is how MAAS reaches an LXD host.
type VMHostPower struct {
	PowerAddress string `json:"power_address"` // host:port, or a URL
	Project      string `json:"project"`
	// Certificate and Key are PEM. They are MAAS's identity towards the host.
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

// VMHostPower returns how MAAS reaches a VM host (GET vm-hosts/{id}/ op=parameters, for administrators).
func (c *Client) VMHostPower(ctx context.Context, hostID int) (VMHostPower, error) {
	return ask[VMHostPower](ctx, c, on("vm-hosts/{id}/", hostID).query("parameters", nil))
}

// VMHostParams are the parameters of creating and updating a VM host; empty fields are left out.
type VMHostParams struct {
	VMHostPower
	Name string
	// Zone and Pool are names here, unlike in ComposeParams.
	Zone, Pool string
}

func (p VMHostParams) form() url.Values {
	return formOf("name", p.Name, "power_address", p.PowerAddress, "project", p.Project, "certificate", p.Certificate,
		"key", p.Key, "zone", p.Zone, "pool", p.Pool)
}

// CreateLXDHost registers an LXD host (POST vm-hosts/, for administrators). MAAS registers it even if it can't reach
// it: then Version is "" in the response. Cores and memory are 0 in the response and known a moment later. The same
// host can be registered twice: list the hosts before. Invalid with the field zone or pool: there is none of that name.
func (c *Client) CreateLXDHost(ctx context.Context, permit Permit, p VMHostParams) (VMHost, error) {
	form := p.form()
	form.Set("type", VMHostTypeLXD)
	return ask[VMHost](ctx, c, on("vm-hosts/").post(permit, "", form).slowly())
}

// UpdateVMHost changes a VM host (PUT vm-hosts/{id}/, for administrators); MAAS then refreshes it. Empty fields of p
// stay unchanged.
func (c *Client) UpdateVMHost(ctx context.Context, permit Permit, hostID int, p VMHostParams) (VMHost, error) {
	return ask[VMHost](ctx, c, on("vm-hosts/{id}/", hostID).put(permit, p.form()).slowly())
}

// RefreshVMHost makes MAAS read the host's resources and VMs again (POST vm-hosts/{id}/ op=refresh, for
// administrators). Unavailable: MAAS can't reach the host, or the host does not trust MAAS's certificate.
func (c *Client) RefreshVMHost(ctx context.Context, hostID int) (VMHost, error) {
	return ask[VMHost](ctx, c, on("vm-hosts/{id}/", hostID).post(refreshPermit, "refresh", nil).slowly())
}

// AddVMHostTag tags a VM host (POST vm-hosts/{id}/ op=add_tag, for administrators); a tag that it already has is no
// error.
func (c *Client) AddVMHostTag(ctx context.Context, permit Permit, hostID int, tag string) (VMHost, error) {
	return ask[VMHost](ctx, c, on("vm-hosts/{id}/", hostID).post(permit, "add_tag", url.Values{"tag": {tag}}))
}

// DeleteVMHost makes MAAS forget a VM host and the machines on it (DELETE vm-hosts/{id}/, for administrators). Their
// VMs stay on the host.
func (c *Client) DeleteVMHost(ctx context.Context, permit Permit, hostID int) error {
	return c.do(ctx, on("vm-hosts/{id}/", hostID).remove(permit).slowly(), nil)
}

// ComposeParams are the parameters of op=compose.
type ComposeParams struct {
	// Hostname is unique over all of MAAS.
	Hostname string
	Cores    int
	Memory   int // MiB
	// Storage is label:GB(pool),...; the first is the boot disk.
	Storage string
	// Interfaces is label:key=value,...;label:... or "" to let MAAS choose.
	Interfaces string
	// ZoneID and PoolID are numbers, unlike anywhere else. Without ZoneID, MAAS uses its default zone, not the host's.
	ZoneID, PoolID int
	// SkipCommissioning makes the machine Ready at once.
	SkipCommissioning bool
}

type composeAnswer struct {
	SystemID string `json:"system_id"`
}

// Compose makes a VM (POST vm-hosts/{id}/ op=compose) and returns its system id. Invalid with the field hostname: a
// machine of that name exists. Unavailable: the host lacks resources, or can't be reached; the VM may exist all the
// same.
func (c *Client) Compose(ctx context.Context, permit Permit, hostID int, p ComposeParams) (string, error) {
	form := formOf("hostname", p.Hostname, "cores", number(p.Cores), "memory", number(p.Memory), "storage", p.Storage,
		"interfaces", p.Interfaces, "zone", strconv.Itoa(p.ZoneID), "pool", strconv.Itoa(p.PoolID),
		"skip_commissioning", yes(p.SkipCommissioning))
	composed, err := ask[composeAnswer](ctx, c, on("vm-hosts/{id}/", hostID).post(permit, "compose", form).slowly())
	return composed.SystemID, err
}
