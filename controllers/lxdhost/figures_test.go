// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

var unlimited = lxdhost.Amount{Cores: lxdhost.NoLimit, MemoryMiB: lxdhost.NoLimit, DiskBytes: lxdhost.NoLimit}

func TestFiguresOfAReading(t *testing.T) {
	pools := []lxdhost.Pool{
		{Name: "fast", Driver: "zfs", TotalBytes: 50 * gigabyte, UsedBytes: 60 * gigabyte},
		{Name: "default", Driver: "dir", TotalBytes: 100*gigabyte + 999, UsedBytes: 30*gigabyte + 1},
	}
	for name, test := range map[string]struct {
		allocated, limits     lxdhost.Amount
		over                  infrav1.LXDOverCommit
		capacity, taken, free infrav1.LXDResources
	}{
		"an empty host": {
			limits: unlimited, capacity: infrav1.LXDResources{Cores: 8, Memory: 1000, Disk: 150}, free: infrav1.LXDResources{Cores: 8, Memory: 1000, Disk: 70},
		},
		"over-commit": {
			limits: unlimited, over: infrav1.LXDOverCommit{CPUPercent: 250, MemoryPercent: 50}, allocated: lxdhost.Amount{Cores: 9, MemoryMiB: 100, DiskBytes: 1},
			capacity: infrav1.LXDResources{Cores: 20, Memory: 500, Disk: 150}, taken: infrav1.LXDResources{Cores: 9, Memory: 100, Disk: 1},
			free: infrav1.LXDResources{Cores: 11, Memory: 400, Disk: 70},
		},
		"limits of the project": {
			limits:   lxdhost.Amount{Cores: 2, MemoryMiB: 300, DiskBytes: 40 * gigabyte},
			capacity: infrav1.LXDResources{Cores: 2, Memory: 300, Disk: 40}, free: infrav1.LXDResources{Cores: 2, Memory: 300, Disk: 40},
		},
		"more promised than there is": {
			limits: unlimited, allocated: lxdhost.Amount{Cores: 9, MemoryMiB: 1001, DiskBytes: 200 * gigabyte},
			capacity: infrav1.LXDResources{Cores: 8, Memory: 1000, Disk: 150}, taken: infrav1.LXDResources{Cores: 9, Memory: 1001, Disk: 200},
		},
	} {
		t.Run(name, func(t *testing.T) {
			host := &infrav1.LXDHost{Spec: infrav1.LXDHostSpec{OverCommit: test.over}}
			setReading(host, lxdhost.Reading{Capacity: lxdhost.Capacity{Cores: 8, MemoryMiB: 1000, Pools: pools, Allocated: test.allocated, Limits: test.limits}}, nil)
			got := []infrav1.LXDResources{*host.Status.Capacity, *host.Status.Allocated, *host.Status.Free}
			if diff := cmp.Diff([]infrav1.LXDResources{test.capacity, test.taken, test.free}, got); diff != "" {
				t.Errorf("capacity, allocated, free (-want +got):\n%s", diff)
			}
			want := []infrav1.LXDStoragePoolStatus{{Name: "default", Driver: "dir", Size: 100, Free: 70}, {Name: "fast", Driver: "zfs", Size: 50}}
			if diff := cmp.Diff(want, host.Status.StoragePools); diff != "" {
				t.Errorf("storage pools (-want +got):\n%s", diff)
			}
		})
	}
}

// Only VMs of clusters that there are count; LXD lists what is marked, whoever's it is.
func TestVMsOfAReading(t *testing.T) {
	vm := func(owner string) lxdhost.VM { return lxdhost.VM{Marks: lxdhost.Marks{Owner: owner, Machine: "m"}} }
	reading := lxdhost.Reading{
		Capacity: lxdhost.Capacity{Limits: unlimited, Bridges: []lxdhost.Bridge{{Name: "lxdbr0"}, {Name: "br0"}, {Name: "br0"}}},
		VMs:      []lxdhost.VM{vm("one"), vm("two"), vm("one"), vm("nobody")},
	}
	host := &infrav1.LXDHost{}
	setReading(host, reading, map[string]string{"one": "ns/one", "two": "ns/two", "three": "ns/three"})
	want := infrav1.LXDHostStatus{
		VMs: ptr.To[int32](3), Bridges: []string{"br0", "lxdbr0"},
		Clusters: []infrav1.LXDClusterVMs{{Cluster: "ns/one", Count: 2}, {Cluster: "ns/two", Count: 1}},
	}
	got := infrav1.LXDHostStatus{VMs: host.Status.VMs, Bridges: host.Status.Bridges, Clusters: host.Status.Clusters}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFiguresOfAVMHost(t *testing.T) {
	h := vmHost(1, "a", "abc")
	h.Version, h.CPUOverCommit, h.MemoryOverCommit = "5.21", 1.5, 0.5
	h.Total = maas.VMHostResources{Cores: 8, Memory: 1000, LocalStorage: 100*gigabyte + 1}
	h.Used = maas.VMHostResources{Cores: 2, Memory: 600, LocalStorage: 1}
	h.StoragePools = []maas.StoragePool{{Name: "default", Type: "zfs", Total: 100 * gigabyte, Available: 99*gigabyte + 1}}
	status := &infrav1.LXDHostStatus{}
	setVMHost(status, &h, map[string]int32{"ns/c": 2})
	want := &infrav1.LXDHostStatus{
		Version: "5.21", SystemID: "abc", VMs: ptr.To[int32](2), Clusters: []infrav1.LXDClusterVMs{{Cluster: "ns/c", Count: 2}},
		Capacity:     &infrav1.LXDResources{Cores: 12, Memory: 500, Disk: 100},
		Allocated:    &infrav1.LXDResources{Cores: 2, Memory: 600, Disk: 1},
		Free:         &infrav1.LXDResources{Cores: 10, Disk: 99},
		StoragePools: []infrav1.LXDStoragePoolStatus{{Name: "default", Driver: "zfs", Size: 100, Free: 99}},
	}
	if diff := cmp.Diff(want, status); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPercent(t *testing.T) {
	for ratio, want := range map[float64]int32{0: 1, 0.005: 1, 1: 100, 1.1: 110, 10: 1000, 11: 1000} {
		if got := percent(ratio); got != want {
			t.Errorf("percent(%v) = %d, want %d", ratio, got, want)
		}
	}
}
