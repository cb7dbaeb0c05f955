// SPDX-License-Identifier: Apache-2.0

package lxdapi

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/canonical/lxd/shared/api"
)

// API extensions of LXD that decide what is sent.
const (
	// ExtensionBootMode replaced security.secureboot and security.csm by boot.mode, and came with the release that no
	// longer has the endpoint virtual-machines.
	ExtensionBootMode = "instance_boot_mode"
)

// Keys of a VM's configuration that decide how it boots. An LXD has one of them, and renames it in the VMs that it has
// when it is upgraded.
const (
	keySecureBoot = "security.secureboot"
	keyBootMode   = "boot.mode"
)

// Newest is the newest LXD whose differences from the others are known.
const Newest = "6.9"

// Traits are what an LXD does as others do not. They are as new as the server that they were read from: an LXD that
// comes as a snap is upgraded by itself, under running VMs.
type Traits struct {
	// Version is LXD's.
	Version    string
	extensions []string
}

// TraitsOf returns those of a server, as it described itself: GET /1.0.
func TraitsOf(server *api.Server) Traits {
	return Traits{Version: server.Environment.ServerVersion, extensions: server.APIExtensions}
}

// Has reports whether LXD has an API extension.
func (t Traits) Has(extension string) bool { return slices.Contains(t.extensions, extension) }

// IsTried reports whether the differences of this LXD are known: it is not newer than Newest.
func (t Traits) IsTried() bool { return compareVersions(t.Version, Newest) <= 0 }

// SetInsecureBoot has a VM boot with UEFI and without secure boot.
func (t Traits) SetInsecureBoot(config map[string]string) {
	if t.Has(ExtensionBootMode) {
		config[keyBootMode] = "uefi-nosecureboot"
		return
	}
	config[keySecureBoot] = "false"
}

// IsBootKey reports whether a key of a VM's configuration decides how it boots: the same VM has one before LXD is
// upgraded, and the other one after that.
func IsBootKey(key string) bool { return key == keySecureBoot || key == keyBootMode }

// TakesMAAS reports whether MAAS can make VMs on this LXD. The driver of MAAS, up to 3.8, asks for
// /1.0/virtual-machines and sends security.secureboot; LXD 6.7 and newer have neither.
func (t Traits) TakesMAAS() bool { return !t.Has(ExtensionBootMode) }

// compareVersions compares versions such as 5.21.7 by their numbers; what is no number counts as 0.
func compareVersions(a, b string) int {
	numbers := func(version string) []int {
		var all []int
		for _, part := range strings.Split(version, ".") {
			n, _ := strconv.Atoi(part)
			all = append(all, n)
		}
		return all
	}
	x, y := numbers(a), numbers(b)
	for i := range max(len(x), len(y)) {
		at := func(all []int) int {
			if i < len(all) {
				return all[i]
			}
			return 0
		}
		if order := cmp.Compare(at(x), at(y)); order != 0 {
			return order
		}
	}
	return 0
}

// hostname is one label of DNS.
var hostname = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?$`)

// IsInstanceName reports whether LXD takes the name for an instance: one label of DNS, and no number. LXD 5.0 refuses
// others with 400, 5.21 and newer with 500.
func IsInstanceName(name string) bool {
	_, err := strconv.ParseUint(name, 10, 64)
	return err != nil && hostname.MatchString(name)
}
