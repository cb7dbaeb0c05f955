// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Status is the state of a machine, with MAAS's numbers.
type Status int

// All states that MAAS knows.
const (
	StatusNew                    Status = 0
	StatusCommissioning          Status = 1
	StatusFailedCommissioning    Status = 2
	StatusMissing                Status = 3
	StatusReady                  Status = 4
	StatusReserved               Status = 5
	StatusDeployed               Status = 6
	StatusRetired                Status = 7
	StatusBroken                 Status = 8
	StatusDeploying              Status = 9
	StatusAllocated              Status = 10
	StatusFailedDeployment       Status = 11
	StatusReleasing              Status = 12
	StatusReleasingFailed        Status = 13
	StatusDiskErasing            Status = 14
	StatusFailedDiskErasing      Status = 15
	StatusRescueMode             Status = 16
	StatusEnteringRescueMode     Status = 17
	StatusFailedToEnterRescue    Status = 18
	StatusExitingRescueMode      Status = 19
	StatusFailedToExitRescueMode Status = 20
	StatusTesting                Status = 21
	StatusFailedTesting          Status = 22
)

// Moving is true for states that MAAS leaves by itself.
func (s Status) Moving() bool {
	switch s {
	case StatusCommissioning, StatusTesting, StatusDeploying, StatusReleasing, StatusDiskErasing,
		StatusEnteringRescueMode, StatusExitingRescueMode:
		return true
	}
	return false
}

// Values of Machine.PowerState, as MAAS last saw it. Others are error and unknown: the power can't be read, which for machines whose
// power is managed by hand is always so.
const (
	PowerOn  = "on"
	PowerOff = "off"
)

// Ref names a zone, a resource pool or a VM host.
type Ref struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
}

// Machine is what the provider uses of MAAS's machine object (GET machines/, machines/{id}/).
type Machine struct {
	SystemID      string `json:"system_id"`
	Hostname      string `json:"hostname"` // without the domain
	FQDN          string `json:"fqdn"`
	Status        Status `json:"status"`
	StatusName    string `json:"status_name"`
	StatusMessage string `json:"status_message"`
	// Owner is the MAAS user, or "".
	Owner      string `json:"owner"`
	Locked     bool   `json:"locked"`
	PowerState string `json:"power_state"`
	// CPUCount is in cores, Memory in MiB, Storage in MB (10^6 bytes).
	CPUCount int     `json:"cpu_count"`
	Memory   int     `json:"memory"`
	Storage  float64 `json:"storage"`
	Zone     Ref     `json:"zone"`
	Pool     Ref     `json:"pool"`
	// Pod is the VM host of a composed VM.
	Pod                 *Ref              `json:"pod"`
	IPAddresses         []string          `json:"ip_addresses"`
	BootInterface       *Interface        `json:"boot_interface"`
	Interfaces          []*Interface      `json:"interface_set"`
	BootDisk            *Disk             `json:"boot_disk"`
	Architecture        string            `json:"architecture"` // amd64/generic
	OSystem             string            `json:"osystem"`      // "" until it is deployed, and again when its release begins
	Tags                []string          `json:"tag_names"`
	WorkloadAnnotations map[string]string `json:"workload_annotations"`
}

// Disk is what the provider uses of a block device; its size is in bytes.
type Disk struct {
	Size int64 `json:"size"`
}

// HostName is the name of the VM host that the machine is on, or "" for bare metal.
func (m *Machine) HostName() string {
	if m.Pod == nil {
		return ""
	}
	return m.Pod.Name
}

// Unacquired reports whether no user can have acquired the machine, so that MAAS has no record of who did. MAAS names an owner all the same
// while it commissions or tests: its user who asked for that.
func (m *Machine) Unacquired() bool {
	switch m.Status {
	case StatusCommissioning, StatusFailedCommissioning:
		return true // An acquired machine can't be commissioned.
	case StatusTesting, StatusFailedTesting:
		return m.Owner == "" || m.OSystem == "" && len(m.WorkloadAnnotations) == 0
	case StatusNew, StatusReady, StatusMissing, StatusBroken, StatusRetired:
		return m.Owner == ""
	}
	return false // A machine that comes out of rescue mode is Allocated without an owner.
}

