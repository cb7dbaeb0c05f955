// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// VMHostTypeLXD is VMHost.Type of LXD hosts.
const VMHostTypeLXD = "lxd"

// VMHost is what the provider uses of MAAS's VM host object (GET vm-hosts/).
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
	// CPUOverCommit and MemoryOverCommit multiply Total.
	CPUOverCommit    float64 `json:"cpu_over_commit_ratio"`
	MemoryOverCommit float64 `json:"memory_over_commit_ratio"`
	// Host is the machine that the VM host runs on.
	Host struct {
		SystemID string `json:"system_id"`
	} `json:"host"`
}

// VMHostResources are cores, memory in MiB and storage in bytes. They are renewed by MAAS's refresh and compose only.
type VMHostResources struct {
	Cores        int   `json:"cores"`
	Memory       int   `json:"memory"`
	LocalStorage int64 `json:"local_storage"`
}

// StoragePool is a storage pool of a VM host; sizes are in bytes.
type StoragePool struct {
	Name      string `json:"name"`
	Available int64  `json:"available"`
	Default   bool   `json:"default"`
}

// ListVMHosts answers GET vm-hosts/. Gone: this MAAS has no VM hosts.
func (c *Client) ListVMHosts(ctx context.Context) ([]VMHost, error) {
	var hosts []VMHost
	err := c.do(ctx, call{method: http.MethodGet, endpoint: "vm-hosts/"}, &hosts)
	return hosts, err
}

// VMHostProject answers the LXD project that MAAS uses on a VM host (GET vm-hosts/{id}/ op=parameters, for administrators).
func (c *Client) VMHostProject(ctx context.Context, hostID int) (string, error) {
	var parameters struct {
		Project string `json:"project"`
	}
	err := c.do(ctx, call{
		method: http.MethodGet, endpoint: "vm-hosts/{id}/", args: []string{strconv.Itoa(hostID)}, op: "parameters",
	}, &parameters)
	return parameters.Project, err
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
	// ZoneID and PoolID are numbers, unlike anywhere else. MAAS takes its default zone unless told, not the host's.
	ZoneID, PoolID int
	// SkipCommissioning makes the machine Ready at once.
	SkipCommissioning bool
}

// Compose makes a VM (POST vm-hosts/{id}/ op=compose) and answers its system id. Invalid with the field hostname: there is a
// machine of that name. Unavailable: the host lacks resources, or can't be reached; the VM may exist all the same.
func (c *Client) Compose(ctx context.Context, hostID int, p ComposeParams) (string, error) {
	form := url.Values{}
	set(form, "hostname", p.Hostname)
	setInt(form, "cores", p.Cores)
	setInt(form, "memory", p.Memory)
	set(form, "storage", p.Storage)
	set(form, "interfaces", p.Interfaces)
	form.Set("zone", strconv.Itoa(p.ZoneID))
	form.Set("pool", strconv.Itoa(p.PoolID))
	if p.SkipCommissioning {
		form.Set("skip_commissioning", "true")
	}
	var composed struct {
		SystemID string `json:"system_id"`
	}
	err := c.do(ctx, call{
		method: http.MethodPost, endpoint: "vm-hosts/{id}/", args: []string{strconv.Itoa(hostID)}, op: "compose",
		params: form, slow: true,
	}, &composed)
	return composed.SystemID, err
}
