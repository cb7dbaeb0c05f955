// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// facts are the expectations that differ from version to version, all of them.
type facts struct {
	version string
	// vmHosts: there are VM hosts. From 3.8 on, vm-hosts/ and pods/ are gone.
	vmHosts bool
	// machineKeys are the keys of a machine that the versions before did not have.
	machineKeys map[string]string
	// allMachineKeysKnown: the version's machine object was read in MAAS's source, further keys are a surprise.
	allMachineKeysKnown bool
	// lastDeployed: boot resources have the time of their last deployment.
	lastDeployed bool
	// imagesOnDisk: images are files of each region controller, not large objects of the database.
	imagesOnDisk bool
	// imageNamesAsSent: uploaded images keep the part custom/ of their names.
	imageNamesAsSent bool
	// deploymentTarget: machines/ can be filtered by deployment_target.
	deploymentTarget bool
	// missingOAuthParameter are the statuses of a request whose OAuth header lacks a parameter.
	missingOAuthParameter []int
	// dnsDeleteFreesAddresses: deleting a DNS resource frees the addresses that were reserved only for it.
	dnsDeleteFreesAddresses bool
	// brokenKeepsOwner: a machine that is marked broken while it commissions stays its owner's.
	brokenKeepsOwner bool
	// entitlements: users are in groups, which have entitlements; a refusal names the missing one. Before, a user is an
	// administrator or not.
	entitlements bool
	// tagsOfRacks: rack controllers may change which machines have a tag, so everybody learns whether there is such a tag.
	tagsOfRacks bool
}

// factsOf returns what to expect of a version such as "3.6.5".
func factsOf(version string) (facts, error) {
	number, err := parseVersion(version)
	if err != nil {
		return facts{}, err
	}
	from := func(major, minor, patch int) bool {
		return compareVersions(number, [3]int{major, minor, patch}) >= 0
	}
	f := facts{
		version:                 version,
		vmHosts:                 !from(3, 8, 0),
		allMachineKeysKnown:     !from(3, 8, 0),
		machineKeys:             map[string]string{},
		lastDeployed:            from(3, 4, 0),
		imagesOnDisk:            from(3, 5, 0),
		imageNamesAsSent:        from(3, 8, 0),
		deploymentTarget:        from(3, 5, 0),
		missingOAuthParameter:   []int{http.StatusUnauthorized},
		dnsDeleteFreesAddresses: from(3, 6, 1),
		brokenKeepsOwner:        from(3, 5, 0),
		entitlements:            from(3, 8, 0),
		tagsOfRacks:             !from(3, 5, 0),
	}
	if from(3, 5, 0) {
		f.machineKeys["error_description"] = "s"
		f.missingOAuthParameter = []int{http.StatusUnauthorized, http.StatusBadRequest}
	}
	if from(3, 6, 0) {
		f.machineKeys["enable_kernel_crash_dump"] = "b"
	}
	if from(3, 7, 0) {
		f.machineKeys["is_dpu"] = "b"
	}
	return f, nil
}

// parseVersion reads "3.6.5", "3.6" or "3.8.0~alpha1-…".
func parseVersion(text string) ([3]int, error) {
	var number [3]int
	parts := strings.SplitN(text, ".", 3)
	if len(parts) < 2 {
		return number, fmt.Errorf("MAAS version %q has no minor version", text)
	}
	for i, part := range parts {
		digits := part[:len(part)-len(strings.TrimLeft(part, "0123456789"))]
		value, err := strconv.Atoi(digits)
		if err != nil {
			return number, fmt.Errorf("MAAS version %q: %w", text, err)
		}
		number[i] = value
	}
	return number, nil
}

func compareVersions(a, b [3]int) int {
	for i := range a {
		if a[i] != b[i] {
			return a[i] - b[i]
		}
	}
	return 0
}

// probe reads the region's version, which needs no key, and returns what to expect of it.
func (m *maas) probe(ctx context.Context) (facts, error) {
	got, err := m.send(ctx, request{method: http.MethodGet, path: "version/", anonymous: true})
	if err != nil {
		return facts{}, fmt.Errorf("reading the version of %s: %w", m.url, err)
	}
	var version struct{ Version string }
	if err := json.Unmarshal(got.body, &version); err != nil {
		return facts{}, fmt.Errorf("reading the version of %s: status %d, %q: %w", m.url, got.status, got.body, err)
	}
	return factsOf(version.Version)
}
