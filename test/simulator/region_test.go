// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"errors"
	"os"
	"strings"
	"testing"
)

func TestLoadRegionNamesWhatIsWrong(t *testing.T) {
	tests := map[string]struct{ yaml, names string }{
		"unknown key":    {"zonez: []", "zonez"},
		"bad duration":   {"timings: {deploy: soon}", "soon"},
		"no zone":        {"machines: [{name: m, cores: 1, memory: 1, disks: [1], zone: nosuch}]", "nosuch"},
		"no pool":        {"machines: [{name: m, cores: 1, memory: 1, disks: [1], pool: nosuch}]", "nosuch"},
		"no such status": {"machines: [{name: m, cores: 1, memory: 1, disks: [1], status: happy}]", "happy"},
		"no subnet":      {"subnets: [{cidr: 10.8.0.0/24}]\nmachines: [{name: m, cores: 1, memory: 1, nics: [{subnet: 10.9.0.0/24}]}]", "10.9.0.0/24"},
		"bad CIDR":       {"subnets: [{cidr: 10.0.0.0/99}]", "10.0.0.0/99"},
		"no such device": {"machines: [{name: m, cores: 1, memory: 1, storage_extra: {layout: {vg: {type: lvm}}}}]", "lvm"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			region, err := LoadRegion(strings.NewReader(test.yaml))
			if err == nil {
				var s *Simulator
				if s, err = New(region, Options{}); err == nil {
					s.Close()
					t.Fatal("no error")
				}
			}
			if !strings.Contains(err.Error(), test.names) {
				t.Errorf("%q does not name %q", err, test.names)
			}
		})
	}
}

func TestVersionsAreThoseOfTheList(t *testing.T) {
	for text, want := range map[string]string{"": DefaultVersion.String(), "3.3": "3.3.11", "3.6.2": "3.6.2", "3.8": "3.8.0", "4.0": "4.0.0", "4.0.1": "4.0.1"} {
		if got, err := ParseVersion(text); err != nil || got.String() != want {
			t.Errorf("%q is %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"2.9", "3.2", "3.9", "4.1", "5.0", "3", "3.6.x", "3.7.0~beta1", "03.6", "latest"} {
		var unknown *UnknownVersionError
		if _, err := ParseVersion(text); !errors.As(err, &unknown) || unknown.Version != text {
			t.Errorf("%q is refused with %v", text, err)
		}
	}
}

func TestNewRefusesBadOptions(t *testing.T) {
	for name, opts := range map[string]Options{
		"unknown version":     {Version: "2.9"},
		"time runs backwards": {TimeScale: -1},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := New(&Region{}, opts)
			if err == nil {
				s.Close()
				t.Fatal("no error")
			}
		})
	}
}

func TestExampleRegion(t *testing.T) {
	file, err := os.Open("../sandbox/region.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	region, err := LoadRegion(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range Versions {
		s, err := New(region, Options{Version: version.String()})
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		zones := map[string]int{}
		for _, h := range s.db.hosts {
			zones[h.zone.name]++
		}
		s.Close()
		if s.hasVMHosts() && (zones["zone-a"] < 2 || zones["zone-b"] < 1 || zones["zone-c"] < 1) {
			t.Errorf("%s: VM hosts by zone are %v", version, zones)
		}
	}
}

func TestSameSeedMakesTheSameRegion(t *testing.T) {
	a, b := newBed(t), newBed(t)
	if string(a.State()) != string(b.State()) {
		t.Error("two regions of one seed differ")
	}
	other := newBedWith(t, testRegion, Options{Seed: 2})
	if string(a.State()) == string(other.State()) {
		t.Error("regions of different seeds are the same")
	}
}
