// SPDX-License-Identifier: Apache-2.0

package life

import (
	"context"
	"fmt"
	"math"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

const (
	// maxParts is how many disks and network cards of a machine the status has. maxPartText is the length of a text, in
	// bytes: with what marks the end, less than the 128 characters of the CRD.
	maxParts, maxPartText = 64, 120
	// unknown is how MAAS says that it does not know something of a machine.
	unknown = "Unknown"
)

// hardwareOf describes a machine as MAAS's commissioning found it.
func hardwareOf(m *maas.Machine) *infrav1.MachineHardware {
	found := &infrav1.MachineHardware{
		Hostname: text.OneLine(m.Hostname, maxPartText), Cores: int32(min(m.CPUCount, math.MaxInt32)),
		Memory: int64(m.Memory),
		Vendor: known(m.HardwareInfo.Vendor), Product: known(m.HardwareInfo.Product), Serial: known(m.HardwareInfo.Serial),
	}
	for _, disk := range m.Disks {
		found.Disks = append(found.Disks, infrav1.HardwareDisk{
			Name: known(disk.Name), Model: known(disk.Model), Serial: known(disk.Serial), Size: disk.Size / 1_000_000_000,
		})
	}
	for _, nic := range m.Interfaces {
		if nic.Type == "physical" {
			found.NICs = append(found.NICs, infrav1.HardwareNIC{
				Name: known(nic.Name), MACAddress: known(nic.MACAddress), Vendor: known(nic.Vendor), Product: known(nic.Product),
				LinkSpeed: int32(min(nic.LinkSpeed, math.MaxInt32)),
			})
		}
	}
	found.Disks, found.NICs = found.Disks[:min(len(found.Disks), maxParts)], found.NICs[:min(len(found.NICs), maxParts)]
	return found
}

// known returns what MAAS knows, as one bounded line; "" for nothing.
func known(value string) string {
	if value == unknown {
		return ""
	}
	return text.OneLine(value, maxPartText)
}

// markHardware reports what MAAS's hardware tests say of a machine.
func markHardware(m *infrav1.MaasMachine, tests maas.Tests) {
	of := func(status maas.TestStatus) string { return strings.Join(tests.With(status), ", ") }
	const remedy = "see its test results in MAAS; replace the machine, or suppress there what does not matter"
	switch tests.All {
	case maas.TestsPassed:
		report.SetTrue(m, infrav1.HardwareHealthyCondition, infrav1.TestsPassedReason)
	case maas.TestsFailed:
		report.SetFalse(m, infrav1.HardwareHealthyCondition, infrav1.TestsFailedReason, "hardware tests failed (%s): %s",
			of(maas.TestsFailed), remedy)
	case maas.TestsDegraded:
		report.SetFalse(m, infrav1.HardwareHealthyCondition, infrav1.TestsDegradedReason,
			"hardware tests found something degraded (%s): %s", of(maas.TestsDegraded), remedy)
	case maas.TestsPending, maas.TestsRunning:
		report.SetUnknown(m, infrav1.HardwareHealthyCondition, infrav1.TestsRunningReason, "MAAS is testing the machine")
	default:
		report.SetUnknown(m, infrav1.HardwareHealthyCondition, infrav1.NotTestedReason,
			"MAAS has no complete test of the machine: test it in MAAS while it is in the pool")
	}
}

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/status,verbs=patch

// TellHardware tells the Machine what MAAS's hardware tests say, for its readiness gates and MachineHealthChecks.
func (s *Steps) TellHardware(ctx context.Context, l *Life) error {
	var changed []metav1.Condition
	for _, condition := range []string{infrav1.HardwareHealthyCondition, infrav1.HardwareProvenCondition} {
		said := conditions.Get(l.MaasMachine, condition)
		if said != nil && !isSame(said, conditions.Get(l.Machine.Machine, condition)) {
			changed = append(changed, *said)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	machine := l.Machine.Machine.DeepCopy()
	err := objects.PatchConditions(ctx, s.Client, machine, func() {
		for _, said := range changed {
			conditions.Set(machine, said)
		}
	}, list.Each(changed, func(c metav1.Condition) string { return c.Type })...)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("telling the Machine of the hardware tests: %w", err)
	}
	return nil
}

// isSame reports whether two conditions say the same.
func isSame(a, b *metav1.Condition) bool {
	return b != nil && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}