// MachineFilter limits a list of machines; empty fields don't. Values of one field are alternatives.
type MachineFilter struct {
	SystemIDs, Hostnames, AgentNames []string
	// NotAgentNames leaves machines out that were acquired with one of these; one that is not acquired has none.
	NotAgentNames []string
	// VMHosts are names of VM hosts: the machines that are VMs there. Invalid: there is no such host.
	VMHosts []string
}

// maxQuery bounds the query of a list, in bytes: nginx before MAAS takes 8 KiB for a request line, and the path is in it, too.
const maxQuery = 6<<10 - 512

func (f MachineFilter) params() url.Values {
	params := url.Values{}
	for key, values := range map[string][]string{
		"id": f.SystemIDs, "hostname": f.Hostnames, "agent_name": f.AgentNames, "not_agent_name": f.NotAgentNames, "pod": f.VMHosts,
	} {
		for _, value := range values {
			params.Add(key, value)
		}
	}
	return params
}

// JoinFilters makes as few filters out of many as fit into request lines. All limit the same fields, as values of one field are
// alternatives, and values of two are not.
func JoinFilters(filters []MachineFilter) []MachineFilter {
	var joined []MachineFilter
	length := maxQuery
	for _, f := range filters {
		more := len(f.params().Encode()) + len("&")
		if length += more; length > maxQuery {
			joined, length = append(joined, MachineFilter{}), more
		}
		last := &joined[len(joined)-1]
		last.SystemIDs = append(last.SystemIDs, f.SystemIDs...)
		last.Hostnames = append(last.Hostnames, f.Hostnames...)
		last.AgentNames = append(last.AgentNames, f.AgentNames...)
		last.NotAgentNames = append(last.NotAgentNames, f.NotAgentNames...)
		last.VMHosts = append(last.VMHosts, f.VMHosts...)
	}
	return joined
}

// ListMachines returns the machines that a filter leaves (GET machines/). An unknown agent name or hostname gives an empty list.
func (c *Client) ListMachines(ctx context.Context, filter MachineFilter) ([]*Machine, error) {
	var machines []*Machine
	err := c.do(ctx, call{method: http.MethodGet, endpoint: "machines/", params: filter.params(), list: true}, &machines)
	return machines, err
}

// InstanceNames returns what the VMs behind machines are called on their LXD hosts, by system id (GET machines/ op=power_parameters). It stays
// as it was when the machine got another name. Forbidden: only administrators are told.
func (c *Client) InstanceNames(ctx context.Context, systemIDs []string) (map[string]string, error) {
	if len(systemIDs) == 0 {
		return nil, nil // MAAS would return all machines.
	}
	// The parameters hold credentials, too; nothing else is read.
	var parameters map[string]struct {
		InstanceName string `json:"instance_name"`
	}
	params := url.Values{"id": systemIDs}
	err := c.do(ctx, call{method: http.MethodGet, endpoint: "machines/", op: "power_parameters", params: params, list: true}, &parameters)
	if err != nil {
		return nil, err
	}
	names := make(map[string]string, len(parameters))
	for id, one := range parameters {
		names[id] = one.InstanceName
	}
	return names, nil
}

// GetMachine returns a machine (GET machines/{id}/), or NotFound.
func (c *Client) GetMachine(ctx context.Context, systemID string) (*Machine, error) {
	return c.machineCall(ctx, call{method: http.MethodGet}, systemID)
}

// AllocateParams are the constraints of op=allocate; zero values don't constrain.
type AllocateParams struct {
	// AgentName marks the machine (at most 255 characters).
	AgentName         string
	SystemID          string
	Zone, Pool        string
	MinCPU, MinMemory int // cores, MiB
	MinDiskSize       int // GB
	Tags              []string
	NotOnVMHosts      []string // names of VM hosts: neither pick their VMs, nor compose one there
	NotHostnames      []string // hostnames of machines that are not wanted
	Comment           string
}

