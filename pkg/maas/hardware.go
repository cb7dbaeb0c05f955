// SPDX-License-Identifier: Apache-2.0

package maas

// HardwareInfo is what commissioning found out about a machine (GET machines/, hardware_info). MAAS says "Unknown"
// where it found nothing.
type HardwareInfo struct {
	Vendor  string `json:"system_vendor"`
	Product string `json:"system_product"`
	Serial  string `json:"system_serial"`
}

// TestStatus is the result of a machine's hardware tests that counts most in MAAS's order. Results that another user
// has suppressed in MAAS do not count.
type TestStatus int

// The results, with MAAS's numbers. It shows tests that timed out, or could not be set up, as failed.
const (
	TestsNone     TestStatus = -1 // no test was ever begun
	TestsPending  TestStatus = 0
	TestsRunning  TestStatus = 1
	TestsPassed   TestStatus = 2
	TestsFailed   TestStatus = 3
	TestsAborted  TestStatus = 5
	TestsDegraded TestStatus = 6
)

// Tests are the results of a machine's hardware tests (GET machines/): all together, and by what was tested.
type Tests struct {
	All       TestStatus `json:"testing_status"`
	CPU       TestStatus `json:"cpu_test_status"`
	Memory    TestStatus `json:"memory_test_status"`
	Storage   TestStatus `json:"storage_test_status"`
	Network   TestStatus `json:"network_test_status"`
	Interface TestStatus `json:"interface_test_status"`
	Other     TestStatus `json:"other_test_status"`
}

// With returns what was tested with a result.
func (t Tests) With(status TestStatus) (tested []string) {
	for _, one := range []struct {
		name   string
		status TestStatus
	}{{"CPU", t.CPU}, {"memory", t.Memory}, {"storage", t.Storage}, {"network", t.Network},
		{"network interfaces", t.Interface}, {"other hardware", t.Other}} {
		if one.status == status {
			tested = append(tested, one.name)
		}
	}
	return tested
}
