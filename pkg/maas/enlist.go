// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// PowerTypeLXD is the power driver of VMs on LXD hosts.
const PowerTypeLXD = "lxd"

// LXDPower is how MAAS switches a VM on an LXD host. Machines with the same PowerAddress, Project and Certificate share one Key:
// changing it for one of them changes it for all.
type LXDPower struct {
	VMHostPower
	InstanceName string `json:"instance_name"`
}

// Equal reports whether MAAS switches a VM in a certain way. MAAS strips white space around what it stores.
func (p LXDPower) Equal(other LXDPower) bool {
	same := func(a, b string) bool { return strings.TrimSpace(a) == strings.TrimSpace(b) }
	return same(p.PowerAddress, other.PowerAddress) && same(p.Project, other.Project) && same(p.InstanceName, other.InstanceName) &&
		same(p.Certificate, other.Certificate) && same(p.Key, other.Key)
}

// CreateMachineParams are the parameters of enlisting a VM; empty fields are left out.
type CreateMachineParams struct {
	// Hostname is unique over all of MAAS.
	Hostname     string
	Architecture string // amd64/generic
	MACAddresses []string
	Power        LXDPower
	Zone, Pool   string // names
	Description  string
	Cores        int
	Memory       int // MiB
	// Commission makes MAAS switch the VM on and commission it, without tests. The machine is the caller's meanwhile.
	Commission bool
}

// CreateMachine enlists a VM with the lxd power driver (POST machines/). Invalid, with the field mac_addresses or
// hostname: a machine or device has one of the addresses, or the name. After any other error, the machine may exist: if
// MAAS can't switch it on, it is StatusNew, and the caller's. Only administrators can have it commissioned.
func (c *Client) CreateMachine(ctx context.Context, permit Permit, p CreateMachineParams) (*Machine, error) {
	form := url.Values{"mac_addresses": p.MACAddresses}
	set(form, "hostname", p.Hostname)
	set(form, "architecture", p.Architecture)
	set(form, "zone", p.Zone)
	set(form, "pool", p.Pool)
	set(form, "description", p.Description)
	setInt(form, "cpu_count", p.Cores)
	setInt(form, "memory", p.Memory)
	form.Set("power_type", PowerTypeLXD)
	set(form, "power_parameters_power_address", p.Power.PowerAddress)
	set(form, "power_parameters_project", p.Power.Project)
	set(form, "power_parameters_instance_name", p.Power.InstanceName)
	set(form, "power_parameters_certificate", p.Power.Certificate)
	set(form, powerKeyParameter, p.Power.Key)
	form.Set("commission", strconv.FormatBool(p.Commission))
	if p.Commission {
		form.Set("testing_scripts", "none")
	}
	machine := &Machine{}
	err := c.do(ctx, call{method: http.MethodPost, endpoint: "machines/", params: form, slow: true, permit: permit}, machine)
	return machine, err
}

// powerKeyParameter is the parameter with the private key of MAAS's certificate.
const powerKeyParameter = "power_parameters_key"

// CommissionMachine switches a machine on and commissions it, without tests (POST machines/{id}/ op=commission, for
// administrators). Invalid: its state does not allow it; commissioning is such a state.
func (c *Client) CommissionMachine(ctx context.Context, permit Permit, systemID string) (*Machine, error) {
	return c.machineCall(ctx, call{
		method: http.MethodPost, op: "commission", params: url.Values{"testing_scripts": {"none"}}, slow: true, permit: permit,
	}, systemID)
}

// MarkBroken makes a machine of the caller's StatusBroken (POST machines/{id}/ op=mark_broken), and so ends its
// commissioning without switching it off. A machine that is acquired is released: read the state before. Forbidden: the
// machine is not the caller's. Before MAAS 3.5, a machine that commissioned has no owner afterwards.
func (c *Client) MarkBroken(ctx context.Context, permit Permit, systemID, comment string) (*Machine, error) {
	form := url.Values{}
	set(form, "comment", comment)
	return c.machineCall(ctx, call{method: http.MethodPost, op: "mark_broken", params: form, slow: true, permit: permit}, systemID)
}

// MarkFixed makes a machine StatusReady that is StatusBroken (POST machines/{id}/ op=mark_fixed, for administrators); one that was
// Deployed before is StatusDeployed again. Conflict: it is not StatusBroken.
func (c *Client) MarkFixed(ctx context.Context, permit Permit, systemID, comment string) (*Machine, error) {
	form := url.Values{}
	set(form, "comment", comment)
	return c.machineCall(ctx, call{method: http.MethodPost, op: "mark_fixed", params: form, permit: permit}, systemID)
}

// BlockDevice is a disk of a machine as MAAS finds it when it installs the machine: by model and serial number.
type BlockDevice struct {
	Name          string
	Model, Serial string
	Size          int64 // bytes
	BlockSize     int   // bytes
}

// AddBlockDevice adds a disk that MAAS did not find by itself (POST nodes/{id}/blockdevices/, for administrators).
// Invalid: the machine has a disk of that name.
func (c *Client) AddBlockDevice(ctx context.Context, permit Permit, systemID string, d BlockDevice) (*Disk, error) {
	disk := &Disk{}
	err := c.do(ctx, call{
		method: http.MethodPost, endpoint: "nodes/{id}/blockdevices/", args: []string{systemID}, permit: permit,
		params: url.Values{
			"name": {d.Name}, "model": {d.Model}, "serial": {d.Serial},
			"size": {strconv.FormatInt(d.Size, 10)}, "block_size": {strconv.Itoa(d.BlockSize)},
		},
	}, disk)
	return disk, err
}

// PowerParameters returns how MAAS switches a VM (GET machines/{id}/ op=power_parameters, for administrators). For a composed VM,
// these are the parameters of its VM host; they stay when MAAS has no VM hosts any more.
func (c *Client) PowerParameters(ctx context.Context, systemID string) (LXDPower, error) {
	var power LXDPower
	err := c.do(ctx, call{method: http.MethodGet, endpoint: "machines/{id}/", args: []string{systemID}, op: "power_parameters"}, &power)
	return power, err
}
