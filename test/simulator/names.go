// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// systemIDDigits are the characters of system ids.
const systemIDDigits = "34678abcdefghkmnpqrstwxy"

// newSystemID returns an unused id of six characters.
func (s *Simulator) newSystemID() string {
	for {
		id := make([]byte, 6)
		for i := range id {
			id[i] = systemIDDigits[s.rng.IntN(len(systemIDDigits))]
		}
		if text := string(id); id[0] != '3' && s.nodeByID(text) == nil {
			return text
		}
	}
}

// vmMACPrefix is LXD's; metalMACPrefix stands for any vendor's.
const (
	vmMACPrefix    = "00:16:3e"
	metalMACPrefix = "52:54:00"
)

func (s *Simulator) newMAC(prefix string) string {
	for {
		n := s.rng.IntN(1 << 24)
		mac := fmt.Sprintf("%s:%02x:%02x:%02x", prefix, n>>16&0xff, n>>8&0xff, n&0xff)
		if s.interfaceByMAC(mac) == nil {
			return mac
		}
	}
}

func (s *Simulator) newUUID() string {
	a, b := s.rng.Uint64(), s.rng.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", a>>32, a>>16&0xffff, a&0xfff, 0x8000|b>>48&0x3fff, b&0xffffffffffff)
}

func (s *Simulator) randomText(n int) string {
	const letters = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
	out := make([]byte, n)
	for i := range out {
		out[i] = letters[s.rng.IntN(len(letters))]
	}
	return string(out)
}

// The halves of made-up hostnames.
var (
	petAdjectives = []string{"able", "brave", "calm", "daring", "eager", "fair", "gentle", "happy", "keen", "lively",
		"merry", "noble", "proud", "quick", "rapid", "sharp", "tidy", "usable", "valid", "wise"}
	petAnimals = []string{"ant", "bear", "crow", "deer", "eel", "fox", "goat", "hare", "ibex", "jay", "kite", "lynx",
		"mole", "newt", "otter", "pug", "quail", "ram", "seal", "toad"}
)

// petname makes up an unused hostname.
func (s *Simulator) petname() string {
	for {
		name := petAdjectives[s.rng.IntN(len(petAdjectives))] + "-" + petAnimals[s.rng.IntN(len(petAnimals))]
		if s.nodeByHostname(name) != nil {
			name += strconv.Itoa(s.rng.IntN(100000))
		}
		if s.nodeByHostname(name) == nil {
			return name
		}
	}
}

func (s *Simulator) machineByID(id string) *machine {
	for _, m := range s.db.machines {
		if m.systemID == id {
			return m
		}
	}
	return nil
}

func (s *Simulator) machineByHostname(name string) *machine {
	if m := s.nodeByHostname(name); m != nil && !m.device {
		return m
	}
	return nil
}

// nodeByHostname returns the machine or device of a name: there are no two.
func (s *Simulator) nodeByHostname(name string) *machine {
	for _, m := range s.nodes() {
		if m.hostname == name {
			return m
		}
	}
	return nil
}

func (s *Simulator) interfaceByMAC(mac string) *iface {
	for _, m := range s.nodes() {
		for _, nic := range m.ifaces {
			if nic.mac == mac {
				return nic
			}
		}
	}
	return nil
}

// machineByMACs returns the machine with one of the addresses; of several, the oldest.
func (s *Simulator) machineByMACs(macs []string) *machine {
	at := slices.IndexFunc(s.db.machines, func(m *machine) bool {
		return slices.ContainsFunc(m.ifaces, func(nic *iface) bool { return slices.Contains(macs, nic.mac) })
	})
	if at < 0 {
		return nil
	}
	return s.db.machines[at]
}

func (s *Simulator) hostByID(id int) *vmHost {
	for _, h := range s.db.hosts {
		if h.id == id {
			return h
		}
	}
	return nil
}

func (s *Simulator) zoneByName(name string) *zone {
	for _, z := range s.db.zones {
		if z.name == name {
			return z
		}
	}
	return nil
}

func (s *Simulator) poolByName(name string) *pool {
	for _, p := range s.db.pools {
		if p.name == name {
			return p
		}
	}
	return nil
}

// domainByName returns the domain of a name, with or without the dot at its end (DomainNameField in
// maasserver/fields.py), or nil.
func (s *Simulator) domainByName(name string) *domain {
	name = strings.TrimSuffix(name, ".")
	for _, d := range s.db.domains {
		if d.name == name {
			return d
		}
	}
	return nil
}

func (s *Simulator) defaultDomain() *domain {
	for _, d := range s.db.domains {
		if d.isDefault {
			return d
		}
	}
	return nil
}

func (s *Simulator) userByName(name string) *user {
	for _, u := range s.db.users {
		if u.name == name {
			return u
		}
	}
	return nil
}

func (s *Simulator) tagByName(name string) *tag {
	for _, t := range s.db.tags {
		if t.name == name {
			return t
		}
	}
	return nil
}

// ensureTag returns a tag, and makes it if necessary.
func (s *Simulator) ensureTag(name string) *tag {
	if t := s.tagByName(name); t != nil {
		return t
	}
	t := &tag{name: name}
	s.db.tags = append(s.db.tags, t)
	return t
}

// subnetBySpecifier returns a subnet by id, CIDR, name, or "cidr:..", "name:..", "id:..".
func (s *Simulator) subnetBySpecifier(spec string) *subnet {
	kind, value, ok := strings.Cut(spec, ":")
	if !ok || (kind != "cidr" && kind != "name" && kind != "id") {
		kind, value = "", spec
	}
	for _, sn := range s.db.subnets {
		switch {
		case (kind == "" || kind == "id") && strconv.Itoa(sn.id) == value,
			(kind == "" || kind == "cidr") && sn.cidr.String() == value,
			(kind == "" || kind == "name") && sn.name == value:
			return sn
		}
	}
	return nil
}
