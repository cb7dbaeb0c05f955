// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
)

// Status is the state of a machine, with MAAS's numbers.
type Status int

// All states of MAAS.
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

// Moving reports whether MAAS leaves the state by itself.
func (s Status) Moving() bool {
	return slices.Contains([]Status{StatusCommissioning, StatusTesting, StatusDeploying, StatusReleasing,
		StatusDiskErasing, StatusEnteringRescueMode, StatusExitingRescueMode}, s)
}

// Values of Machine.PowerState, as last seen by MAAS.
const (
	PowerOn  = "on"
	PowerOff = "off"
	// PowerError: MAAS could not read the power.
	PowerError = "error"
	// PowerUnknown: MAAS has not read the power, or can't because it is managed by hand.
	PowerUnknown = "unknown"
)

// Ref names a zone, a resource pool or a VM host.
type Ref struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
}

// Machine is the part of MAAS's machine object that the provider uses (GET machines/, machines/{id}/).
type Machine struct {
	SystemID   string `json:"system_id"`
	Hostname   string `json:"hostname"` // without the domain
	FQDN       string `json:"fqdn"`
	Status     Status `json:"status"`
	StatusName string `json:"status_name"`
	// Owner is the MAAS user, or "".
	Owner      string `json:"owner"`
	Locked     bool   `json:"locked"`
	PowerState string `json:"power_state"`
	// PowerType is the driver that MAAS switches it with.
	PowerType string `json:"power_type"`
	// CPUCount is in cores, Memory in MiB, Storage in MB (10^6 bytes).
	CPUCount int     `json:"cpu_count"`
	Memory   int     `json:"memory"`
	Storage  float64 `json:"storage"`
	Zone     Ref     `json:"zone"`
	Pool     Ref     `json:"pool"`
	// IsDPU: MAAS deploys it as any other, from 3.7 on. When it is released, it goes on running what was deployed, and
	// its disks can't be erased.
	IsDPU bool `json:"is_dpu"`
	// Pod is the VM host of a composed VM.
	Pod           *Ref         `json:"pod"`
	IPAddresses   []string     `json:"ip_addresses"`
	BootInterface *Interface   `json:"boot_interface"`
	Interfaces    []*Interface `json:"interface_set"`
	BootDisk      *Disk        `json:"boot_disk"`
	Architecture  string       `json:"architecture"` // amd64/generic
	// "" until it is deployed, and again when its release begins
	OSystem             string            `json:"osystem"`
	DistroSeries        string            `json:"distro_series"` // of an uploaded image its bare name
	Tags                []string          `json:"tag_names"`
	WorkloadAnnotations map[string]string `json:"workload_annotations"`
	Description         string            `json:"description"`
	// InMemory: it was deployed without using its disks. To be switched on deploys it anew, without its user data.
	InMemory bool `json:"ephemeral_deploy"`

	HardwareInfo HardwareInfo `json:"hardware_info"`
	// Disks are the physical ones.
	Disks []*Disk `json:"physicalblockdevice_set"`
	// Volumes are what is made of several, or of a part of one: RAIDs, logical volumes.
	Volumes []*Disk `json:"virtualblockdevice_set"`
	Tests

	// Device: it is a device, see Device.AsMachine.
	Device bool `json:"-"`
	// Unreadable: MAAS's list says of it what no machine is, see AllMachines. What of it could be read is not certain.
	Unreadable bool `json:"-"`
}

// Disk is the part of a block device that the provider uses; its size is in bytes.
type Disk struct {
	ID         int         `json:"id"`
	Name       string      `json:"name"`
	Model      string      `json:"model"`
	Serial     string      `json:"serial"`
	Size       int64       `json:"size"`
	Tags       []string    `json:"tags"`
	Partitions []Partition `json:"partitions"`
	Filesystem *Filesystem `json:"filesystem"` // of the whole disk, or nil
}

// Filesystem is the part of a file system that the provider uses; MountPoint is "" if it is not mounted.
type Filesystem struct {
	MountPoint string `json:"mount_point"`
}