// AllocateMachine takes a machine (POST machines/ op=allocate). Conflict means that none fits. With neither SystemID nor all VM hosts
// in NotOnVMHosts, MAAS composes a VM when no machine fits.
func (c *Client) AllocateMachine(ctx context.Context, permit Permit, p AllocateParams) (*Machine, error) {
	form := url.Values{}
	set(form, "agent_name", p.AgentName)
	set(form, "system_id", p.SystemID)
	set(form, "zone", p.Zone)
	set(form, "pool", p.Pool)
	setInt(form, "cpu_count", p.MinCPU)
	setInt(form, "mem", p.MinMemory)
	set(form, "comment", p.Comment)
	if p.MinDiskSize > 0 {
		form.Set("storage", "root:"+strconv.Itoa(p.MinDiskSize))
	}
	for _, tag := range p.Tags {
		form.Add("tags", tag)
	}
	for _, host := range p.NotOnVMHosts {
		form.Add("not_pod", host)
	}
	set(form, "interfaces", notOf(p.NotHostnames))
	machine := &Machine{}
	err := c.do(ctx, call{method: http.MethodPost, endpoint: "machines/", op: "allocate", params: form, slow: true, permit: permit}, machine)
	return machine, err
}

// notOf wants a machine with an interface that is not of any of these. There is no other way to allocate any machine but certain ones:
// MAAS's forms lack not_system_id, and tags would change the machines. Names with the marks of constraints are left out; MAAS has none.
func notOf(hostnames []string) string {
	var pairs []string
	for _, name := range hostnames {
		if name != "" && !strings.ContainsAny(name, ";:,= ") {
			pairs = append(pairs, "not_hostname="+name)
		}
	}
	if len(pairs) == 0 {
		return ""
	}
	return "other:" + strings.Join(pairs, ",")
}

// DeployParams are the parameters of op=deploy.
type DeployParams struct {
	// AgentName marks the machine when the deployment itself acquires it, because it was Ready.
	AgentName string
	// DistroSeries is osystem/series, custom/NAME or the bare name of an uploaded image.
	DistroSeries string
	// UserData is handed to cloud-init as it is.
	UserData []byte
	// InMemory leaves the disks alone (ephemeral_deploy).
	InMemory bool
	Comment  string
}

// DeployMachine installs an image (POST machines/{id}/ op=deploy). Conflict: the machine's state does not allow it.
func (c *Client) DeployMachine(ctx context.Context, permit Permit, systemID string, p DeployParams) (*Machine, error) {
	form := url.Values{}
	set(form, "agent_name", p.AgentName)
	set(form, "distro_series", p.DistroSeries)
	set(form, "comment", p.Comment)
	if len(p.UserData) > 0 {
		form.Set("user_data", base64.StdEncoding.EncodeToString(p.UserData))
	}
	if p.InMemory {
		form.Set("ephemeral_deploy", "true")
	}
	return c.machineCall(ctx, call{method: http.MethodPost, op: "deploy", params: form, slow: true, permit: permit}, systemID)
}

// Erase is what a release does to the machine's disks first.
type Erase string

// Where erasing on release is switched on in MAAS's own settings, MAAS erases each machine: 3.5 and newer then as the settings say,
// whatever a release asks for.
const (
	// EraseDefault asks for nothing: MAAS's settings decide, and out of the box they leave the disks alone.
	EraseDefault Erase = ""
	// EraseQuick removes what says how a disk is used, and zeroes 2 MiB at its beginning and end.
	EraseQuick Erase = "quick"
	// EraseSecure has each disk erase itself; one that can't, or fails to, is overwritten.
	EraseSecure Erase = "secure"
	// EraseFull overwrites all of each disk with zeroes.
	EraseFull Erase = "full"
)

// ReleaseParams are the parameters of op=release.
type ReleaseParams struct {
	Erase   Erase
	Comment string
}

// ReleaseMachine gives a machine back (POST machines/{id}/ op=release). On a machine that is Ready or Releasing it does nothing. With
// Erase it is in StatusDiskErasing first, for which MAAS has no time limit, and then goes on to StatusReleasing, or to
// StatusFailedDiskErasing. Conflict: the state does not allow it; disks that are being erased are such a state.
func (c *Client) ReleaseMachine(ctx context.Context, permit Permit, systemID string, p ReleaseParams) (*Machine, error) {
	form := url.Values{}
	set(form, "comment", p.Comment)
	if p.Erase != EraseDefault {
		// The two others only say how. With both of them a disk that can't erase itself would only be erased quickly; left out, they
		// are as in MAAS's settings before 3.5.
		form.Set("erase", "true")
		form.Set("secure_erase", strconv.FormatBool(p.Erase == EraseSecure))
		form.Set("quick_erase", strconv.FormatBool(p.Erase == EraseQuick))
	}
	return c.machineCall(ctx, call{method: http.MethodPost, op: "release", params: form, slow: true, permit: permit}, systemID)
}

