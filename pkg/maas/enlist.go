// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	// PowerTypeLXD is the power driver of VMs on LXD hosts.
	PowerTypeLXD = "lxd"
	// powerTypeManual is the power driver of machines that MAAS does not switch.
	powerTypeManual = "manual"
)

// LXDPower is how MAAS switches a VM on an LXD host. Machines with the same PowerAddress, Project and Certificate share
// them and one Key: changing one of these for one machine changes it for all.
type LXDPower struct {
	VMHostPower
	InstanceName string `json:"instance_name"`
}

// Equal reports whether MAAS switches a VM in a certain way. MAAS strips white space around what it stores.
func (p LXDPower) Equal(other LXDPower) bool {
	same := func(a, b string) bool { return strings.TrimSpace(a) == strings.TrimSpace(b) }
	return same(p.PowerAddress, other.PowerAddress) && same(p.Project, other.Project) &&
		same(p.InstanceName, other.InstanceName) &&
		same(p.Certificate, other.Certificate) && same(p.Key, other.Key)
}

// SwitchesAs reports whether MAAS switches a VM in the same way, wherever its address has a scheme or none.
func (p LXDPower) SwitchesAs(other LXDPower) bool {
	const scheme = "https://"
	p.PowerAddress, other.PowerAddress = strings.TrimPrefix(p.PowerAddress, scheme),
		strings.TrimPrefix(other.PowerAddress, scheme)
	return p.Equal(other)
}

func (p LXDPower) addTo(form url.Values) {
	form.Set("power_type", PowerTypeLXD)
	set(form, "power_parameters_power_address", p.PowerAddress)
	set(form, "power_parameters_project", p.Project)
	set(form, "power_parameters_instance_name", p.InstanceName)
	set(form, "power_parameters_certificate", p.Certificate)
	set(form, powerKeyParameter, p.Key)
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
	p.Power.addTo(form)
	form.Set("commission", strconv.FormatBool(p.Commission))
	if p.Commission {
		form.Set("testing_scripts", "none")
	}
	machine := &Machine{}
	err := c.do(ctx, call{method: http.MethodPost, endpoint: "machines/", params: form, slow: true, permit: permit},
		machine)
	return machine, err
}

// powerKeyParameter is the parameter with the private key of MAAS's certificate.
const powerKeyParameter = "power_parameters_key"

// CommissionMachine switches a machine on and commissions it, without tests (POST machines/{id}/ op=commission, for
// administrators). Invalid: its state does not allow it; commissioning is such a state.
func (c *Client) CommissionMachine(ctx context.Context, permit Permit, systemID string) (*Machine, error) {
	return c.machineCall(ctx, call{
		method: http.MethodPost, op: "commission", params: url.Values{"testing_scripts": {"none"}}, slow: true,
		permit: permit,
	}, systemID)
}

// MarkBroken makes a machine of the caller's StatusBroken (POST machines/{id}/ op=mark_broken), and so ends its
// commissioning without switching it off. A machine that is acquired is released: read the state before. Forbidden: the
// machine is not the caller's. Before MAAS 3.5, a machine that commissioned has no owner afterwards.
func (c *Client) MarkBroken(ctx context.Context, permit Permit, systemID, comment string) (*Machine, error) {
	form := url.Values{}
	set(form, "comment", comment)
	return c.machineCall(ctx, call{method: http.MethodPost, op: "mark_broken", params: form, slow: true, permit: permit},
		systemID)
}

// MarkFixed makes a machine StatusReady that is StatusBroken (POST machines/{id}/ op=mark_fixed, for administrators);
// one that was Deployed before is StatusDeployed again. Conflict: it is not StatusBroken.
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

// PowerParameters returns how MAAS switches a VM (GET machines/{id}/ op=power_parameters, for administrators). For a
// composed VM, these are the parameters of its VM host; they stay when MAAS has no VM hosts any more.
func (c *Client) PowerParameters(ctx context.Context, systemID string) (LXDPower, error) {
	var power LXDPower
	err := c.do(ctx, call{method: http.MethodGet, endpoint: "machines/{id}/", args: []string{systemID},
		op: "power_parameters"}, &power)
	return power, err
}

// DetachPower makes MAAS forget how it switches a machine (PUT machines/{id}/, for administrators).
func (c *Client) DetachPower(ctx context.Context, permit Permit, systemID string) (*Machine, error) {
	form := url.Values{"power_type": {powerTypeManual}}
	return c.machineCall(ctx, call{method: http.MethodPut, params: form, permit: permit}, systemID)
}

// SetLXDPower makes MAAS switch a VM in a certain way (PUT machines/{id}/, for administrators). DetachPower must come
// first: MAAS would change all machines that share an LXD host's parameters with this one, and refuse that with a
// Conflict if other machines have the new parameters (models/node.py: set_power_config).
func (c *Client) SetLXDPower(ctx context.Context, permit Permit, systemID string, power LXDPower) (*Machine, error) {
	form := url.Values{}
	power.addTo(form)
	return c.machineCall(ctx, call{method: http.MethodPut, params: form, permit: permit}, systemID)
}

// Instance is how MAAS switches a machine, as far as it tells VMs on LXD hosts apart.
type Instance struct {
	// Name is the VM's on its host; "" for a machine that is none.
	Name string `json:"instance_name"`
	// PowerAddress is where MAAS reaches the host: host:port, or a URL.
	PowerAddress string `json:"power_address"`
	// Certificate (PEM) is MAAS's identity towards the host.
	Certificate string `json:"certificate"`
}

// Instances returns how MAAS switches its machines, by system id (GET machines/ op=power_parameters, for
// administrators): all, or those of the ids. Of VMs that MAAS composed on VM hosts it still tells when it has no VM
// hosts any more.
func (c *Client) Instances(ctx context.Context, systemIDs ...string) (map[string]Instance, error) {
	var instances map[string]Instance // The parameters also hold credentials; nothing else is read.
	params := url.Values{"id": systemIDs}
	err := c.do(ctx, call{method: http.MethodGet, endpoint: "machines/", op: "power_parameters", params: params,
		list: true}, &instances)
	return instances, err
}

// PowerCertificates returns the certificates (PEM) with which MAAS switches the VMs on LXD hosts, each once, in any
// order (GET machines/ op=power_parameters, for administrators). Those of VM hosts are among them only if they have
// VMs.
func (c *Client) PowerCertificates(ctx context.Context) ([]string, error) {
	instances, err := c.Instances(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, one := range instances {
		if one.Certificate != "" {
			found[one.Certificate] = true
		}
	}
	return slices.Collect(maps.Keys(found)), nil
}