// Partition is a partition of a disk; its size is in bytes.
type Partition struct {
	ID         int         `json:"id"`
	Size       int64       `json:"size"`
	Filesystem *Filesystem `json:"filesystem"`
}

// HardwareInfo is what commissioning found out about a machine (GET machines/, hardware_info). MAAS says "Unknown"
// where it found nothing.
type HardwareInfo struct {
	Vendor  string `json:"system_vendor"`
	Product string `json:"system_product"`
	Serial  string `json:"system_serial"`
}

// PhysicalAddresses returns the MAC addresses of the machine's network cards.
func (m *Machine) PhysicalAddresses() []string {
	cards := list.Where(m.Interfaces, func(i *Interface) bool { return i.Type == InterfacePhysical })
	return list.Each(cards, func(i *Interface) string { return i.MACAddress })
}

// HostName returns the name of the VM host that the machine is on, or "" for bare metal.
func (m *Machine) HostName() string {
	if m.Pod == nil {
		return ""
	}
	return m.Pod.Name
}

// String names the machine as people know it, and as MAAS's API does.
func (m *Machine) String() string { return Named(m.Hostname, m.SystemID) }

// Named returns a machine's name with its system id, for messages. One of them may be unknown.
func Named(hostname, systemID string) string {
	if hostname == "" || systemID == "" {
		return hostname + systemID
	}
	return hostname + " (" + systemID + ")"
}

// Unacquired reports whether certainly no user has acquired the machine, so that MAAS has no agent name for it. MAAS
// still shows an owner while it commissions or tests: the user who started that.
func (m *Machine) Unacquired() bool {
	switch m.Status {
	case StatusNew, StatusCommissioning, StatusFailedCommissioning:
		return true // An acquired machine is neither New nor commissioned.
	case StatusTesting, StatusFailedTesting:
		return m.Owner == "" || m.OSystem == "" && len(m.WorkloadAnnotations) == 0
	case StatusReady, StatusMissing, StatusBroken, StatusRetired:
		return m.Owner == ""
	}
	return false // A machine that leaves rescue mode is Allocated without an owner.
}

// MachineFilter limits a list of machines; empty fields don't. Values of one field are alternatives.
type MachineFilter struct {
	SystemIDs, Hostnames, AgentNames, MACAddresses []string
	// NotAgentNames leaves out machines that were acquired with one of these; a machine that is not acquired has none.
	NotAgentNames []string
	// VMHosts are names of VM hosts: only their VMs are listed. Invalid: there is no such host.
	VMHosts []string
	// Pools are names of resource pools, Statuses such as ready. Invalid: there is none.
	Pools, Statuses []string
}

// maxQuery bounds the query of a list, in bytes: the nginx before MAAS accepts 8 KiB for a request line, which also
// holds the path.
const maxQuery = 6<<10 - 512

// fields are those of the filter, by MAAS's names.
func (f *MachineFilter) fields() map[string]*[]string {
	return map[string]*[]string{
		"id": &f.SystemIDs, "hostname": &f.Hostnames, "agent_name": &f.AgentNames, "not_agent_name": &f.NotAgentNames,
		"pod": &f.VMHosts, "mac_address": &f.MACAddresses, "pool": &f.Pools, "status": &f.Statuses,
	}
}

func (f MachineFilter) params() url.Values {
	params := url.Values{}
	for key, values := range f.fields() {
		params[key] = *values
	}
	return params
}

// JoinFilters joins filters into as few as fit into request lines. All must limit the same fields: values of one field
// are alternatives, values of two fields are not.
func JoinFilters(filters []MachineFilter) []MachineFilter {
	var joined []MachineFilter
	length := maxQuery
	for _, f := range filters {
		more := len(f.params().Encode()) + len("&")
		if length += more; length > maxQuery {
			joined, length = append(joined, MachineFilter{}), more
		}
		last := joined[len(joined)-1].fields()
		for key, values := range f.fields() {
			*last[key] = append(*last[key], *values...)
		}
	}
	return joined
}

