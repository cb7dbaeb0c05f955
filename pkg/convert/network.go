// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// linkModes are the values of interfaceLinkModes.
var linkModes = []string{
	string(infrav1.LinkModeAuto), string(infrav1.LinkModeDHCP), string(infrav1.LinkModeStatic),
	string(infrav1.LinkModeLinkUp),
}

// convertAddress replaces the mapping staticIP with the address alone, and returns it.
func (o *object) convertAddress(spec mapping) string {
	static, ok := spec.child("staticIP")
	if !ok {
		return ""
	}
	static.check(children(MachineFields, "staticIP"))
	text, ok := static.text("ip")
	if !ok {
		static.problem("ip", "it is missing: give the address; or remove staticIP, convert, and set staticIPPoolRef to a "+
			"pool of addresses")
		return ""
	}
	address, err := netip.ParseAddr(text)
	if err != nil || address.Zone() != "" {
		static.problem("ip", "%q is not an IP address", text)
		return ""
	}
	if cidr, ok := static.text("cidr"); ok {
		if network, err := netip.ParsePrefix(cidr); err != nil || !network.Contains(address) {
			static.problem("cidr", "%q is not a network that contains %s", cidr, text)
			return ""
		}
		static.remove("cidr") // MAAS knows its subnets.
	}
	static.text("gateway")
	static.lose("gateway", "MAAS's subnet says it")
	static.names("nameservers")
	static.lose("nameservers", "MAAS's subnet says it")
	spec.note("staticIP", "it is for one machine: for more than one replica set staticIPPoolRef instead")
	spec.set("staticIP", scalar(textTag, text))
	return text
}

// device is an interface of a VM.
type device struct {
	name, mode string
	subnet     netip.Prefix
}

// convertDevices makes interfaces from network and interfaceLinkModes; nil if there are none.
func (o *object) convertDevices(vm mapping, address string) *yaml.Node {
	modes := o.linkModes(vm)
	text, ok := vm.text("network")
	if !ok {
		if !vm.has("network") {
			vm.lose("interfaceLinkModes", "it had no effect without network; here each of lxdConfig.network.devices has a "+
				"linkMode")
		}
		return nil
	}
	devices, ok := o.devices(vm, text)
	if !ok {
		return nil
	}
	for name := range modes {
		if !slices.ContainsFunc(devices, func(d device) bool { return d.name == name }) {
			vm.problem("interfaceLinkModes", "%s has no subnet in network", name)
			return nil
		}
	}
	for i, d := range devices {
		fallback := infrav1.LinkModeDHCP
		if i == 0 {
			fallback = infrav1.LinkModeAuto
		}
		devices[i].mode = cmp.Or(modes[d.name], string(fallback))
	}
	if !o.carry(vm, devices, modes, address) {
		return nil
	}
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, d := range devices {
		list.Content = append(list.Content, pairs("name", d.name, "subnet", d.subnet.String(), "linkMode", d.mode))
	}
	return list
}

// linkModes reads interfaceLinkModes.
func (o *object) linkModes(vm mapping) map[string]string {
	modes := map[string]string{}
	in, ok := vm.child("interfaceLinkModes")
	if !ok {
		return nil
	}
	for i := 0; i+1 < len(in.node.Content); i += 2 {
		name := in.node.Content[i].Value
		mode, ok := in.plain(name, textTag, "a text")
		switch {
		case !ok || mode == "":
		case !slices.Contains(linkModes, mode):
			in.problem(name, "it has to be %s", choice(linkModes))
		case modes[name] != "":
			in.problem(name, "it is there twice")
		default:
			modes[name] = mode
		}
	}
	return modes
}

// devices parses network: one subnet or two, with a comma between them, for eth0 and eth1.
func (o *object) devices(vm mapping, text string) ([]device, bool) {
	subnets := strings.Split(text, ",")
	if len(subnets) > 2 {
		vm.problem("network", "Spectro Cloud's provider knows no more than two subnets")
		return nil, false
	}
	var devices []device
	for i, subnet := range subnets {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(subnet))
		if err != nil || prefix != prefix.Masked() {
			vm.problem("network", "%q is not the CIDR of a MAAS subnet: write its CIDR instead of its name",
				strings.TrimSpace(subnet))
			return nil, false
		}
		devices = append(devices, device{name: fmt.Sprintf("eth%d", i), subnet: prefix})
	}
	vm.note("network", "it counts here: only VM hosts with an interface on each subnet are used. There it was ignored "+
		"up to 0.9, and by Spectro Cloud's own releases where it was one subnet")
	return devices, true
}

// carry gives the static address to the device whose subnet contains it.
func (o *object) carry(vm mapping, devices []device, modes map[string]string, address string) bool {
	carrier := -1
	if ip, err := netip.ParseAddr(address); err == nil {
		carrier = slices.IndexFunc(devices, func(d device) bool { return d.subnet.Contains(ip) })
		if carrier < 0 {
			vm.problem("network", "the static address %s lies in none of these subnets", address)
			return false
		}
		if mode := modes[devices[carrier].name]; mode != "" && mode != string(infrav1.LinkModeStatic) {
			vm.problem("interfaceLinkModes", "%s is %s, and its subnet has the static address %s: choose one",
				devices[carrier].name, mode, address)
			return false
		}
		devices[carrier].mode = string(infrav1.LinkModeStatic)
	}
	for i, d := range devices {
		if i != carrier && d.mode == string(infrav1.LinkModeStatic) {
			vm.problem("interfaceLinkModes", "%s is static without a static address in its subnet, where MAAS chose one: "+
				"write auto to have it choose one, or give staticIP", d.name)
			return false
		}
	}
	return true
}
