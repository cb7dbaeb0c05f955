// SPDX-License-Identifier: Apache-2.0

package lxdapi

import (
	"slices"
	"testing"

	"github.com/canonical/lxd/shared/api"
)

// described is the traits of an LXD that has these API extensions.
func described(version string, extensions ...string) Traits {
	return TraitsOf(&api.Server{
		ServerUntrusted: api.ServerUntrusted{APIExtensions: append([]string{"etag"}, extensions...)},
		Environment:     api.ServerEnvironment{ServerVersion: version},
	})
}

// What an LXD takes does not depend on how it is known: by its extensions, or, from MAAS, by its version alone.
func TestWhatEachLXDTakes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		traits               Traits
		key, secure, without string
		forMAAS, isNews      bool
	}{
		{described("5.0.2"), "security.secureboot", "true", "false", true, false},
		{described("5.0.2+git20231211.1364ae4-9"), "security.secureboot", "true", "false", true, false},
		{described("5.21.7", extensionIdentities), "security.secureboot", "true", "false", true, false},
		{described("6.6", extensionProfileChanges), "security.secureboot", "true", "false", true, false},
		{described("6.7", ExtensionBootMode), "boot.mode", "uefi-secureboot", "uefi-nosecureboot", false, false},
		{described("6.9", ExtensionBootMode, extensionNetworkChanges), "boot.mode", "uefi-secureboot", "uefi-nosecureboot", false, false},
		{described("6.10.0", ExtensionBootMode), "boot.mode", "uefi-secureboot", "uefi-nosecureboot", false, true},
		{described("6.6", ExtensionBootMode), "boot.mode", "uefi-secureboot", "uefi-nosecureboot", false, false}, // built between two releases
		{OfVersion(""), "security.secureboot", "true", "false", true, false},
		{OfVersion("5.21.7"), "security.secureboot", "true", "false", true, false},
		{OfVersion("6.6"), "security.secureboot", "true", "false", true, false},
		{OfVersion("6.7"), "boot.mode", "uefi-secureboot", "uefi-nosecureboot", false, false},
		{OfVersion("6.10.0"), "boot.mode", "uefi-secureboot", "uefi-nosecureboot", false, true},
	} {
		for secure, value := range map[bool]string{true: test.secure, false: test.without} {
			config := map[string]string{}
			test.traits.SetBoot(config, secure)
			if len(config) != 1 || config[test.key] != value || BootsSecurely(config) != secure {
				t.Errorf("LXD %+v is sent %v", test.traits, config)
			}
		}
		if at := slices.IndexFunc(Uses, func(u Use) bool { return u.Matches(InstanceKey, test.key) }); at < 0 || !test.traits.Takes(&Uses[at]) {
			t.Errorf("LXD %+v takes no %s", test.traits, test.key)
		}
		if test.traits.TakesMAAS() != test.forMAAS || (test.traits.NotForMAAS() == "") != test.forMAAS {
			t.Errorf("LXD %+v takes MAAS: %v, %q", test.traits, test.traits.TakesMAAS(), test.traits.NotForMAAS())
		}
		if test.traits.IsTried() == test.isNews || (test.traits.NotTried() != "") != test.isNews {
			t.Errorf("LXD %+v is tried: %v, %q", test.traits, test.traits.IsTried(), test.traits.NotTried())
		}
	}
}

// Each thing has one row, and nothing is gone before it came.
func TestTheTableIsSound(t *testing.T) {
	t.Parallel()
	for i, use := range Uses {
		if at := slices.IndexFunc(Uses, func(u Use) bool { return u.Matches(use.Kind, use.Name) }); at != i {
			t.Errorf("%s %s is in rows %d and %d", use.Kind, use.Name, at, i)
		}
		if (use.Methods == "") != (use.Kind != Endpoint) || use.By == 0 {
			t.Errorf("%s %s has the methods %q, and is sent by %q", use.Kind, use.Name, use.Methods, use.By)
		}
		for _, release := range []Release{use.Since, use.Gone} {
			if release != (Release{}) && (release.Extension == "" || compareVersions(release.Version, Oldest) <= 0 || compareVersions(release.Version, Newest) > 0) {
				t.Errorf("%s %s changed in %+v", use.Kind, use.Name, release)
			}
		}
	}
}
