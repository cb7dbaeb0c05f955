// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"math"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

const gigabyte = 1_000_000_000

// setReading puts what LXD said into the status. owners are the Clusters by owner id.
func setReading(host *infrav1.LXDHost, reading lxdhost.Reading, owners map[string]string) {
	status := &host.Status
	status.Version = reading.Version
	var unused int64
	setPools(status, reading.Pools, func(pool lxdhost.Pool) infrav1.LXDStoragePoolStatus {
		left := max(pool.TotalBytes-pool.UsedBytes, 0)
		unused += left
		return infrav1.LXDStoragePoolStatus{
			Name: pool.Name, Driver: pool.Driver, Size: pool.TotalBytes / gigabyte, Free: left / gigabyte,
		}
	})
	status.Bridges = list.Each(reading.Bridges, func(bridge lxdhost.Bridge) string { return bridge.Name })
	slices.Sort(status.Bridges)
	status.Bridges = slices.Compact(status.Bridges)
	most, allocated := reading.Most(scope.Overcommit(host.Spec.OverCommit)), reading.Allocated
	setFigures(status, infrav1.LXDResources{
		Cores: most.Cores, Memory: most.MemoryMiB, Disk: most.DiskBytes / gigabyte,
	}, infrav1.LXDResources{
		Cores: allocated.Cores, Memory: allocated.MemoryMiB, Disk: roundUp(allocated.DiskBytes, gigabyte),
	})
	// Other projects have something on the pools, too.
	status.Free.Disk = min(status.Free.Disk, unused/gigabyte)
	counts := map[string]int32{}
	for _, vm := range reading.VMs {
		if cluster := owners[vm.Marks.Owner]; cluster != "" {
			counts[cluster]++
		}
	}
	setVMs(status, counts)
}

// setVMHost puts what MAAS says of a VM host into the status. counts are its VMs by cluster.
func setVMHost(status *infrav1.LXDHostStatus, h *maas.VMHost, counts map[string]int32) {
	status.Version, status.SystemID = h.Version, h.Host.SystemID
	setPools(status, h.StoragePools, func(pool maas.StoragePool) infrav1.LXDStoragePoolStatus {
		return infrav1.LXDStoragePoolStatus{
			Name: pool.Name, Driver: pool.Type, Size: pool.Total / gigabyte, Free: max(pool.Available, 0) / gigabyte,
		}
	})
	setFigures(status, infrav1.LXDResources{
		Cores:  int64(float64(h.Total.Cores) * h.CPUOverCommit),
		Memory: int64(float64(h.Total.Memory) * h.MemoryOverCommit),
		Disk:   h.Total.LocalStorage / gigabyte,
	}, infrav1.LXDResources{
		Cores: int64(h.Used.Cores), Memory: int64(h.Used.Memory), Disk: roundUp(h.Used.LocalStorage, gigabyte),
	})
	setVMs(status, counts)
}

// setPools shows storage pools, by name.
func setPools[T any](status *infrav1.LXDHostStatus, pools []T, show func(T) infrav1.LXDStoragePoolStatus) {
	status.StoragePools = list.Each(pools, show)
	slices.SortFunc(status.StoragePools, func(a, b infrav1.LXDStoragePoolStatus) int {
		return strings.Compare(a.Name, b.Name)
	})
}

// setFigures also sets what is free, which may be less than nothing if overCommit was reduced.
func setFigures(status *infrav1.LXDHostStatus, capacity, allocated infrav1.LXDResources) {
	status.Capacity, status.Allocated = &capacity, &allocated
	status.Free = &infrav1.LXDResources{
		Cores:  max(capacity.Cores-allocated.Cores, 0),
		Memory: max(capacity.Memory-allocated.Memory, 0),
		Disk:   max(capacity.Disk-allocated.Disk, 0),
	}
}

func setVMs(status *infrav1.LXDHostStatus, counts map[string]int32) {
	status.Clusters = nil
	var all int32
	for cluster, count := range counts {
		all += count
		status.Clusters = append(status.Clusters, infrav1.LXDClusterVMs{Cluster: cluster, Count: count})
	}
	slices.SortFunc(status.Clusters, func(a, b infrav1.LXDClusterVMs) int { return strings.Compare(a.Cluster, b.Cluster) })
	status.VMs = ptr.To(all)
}

// percent returns MAAS's ratio as the API has it.
func percent(ratio float64) int32 { return int32(min(max(math.Round(ratio*100), 1), 1000)) }

func roundUp(amount, unit int64) int64 { return (amount + unit - 1) / unit }
