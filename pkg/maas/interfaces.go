// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// Types of an Interface.
const (
	InterfacePhysical = "physical"
	InterfaceBond     = "bond"
	InterfaceVLAN     = "vlan"
	InterfaceBridge   = "bridge"
)

// InterfaceParams are parameters of an interface, each as text: numbers in digits, true or false.
type InterfaceParams map[string]string

// UnmarshalJSON reads MAAS's params: an object, or "" if there are none.
func (p *InterfaceParams) UnmarshalJSON(raw []byte) error {
	*p = nil
	values := map[string]any{}
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	if err := json.Unmarshal(raw, &values); err != nil {
		return fmt.Errorf("reading the parameters of an interface: %w", err)
	}
	for key, value := range values {
		switch v := value.(type) {
		case float64:
			p.set(key, strconv.FormatFloat(v, 'f', -1, 64))
		case bool, string:
			p.set(key, fmt.Sprint(v))
		}
	}
	return nil
}

func (p *InterfaceParams) set(key, value string) {
	if *p == nil {
		*p = InterfaceParams{}
	}
	(*p)[key] = value
}

// MTU returns the interface's own MTU; 0 if it has none, and so that of its VLAN.
func (i *Interface) MTU() int {
	mtu, _ := strconv.Atoi(i.Params["mtu"])
	return mtu
}

// InterfaceSpec is an interface to make.
type InterfaceSpec struct {
	Type    string // InterfaceBond, InterfaceVLAN or InterfaceBridge
	Name    string
	Parents []int // ids of interfaces; one for a VLAN and a bridge
	VLANID  int   // a tagged one; for a VLAN
	MTU     int   // 0: that of the VLAN
	Params  InterfaceParams
}

// CreateInterface makes a bond, a VLAN or a bridge (POST nodes/{id}/interfaces/ op=create_bond, create_vlan,
// create_bridge). The parts of a bond and of a bridge lose their links. A bridge on an Allocated machine takes over the
// links instead, and MAAS removes it when the machine is released; bonds and VLANs stay. Forbidden: the key's user does
// not administer the machine. Invalid, with the field name: the machine has an interface of that name; parents or
// parent: a part is in use, or not fit. Conflict: the machine is not New, Ready, Allocated or Broken.
func (c *Client) CreateInterface(
	ctx context.Context, permit Permit, systemID string, spec InterfaceSpec,
) (*Interface, error) {
	form := formOf("name", spec.Name, "vlan", number(spec.VLANID), "mtu", number(spec.MTU))
	for _, id := range spec.Parents {
		if spec.Type == InterfaceBond {
			form.Add("parents", strconv.Itoa(id))
		} else {
			form.Set("parent", strconv.Itoa(id))
		}
	}
	setAll(form, spec.Params)
	return askFor[Interface](ctx, c, call{
		method: http.MethodPost, endpoint: "nodes/{id}/interfaces/", args: []string{systemID}, op: "create_" + spec.Type,
		params: form, permit: permit,
	})
}

// InterfaceUpdate is a change of an interface; nil leaves a value, 0 removes it.
type InterfaceUpdate struct {
	MTU    *int
	VLANID *int
	Params InterfaceParams
}

// UpdateInterface changes an interface (PUT nodes/{id}/interfaces/{id}/). With another VLAN it loses its links. An MTU
// is also raised in what the interface contains, and lowered in what is on it. Errors: as with CreateInterface;
// NotFound: there is no such interface.
func (c *Client) UpdateInterface(
	ctx context.Context, permit Permit, systemID string, interfaceID int, update InterfaceUpdate,
) (*Interface, error) {
	form := url.Values{}
	for key, value := range map[string]*int{"mtu": update.MTU, "vlan": update.VLANID} {
		if value != nil {
			form.Set(key, number(*value))
		}
	}
	setAll(form, update.Params)
	return askFor[Interface](ctx, c, call{
		method: http.MethodPut, endpoint: "nodes/{id}/interfaces/{id}/", args: []string{systemID, strconv.Itoa(interfaceID)},
		params: form, permit: permit,
	})
}

// DeleteInterface deletes an interface, and what contains nothing else (DELETE nodes/{id}/interfaces/{id}/). NotFound:
// there is no such interface. Conflict: the machine is not New, Ready, Allocated or Broken.
func (c *Client) DeleteInterface(ctx context.Context, permit Permit, systemID string, interfaceID int) error {
	return c.do(ctx, call{
		method: http.MethodDelete, endpoint: "nodes/{id}/interfaces/{id}/",
		args: []string{systemID, strconv.Itoa(interfaceID)}, permit: permit,
	}, nil)
}

// ListVLANs returns the VLANs of a fabric (GET fabrics/{id}/vlans/).
func (c *Client) ListVLANs(ctx context.Context, fabricID int) ([]VLAN, error) {
	return ask[[]VLAN](ctx, c, call{method: http.MethodGet, endpoint: "fabrics/{id}/vlans/",
		args: []string{strconv.Itoa(fabricID)}})
}
