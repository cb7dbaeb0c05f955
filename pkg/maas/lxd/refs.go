// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
)

// directPrefix distinguishes the references to LXDHosts from those to VM hosts.
const directPrefix = "lxdhost:"

// HostRef returns the reference to a host that is recorded, for VM.HostRef: one line without commas. It is kept as long
// as the host may have the VM. That to a VM host has its id and name: one that was registered again has the same name
// and another id, one that was renamed keeps its id. ID 0 is unknown.
func HostRef(host Host) string {
	if host.IsDirect() {
		return DirectRef(host.Object.Namespace, host.Object.Name)
	}
	return strconv.Itoa(host.ID) + "/" + host.Name
}

// DirectRef is HostRef of an LXDHost whose VMs are made through LXD's own API.
func DirectRef(namespace, name string) string { return directPrefix + namespace + "/" + name }

func isDirectRef(ref string) bool { return strings.HasPrefix(ref, directPrefix) }

// nameIn returns namespace/name of the LXDHost in a reference.
func nameIn(ref string) string { return strings.TrimPrefix(ref, directPrefix) }

func parseHostRef(ref string) (id int, name string) {
	digits, name, _ := strings.Cut(ref, "/")
	id, _ = strconv.Atoi(digits) // 0: found by its name.
	return id, name
}

// RefersTo reports whether a reference, in the form of HostRef, is to the host of an LXDHost, which is, or
// was, the VM host with an id; 0 if it never was one. byID: only if the reference and the id are of the same MAAS, each
// of which numbers its own VM hosts.
func RefersTo(ref, namespace, name string, vmHostID int) (is, byID bool) {
	if isDirectRef(ref) {
		return ref == DirectRef(namespace, name), false
	}
	id, _ := parseHostRef(ref)
	byID = vmHostID != 0 && id == vmHostID
	return byID, byID
}

// IsAt reports whether a reference, in the form of HostRef and recorded in this MAAS, is to the host.
func (h *Host) IsAt(ref string) bool {
	var object HostObject
	if h.Object != nil {
		object = *h.Object
	}
	is, _ := RefersTo(ref, object.Namespace, object.Name, cmp.Or(h.ID, object.VMHostID))
	return is
}

// HostOf returns the one of the hosts that a reference is to, which is recorded in this MAAS; by its name only without
// a reference: another host may have that by now. nil: it is none of them.
func HostOf(hosts []Host, ref, name string) *Host {
	return list.Find(hosts, func(h Host) bool { return h.IsAt(ref) || (ref == "" && h.Name == name) })
}

// SoleLXDHost returns the LXDHost of the only host that may have a VM; false if there is none, or if it is a VM host.
func SoleLXDHost(recorded []string) (namespace, name string, is bool) {
	if len(recorded) != 1 || !isDirectRef(recorded[0]) {
		return "", "", false
	}
	namespace, name, is = strings.Cut(nameIn(recorded[0]), "/")
	return namespace, name, is
}

// vmHostRefs returns the recorded VM hosts.
func vmHostRefs(recorded []string) []string {
	return slices.DeleteFunc(slices.Clone(recorded), isDirectRef)
}

// IsAt reports whether a VM that was found is on the host of a reference, whatever that is called now.
func (vm *VM) IsAt(ref string) bool {
	id, name := parseHostRef(ref)
	return isDirectRef(ref) || vm.HostRef == ref || vm.Host == name || vm.HostID == id
}

// IsNamed reports whether a reference is to a VM host that had this name when it was recorded.
func IsNamed(ref, name string) bool {
	_, is := parseHostRef(ref)
	return name != "" && is == name && !isDirectRef(ref)
}