// AbortMachine stops what a machine is being made to do (POST machines/{id}/ op=abort): commissioning, testing, a deployment or the
// erasing of disks. MAAS switches the machine off first; a test then leaves it as it was before. Conflict: it does none of these.
func (c *Client) AbortMachine(ctx context.Context, permit Permit, systemID, comment string) (*Machine, error) {
	form := url.Values{}
	set(form, "comment", comment)
	return c.machineCall(ctx, call{method: http.MethodPost, op: "abort", params: form, slow: true, permit: permit}, systemID)
}

// ExitRescueMode brings a machine out of rescue mode (POST machines/{id}/ op=exit_rescue_mode, for administrators), also after MAAS
// failed to bring it there or back; it becomes what it was before. Conflict: the state does not allow it.
func (c *Client) ExitRescueMode(ctx context.Context, permit Permit, systemID string) (*Machine, error) {
	return c.machineCall(ctx, call{method: http.MethodPost, op: "exit_rescue_mode", slow: true, permit: permit}, systemID)
}

// PowerOffMachine switches a machine off (POST machines/{id}/ op=power_off); the power state follows later.
func (c *Client) PowerOffMachine(ctx context.Context, permit Permit, systemID, comment string) (*Machine, error) {
	form := url.Values{}
	set(form, "comment", comment)
	return c.machineCall(ctx, call{method: http.MethodPost, op: "power_off", params: form, slow: true, permit: permit}, systemID)
}

// SetWorkloadAnnotations sets annotations that people see in MAAS (POST machines/{id}/ op=set_workload_annotations). Conflict: the machine is
// not acquired.
func (c *Client) SetWorkloadAnnotations(ctx context.Context, permit Permit, systemID string, annotations map[string]string) (*Machine, error) {
	form := url.Values{}
	for key, value := range annotations {
		form.Set(key, value)
	}
	return c.machineCall(ctx, call{method: http.MethodPost, op: "set_workload_annotations", params: form, permit: permit}, systemID)
}

// DeleteMachine removes a machine from MAAS and, for a composed VM, the VM from its host (DELETE machines/{id}/). The response does not say
// whether the VM is really gone.
func (c *Client) DeleteMachine(ctx context.Context, permit Permit, systemID string) error {
	return c.do(ctx, call{method: http.MethodDelete, endpoint: "machines/{id}/", args: []string{systemID}, slow: true, permit: permit}, nil)
}

func (c *Client) machineCall(ctx context.Context, call call, systemID string) (*Machine, error) {
	call.endpoint, call.args = "machines/{id}/", []string{systemID}
	machine := &Machine{}
	err := c.do(ctx, call, machine)
	return machine, err
}

func set(form url.Values, key, value string) {
	if value != "" {
		form.Set(key, value)
	}
}

func setInt(form url.Values, key string, value int) {
	if value != 0 {
		form.Set(key, strconv.Itoa(value))
	}
}

// Interface is what the provider uses of a network interface.
type Interface struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
	// Type is physical, bond, bridge or vlan.
	Type string `json:"type"`
	// Children are the names of the bonds, bridges and VLANs on it.
	Children []string `json:"children"`
	Links    []Link   `json:"links"`
	// Discovered are addresses that MAAS found on the interface, and did not give it.
	Discovered []Link `json:"discovered"`
	VLAN       *VLAN  `json:"vlan"`
}

// VLAN is what the provider uses of MAAS's VLAN object.
type VLAN struct {
	ID int `json:"id"`
	// DHCP: MAAS serves DHCP there. Relay: the VLAN from whose servers it is served, as MAAS shows it, or nil.
	DHCP  bool `json:"dhcp_on"`
	Relay any  `json:"relay_vlan"`
}

// Bootable reports whether machines can boot from the VLAN.
func (v *VLAN) Bootable() bool { return v != nil && (v.DHCP || v.Relay != nil) }
