// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

// wiped returns the names of the disks of which the installer of a machine removes the signatures.
func (m *maas) wiped(t *testing.T, machine object) (names []string) {
	t.Helper()
	var config struct {
		Storage struct {
			Config []struct{ Name, Type, Wipe string }
		}
	}
	answer := m.get(t, machinePath(machine.str("system_id")), "op", "get_curtin_config").wants(t, http.StatusOK)
	if err := yaml.Unmarshal(answer.body, &config); err != nil {
		t.Fatalf("reading the curtin config: %v", err)
	}
	for _, one := range config.Storage.Config {
		if one.Type == "disk" && one.Wipe == "superblock" {
			names = append(names, one.Name)
		}
	}
	return names
}

func diskNames(machine object) (names []string) {
	for _, d := range machine.objects("physicalblockdevice_set") {
		names = append(names, d.str("name"))
	}
	return names
}

// maasserver/preseed_storage.py: _generate_disk_operation is for each physical block device, used or not.
func TestDeploymentRemovesTheSignaturesOfAllDisksThatMAASLists(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.spare(t, "storage", "root:20,data:8")
		names := diskNames(spare)
		if len(names) != 2 {
			t.Fatalf("the VM has the disks %v, want two", names)
		}
		m.get(t, machinePath(spare.str("system_id")), "op", "get_curtin_config").refuses(t, http.StatusBadRequest, "not in a deployment state")
		m.deploy(t, spare).object(t)
		if got := m.wiped(t, spare); !slices.Equal(got, names) {
			t.Errorf("wiped are %v, want %v", got, names)
		}
	})
}

// maasserver/api/blockdevices.py: delete.
func TestDiskThatMAASDoesNotListIsNotInItsInstaller(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.spare(t, "storage", "root:20,data:8")
		disks := spare.objects("physicalblockdevice_set")
		path := "nodes/" + spare.str("system_id") + "/blockdevices/" + disks[1].id("id") + "/"
		m.delete(t, path).gone(t)
		m.delete(t, path).refuses(t, http.StatusNotFound)
		allocated := m.op(t, "machines/", "allocate", "system_id", spare.str("system_id")).object(t)
		root := "nodes/" + spare.str("system_id") + "/blockdevices/" + disks[0].id("id") + "/"
		m.delete(t, root).refuses(t, http.StatusConflict, "machine is not Ready")
		m.deploy(t, allocated).object(t)
		if got := m.wiped(t, spare); !slices.Equal(got, []string{disks[0].str("name")}) {
			t.Errorf("wiped are %v, want the root disk alone", got)
		}
	})
}