// ListMachines returns the machines that match a filter (GET machines/). An unknown agent name or hostname gives an
// empty list.
func (c *Client) ListMachines(ctx context.Context, filter MachineFilter) ([]*Machine, error) {
	return ask[[]*Machine](ctx, c, on("machines/").query("", filter.params()).asList())
}

// AllMachines returns all machines (GET machines/). One of which MAAS's list says what no machine is does not keep the
// caller from the others: it is Unreadable.
func (c *Client) AllMachines(ctx context.Context) ([]*Machine, error) {
	rows, err := ask[machineRows](ctx, c, on("machines/").get().asList())
	return list.Each(rows, func(row machineRow) *Machine { return row.machine }), err
}

type machineRows []machineRow

// machineRow is an item of a list of machines.
type machineRow struct{ machine *Machine }

// UnmarshalJSON reads what should be a machine, as far as it can be read.
func (r *machineRow) UnmarshalJSON(text []byte) error {
	r.machine = new(Machine)
	err := json.Unmarshal(text, r.machine)
	r.machine.Unreadable = err != nil || !r.machine.complete()
	return nil //nolint:nilerr // The row says so itself, and keeps no caller from the others.
}

const (
	// PowerTypeLXD is the power driver of VMs on LXD hosts.
	PowerTypeLXD = "lxd"
	// powerTypeManual is that of machines that MAAS has no way to switch.
	powerTypeManual = "manual"
)

// IsSwitchedByHand reports whether MAAS can't switch a machine: it accepts each call that would, and does nothing.
func (m *Machine) IsSwitchedByHand() bool { return m.PowerType == powerTypeManual }

// Instance is how MAAS switches a machine, as far as it distinguishes VMs on LXD hosts.
type Instance struct {
	// Name is the VM's on its host; "" for a machine that is none. It does not change when the machine is renamed.
	Name string `json:"instance_name"`
	// PowerAddress is where MAAS reaches the host: host:port, or a URL.
	PowerAddress string `json:"power_address"`
	// Certificate (PEM) is MAAS's identity towards the host.
	Certificate string `json:"certificate"`
}

// Instances returns how MAAS switches its machines, by system id (GET machines/ op=power_parameters, for
// administrators): all, or those of the ids. Of VMs that MAAS composed on VM hosts it still says when it has no VM
// hosts any more. The parameters also hold credentials; nothing else is read.
func (c *Client) Instances(ctx context.Context, systemIDs ...string) (map[string]Instance, error) {
	ids := url.Values{"id": systemIDs}
	return ask[map[string]Instance](ctx, c, on("machines/").query("power_parameters", ids).asList())
}

// InstanceNames returns the names of VMs on their LXD hosts, by system id: see Instances. Forbidden: the key's user may
// not read them.
func (c *Client) InstanceNames(ctx context.Context, systemIDs []string) (map[string]string, error) {
	if len(systemIDs) == 0 {
		return nil, nil // Without ids, MAAS would return all machines.
	}
	instances, err := c.Instances(ctx, systemIDs...)
	if err != nil {
		return nil, err
	}
	names := make(map[string]string, len(instances))
	for id, one := range instances {
		names[id] = one.Name
	}
	return names, nil
}

// GetMachine returns a machine (GET machines/{id}/), or NotFound.
func (c *Client) GetMachine(ctx context.Context, systemID string) (*Machine, error) {
	return askFor[Machine](ctx, c, on("machines/{id}/", systemID).get())
}

