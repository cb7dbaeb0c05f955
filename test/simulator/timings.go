// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is a time.Duration that YAML writes as "90s" or "4m".
type Duration time.Duration

// UnmarshalJSON reads a duration such as "1m30s"; a negative one is an error.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return fmt.Errorf("a duration is a string such as \"90s\": %w", err)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("reading a duration: %w", err)
	}
	if parsed < 0 {
		return fmt.Errorf("duration %s is negative", text)
	}
	*d = Duration(parsed)
	return nil
}

// MarshalJSON writes the duration as UnmarshalJSON reads it.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// Timings are the durations of operations in the region, before Options.TimeScale divides them. The defaults are those
// of usual real hardware.
type Timings struct {
	// PowerOn and PowerOff are from the request until the BMC confirms.
	PowerOn  *Duration `json:"power_on,omitempty"`
	PowerOff *Duration `json:"power_off,omitempty"`
	// Commission and Test are the runs of the scripts, each after the machine is on.
	Commission *Duration `json:"commission,omitempty"`
	Test       *Duration `json:"test,omitempty"`
	// Deploy is from power on to Deployed, on bare metal; DeployVM the same for a composed VM.
	Deploy   *Duration `json:"deploy,omitempty"`
	DeployVM *Duration `json:"deploy_vm,omitempty"`
	// EraseQuick, EraseSecure and EraseFull are the three ways of "Disk erasing".
	EraseQuick  *Duration `json:"erase_quick,omitempty"`
	EraseSecure *Duration `json:"erase_secure,omitempty"`
	EraseFull   *Duration `json:"erase_full,omitempty"`
	// RescueMode is the duration of entering and of leaving rescue mode.
	RescueMode *Duration `json:"rescue_mode,omitempty"`
	// Compose and Decompose are the VM host's time within the request.
	Compose   *Duration `json:"compose,omitempty"`
	Decompose *Duration `json:"decompose,omitempty"`
	// Refresh is the time of discovering a VM host within the request.
	Refresh *Duration `json:"refresh,omitempty"`
	// VMHostSync is the time from a VM host's registration until MAAS knows its cores and memory.
	VMHostSync *Duration `json:"vm_host_sync,omitempty"`
	// ListMachine is the time for each machine in a list, within the request. Default: no time.
	ListMachine *Duration `json:"list_machine,omitempty"`
	// Write is the time that a worker of the region needs for a call that changes something, whatever else it waits for.
	// Workers is how many there are; calls wait for one in the order in which they come. Default: no time, and no bound.
	Write   *Duration `json:"write,omitempty"`
	Workers int       `json:"workers,omitempty"`
	// PowerPoll is how often MAAS reads the power of machines from their BMCs.
	PowerPoll *Duration `json:"power_poll,omitempty"`
}

// defaultTimings are the durations on usual hardware.
var defaultTimings = map[string]time.Duration{
	"power_on": 20 * time.Second, "power_off": 15 * time.Second,
	"commission": 4 * time.Minute, "test": 30 * time.Second,
	"deploy": 6 * time.Minute, "deploy_vm": 3 * time.Minute,
	"erase_quick": time.Minute, "erase_secure": 4 * time.Minute, "erase_full": 40 * time.Minute,
	"rescue_mode": 3 * time.Minute,
	"compose":     6 * time.Second, "decompose": 3 * time.Second,
	"refresh": 4 * time.Second, "vm_host_sync": 25 * time.Second,
	"power_poll": 5 * time.Minute,
}

// take returns the duration of an operation.
func (t Timings) take(given *Duration, name string) time.Duration {
	if given != nil {
		return time.Duration(*given)
	}
	return defaultTimings[name]
}

func (t Timings) powerOn() time.Duration     { return t.take(t.PowerOn, "power_on") }
func (t Timings) powerOff() time.Duration    { return t.take(t.PowerOff, "power_off") }
func (t Timings) commission() time.Duration  { return t.take(t.Commission, "commission") }
func (t Timings) test() time.Duration        { return t.take(t.Test, "test") }
func (t Timings) eraseQuick() time.Duration  { return t.take(t.EraseQuick, "erase_quick") }
func (t Timings) eraseSecure() time.Duration { return t.take(t.EraseSecure, "erase_secure") }
func (t Timings) eraseFull() time.Duration   { return t.take(t.EraseFull, "erase_full") }
func (t Timings) rescueMode() time.Duration  { return t.take(t.RescueMode, "rescue_mode") }
func (t Timings) compose() time.Duration     { return t.take(t.Compose, "compose") }
func (t Timings) decompose() time.Duration   { return t.take(t.Decompose, "decompose") }
func (t Timings) refresh() time.Duration     { return t.take(t.Refresh, "refresh") }
func (t Timings) vmHostSync() time.Duration  { return t.take(t.VMHostSync, "vm_host_sync") }
func (t Timings) listMachine() time.Duration { return t.take(t.ListMachine, "list_machine") }
func (t Timings) write() time.Duration       { return t.take(t.Write, "write") }
func (t Timings) powerPoll() time.Duration   { return t.take(t.PowerPoll, "power_poll") }

func (t Timings) deploy(vm bool) time.Duration {
	if vm {
		return t.take(t.DeployVM, "deploy_vm")
	}
	return t.take(t.Deploy, "deploy")
}

func timeOf(d Duration) time.Duration { return time.Duration(d) }
