// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"reflect"
	"slices"
)

// completer is a response, or an item of a list, that knows whether it contains what was asked for.
type completer interface{ complete() bool }

// complete reports whether a decoded response contains what was asked for: a list exists, even if it is empty, and all
// its items are valid. Other JSON, of a proxy for example, decodes without an error too: null into an empty list of
// machines, which would then be taken for deleted.
func complete(out any) bool {
	if one, is := out.(completer); is {
		return one.complete()
	}
	list := reflect.Indirect(reflect.ValueOf(out))
	if list.Kind() != reflect.Slice {
		return true
	}
	for _, item := range list.Seq2() {
		if one, is := item.Interface().(completer); is && !one.complete() {
			return false
		}
	}
	return !list.IsNil()
}

func (m *Machine) complete() bool { return m != nil && isSystemID(m.SystemID) }
func (r machineRows) complete() bool {
	isReadable := func(row machineRow) bool { return !row.machine.Unreadable }
	return r != nil && (len(r) == 0 || slices.ContainsFunc(r, isReadable))
}
func (d *Device) complete() bool       { return d != nil && isSystemID(d.SystemID) }
func (a composeAnswer) complete() bool { return isSystemID(a.SystemID) }
func (h VMHost) complete() bool        { return h.ID > 0 && h.Name != "" }
func (i *Interface) complete() bool    { return i.ID > 0 }
func (v VLAN) complete() bool          { return v.ID > 0 }
func (r IPRange) complete() bool       { return r.Start != "" && r.End != "" }
func (r Range) complete() bool         { return r.Start != "" && r.End != "" }
func (a SubnetAddress) complete() bool { return a.IP != "" }
func (r DNSResource) complete() bool {
	return (r.ID > 0 || r.ID == implicitName) && r.FQDN != ""
}
func (r Ref) complete() bool              { return r.Name != "" }
func (s Subnet) complete() bool           { return s.ID > 0 && s.CIDR != "" }
func (d Domain) complete() bool           { return d.Name != "" }
func (i Image) complete() bool            { return i.Name != "" && i.Architecture != "" }
func (d ImageDetail) complete() bool      { return d.ID > 0 && d.Image.complete() && d.Sets != nil }
func (r regionController) complete() bool { return r.SystemID != "" }
func (t tagged) complete() bool           { return t.Added != nil && t.Removed != nil }
func (a IPAddress) complete() bool        { return a.IP != "" }
func (u User) complete() bool             { return u.Username != "" }
func (s Script) complete() bool           { return s.Name != "" }
func (r testResult) complete() bool       { return r.ID > 0 && r.Name != "" }
func (s testSet) complete() bool          { return s.ID > 0 && complete(&s.Results) }
func (a powerAnswer) complete() bool      { return a.State != "" }
func (a versionAnswer) complete() bool    { return a.Version.Known() }

// MAAS takes no other names. They become parts of paths.
func (t Tag) complete() bool {
	return t.Name != "" && !slices.ContainsFunc([]byte(t.Name),
		func(c byte) bool { return c != '-' && c != '_' && !isSystemID(string(c)) })
}

// isSystemID reports whether id is letters and digits, as system ids are. They become parts of paths.
func isSystemID(id string) bool {
	return id != "" && !slices.ContainsFunc([]byte(id), func(c byte) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	})
}
