// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/http"
	"slices"
	"time"
)

// syncInterval is MAAS's default of hardware_sync_interval.
const syncInterval = 15 * time.Minute

// HardwareReport is what a machine that was deployed with enable_hw_sync tells MAAS of itself: all its network
// interfaces, whatever made them, and the disks that MAAS does not know yet.
type HardwareReport struct {
	Networks []HostNetwork `json:"networks"`
	Disks    []NewDisk     `json:"disks"`
}

// NewDisk is a disk that a running machine sees, for example a mapped volume.
type NewDisk struct {
	Name string `json:"name"`
	Size int64  `json:"size"` // bytes
}

// SyncHardware is what MAAS's service on a deployed machine does every 15 minutes. MAAS takes everything for the
// machine's own: links become static, subnets are made, disks added (process_lxd_results in
// metadataserver/builtin_scripts/hooks.py and update_node_interfaces in network.py).
func (s *Simulator) SyncHardware(systemID string, report HardwareReport) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machineByID(systemID)
	if m == nil {
		return controlMissing("machine", systemID)
	}
	return s.syncHardware(m, report)
}

func (s *Simulator) controlSync(r *http.Request) (any, error) {
	var report HardwareReport
	if err := readControl(r, &report); err != nil {
		return nil, err
	}
	return s.withMachine(r, func(m *machine) error { return s.syncHardware(m, report) })
}

func (s *Simulator) syncHardware(m *machine, report HardwareReport) error {
	if m.status != statusDeployed || !m.hwSync {
		return controlRefusal("machine %s is %s, with hardware sync: %v: only deployed machines with it report themselves",
			m.systemID, m.status, m.hwSync)
	}
	m.lastSync = s.time.clock.Now().UTC()
	s.takeInterfaces(m, report.Networks)
	for _, found := range report.Disks {
		if !slices.ContainsFunc(m.disks, func(d *disk) bool { return d.name == found.Name }) {
			s.addDisk(m, found.Size, found.Name, "")
		}
	}
	return nil
}

// renderSync shows when a machine reported itself, and when it should again (next_sync in maasserver/models/node.py).
func (m *machine) renderSync(out object) {
	out["enable_hw_sync"], out["last_sync"], out["next_sync"], out["sync_interval"] = m.hwSync, nil, nil, nil
	if !m.hwSync {
		return
	}
	out["sync_interval"] = int(syncInterval.Seconds())
	if !m.lastSync.IsZero() {
		out["last_sync"], out["next_sync"] = syncTime(m.lastSync), syncTime(m.lastSync.Add(syncInterval))
	}
}

func syncTime(t time.Time) string { return t.Format("2006-01-02T15:04:05.000") }
