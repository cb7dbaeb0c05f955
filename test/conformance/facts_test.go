// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	capmaas "github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// facts are the expectations that differ from version to version, all of them.
type facts struct {
	version capmaas.Version
	// vmHosts: there are VM hosts. Without them vm-hosts/ and pods/ are gone.
	vmHosts bool
	// machineKeys are the keys of a machine that not all versions have.
	machineKeys map[string]string
	// lastDeployed: boot resources have the time of their last deployment.
	lastDeployed bool
	// imagesOnDisk: images are files of each region controller, not large objects of the database.
	imagesOnDisk bool
	// imageNamesAsSent: uploaded images keep the part custom/ of their names.
	imageNamesAsSent bool
	// dnsDeleteFreesAddresses: deleting a DNS resource frees the addresses that were reserved only for it.
	dnsDeleteFreesAddresses bool
	// entitlements: users are in groups, which have entitlements; a refusal names the missing one. Before, a user is an
	// administrator or not.
	entitlements bool
	// severalPorts: a bridge may contain several interfaces.
	severalPorts bool
	// efiRequired: a machine that boots with UEFI is not deployed without a filesystem at /boot/efi.
	efiRequired bool
	// unconfiguredGateways: the gateway of a subnet counts as a machine's, even if it has no address there.
	unconfiguredGateways bool
	// reservedIPs: an address can be reserved for an interface, by its MAC address.
	reservedIPs bool
	// tagsOfRacks: rack controllers may change which machines have a tag, so everybody learns whether there is such a tag.
	tagsOfRacks bool
}

// factsOf returns what to expect of a version, with or without VM hosts.
func factsOf(version capmaas.Version, vmHosts bool) facts {
	from := version.AtLeast
	f := facts{
		version:                 version,
		vmHosts:                 vmHosts,
		machineKeys:             map[string]string{},
		lastDeployed:            from(3, 4, 0),
		imagesOnDisk:            from(3, 5, 0),
		imageNamesAsSent:        from(3, 8, 0),
		dnsDeleteFreesAddresses: from(3, 6, 1),
		entitlements:            from(3, 8, 0),
		tagsOfRacks:             !from(3, 5, 0),
		severalPorts:            from(3, 8, 0),
		reservedIPs:             from(3, 6, 0),
		efiRequired:             from(3, 8, 0),
		unconfiguredGateways:    vmHosts,
	}
	if from(3, 5, 0) {
		f.machineKeys["error_description"] = "s"
	}
	if vmHosts {
		f.machineKeys["pod"], f.machineKeys["virtualmachine_id"] = "o?", "i?"
	}
	if from(3, 6, 0) {
		f.machineKeys["enable_kernel_crash_dump"] = "b"
	}
	if from(3, 7, 0) {
		f.machineKeys["is_dpu"] = "b"
	}
	return f
}

// probe reads the region's version, and whether it has VM hosts, and returns what to expect of it. The development version
// of MAAS had no VM hosts before its version said so.
func (m *maas) probe(ctx context.Context) (facts, error) {
	got, err := m.send(ctx, request{method: http.MethodGet, path: "version/", anonymous: true})
	if err != nil {
		return facts{}, fmt.Errorf("reading the version of %s: %w", m.url, err)
	}
	var version struct{ Version capmaas.Version }
	if err := json.Unmarshal(got.body, &version); err != nil {
		return facts{}, fmt.Errorf("reading the version of %s: status %d, %q: %w", m.url, got.status, got.body, err)
	}
	hosts, err := m.send(ctx, request{method: http.MethodGet, path: "vm-hosts/"})
	if err != nil {
		return facts{}, fmt.Errorf("looking for the VM hosts of %s: %w", m.url, err)
	}
	return factsOf(version.Version, hosts.status != http.StatusGone), nil
}
