// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
)

// MACError is a MAC address by which MAAS can't distinguish this node's machine from others. MAAS finds the machine of
// a VM host by the MACs that LXD reports, and moves an interface whose MAC it knows to the machine that reported it
// last.
type MACError struct {
	MAC string
	// Interfaces that have it, sorted.
	Interfaces []string
}

// Error names one interface, or two that share the MAC. It names no more, because pods come and go and the text must be
// stable.
func (e *MACError) Error() string {
	if len(e.Interfaces) > 1 && !isFixedMAC(e.MAC) {
		return fmt.Sprintf("the interfaces %s and %s have the same MAC %s", e.Interfaces[0], e.Interfaces[1], e.MAC)
	}
	return fmt.Sprintf("the interface %s has the MAC %s, which other nodes have, too", e.Interfaces[0], e.MAC)
}

// isFixedMAC reports whether a MAC is the same on many machines: Calico's, or none at all.
func isFixedMAC(mac string) bool {
	return mac == "ee:ee:ee:ee:ee:ee" || mac == "00:00:00:00:00:00"
}

// checkInterfaces refuses a node that MAAS would confuse with others. The cause of its error is a *MACError then.
func (p *pass) checkInterfaces(client *lxdapi.Client) (State, string, error) {
	networks, err := client.GetNetworks()
	if err != nil {
		return Failed, "", asError(StepInterfaces, "reading the interfaces", err)
	}
	taken, bonds, err := interfaces(client, networks)
	if err != nil {
		return Failed, "", asError(StepInterfaces, "reading the state of the interfaces", err)
	}
	if bad := ambiguousMAC(taken, bonds); bad != nil {
		return Failed, "", &Error{Permanent: true, cause: bad,
			Problem: "MAAS can't distinguish this node from others: " + bad.Error(),
			Remedy: "use a CNI that gives each interface a MAC of its own, such as flannel or Cilium; Calico and Canal don't, " +
				"but LXD leaves out interfaces whose names begin with veth (FELIX_INTERFACEPREFIX). An interface that is " +
				"not the CNI's needs another MAC"}
	}
	return OK, "MAAS can tell this node by its MACs", nil
}

// interfaces returns the names of the interfaces that MAAS assigns to the machine, by MAC, and the bond of each
// interface that is in one. MAAS uses those whose type is physical or unknown, such as the node's end of a pod's veth:
// no bridges, bonds and VLANs.
func interfaces(
	client *lxdapi.Client, networks []api.Network,
) (taken map[string][]string, bonds map[string]string, err error) {
	taken, bonds = map[string][]string{}, map[string]string{}
	for _, network := range networks {
		if network.Managed || !slices.Contains([]string{"unknown", "physical", "bond"}, network.Type) {
			continue // A managed network of the type physical shows the MAC of its parent.
		}
		state, err := client.GetNetworkState(network.Name)
		switch {
		case notFound(err):
			continue // It was removed since, like those of pods.
		case err != nil:
			return nil, nil, err
		case network.Type != "bond" && state.Hwaddr != "":
			mac := strings.ToLower(state.Hwaddr)
			taken[mac] = append(taken[mac], network.Name)
		case state.Bond != nil:
			for _, member := range state.Bond.LowerDevices {
				bonds[member] = network.Name
			}
		}
	}
	return taken, bonds, nil
}

// ambiguousMAC returns the first MAC that does not identify the machine, fixed ones before shared ones, or nil. Members
// of one bond have the bond's.
func ambiguousMAC(taken map[string][]string, bonds map[string]string) *MACError {
	var shared *MACError
	for _, mac := range slices.Sorted(maps.Keys(taken)) {
		names := slices.Sorted(slices.Values(taken[mac]))
		if isFixedMAC(mac) {
			return &MACError{MAC: mac, Interfaces: names}
		}
		bond := bonds[names[0]]
		alone := slices.IndexFunc(names, func(name string) bool { return bond == "" || bonds[name] != bond })
		if len(names) > 1 && alone >= 0 && shared == nil {
			shared = &MACError{MAC: mac, Interfaces: names}
		}
	}
	return shared
}
