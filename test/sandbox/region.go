// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
)

// RegionWithoutVMHosts describes the default region with its bare metal alone, for Options.Region: what VM hosts there
// are then were registered by host clusters.
func RegionWithoutVMHosts() (io.Reader, error) { return changedRegion(removeVMHosts) }

// RegionForRealLXDs is RegionWithoutVMHosts for LXDs that a test registers as VM hosts itself: with another duration of
// commissioning, which Options.TimeScale divides, for a VM in a real LXD starts no sooner because MAAS's time passes
// faster; and without polls of the power, each of which asks an LXD.
func RegionForRealLXDs(commissioning time.Duration) (io.Reader, error) {
	return changedRegion(func(region map[string]any) {
		removeVMHosts(region)
		region["timings"] = map[string]any{"commission": commissioning.String(), "power_poll": never.String()}
	})
}

// RegionWithMore describes the default region with further uploaded images and machines, for Options.Region.
func RegionWithMore(images []string, machines ...map[string]any) (io.Reader, error) {
	return changedRegion(func(region map[string]any) {
		for _, name := range images {
			addTo(region, "images", map[string]any{"name": name, "uploaded": true})
		}
		for _, machine := range machines {
			addTo(region, "machines", machine)
		}
	})
}

// never is longer than any test, also in MAAS's time.
const never = 1000 * time.Hour

func removeVMHosts(region map[string]any) {
	delete(region, "vm_hosts")
	// MAAS makes this tag with the first VM host, and keeps it.
	addTo(region, "tags", map[string]any{"name": "pod-console-logging"})
}

// RegionWithAdministrators describes the default region with further administrators, for Options.Region: they
// distinguish the calls of several managers.
func RegionWithAdministrators(names ...string) (io.Reader, error) {
	return changedRegion(func(region map[string]any) { addAdministrators(region, names) })
}

// OwnPool is the resource pool of the machines and VM hosts that RegionForCrashes adds.
const OwnPool = "own"

// OwnTag is the tag of the machine and the VM hosts that an administrator has there.
func OwnTag(administrator string) string { return "of-" + administrator }

// RegionForCrashes is RegionWithAdministrators with a bare-metal machine and two VM hosts in OwnPool for each
// administrator.
func RegionForCrashes(names ...string) (io.Reader, error) {
	return changedRegion(func(region map[string]any) {
		addAdministrators(region, names)
		addTo(region, "pools", map[string]any{"name": OwnPool})
		for _, name := range append([]string{"admin"}, names...) {
			addTo(region, "machines", map[string]any{
				"names": []any{"own-" + name}, "zone": "zone-a", "pool": OwnPool, "tags": []any{OwnTag(name)}, "cores": 4, "memory": 8192, "disks": []any{100},
			})
			for _, host := range []string{"own-lxd-1-" + name, "own-lxd-2-" + name} {
				addTo(region, "vm_hosts", map[string]any{
					"name": host, "zone": "zone-a", "pool": OwnPool, "tags": []any{OwnTag(name)}, "cores": 16, "memory": 65536,
					"storage_pools": []any{map[string]any{"name": "default", "type": "zfs", "size": 500}},
				})
			}
		}
	})
}

func addAdministrators(region map[string]any, names []string) {
	for _, name := range names {
		key := strings.Join([]string{name + "consumer", name + "token", name + "secret"}, ":")
		addTo(region, "users", map[string]any{"name": name, "email": name + "@maas.sim", "admin": true, "keys": []any{key}})
	}
}

// RegionWithUsers describes the default region with further users, for Options.Region: from MAAS 3.8 on each has just the
// entitlements that uses need, in the resource pool capi.
func RegionWithUsers(users map[string][]rights.Use) (io.Reader, error) {
	return changedRegion(func(region map[string]any) {
		for name, uses := range users {
			var entitlements []any
			for _, use := range uses {
				for _, need := range use.Needs {
					one := map[string]any{"name": string(need.Entitlement)}
					if need.InPool {
						one["pool"] = "capi"
					}
					entitlements = append(entitlements, one)
				}
			}
			addTo(region, "users", map[string]any{"name": name, "keys": []any{UserKey(name)}, "entitlements": entitlements})
		}
	})
}

// UserKey is the API key of a user of RegionWithUsers.
func UserKey(name string) string { return name + "consumer:" + name + "token:" + name + "secret" }

func addTo(region map[string]any, section string, more any) {
	all, _ := region[section].([]any)
	region[section] = append(all, more)
}

// changedRegion describes the default region with something changed.
func changedRegion(change func(map[string]any)) (io.Reader, error) {
	region := map[string]any{}
	if err := yaml.Unmarshal(defaultRegion, &region); err != nil {
		return nil, fmt.Errorf("reading the default region: %w", err)
	}
	change(region)
	changed, err := yaml.Marshal(region)
	if err != nil {
		return nil, fmt.Errorf("writing the region: %w", err)
	}
	return bytes.NewReader(changed), nil
}
