// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"slices"
	"testing"

	capmaas "github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

func TestVersionNeedsNoCredentials(t *testing.T) {
	eachThat(t, anyVersion, func(t *testing.T, m *maas) {
		got := m.do(t, request{method: http.MethodGet, path: "version/", anonymous: true}).object(t)
		checkShape(t, "version", got, shapes["version"])
		if _, err := capmaas.ParseVersion(got.str("version")); err != nil {
			t.Error(err)
		}
	})
}

func TestVersionListsTheCapabilities(t *testing.T) {
	eachThat(t, anyVersion, func(t *testing.T, m *maas) {
		want := []string{
			"networks-management", "static-ipaddresses", "ipv6-deployment-ubuntu", "devices-management",
			"storage-deployment-ubuntu", "network-deployment-ubuntu", "bridging-interface-ubuntu",
			"bridging-automatic-ubuntu", "authenticate-api",
		}
		got := m.get(t, "version/").object(t).strings("capabilities")
		for _, capability := range want {
			if !slices.Contains(got, capability) {
				t.Errorf("capabilities %v, want %q among them", got, capability)
			}
		}
	})
}

func TestVersionIsTheSameWithCredentials(t *testing.T) {
	eachThat(t, anyVersion, func(t *testing.T, m *maas) {
		without := m.do(t, request{method: http.MethodGet, path: "version/", anonymous: true}).object(t).str("version")
		if got := m.get(t, "version/").object(t).str("version"); got != without {
			t.Errorf("version %q with credentials, %q without", got, without)
		}
	})
}

func TestWhoAmI(t *testing.T) {
	eachThat(t, anyVersion, func(t *testing.T, m *maas) {
		got := m.get(t, "users/", "op", "whoami").object(t)
		checkShape(t, "user", got, shapes["user"])
		if !got.flag("is_superuser") {
			t.Errorf("%s is no administrator; the suite needs the key of one", got.str("username"))
		}
		if want := "/MAAS/api/2.0/users/" + got.str("username") + "/"; got.str("resource_uri") != want {
			t.Errorf("resource_uri %q, want %q", got.str("resource_uri"), want)
		}
	})
}

func TestPlainUserIsNoSuperuser(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		if m.asPlainUser(t).get(t, "users/", "op", "whoami").object(t).flag("is_superuser") {
			t.Error("the key of the plain user is an administrator's")
		}
	})
}

func TestUsersListTheCaller(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		users := m.get(t, "users/").list(t)
		if !has(users, "username", m.me(t)) {
			t.Errorf("users %v, want %s among them", users, m.me(t))
		}
	})
}
