// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"fmt"

	lxd "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"
)

// ensureProject wants a project with profiles of its own. A new one is as MAAS makes it: images and volumes are shared with the
// default project.
func (p *pass) ensureProject(client lxd.InstanceServer) (State, string, error) {
	project, state, err := ensure(p.write,
		func() (*api.Project, error) {
			project, _, err := client.GetProject(p.Project)
			return project, err
		},
		func() error {
			return client.CreateProject(api.ProjectsPost{Name: p.Project, ProjectPut: api.ProjectPut{
				Description: description,
				Config: map[string]string{
					"features.images": "false", "features.profiles": "true", "features.storage.volumes": "false",
				},
			}})
		})
	switch {
	case err != nil:
		return Failed, "", asError(StepProject, "project "+p.Project, err)
	case state == Missing:
		return Missing, "there is no project " + p.Project, nil
	case project.Config["features.profiles"] != "true":
		return Failed, "", &Error{Step: StepProject, Permanent: true,
			Problem: fmt.Sprintf("the project %s has no profiles of its own, it uses those of the default project", p.Project),
			Remedy: fmt.Sprintf("`lxc project set %s features.profiles true`, or name another project in %s",
				p.Project, SettingProject)}
	}
	return state, p.Project, nil
}

// ensureProfile wants the profile that MAAS gives to VMs. A new one is empty: MAAS brings all devices itself. What somebody put
// into an existing one is meant to reach the VMs.
func (p *pass) ensureProfile(client lxd.InstanceServer) (State, string, error) {
	client = client.UseProject(p.Project)
	profile, state, err := ensure(p.write,
		func() (*api.Profile, error) {
			profile, _, err := client.GetProfile(p.Profile)
			return profile, err
		},
		func() error {
			return client.CreateProfile(api.ProfilesPost{
				Name: p.Profile, ProfilePut: api.ProfilePut{Description: description},
			})
		})
	switch {
	case err != nil:
		return Failed, "", asError(StepProfile, fmt.Sprintf("profile %s in project %s", p.Profile, p.Project), err)
	case state == Missing:
		return Missing, fmt.Sprintf("there is no profile %s in project %s", p.Profile, p.Project), nil
	case len(profile.Devices) > 0:
		return state, fmt.Sprintf("%s in project %s, with %d devices", p.Profile, p.Project, len(profile.Devices)), nil
	}
	return state, fmt.Sprintf("%s in project %s", p.Profile, p.Project), nil
}
