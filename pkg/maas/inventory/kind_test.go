// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Whether an id is that of a machine or of a device is MAAS's to say. A user may write another's id into an object, and
// the first who observes it may be wrong: neither makes another's machine, or device, disappear.
func TestNobodyButMAASSaysWhatIsADevice(t *testing.T) {
	t.Parallel()
	type observe func(*Inventory, string, Interest) Observation
	first := map[string]observe{"as a machine": (*Inventory).Observe, "as a device": (*Inventory).ObserveDevice}
	for how, first := range first {
		for id, second := range map[string]observe{"m0001": (*Inventory).Observe, "d0001": (*Inventory).ObserveDevice} {
			t.Run(id+" first "+how, func(t *testing.T) {
				t.Parallel()
				i, s := newScript(t)
				s.machines["m0001"] = &maas.Machine{SystemID: "m0001", Status: maas.StatusDeployed}
				s.devices = map[string]*maas.Device{"d0001": {SystemID: "d0001"}}
				check := func() {
					t.Helper()
					seen := second(i, id, Settled)
					if seen.Machine == nil || seen.Machine.SystemID != id || seen.Machine.Device != (id == "d0001") {
						t.Errorf("seen is %+v", seen)
					}
				}
				first(i, id, Settled)
				s.polls(i, sweeps)
				check()
				first(i, id, Changing)
				s.polls(i, sweeps)
				check()
				delete(s.machines, id)
				delete(s.devices, id)
				s.polls(i, sweeps)
				if seen := second(i, id, Settled); !seen.Known || seen.Machine != nil {
					t.Errorf("it is gone, and seen is %+v", seen)
				}
			})
		}
	}
}
