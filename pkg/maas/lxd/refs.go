// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"slices"
	"strconv"
	"strings"
)

// directPrefix distinguishes the references to LXDHosts from those to VM hosts.
const directPrefix = "lxdhost:"

// DirectRef returns the reference to an LXDHost whose VMs are made through LXD's own API, in the form of
// Composer.HostRef.
func DirectRef(namespace, name string) string { return directPrefix + namespace + "/" + name }

func isDirectRef(ref string) bool { return strings.HasPrefix(ref, directPrefix) }

// nameIn returns namespace/name of the LXDHost in a reference.
func nameIn(ref string) string { return strings.TrimPrefix(ref, directPrefix) }

func parseHostRef(ref string) (id int, name string) {
	digits, name, _ := strings.Cut(ref, "/")
	id, _ = strconv.Atoi(digits) // 0: found by its name.
	return id, name
}

// RefersTo reports whether a reference, in the form of Composer.HostRef, is to the host of an LXDHost, which is, or
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

// SoleLXDHost returns the LXDHost of the only host that may have a VM; false if there is none, or if it is a VM host.
func SoleLXDHost(recorded []string) (namespace, name string, is bool) {
	rest, is := strings.CutPrefix(soleDirect(recorded), directPrefix)
	namespace, name, _ = strings.Cut(rest, "/")
	return namespace, name, is
}

// vmHostRefs returns the recorded VM hosts.
func vmHostRefs(recorded []string) []string {
	return slices.DeleteFunc(slices.Clone(recorded), isDirectRef)
}

// soleDirect returns the only recorded host, if its VMs are made through LXD's own API. "": there is none, or another
// one, too, and the VM may be there.
func soleDirect(recorded []string) string {
	if len(recorded) != 1 || !isDirectRef(recorded[0]) {
		return ""
	}
	return recorded[0]
}

// IsAt reports whether a VM that was found is on the host of a reference, whatever that is called now.
func (vm *VM) IsAt(ref string) bool {
	id, name := parseHostRef(ref)
	return isDirectRef(ref) || vm.HostRef == ref || vm.Host == name || vm.HostID == id
}