// ProveGone returns the error of a call for a machine or a device, nil if it had none, but not the 404 of one that
// MAAS's lists have: a proxy before MAAS may have responded. That is Unavailable (GET machines/, GET devices/).
func (c *Client) ProveGone(ctx context.Context, systemID string, err error) error {
	if !errors.Is(err, NotFound) {
		return err
	}
	ids := []string{systemID}
	machines, failed := c.ListMachines(ctx, MachineFilter{SystemIDs: ids})
	var devices []*Device
	if failed == nil {
		devices, failed = c.ListDevices(ctx, DeviceFilter{SystemIDs: ids})
	}
	switch {
	case failed != nil:
		return fmt.Errorf("looking whether %s is gone: %w", systemID, failed)
	case len(machines)+len(devices) > 0:
		return &Error{Kind: Unavailable, Method: http.MethodGet, Endpoint: "machines/{id}/",
			Status: http.StatusNotFound, Message: "MAAS lists what it does not find"}
	}
	return err
}

// AllocateParams are the constraints of op=allocate; zero values don't constrain.
type AllocateParams struct {
	// AgentName marks the machine (at most 255 characters).
	AgentName         string
	SystemID          string
	Zone, Pool        string
	MinCPU, MinMemory int // cores, MiB
	MinDiskSize       int // GB
	Tags, NotTags     []string
	Architecture      string   // amd64, or amd64/generic
	NotOnVMHosts      []string // names of VM hosts: MAAS neither picks their VMs nor composes there
	NotHostnames      []string // hostnames of machines to leave out
	Comment           string
}

// AllocateMachine takes a machine (POST machines/ op=allocate). Conflict: none fits. With neither SystemID nor all VM
// hosts in NotOnVMHosts, MAAS composes a VM when no machine fits.
func (c *Client) AllocateMachine(ctx context.Context, permit Permit, p AllocateParams) (*Machine, error) {
	return askFor[Machine](ctx, c, on("machines/").post(permit, "allocate", p.form()).slowly())
}

// PickMachine returns the machine that AllocateMachine would take now, and takes nothing (POST machines/ op=allocate
// with dry_run). Conflict: none fits. A VM is composed all the same where AllocateMachine would.
func (c *Client) PickMachine(ctx context.Context, p AllocateParams) (*Machine, error) {
	form := p.form()
	form.Set("dry_run", "true")
	return askFor[Machine](ctx, c, on("machines/").post(pickPermit, "allocate", form).slowly())
}

// NotOnVMHostsField is the field in which MAAS gets AllocateParams.NotOnVMHosts: Invalid names it if MAAS has not those
// hosts.
const NotOnVMHostsField = "not_pod"

func (p AllocateParams) form() url.Values {
	form := formOf("agent_name", p.AgentName, "system_id", p.SystemID, "zone", p.Zone, "pool", p.Pool,
		"cpu_count", number(p.MinCPU), "mem", number(p.MinMemory), "comment", p.Comment, "arch", p.Architecture,
		"interfaces", notOf(p.NotHostnames))
	if p.MinDiskSize > 0 {
		form.Set("storage", "root:"+strconv.Itoa(p.MinDiskSize))
	}
	form["tags"], form["not_tags"], form[NotOnVMHostsField] = p.Tags, p.NotTags, p.NotOnVMHosts
	return form
}

// notOf returns the constraint for a machine with an interface that belongs to none of these. It is the only way to
// exclude machines from an allocation by what only we know of them: MAAS's forms lack not_system_id. Names with
// the characters of constraints are left out; MAAS has none.
func notOf(hostnames []string) string {
	names := list.Where(hostnames, func(name string) bool { return name != "" && !strings.ContainsAny(name, ";:,= ") })
	if len(names) == 0 {
		return ""
	}
	return "other:not_hostname=" + strings.Join(names, ",not_hostname=")
}

// DeployParams are the parameters of op=deploy.
type DeployParams struct {
	// AgentName marks the machine if the deployment itself acquires it, because it was Ready.
	AgentName string
	// DistroSeries is osystem/series, custom/NAME or the bare name of an uploaded image.
	DistroSeries string
	// UserData is passed to cloud-init unchanged.
	UserData []byte
	// InMemory leaves the disks untouched (ephemeral_deploy).
	InMemory bool
	// Kernel of an Ubuntu image of MAAS: ga-24.04 (hwe_kernel). MAAS takes its default instead of one that it can't
	// read.
	Kernel  string
	Comment string
}

