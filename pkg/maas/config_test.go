// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"regexp"
	"testing"
)

func TestWhereIsTheSameForAllSpellings(t *testing.T) {
	for name, tc := range map[string]struct {
		endpoints []string
		want      string
	}{
		"a port": {[]string{
			"http://maas.example.com:5240/MAAS", "http://maas.example.com:5240/MAAS/", "http://MAAS.Example.com:5240/MAAS",
			"http://maas.example.com.:5240/MAAS", " http://maas.example.com:5240/MAAS/api/2.0/ ", "http://maas.example.com:5240//MAAS//",
			"http://maas.example.com:5240/MAAS//api/2.0/",
		}, "maas.example.com:5240/MAAS/api/2.0"},
		"the port of HTTP":  {[]string{"http://maas.example.com/MAAS", "http://maas.example.com:80/MAAS", "http://maas.example.com:/MAAS"}, "maas.example.com/MAAS/api/2.0"},
		"the port of HTTPS": {[]string{"https://maas.example.com/MAAS", "https://maas.example.com.:443/MAAS"}, "maas.example.com/MAAS/api/2.0"},
		"no default port":   {[]string{"https://maas.example.com:80/MAAS"}, "maas.example.com:80/MAAS/api/2.0"},
		"IPv6":              {[]string{"http://[FD00::1]:80/MAAS", "http://[fd00::1]/MAAS"}, "[fd00::1]/MAAS/api/2.0"},
		"IPv6 with a port":  {[]string{"http://[fd00::1]:5240/MAAS"}, "[fd00::1]:5240/MAAS/api/2.0"},
		"no path":           {[]string{"http://maas", "http://maas/", "http://maas/api/2.0"}, "maas/api/2.0"},
		"letters of a path": {[]string{"http://maas/maas"}, "maas/maas/api/2.0"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, endpoint := range tc.endpoints {
				if got := (Config{Endpoint: endpoint}).Where(); got != tc.want {
					t.Errorf("%q is at %q, want %q", endpoint, got, tc.want)
				}
			}
		})
	}
}

func TestKeyIDIsMadeOfWhatIsPublic(t *testing.T) {
	id := func(key string) string { return Config{APIKey: key}.KeyID() }
	if got := id("a:b:c"); !regexp.MustCompile(`^[0-9a-f]{8}$`).MatchString(got) || got != id("a:b:another") {
		t.Errorf("the id is %q, and with another secret %q", got, id("a:b:another"))
	}
	for _, other := range []string{"a:x:c", "x:b:c", "ab::c"} {
		if id(other) == id("a:b:c") {
			t.Errorf("%s has the id of another key", other)
		}
	}
	if got := id("all-of-it-may-be-secret"); got != "" {
		t.Errorf("what is no key has the id %q", got)
	}
}
