// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"fmt"
	"strings"

	lxd "github.com/canonical/lxd/client"
)

// checkServer checks whether this LXD can be a VM host of MAAS at all.
func (p *pass) checkServer(client lxd.InstanceServer) (State, string, error) {
	server, _, err := client.GetServer()
	if err != nil {
		return Failed, "", asError(StepServer, "reading the server", err)
	}
	p.server = server
	environment := server.Environment
	if missing := missingExtensions(server); len(missing) > 0 {
		return Failed, "", wrong("install LXD 5.0 or newer", "LXD %s lacks required API extensions: %s",
			environment.ServerVersion, strings.Join(missing, ", "))
	}
	if environment.ServerClustered {
		return Failed, "", wrong("use LXD without clustering: MAAS makes VM hosts of all members, under the members' names, "+
			"as soon as it has one", "this LXD is a member of an LXD cluster")
	}
	if !runsVMs(server) {
		return Failed, "", wrong("switch on virtualization in the firmware, check that /dev/kvm exists and that `modprobe "+
			"vhost_vsock` works, install QEMU where LXD comes from a Debian package, and restart LXD; LXD's log has the "+
			"reason", "LXD %s can't run virtual machines here (its drivers: %s)", environment.ServerVersion,
			strings.Join(drivers(server), ", "))
	}
	return OK, fmt.Sprintf("LXD %s, drivers %s", environment.ServerVersion, strings.Join(drivers(server), ", ")), nil
}