// DeployMachine installs an image (POST machines/{id}/ op=deploy). Conflict: the machine's state does not allow it.
func (c *Client) DeployMachine(ctx context.Context, permit Permit, systemID string, p DeployParams) (*Machine, error) {
	form := formOf("agent_name", p.AgentName, "distro_series", p.DistroSeries, "comment", p.Comment,
		"user_data", base64.StdEncoding.EncodeToString(p.UserData), "ephemeral_deploy", yes(p.InMemory),
		"hwe_kernel", p.Kernel)
	return askFor[Machine](ctx, c, on("machines/{id}/", systemID).post(permit, "deploy", form).slowly())
}

// Erase is how a release erases the machine's disks.
type Erase string

// If MAAS's own settings require erasing on release, MAAS erases each machine: 3.5 and newer as the settings say,
// whatever a release asks for.
const (
	// EraseDefault requests nothing: MAAS's settings decide. By default they leave the disks alone.
	EraseDefault Erase = ""
	// EraseQuick removes the signatures of file systems and partitions, and zeroes 2 MiB at the beginning and end of
	// each disk.
	EraseQuick Erase = "quick"
	// EraseSecure makes each disk erase itself; one that can't, or fails to, is overwritten.
	EraseSecure Erase = "secure"
	// EraseFull overwrites all of each disk with zeroes.
	EraseFull Erase = "full"
)

// ReleaseParams are the parameters of op=release.
type ReleaseParams struct {
	Erase   Erase
	Comment string
}

// ReleaseMachine gives a machine back (POST machines/{id}/ op=release). On a machine that is Ready or Releasing it does
// nothing. With Erase the machine is in StatusDiskErasing first, for which MAAS has no time limit, and then in
// StatusReleasing or StatusFailedDiskErasing. Conflict: the state does not allow it; disk erasing is such a state.
func (c *Client) ReleaseMachine(
	ctx context.Context, permit ReleasePermit, systemID string, p ReleaseParams,
) (*Machine, error) {
	form := formOf("comment", p.Comment)
	if p.Erase != EraseDefault {
		// The two others only choose how. With both of them, MAAS would only erase quickly a disk that can't erase
		// itself; without them, they are as in MAAS's settings before 3.5.
		form.Set("erase", "true")
		form.Set("secure_erase", strconv.FormatBool(p.Erase == EraseSecure))
		form.Set("quick_erase", strconv.FormatBool(p.Erase == EraseQuick))
	}
	return askFor[Machine](ctx, c, on("machines/{id}/", systemID).post(permit.Permit(), "release", form).slowly())
}

// AbortMachine stops the current operation of a machine (POST machines/{id}/ op=abort): commissioning, testing, a
// deployment or disk erasing. MAAS switches the machine off first; after a test the machine is in the state it had
// before. Conflict: none of these is under way.
func (c *Client) AbortMachine(ctx context.Context, permit Permit, systemID, comment string) (*Machine, error) {
	form := formOf("comment", comment)
	return askFor[Machine](ctx, c, on("machines/{id}/", systemID).post(permit, "abort", form).slowly())
}

// ExitRescueMode brings a machine out of rescue mode (POST machines/{id}/ op=exit_rescue_mode, for administrators),
// also after MAAS failed to enter or leave it; the machine returns to its state before. Conflict: the state does not
// allow it.
func (c *Client) ExitRescueMode(ctx context.Context, permit Permit, systemID string) (*Machine, error) {
	return askFor[Machine](ctx, c, on("machines/{id}/", systemID).post(permit, "exit_rescue_mode", nil).slowly())
}

// PowerOffMachine switches a machine off (POST machines/{id}/ op=power_off); the power state follows later.
func (c *Client) PowerOffMachine(ctx context.Context, permit Permit, systemID, comment string) (*Machine, error) {
	form := formOf("comment", comment)
	return askFor[Machine](ctx, c, on("machines/{id}/", systemID).post(permit, "power_off", form).slowly())
}

