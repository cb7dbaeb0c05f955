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
		{Name: "custom/kept", Type: maas.ImageUploaded, Architecture: "amd64/generic", Subarches: "generic"},
		{Name: "custom/both", Type: maas.ImageUploaded, Architecture: "amd64/generic", Subarches: "generic"},
		{Name: "both", Type: maas.ImageUploaded, Architecture: "arm64/generic", Subarches: "generic"},
		{Name: "centos/centos70", Architecture: "amd64/generic", Subarches: "generic"},
	}
	for name, tc := range map[string]struct {
		image, architecture string
		missing             bool
		others              []string
		misnamed            bool
	}{
		"with its system":               {"ubuntu/jammy", "", false, nil, false},
		"by its series":                 {"jammy", "", false, nil, false},
		"by its version":                {"ubuntu/22.04", "", false, nil, false},
		"by the bare version":           {"22.04", "", false, nil, false},
		"uploaded":                      {"u-2404-k8s", "", false, nil, false},
		"uploaded, with its type":       {"custom/u-2404-k8s", "", false, nil, false},
		"another system":                {"centos/centos70", "amd64", false, nil, false},
		"for the architecture":          {"ubuntu/jammy", "arm64", false, nil, false},
		"not for the architecture":      {"u-2404-k8s", "arm64", true, []string{"amd64"}, false},
		"for two others":                {"jammy", "ppc64el", true, []string{"amd64", "arm64"}, false},
		"another series":                {"ubuntu/noble", "", true, nil, false},
		"a part of a name":              {"u-2404", "", true, nil, false},
		"a kernel":                      {"generic", "", true, nil, false},
		"another version":               {"24.04", "", true, nil, false},
		"not there for an architecture": {"noble", "arm64", true, nil, false},
		"misnamed":                      {"custom/kept", "", true, nil, true},
		"misnamed, by its bare name":    {"kept", "amd64", true, nil, true},
		"misnamed, and not":             {"custom/both", "", false, nil, false},
		"misnamed for the architecture": {"custom/both", "amd64", true, []string{"arm64"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := Lacks(images, tc.image, tc.architecture)
			if (got != nil) != tc.missing {
				t.Fatalf("missing: %v, want %t", got, tc.missing)
			}
			if got != nil && (!slices.Equal(got.Others, tc.others) || got.Misnamed != tc.misnamed) {
				t.Errorf("it is there for %v, misnamed: %t; want %v, %t", got.Others, got.Misnamed, tc.others, tc.misnamed)
			}
		})
	}
}
