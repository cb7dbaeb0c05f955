// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"regexp"
	"strings"
	"testing"
)

// named are the functions that make names and recognize them, and the longest that they make.
var named = map[string]struct {
	name    func(name, ownerID string) string
	is      func(name, ownerID string) bool
	longest int
}{
	"hostname": {Hostname, func(name, ownerID string) bool { return endsLike(forHostname, name, ownerID) }, 48},
	"endpoint": {EndpointLabel, IsEndpointLabel, 63},
}

// One map for both: the hostname of a machine is never the label of an endpoint.
func TestNamesAreLabelsAndUnique(t *testing.T) {
	labels := map[string]*regexp.Regexp{
		"hostname": regexp.MustCompile(`^[a-z]([a-z0-9-]*[a-z0-9])$`), // MAAS keeps no other name of a VM.
		"endpoint": regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`),
	}
	long := strings.Repeat("a-long-name-", 10)
	whole := long[:34] // the longest that a hostname holds
	seen := map[string][2]string{}
	for use, make := range named {
		for _, in := range [][2]string{
			{"cp-0", "owner1"}, {"cp-0", "owner2"}, {"cp.0", "owner1"}, {"cp.0", "owner2"}, {"cp-1", "owner1"}, {"cp-0-", "owner1"}, {"Cp-0", "owner1"},
			{long + "1", "owner1"}, {long + "2", "owner1"}, {long + "1", "owner2"}, {strings.Repeat("a", 48) + "---", "owner1"},
			{whole, "owner1"}, {whole + "x", "owner1"}, {whole, "owner1/" + long + "1"}, {whole, "owner1\x00" + long + "1"},
			// An id that holds what is hashed with another one.
			{"0cp", "owner1"}, {"m-0cp", "owner1"}, {"0" + long, "owner1"}, {"m-0" + long, "owner1"}, {"cp-0", "owner1/cp.0"}, {"cp-0", "owner1\x00cp.0"},
			// What is before the owner's hash in the shortened name of cp.0.
			{"cp-0-" + hash(use, "cp.0")[:nameHash], "owner1"},
		} {
			got := make.name(in[0], in[1])
			if !labels[use].MatchString(got) || len(got) > make.longest {
				t.Errorf("%s of %q is %q, which is no DNS label, or too long", use, in, got)
			}
			if got != make.name(in[0], in[1]) {
				t.Errorf("%s of %q differs from call to call", use, in)
			}
			if other, ok := seen[got]; ok {
				t.Errorf("%q and %q share the name %q", in, other, got)
			}
			seen[got] = in
			for other, recognize := range named {
				for _, owner := range []string{"owner1", "owner2"} {
					if want := other == use && owner == in[1]; recognize.is(got, owner) != want {
						t.Errorf("%s is a name (%s) of %s: %v, want %v", got, other, owner, !want, want)
					}
				}
			}
		}
	}
}

// A VM may be found in MAAS when its object is gone.
func TestHostnamesHoldTheNamesOfObjectsWhereTheyFit(t *testing.T) {
	for name, whole := range map[string]bool{
		"a": true, "cp-0": true, strings.Repeat("a", 34): true,
		"cp.0": false, "0cp": false, strings.Repeat("a", 35): false,
	} {
		got := Hostname(name, "owner1")
		ends := HostnameSuffixes("owner1")
		want := ends[0]
		if !whole {
			want = ends[1]
		}
		if !strings.HasSuffix(got, want) || (got == name+want) != whole {
			t.Errorf("the hostname of %s is %s; it holds the whole name: want %v", name, got, whole)
		}
	}
}

func TestOwnerIDsHaveAForm(t *testing.T) {
	for id, want := range map[string]bool{
		"x7k2m9qwzc4t": true, "000000000000": true,
		"": false, "x7k2m9qwzc4": false, "x7k2m9qwzc4tt": false, "X7k2m9qwzc4t": false, "x7k2m9/qwz/4": false, "x7k2m9\x00wzc4t": false, "x7k2m9qwzcä": false,
	} {
		if ValidOwnerID(id) != want {
			t.Errorf("%q is an owner id: %v, want %v", id, !want, want)
		}
	}
}
