// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
)

// deploy acquires a Ready machine, if it is one, and deploys it. MAAS claims AUTO addresses after the commit: the
// response does not have them yet, and what can't be claimed takes the deployment back, and the acquisition not.
func (rq *request) deploy() (any, error) {
	m, err := rq.machineFor(mayEdit)
	if err != nil {
		return nil, err
	}
	options, err := rq.allocationOptions()
	if err != nil {
		return nil, err
	}
	if m.status == statusReady {
		defer rq.acquireAlone()()
		if m, err = rq.machineFor(mayEdit); err != nil {
			return nil, err
		}
	}
	ready := m.status == statusReady
	if ready && m.owner != nil && m.owner != rq.user {
		return nil, conflict("Can't allocate a machine belonging to another user.")
	}
	if err := checkAgentName(options.agentName); ready && err != nil {
		return nil, err
	}
	if !ready && !m.status.mayBecome(statusDeploying) {
		return nil, conflict("Can't deploy a machine that is in the '%s' state", m.status)
	}
	osystem, series, err := rq.chooseImage(m)
	if err != nil {
		return nil, err
	}
	userData, err := decodeUserData(rq.data.get("user_data"))
	if err != nil {
		return nil, err
	}
	if err := rq.checkBootable(m, osystem, series); err != nil {
		return nil, err
	}
	if err := checkNetwork(m); err != nil {
		return nil, err
	}
	if !options.ephemeral && len(m.disks) > 0 {
		if err := rq.storageErrors(m, osystem); err != nil {
			return nil, err
		}
	}
	if ready {
		rq.acquire(m, rq.user, options.agentName)
	}
	m.osystem, m.series, m.userData, m.system = osystem, series, userData, userData
	m.hweKernel, m.minHWEKernel = rq.kernelFor(osystem, series), ""
	m.ephemeral = options.ephemeral || len(m.disks) == 0
	rq.startDeploy(m)
	out := rq.renderMachine(m)
	if err := rq.claimAutoAddresses(m); err != nil {
		rq.takeDeploymentBack(m)
		return nil, err
	}
	return out, nil
}

// kernelFor returns the requested kernel, if its name is valid, or else that of the release that the image boots with:
// for a custom image the commissioning one (get_working_kernel in maasserver/utils/osystems.py).
func (rq *request) kernelFor(osystem, series string) string {
	asked := rq.data.get("hwe_kernel")
	if containsAny(strings.Split(asked, "-"), []string{"ga", "hwe"}) {
		return asked
	}
	if osystem != "ubuntu" {
		series = rq.configText("commissioning_distro_series")
	}
	if kernel := seriesKernel[series]; kernel != "" {
		return "ga-" + kernel
	}
	return asked
}

func decodeUserData(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	compact := strings.Join(strings.Fields(text), "")
	raw, err := base64.StdEncoding.DecodeString(compact)
	if err != nil {
		return nil, textError(500, "Incorrect padding")
	}
	return raw, nil
}

// chooseImage returns the image for distro_series: "jammy", "ubuntu/jammy", "custom/name" or the bare name.
func (rq *request) chooseImage(m *machine) (osystem, series string, err error) {
	wanted := orDefault(rq.data.get("distro_series"), rq.configText("default_distro_series"))
	for _, im := range rq.db.images {
		if im.arch() != firstPart(m.architecture, '/') {
			continue
		}
		osystem, series = im.release()
		if wanted == series || wanted == osystem+"/"+series || wanted == osystem+"/"+seriesKernel[series] || wanted == seriesKernel[series] {
			return osystem, series, nil
		}
	}
	return "", "", invalidField("distro_series", "'%s' is not a valid distro_series.  It should be one of: %s.",
		wanted, strings.Join(rq.releaseChoices(), ", "))
}

// release returns the image's operating system and series.
func (im *image) release() (osystem, series string) {
	if im.uploaded && !strings.Contains(im.name, "/") {
		return "custom", im.name
	}
	osystem, series, _ = strings.Cut(im.name, "/")
	return osystem, series
}

