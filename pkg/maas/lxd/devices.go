// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// AllowedDevice are devices of a host that VMs of other namespaces may have: those of LXD's type that have all
// properties.
type AllowedDevice struct {
	Type       string
	Properties map[string]string
}

// covers reports whether a device, in LXD's form, is one of them.
func (a AllowedDevice) covers(device map[string]string) bool {
	if device["type"] != a.Type {
		return false
	}
	for key, value := range a.Properties {
		if has, named := device[key]; !named || !strings.EqualFold(has, value) {
			return false
		}
	}
	return true
}

// refusedDevice returns the first of a VM's devices that the host does not give to its namespace; "" if it gives all.
func (o *HostObject) refusedDevice(spec *VMSpec) string {
	if spec.Namespace == o.Namespace {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Hardware)) {
		device := spec.Hardware[name]
		if !slices.ContainsFunc(o.AllowedDevices, func(a AllowedDevice) bool { return a.covers(device) }) {
			return fmt.Sprintf("%s (%s)", name, device["type"])
		}
	}
	return ""
}

// givesDevices refuses devices that the host does not give.
func givesDevices(h *Host, s *VMSpec) reason {
	if len(s.Hardware) == 0 {
		return fits
	}
	if !h.IsDirect() {
		return reason{"VM hosts of MAAS, which give VMs no devices", ""}
	}
	refused := h.Object.refusedDevice(s)
	return when(refused != "", "that do not give namespace "+s.Namespace+" the device ",
		refused+"; add it to spec.allowedDevices of the LXDHost")
}

// mayStill returns a *NotAllowedError unless a VM may be made on a host that it was chosen for, as that is now.
func mayStill(h *Host, s *VMSpec) error {
	if h.Object != nil && h.Object.Unschedulable {
		return &NotAllowedError{"it takes no new VMs by now: its LXDHost is unschedulable, or is being deleted"}
	}
	if h.Object != nil && !h.Object.Allows(s.Namespace) {
		return &NotAllowedError{"it is not for namespace " + s.Namespace + ": see spec.allowedNamespaces of the LXDHost"}
	}
	for _, check := range []func(*Host, *VMSpec) reason{isRetiring, givesDevices} {
		if why := check(h, s); why != fits {
			return &NotAllowedError{"it is one of those " + why.String()}
		}
	}
	return nil
}
