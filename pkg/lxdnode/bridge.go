// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
)

const bridgeType = "bridge"

// ensureBridge ensures a bridge that is up, the host's or LXD's: MAAS attaches VMs to its name either way.
func (p *pass) ensureBridge(client *lxdapi.Client) (State, string, error) {
	network, state, err := ensure(p.write && p.CreateBridge, client.GetNetwork, p.NetworkBridge,
		func() error { return p.createBridge(client) })
	switch {
	case err != nil:
		return Failed, "", asError(StepBridge, "network bridge "+p.NetworkBridge, err)
	case state == Missing && !p.CreateBridge:
		return Failed, "", wrong("name one of them in "+SettingNetworkBridge+", configure it on the node (MAAS can: an "+
			"interface of type bridge), or set "+SettingCreateBridge+"=true",
			"there is no bridge %s; the node's bridges: %s", p.NetworkBridge, bridgeNames(client))
	case state == Missing:
		return Missing, "there is no network bridge " + p.NetworkBridge, nil
	case network.Type != bridgeType:
		return Failed, "", wrong("name a bridge in "+SettingNetworkBridge+"; the node's bridges: "+bridgeNames(client),
			"%s is not a bridge but a network of type %s", p.NetworkBridge, network.Type)
	case network.Managed && network.Status != api.NetworkStatusCreated:
		return Failed, "", &Error{Step: StepBridge,
			Problem: fmt.Sprintf("LXD's bridge %s is %s", p.NetworkBridge, strings.ToLower(network.Status)),
			Remedy: "LXD may still be making it; if it stays so, LXD was stopped meanwhile: `lxc network delete " +
				p.NetworkBridge + "`, and it is made again"}
	}
	return p.checkLink(client, state, network.Managed)
}

// checkLink checks that the bridge is up and has a port. LXD calls a bridge's ports its upper devices.
func (p *pass) checkLink(client *lxdapi.Client, state State, managed bool) (State, string, error) {
	link, err := client.GetNetworkState(p.NetworkBridge)
	if err != nil {
		return Failed, "", asError(StepBridge, "reading the state of "+p.NetworkBridge, err)
	}
	if link.State != "up" {
		return Failed, "", &Error{Step: StepBridge, Problem: fmt.Sprintf("the bridge %s is %s", p.NetworkBridge, link.State),
			Remedy: fmt.Sprintf("`ip link set %s up`, and see that the node's network configuration does so at boot",
				p.NetworkBridge)}
	}
	owner := "the host's"
	switch {
	case managed: // LXD routes its traffic.
		owner = "LXD's"
	case link.Bridge != nil && len(link.Bridge.UpperDevices) == 0:
		return Failed, "", wrong("connect it to the node's network: MAAS makes such a bridge while the machine is Ready "+
			"(`maas $PROFILE interfaces create-bridge $MACHINE name="+p.NetworkBridge+" parent=$INTERFACE`), or name "+
			"another one in "+SettingNetworkBridge,
			"the bridge %s has no port: VMs on it would reach neither MAAS nor anything else", p.NetworkBridge)
	}
	return state, fmt.Sprintf("%s: %s, up", p.NetworkBridge, owner), nil
}

// bridgeNames lists the node's bridges for people.
func bridgeNames(client *lxdapi.Client) string {
	networks, err := client.GetNetworks()
	if err != nil {
		return "unknown"
	}
	bridges := list.Where(networks, func(network api.Network) bool { return network.Type == bridgeType })
	names := list.Each(bridges, func(bridge api.Network) string { return bridge.Name })
	return cmp.Or(strings.Join(names, ", "), "none")
}

// createBridge makes a bridge on which LXD serves neither addresses nor names, because MAAS does. LXD picks its subnet:
// it tries to reach the gateways of candidates. If something responds for every address, that fails, and the bridge has
// to be made by hand with an ipv4.address.
func (p *pass) createBridge(client *lxdapi.Client) error {
	err := p.create(client, client.Path("networks"), api.NetworksPost{
		Name: p.NetworkBridge, Type: bridgeType,
		NetworkPut: api.NetworkPut{Description: description, Config: map[string]string{
			"dns.mode": "none", "ipv4.dhcp": "false", "ipv6.dhcp": "false",
		}},
	})
	if err == nil {
		return nil
	}
	e := asError(StepBridge, "making the network bridge "+p.NetworkBridge, err)
	if e.Remedy == "" {
		e.Remedy = "make it by hand, with a subnet that is free in your network: `lxc network create " + p.NetworkBridge +
			" ipv4.address=... ipv4.dhcp=false ipv6.address=none dns.mode=none`"
	}
	return e
}