func (s *Simulator) releaseChoices() []string {
	choices := []string{"''"}
	for _, im := range s.db.images {
		osystem, series := im.release()
		if text := "'" + osystem + "/" + series + "'"; !slices.Contains(choices, text) {
			choices = append(choices, text)
		}
	}
	slices.Sort(choices)
	return choices
}

// imageOf returns the image of a deployed machine, or nil.
func (s *Simulator) imageOf(m *machine) *image {
	for _, im := range s.db.images {
		if osystem, series := im.release(); osystem == m.osystem && series == m.series && im.arch() == firstPart(m.architecture, '/') {
			return im
		}
	}
	return nil
}

// installComplaint returns why a machine can't boot its installer, or "". MAAS takes the deployment all the same: only
// the machine that asks for its installer finds out (get_curtin_image in maasserver/preseed.py). Until MAAS 3.6.3 and
// 3.7.1 an image is looked up by its name alone, and not found if there are two (LP#2138312; get_boot_config_for_machine in
// maasserver/rpc/boot.py).
func (s *Simulator) installComplaint(m *machine) string {
	im := s.imageOf(m)
	switch {
	case im == nil:
		return ""
	case im.completeSet(s.version) == nil:
		return fmt.Sprintf("Boot resource %s/%s doesn't have a complete set", m.osystem, m.series)
	}
	namesakes := 0
	for _, other := range s.db.images {
		if other.name == im.name {
			namesakes++
		}
	}
	if fixed := s.version.AtLeast(3, 7, 1) || !s.version.AtLeast(3, 7, 0) && s.version.AtLeast(3, 6, 3); m.osystem == "custom" && namesakes > 1 && !fixed {
		return fmt.Sprintf("get() returned more than one BootResource -- it returned %d!", namesakes)
	}
	return ""
}

// checkBootable is validate_bootresource_exists_for_action in maasserver/models/node.py. It finds a custom image by its bare
// name: not one that is stored with custom/, though the form has taken it. And it refuses a deployment whose ephemeral
// environment does not exist: a custom image boots into the commissioning series first.
func (rq *request) checkBootable(m *machine, osystem, series string) error {
	if osystem == "ubuntu" {
		return nil
	}
	stored := func(im *image) bool {
		return im.name == series && im.uploaded && im.arch() == firstPart(m.architecture, '/')
	}
	if osystem == "custom" && !slices.ContainsFunc(rq.db.images, stored) {
		return badRequest("Deployment operating system custom/%s is unavailable for %s.", series, m.architecture)
	}
	return rq.checkEphemeral(m)
}

// checkEphemeral refuses to boot a machine into an ephemeral environment that MAAS has no image for.
func (rq *request) checkEphemeral(m *machine) error {
	ephemeral := rq.configText("commissioning_distro_series")
	for _, im := range rq.db.images {
		if im.name == "ubuntu/"+ephemeral && im.arch() == firstPart(m.architecture, '/') {
			return nil
		}
	}
	if rq.version.AtLeast(3, 5, 0) {
		return badRequest("Ephemeral operating system ubuntu/%s for %s is unavailable.", ephemeral, m.architecture)
	}
	return badRequest("Ephemeral operating system ubuntu %s is unavailable.", ephemeral)
}

// checkNetwork refuses a deployment without any network (start and on_network in maasserver/models/node.py).
func checkNetwork(m *machine) error {
	linked, onNetwork := false, false
	for _, nic := range m.ifaces {
		for _, link := range nic.links {
			linked = linked || link.subnet != nil || link.kind == allocDHCP
			onNetwork = onNetwork || link.subnet != nil && link.mode() != "link_up"
		}
	}
	boot := m.bootIface()
	switch {
	case !linked && boot != nil && boot.vlan != nil && boot.vlan.dhcpOn: // MAAS asks the rack controller from which it boots.
		return invalidField("network", "Node has no address family in common with the server")
	case !onNetwork:
		return invalidField("network", "Node must be configured to use a network")
	}
	return nil
}