// PowerOnMachine switches a machine on (POST machines/{id}/ op=power_on); the power state follows later. With a BMC
// that is reached by IPMI, MAAS restarts a machine that is on already. On an Allocated machine it is a deployment. MAAS
// forgets the machine's user data; one that runs in memory is deployed anew without it.
// Conflict: no user has acquired the machine.
func (c *Client) PowerOnMachine(ctx context.Context, permit Permit, systemID, comment string) (*Machine, error) {
	form := formOf("comment", comment)
	return askFor[Machine](ctx, c, on("machines/{id}/", systemID).post(permit, "power_on", form).slowly())
}

// QueryPower makes MAAS ask a machine's BMC, or its host, for the power state (GET machines/{id}/
// op=query_power_state): PowerOn, PowerOff, PowerError, or PowerUnknown.
func (c *Client) QueryPower(ctx context.Context, systemID string) (string, error) {
	power, err := ask[powerAnswer](ctx, c, on("machines/{id}/", systemID).query("query_power_state", nil).slowly())
	return power.State, err
}

// powerAnswer is the response to op=query_power_state.
type powerAnswer struct {
	State string `json:"state"`
}

// SetWorkloadAnnotations sets annotations that MAAS shows to users (POST machines/{id}/ op=set_workload_annotations).
// Conflict: the machine is not acquired.
func (c *Client) SetWorkloadAnnotations(
	ctx context.Context, permit Permit, systemID string, annotations map[string]string,
) (*Machine, error) {
	return askFor[Machine](ctx, c, on("machines/{id}/", systemID).post(permit, "set_workload_annotations",
		setAll(url.Values{}, annotations)))
}

// StorageLayout is how MAAS partitions a machine's disks.
type StorageLayout struct {
	// Name is MAAS's: flat, lvm, bcache, vmfs6, vmfs7, custom or blank.
	Name string
	// RootDevice is the id of the disk that gets the root; 0 is the boot disk. What the firmware reads stays on the
	// boot disk.
	RootDevice int
	// Options are further parameters of op=set_storage_layout, for example vg_name.
	Options map[string]string
}

// SetStorageLayout replaces what the disks hold (POST machines/{id}/ op=set_storage_layout, for administrators).
// Conflict: the machine is not StatusReady. Invalid: it can't have the layout; then nothing has changed.
func (c *Client) SetStorageLayout(
	ctx context.Context, permit Permit, systemID string, layout StorageLayout,
) (*Machine, error) {
	form := setAll(url.Values{}, layout.Options)
	maps.Copy(form, formOf("storage_layout", layout.Name, "root_device", number(layout.RootDevice)))
	return askFor[Machine](ctx, c, on("machines/{id}/", systemID).post(permit, "set_storage_layout", form))
}

// RestoreStorage gives a machine the region's default layout (POST machines/{id}/ op=restore_storage_configuration, for
// administrators), whatever it had before SetStorageLayout. Conflict: it is neither StatusReady nor
// StatusFailedTesting.
func (c *Client) RestoreStorage(ctx context.Context, permit Permit, systemID string) (*Machine, error) {
	return askFor[Machine](ctx, c, on("machines/{id}/", systemID).post(permit, "restore_storage_configuration", nil))
}

// DeleteMachine removes a machine from MAAS and, for a composed VM, the VM from its host (DELETE machines/{id}/). The
// response does not show whether the VM is really gone.
func (c *Client) DeleteMachine(ctx context.Context, permit Permit, systemID string) error {
	return c.do(ctx, on("machines/{id}/", systemID).remove(permit).slowly(), nil)
}

// formOf returns a form with names and values, which follow each other. Empty values are left out.
func formOf(pairs ...string) url.Values {
	form := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			form.Set(pair[0], pair[1])
		}
	}
	return form
}

func setAll(form url.Values, values map[string]string) url.Values {
	for key, value := range values {
		form.Set(key, value)
	}
	return form
}

// number and yes return the values of a form; "" for 0 and false.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func yes(is bool) string {
	if is {
		return "true"
	}
	return ""
}
