// SPDX-License-Identifier: Apache-2.0

package maas

import "slices"

// complete reports whether a decoded response contains what was asked for. Other JSON, of a proxy for example, decodes
// without an error too: null into an empty list of machines, which would then be taken for deleted.
func complete(out any) bool {
	switch out := out.(type) {
	case *Machine:
		return out.complete()
	case *[]*Machine:
		return all(*out, (*Machine).complete)
	case *Device:
		return out.complete()
	case *[]*Device:
		return all(*out, (*Device).complete)
	case *composeAnswer:
		return isSystemID(out.SystemID)
	case *VMHost:
		return out.complete()
	case *[]VMHost:
		return all(*out, VMHost.complete)
	case *Interface:
		return out.ID > 0
	case *[]VLAN:
		return all(*out, func(v VLAN) bool { return v.ID > 0 })
	case *[]IPRange:
		return all(*out, func(r IPRange) bool { return r.Start != "" && r.End != "" })
	case *[]Range:
		return all(*out, func(r Range) bool { return r.Start != "" && r.End != "" })
	case *[]SubnetAddress:
		return all(*out, func(a SubnetAddress) bool { return a.IP != "" })
	case *DNSResource:
		return out.complete()
	case *[]DNSResource:
		return all(*out, DNSResource.complete)
	case *[]Ref:
		return all(*out, func(r Ref) bool { return r.Name != "" })
	case *[]Subnet:
		return all(*out, func(s Subnet) bool { return s.ID > 0 && s.CIDR != "" })
	case *[]Domain:
		return all(*out, func(d Domain) bool { return d.Name != "" })
	case *[]Image:
		return all(*out, func(i Image) bool { return i.Name != "" && i.Architecture != "" })
	case *ImageDetail:
		return out.ID > 0 && out.Name != "" && out.Architecture != "" && out.Sets != nil
	case *[]regionController:
		return all(*out, func(r regionController) bool { return r.SystemID != "" })
	case *Tag:
		return out.complete()
	case *[]Tag:
		return all(*out, Tag.complete)
	case *tagged:
		return out.Added != nil && out.Removed != nil
	case *IPAddress:
		return out.IP != ""
	case *User:
		return out.Username != ""
	case *powerAnswer:
		return out.State != ""
	case *versionAnswer:
		return out.Version.Known()
	}
	return true
}

// all reports whether a list exists, even if it is empty, and all its items are valid.
func all[T any](list []T, ok func(T) bool) bool {
	return list != nil && !slices.ContainsFunc(list, func(item T) bool { return !ok(item) })
}

func (m *Machine) complete() bool { return m != nil && isSystemID(m.SystemID) }

func (h VMHost) complete() bool { return h.ID > 0 && h.Name != "" }

// MAAS takes no other names. They become parts of paths.
func (t Tag) complete() bool {
	return t.Name != "" && !slices.ContainsFunc([]byte(t.Name),
		func(c byte) bool { return c != '-' && c != '_' && !isSystemID(string(c)) })
}

func (r DNSResource) complete() bool { return r.ID > 0 && r.FQDN != "" }

// isSystemID reports whether id is letters and digits, as system ids are. They become parts of paths.
func isSystemID(id string) bool {
	return id != "" && !slices.ContainsFunc([]byte(id), func(c byte) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	})
}
