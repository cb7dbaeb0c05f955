// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

func TestFits(t *testing.T) {
	metal := maas.Machine{
		SystemID: "a", Status: maas.StatusReady, CPUCount: 8, Memory: 16384, Storage: 500_000, BootDisk: &maas.Disk{Size: 100_000_000_000},
		Architecture: "amd64/generic", Zone: maas.Ref{Name: "z"}, Pool: maas.Ref{Name: "p"}, Tags: []string{"ssd", "gpu"},
	}
	change := func(how func(*maas.Machine)) maas.Machine { m := metal; how(&m); return m }
	for name, tc := range map[string]struct {
		machine     maas.Machine
		constraints maas.AllocateParams
		want        bool
	}{
		"any":                  {metal, maas.AllocateParams{}, true},
		"all at their limits":  {metal, maas.AllocateParams{SystemID: "a", Zone: "z", Pool: "p", MinCPU: 8, MinMemory: 16384, MinDiskSize: 100, Tags: []string{"gpu", "ssd"}}, true},
		"another user has it":  {change(func(m *maas.Machine) { m.Status = maas.StatusDeployed }), maas.AllocateParams{}, true},
		"another machine":      {metal, maas.AllocateParams{SystemID: "b"}, false},
		"another zone":         {metal, maas.AllocateParams{Zone: "y"}, false},
		"another pool":         {metal, maas.AllocateParams{Pool: "q"}, false},
		"few cores":            {metal, maas.AllocateParams{MinCPU: 9}, false},
		"little memory":        {metal, maas.AllocateParams{MinMemory: 16385}, false},
		"a small boot disk":    {metal, maas.AllocateParams{MinDiskSize: 101}, false},
		"disks, none to boot":  {change(func(m *maas.Machine) { m.BootDisk = nil }), maas.AllocateParams{MinDiskSize: 500}, true},
		"a tag is missing":     {metal, maas.AllocateParams{Tags: []string{"ssd", "arm"}}, false},
		"a tag not to have":    {metal, maas.AllocateParams{NotTags: []string{"arm", "gpu"}}, false},
		"no tag not to have":   {metal, maas.AllocateParams{NotTags: []string{"arm"}}, true},
		"the architecture":     {metal, maas.AllocateParams{Architecture: "amd64/generic"}, true},
		"its main part":        {metal, maas.AllocateParams{Architecture: "amd64"}, true},
		"another architecture": {metal, maas.AllocateParams{Architecture: "arm64"}, false},
		"a VM":                 {change(func(m *maas.Machine) { m.Pod = &maas.Ref{ID: 1} }), maas.AllocateParams{}, false},
		"a DPU":                {change(func(m *maas.Machine) { m.IsDPU = true }), maas.AllocateParams{}, false},
		"broken":               {change(func(m *maas.Machine) { m.Status = maas.StatusBroken }), maas.AllocateParams{}, false},
		"not commissioned yet": {change(func(m *maas.Machine) { m.Status = maas.StatusNew }), maas.AllocateParams{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Fits(&tc.machine, tc.constraints); got != tc.want {
				t.Errorf("Fits is %t, want %t", got, tc.want)
			}
		})
	}
}
