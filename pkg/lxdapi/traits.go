// SPDX-License-Identifier: Apache-2.0

package lxdapi

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/canonical/lxd/shared/api"
)

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

// OfVersion returns those of a server of which only the version is known, as MAAS returns it of a VM host. "" is
// unknown: nothing is held against it.
func OfVersion(version string) Traits { return Traits{Version: version} }

// Has reports whether LXD has an API extension.
func (t Traits) Has(extension string) bool { return slices.Contains(t.extensions, extension) }

// IsTried reports whether the differences of this LXD are known: it is not newer than Newest.
func (t Traits) IsTried() bool { return compareVersions(t.Version, Newest) <= 0 }

// Takes reports whether LXD takes what is sent to it.
func (t Traits) Takes(u *Use) bool {
	return (u.Since == Release{} || t.reaches(u.Since)) && (u.Gone == Release{} || !t.reaches(u.Gone))
}

// reaches reports whether LXD is so new: by the extension, if LXD was asked.
func (t Traits) reaches(r Release) bool {
	if t.extensions == nil || r.Extension == "" {
		return compareVersions(t.Version, r.Version) >= 0
	}
	return t.Has(r.Extension)
}

// Values of boot.mode.
const (
	bootSecure   = "uefi-secureboot"
	bootInsecure = "uefi-nosecureboot"
)

// SetBoot has a VM boot with UEFI, with or without secure boot, whatever LXD's default and the VM's profiles say.
func (t Traits) SetBoot(config map[string]string, secure bool) {
	switch {
	case !t.Takes(&bootMode):
		config[secureBoot.Name] = strconv.FormatBool(secure)
	case secure:
		config[bootMode.Name] = bootSecure
	default:
		config[bootMode.Name] = bootInsecure
	}
}

// BootsSecurely reports whether a VM that SetBoot was called for has secure boot: by either key, as LXD renames the
// older one when it is upgraded.
func BootsSecurely(config map[string]string) bool {
	return config[secureBoot.Name] == "true" || config[bootMode.Name] == bootSecure
}

// TakesMAAS reports whether MAAS can make VMs on this LXD. The driver of MAAS, up to 3.8, asks for
// /1.0/virtual-machines, and sends security.secureboot; LXD 6.7 and newer have neither.
func (t Traits) TakesMAAS() bool {
	return !slices.ContainsFunc(Uses, func(u Use) bool { return u.By&MAAS != 0 && !t.Takes(&u) })
}

const (
	notForMAAS = "MAAS, up to 3.8, can't use LXD %s: LXD 6.7 and newer lack the endpoint virtual-machines and the key " +
		"security.secureboot, which MAAS's driver needs"
	// NotForMAASRemedy is what helps then.
	NotForMAASRemedy = "use LXD 6.6 or older, such as 5.21 (LXD can't go back: install it anew), or make the VMs " +
		"through LXD itself, by an LXDHost with spec.address"
)

// NotForMAAS says why MAAS can't make VMs on this LXD; "" if it can.
func (t Traits) NotForMAAS() string {
	if t.TakesMAAS() {
		return ""
	}
	return fmt.Sprintf(notForMAAS, t.Version)
}

// NotTried says that this LXD is newer than all that were tried; "" if it is not.
func (t Traits) NotTried() string {
	if t.IsTried() {
		return ""
	}
	return fmt.Sprintf("LXD %s is newer than %s, the newest that was tried with this version of the provider", t.Version,
		Newest)
}

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
