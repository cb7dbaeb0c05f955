// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

func TestLacks(t *testing.T) {
	images := []maas.Image{
		{Name: "ubuntu/jammy", Architecture: "amd64/ga-22.04", Subarches: "generic,hwe-22.04,ga-22.04"},
		{Name: "ubuntu/jammy", Architecture: "amd64/hwe-22.04", Subarches: "generic,hwe-22.04,ga-22.04"},
		{Name: "ubuntu/jammy", Architecture: "arm64/ga-22.04", Subarches: "generic,hwe-22.04,ga-22.04"},
		{Name: "u-2404-k8s", Architecture: "amd64/generic", Subarches: "generic"},
		{Name: "centos/centos70", Architecture: "amd64/generic", Subarches: "generic"},
	}
	for name, tc := range map[string]struct {
		image, architecture string
		missing             bool
		others              []string
	}{
		"with its system":               {"ubuntu/jammy", "", false, nil},
		"by its series":                 {"jammy", "", false, nil},
		"by its version":                {"ubuntu/22.04", "", false, nil},
		"by the bare version":           {"22.04", "", false, nil},
		"uploaded":                      {"u-2404-k8s", "", false, nil},
		"uploaded, with its type":       {"custom/u-2404-k8s", "", false, nil},
		"another system":                {"centos/centos70", "amd64", false, nil},
		"for the architecture":          {"ubuntu/jammy", "arm64", false, nil},
		"not for the architecture":      {"u-2404-k8s", "arm64", true, []string{"amd64"}},
		"for two others":                {"jammy", "ppc64el", true, []string{"amd64", "arm64"}},
		"another series":                {"ubuntu/noble", "", true, nil},
		"a part of a name":              {"u-2404", "", true, nil},
		"a kernel":                      {"generic", "", true, nil},
		"another version":               {"24.04", "", true, nil},
		"not there for an architecture": {"noble", "arm64", true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := Lacks(images, tc.image, tc.architecture)
			if (got != nil) != tc.missing {
				t.Fatalf("missing: %v, want %t", got, tc.missing)
			}
			if got != nil && !slices.Equal(got.Others, tc.others) {
				t.Errorf("it is there for %v, want %v", got.Others, tc.others)
			}
		})
	}
}
