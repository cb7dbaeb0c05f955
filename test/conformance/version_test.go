// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"testing"

	capmaas "github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

func TestVersionNeedsNoCredentials(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		got := m.do(t, request{method: http.MethodGet, path: "version/", anonymous: true}).object(t)
		checkShape(t, "version", got, shapes["version"])
		if _, err := capmaas.ParseVersion(got.str("version")); err != nil {
			t.Error(err)
		}
	})
}

func TestWhoAmI(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
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
