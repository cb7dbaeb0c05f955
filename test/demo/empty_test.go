// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A user who creates a cluster by hand gets names that the simulated MAAS knows.
func TestWhatIsOfferedIsInTheRegion(t *testing.T) {
	region, err := os.ReadFile(filepath.Join("..", "sandbox", "region.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat([]string{offeredDomain, offeredSubnet, resourcePool}, offeredImages, offeredZones) {
		if !strings.Contains(string(region), ": "+name) {
			t.Errorf("the region has no %s", name)
		}
	}
}
