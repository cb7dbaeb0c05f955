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

// emulated is the type of a device that is not the host's: LXD emulates a TPM for each VM.
const emulated = "tpm"

// refusedDevice returns the first of a VM's devices that the host does not give to its namespace; "" if it gives all.
func (o *HostObject) refusedDevice(spec *VMSpec) string {
	if spec.Namespace == o.Namespace {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Hardware)) {
		device := spec.Hardware[name]
		isGiven := func(a AllowedDevice) bool { return a.covers(device) }
		if device["type"] != emulated && !slices.ContainsFunc(o.AllowedDevices, isGiven) {
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

// bootsSecurely refuses hosts on which a VM can't have the secure boot that it is to have.
func bootsSecurely(h *Host, s *VMSpec) reason {
	if !s.SecureBoot {
		return fits
	}
	if !h.IsDirect() {
		return reason{noSecureBoot, ""}
	}
	// These have no UEFI: LXD would start it without.
	if processor, _, _ := strings.Cut(h.Architecture, "/"); processor == "ppc64el" || processor == "s390x" {
		return reason{"of an architecture that LXD has no secure boot for: ", processor}
	}
	return when(slices.Contains(h.Unsigned, s.Image), unsignedImage, s.Image)
}

// mayStill returns a *NotAllowedError unless a VM may be made on a host that it was chosen for, as that is now.
func mayStill(h *Host, s *VMSpec) error {
	if h.Object != nil && h.Object.Unschedulable {
		return &NotAllowedError{"it takes no new VMs by now: its LXDHost is unschedulable, or is being deleted"}
	}
	if h.Object != nil && !h.Object.Allows(s.Namespace) {
		return &NotAllowedError{"it is not for namespace " + s.Namespace + ": see spec.allowedNamespaces of the LXDHost"}
	}
	for _, check := range []func(*Host, *VMSpec) reason{isRetiring, givesDevices, bootsSecurely} {
		if why := check(h, s); why != fits {
			return &NotAllowedError{"it is one of those " + why.String()}
		}
	}
	return nil
}
