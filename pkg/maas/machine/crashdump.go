// SPDX-License-Identifier: Apache-2.0

package machine

// Where MAAS enables kernel crash dumps; elsewhere it deploys without them, and does not say so
// (validate_enable_kernel_crash_dump in maasserver/models/node.py). Memory is in MiB.
const (
	LeastDumpCores  = 4
	LeastDumpMemory = 6 << 10
	MostDumpMemory  = 2 << 20
)

// DumpArchitectures are those on which MAAS enables kernel crash dumps.
var DumpArchitectures = []string{"amd64", "arm64", "s390x"}

// DumpsCrashes reports whether MAAS enables kernel crash dumps on a machine of this size.
func DumpsCrashes(cores, memory int) bool {
	return cores >= LeastDumpCores && memory >= LeastDumpMemory && memory <= MostDumpMemory
}
