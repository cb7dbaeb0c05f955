// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"net/url"
)

// Device is what MAAS knows of a computer that it does not switch and install: names and addresses. Its interfaces have
// static addresses, which they get at once. Hostnames and MAC addresses are unique over machines and devices.
type Device struct {
	SystemID string `json:"system_id"`
	Hostname string `json:"hostname"` // without the domain
	FQDN     string `json:"fqdn"`
	// Owner is the MAAS user who made it. From MAAS 3.8 on, no other user may change or delete it.
	Owner               string            `json:"owner"`
	Description         string            `json:"description"`
	Zone                Ref               `json:"zone"`
	IPAddresses         []string          `json:"ip_addresses"`
	Interfaces          []*Interface      `json:"interface_set"`
	WorkloadAnnotations map[string]string `json:"workload_annotations"`
}

// AsMachine returns a device as a machine that MAAS neither switches nor installs: whether it runs, others know.
func (d *Device) AsMachine() *Machine {
	return &Machine{
		Device: true, SystemID: d.SystemID, Hostname: d.Hostname, FQDN: d.FQDN, Owner: d.Owner, Description: d.Description,
		Zone:        d.Zone,
		IPAddresses: d.IPAddresses, Interfaces: d.Interfaces, WorkloadAnnotations: d.WorkloadAnnotations,
		Status: StatusDeployed, StatusName: "Device", PowerState: PowerUnknown,
	}
}

// CreateDeviceParams are the parameters of a device; empty fields are left out.
type CreateDeviceParams struct {
	Hostname     string
	MACAddresses []string
	Zone, Domain string // names
	Description  string
}

// CreateDevice makes a device of the key's user (POST devices/). Invalid, with the field mac_addresses or hostname: a
// machine or device has one of the addresses, or the name. After any other error it may exist.
func (c *Client) CreateDevice(ctx context.Context, permit Permit, p CreateDeviceParams) (*Device, error) {
	form := formOf("hostname", p.Hostname, "zone", p.Zone, "domain", p.Domain, "description", p.Description)
	form["mac_addresses"] = p.MACAddresses
	return askFor[Device](ctx, c, on("devices/").post(permit, "", form))
}

// DeviceFilter limits a list of devices; empty fields don't. Values of one field are alternatives.
type DeviceFilter struct {
	SystemIDs, Hostnames, MACAddresses []string
}

// ListDevices returns the devices that the key's user sees (GET devices/): their own, or all if the user may see them.
func (c *Client) ListDevices(ctx context.Context, f DeviceFilter) ([]*Device, error) {
	filter := MachineFilter{SystemIDs: f.SystemIDs, Hostnames: f.Hostnames, MACAddresses: f.MACAddresses}
	return ask[[]*Device](ctx, c, on("devices/").query("", filter.params()).asList())
}

// GetDevice returns a device, whoever's it is (GET devices/{id}/). NotFound: there is none; machines have other ids.
func (c *Client) GetDevice(ctx context.Context, systemID string) (*Device, error) {
	return askFor[Device](ctx, c, on("devices/{id}/", systemID).get())
}

// AnnotateDevice sets annotations that MAAS shows to users (POST devices/{id}/ op=set_workload_annotations). Conflict
// or Forbidden: the device is another user's.
func (c *Client) AnnotateDevice(
	ctx context.Context, permit Permit, systemID string, annotations map[string]string,
) (*Device, error) {
	return askFor[Device](ctx, c, on("devices/{id}/", systemID).post(permit, "set_workload_annotations",
		setAll(url.Values{}, annotations)))
}

// DeleteDevice deletes a device, and frees its addresses (DELETE devices/{id}/). MAAS gives no id twice. Forbidden: it
// is another user's.
func (c *Client) DeleteDevice(ctx context.Context, permit Permit, systemID string) error {
	return c.do(ctx, on("devices/{id}/", systemID).remove(permit), nil)
}
