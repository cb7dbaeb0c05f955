// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/canonical/lxd/shared"
	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
)

// ensureProject ensures a project with its own profiles. A new one also has its own images and volumes, like a project
// that MAAS makes: shared ones are the default project's, and MAAS's key may delete them. MAAS works with either.
//
// The project is not restricted: that would not keep the key from being root's
// (TestARestrictedProjectDoesNotHoldTheKey), and would deny snapshots and backups to operators.
func (p *pass) ensureProject(client *lxdapi.Client) (State, string, error) {
	project, state, err := ensure(p.write, client.GetProject, p.Project, func() error {
		return p.create(client, client.Path("projects"), api.ProjectsPost{Name: p.Project, ProjectPut: api.ProjectPut{
			Description: description,
			Config: map[string]string{
				"features.images": "true", "features.profiles": "true", "features.storage.volumes": "true",
			},
		}})
	})
	switch {
	case err != nil:
		return Failed, "", asError(StepProject, "project "+p.Project, err)
	case state == Missing:
		return Missing, "there is no project " + p.Project, nil
	case project.Config["features.profiles"] != "true":
		return Failed, "", wrong("`lxc project set "+p.Project+" features.profiles true`, or name another project in "+
			SettingProject, "the project %s has no profiles of its own, it uses those of the default project", p.Project)
	case len(missingAllowances(project)) > 0:
		return Failed, "", wrong("`lxc project set "+p.Project+" "+strings.Join(missingAllowances(project), " ")+
			"`, or name another project in "+SettingProject,
			"the project %s is restricted so far that MAAS can't compose VMs in it", p.Project)
	}
	return state, p.Project, nil
}

// missingAllowances returns the settings without which a restricted project forbids what MAAS puts into each VM:
// limits.memory.hugepages, which counts as low-level whatever its value, and interfaces on networks that LXD does not
// manage.
func missingAllowances(project *api.Project) []string {
	if !shared.IsTrue(project.Config["restricted"]) {
		return nil
	}
	var missing []string
	for _, key := range []string{"restricted.devices.nic", "restricted.virtual-machines.lowlevel"} {
		if project.Config[key] != "allow" {
			missing = append(missing, key+"=allow")
		}
	}
	return missing
}

// strangeDisks returns the disks of a profile that MAAS can't match with those that it requested. MAAS counts the disks
// of a VM when LXD has made it, fails if there are more, and forgets the VM, which stays. A disk named root is replaced
// by the one that MAAS requests.
func strangeDisks(profile *api.Profile) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(profile.Devices)), func(name string) bool {
		return profile.Devices[name]["type"] != "disk" || name == "root"
	})
}

// VMs counts the virtual machines in a project: MAAS makes machines of them. The error is an *Error.
func (n *Node) VMs(ctx context.Context, project string) (count int, err error) {
	err = n.call(ctx, StepProject, "reading the VMs in project "+project, func(client *lxdapi.Client) error {
		names, err := client.In(project).GetInstanceNames(api.InstanceTypeVM)
		count = len(names)
		return err
	})
	return count, err
}

// ensureProfile ensures the profile that MAAS gives to VMs. A new one is empty: MAAS adds all devices itself. What an
// operator put into an existing one is meant for the VMs.
func (p *pass) ensureProfile(client *lxdapi.Client) (State, string, error) {
	client = client.In(p.Project)
	profile, state, err := ensure(p.write, client.GetProfile, profileName, func() error {
		return p.create(client, client.Path("profiles"), api.ProfilesPost{
			Name: profileName, ProfilePut: api.ProfilePut{Description: description},
		})
	})
	switch {
	case err != nil:
		return Failed, "", asError(StepProfile, fmt.Sprintf("profile %s in project %s", profileName, p.Project), err)
	case state == Missing:
		return Missing, fmt.Sprintf("there is no profile %s in project %s", profileName, p.Project), nil
	case len(strangeDisks(profile)) > 0:
		return Failed, "", wrong("remove them: `lxc profile device remove "+profileName+" NAME --project "+p.Project+
			"`; MAAS takes only a disk that is named root, and would lose each VM that it composes",
			"the profile %s in project %s has disks that MAAS did not ask for: %s", profileName, p.Project,
			strings.Join(strangeDisks(profile), ", "))
	case len(profile.Devices) > 0:
		return state, fmt.Sprintf("%s in project %s, with %d devices", profileName, p.Project, len(profile.Devices)), nil
	}
	return state, fmt.Sprintf("%s in project %s", profileName, p.Project), nil
}
