// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"regexp"
	"strings"
	"testing"
)

// named are the functions that make names, and the end of those that hold the whole name of an object.
var named = map[string]struct {
	name   func(name, ownerID string) string
	suffix func(ownerID string) string
}{
	"hostname": {Hostname, HostnameSuffix},
	"endpoint": {EndpointLabel, EndpointSuffix},
}

// One map for both: the hostname of a machine is never the label of an endpoint.
func TestNamesAreLabelsAndUnique(t *testing.T) {
	labels := map[string]*regexp.Regexp{
		"hostname": regexp.MustCompile(`^[a-z]([a-z0-9-]*[a-z0-9])$`), // MAAS keeps no other name of a VM.
		"endpoint": regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`),
	}
	long := strings.Repeat("a-long-name-", 10)
	cut := long[:49]
	seen := map[string][2]string{}
	for use, make := range named {
		for _, in := range [][2]string{
			{"cp-0", "owner1"}, {"cp-0", "owner2"}, {"cp.0", "owner1"}, {"cp-1", "owner1"}, {"cp-0-", "owner1"}, {"Cp-0", "owner1"},
			{long + "1", "owner1"}, {long + "2", "owner1"}, {strings.Repeat("a", 48) + "---", "owner1"},
			// An id that holds what is hashed with another one.
			{"0cp", "owner1"}, {"m-0cp", "owner1"}, {"0" + long, "owner1"}, {"m-0" + long, "owner1"},
			{cut, "owner1"}, {cut, "owner1/" + long + "1"}, {cut, "owner1\x00" + long + "1"}, {"cp-0", "owner1/cp.0"}, {"cp-0", "owner1\x00cp.0"},
		} {
			got := make.name(in[0], in[1])
			if !labels[use].MatchString(got) || len(got) > 63 {
				t.Errorf("%s of %q is %q, which is no DNS label", use, in, got)
			}
			if got != make.name(in[0], in[1]) {
				t.Errorf("%s of %q differs from call to call", use, in)
			}
			if other, ok := seen[got]; ok {
				t.Errorf("%q and %q share the name %q", in, other, got)
			}
			seen[got] = in
		}
	}
}

func TestNamesOfAClusterShareASuffix(t *testing.T) {
	suffix := regexp.MustCompile(`^-[a-z2-7]{13}$`)
	for use, make := range named {
		end := make.suffix("owner1")
		if !suffix.MatchString(end) || end == make.suffix("owner2") {
			t.Errorf("names end in %q", end)
		}
		for _, name := range []string{"a", "cp-0", strings.Repeat("a", 49)} {
			if got := make.name(name, "owner1"); got != name+end {
				t.Errorf("%s of %s is %s", use, name, got)
			}
		}
		for _, name := range []string{"cp.0", strings.Repeat("a", 50)} {
			if got := make.name(name, "owner1"); strings.HasSuffix(got, end) {
				t.Errorf("%s of %s is %s, as if it held the whole name", use, name, got)
			}
		}
	}
	if HostnameSuffix("owner1") == EndpointSuffix("owner1") {
		t.Error("hostnames and endpoints end in the same")
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
