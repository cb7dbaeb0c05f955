// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"fmt"
	"io"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// Variables of the specs and of the flavors. docs/conformance-capi.md describes them.
const (
	imageVariable           = "MAAS_IMAGE"
	imageByVersionVariable  = "MAAS_IMAGE_BY_VERSION"
	imageUpgradeToVariable  = "MAAS_IMAGE_UPGRADE_TO"
	zoneVariable            = "MAAS_ZONE"
	controlPlaneUpgradeTo   = "control-plane-upgrade-to"
	workersUpgradeTo        = "workers-upgrade-to"
	sandboxVersion          = "v1.35.0"
	sandboxVersionUpgradeTo = "v1.36.0"
	sandboxImage            = "u-2404-k8s-"
	sandboxPool             = "capi"
	// The scale spec takes ten, and five more while it upgrades five clusters at once; the region has eight.
	sandboxMoreMachines = 8
)

// sandboxVariables are those of the sandbox's MAAS.
func sandboxVariables() map[string]string {
	return map[string]string{
		"KUBERNETES_VERSION":                 sandboxVersion,
		"KUBERNETES_VERSION_UPGRADE_FROM":    sandboxVersion,
		"KUBERNETES_VERSION_UPGRADE_TO":      sandboxVersionUpgradeTo,
		"MAAS_DNS_DOMAIN":                    "maas.sim",
		imageVariable:                        sandboxImage + sandboxVersion,
		imageUpgradeToVariable:               sandboxImage + sandboxVersionUpgradeTo,
		imageByVersionVariable:               sandboxImage + "{version}",
		zoneVariable:                         "zone-b",
		"CONTROL_PLANE_MACHINE_RESOURCEPOOL": sandboxPool,
		"WORKER_MACHINE_RESOURCEPOOL":        sandboxPool,
	}
}

// sandboxRegion is the sandbox's region with an image for each version, and enough machines for the scale spec.
func sandboxRegion() (io.Reader, error) {
	names := make([]string, sandboxMoreMachines)
	for i := range names {
		names[i] = fmt.Sprintf("metal-d%d", i+1)
	}
	machines := map[string]any{
		"names": names, "zone": "zone-c", "pool": sandboxPool, "cores": 8, "memory": 16384, "disks": []int{100}, "tags": []string{"bare-metal"},
	}
	return sandbox.RegionWithMore([]string{sandboxImage + sandboxVersion, sandboxImage + sandboxVersionUpgradeTo}, machines)
}

// intervals have the names of Cluster API's suite. long is for what takes a machine, short for what doesn't, poll for
// how often to look.
func intervals(long, short, poll string) map[string][]string {
	all := map[string][]string{}
	for _, name := range []string{
		"wait-control-plane", "wait-worker-nodes", "wait-machine-upgrade", "wait-control-plane-upgrade", "wait-machine-deployment-upgrade",
		"wait-machine-remediation", "wait-machines", "wait-machine-provisioned", "wait-machine-deleted", "wait-delete-cluster", "wait-nodes-ready",
	} {
		all["default/"+name] = []string{long, poll}
	}
	for _, name := range []string{"wait-cluster", "wait-controllers", "wait-deployment-available"} {
		all["default/"+name] = []string{short, poll}
	}
	return all
}

// sandboxIntervals allow for a computer that does other things, too.
func sandboxIntervals() map[string][]string {
	all := intervals("12m", "4m", "1s")
	all["default/check-machines-stable"] = []string{"5s", "1s"}
	all["default/wait-resource-versions-become-stable"] = []string{"5m", "3s"}
	all["default/wait-resource-versions-remain-stable"] = []string{"30s", "2s"}
	return all
}

// realIntervals allow for servers that take most of an hour to be commissioned and deployed, one after the other.
func realIntervals() map[string][]string {
	all := intervals("3h", "20m", "10s")
	all["default/check-machines-stable"] = []string{"1m", "10s"}
	all["default/wait-resource-versions-become-stable"] = []string{"20m", "15s"}
	all["default/wait-resource-versions-remain-stable"] = []string{"2m", "5s"}
	return all
}
