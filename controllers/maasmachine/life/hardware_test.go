// SPDX-License-Identifier: Apache-2.0

package life

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

func TestMarkHardware(t *testing.T) {
	for name, tt := range map[string]struct {
		tests  maas.Tests
		status metav1.ConditionStatus
		reason string
		names  string
	}{
		"passed":       {maas.Tests{All: maas.TestsPassed}, metav1.ConditionTrue, infrav1.TestsPassedReason, ""},
		"failed":       {maas.Tests{All: maas.TestsFailed, Memory: maas.TestsFailed, Storage: maas.TestsFailed}, metav1.ConditionFalse, infrav1.TestsFailedReason, "memory, storage"},
		"degraded":     {maas.Tests{All: maas.TestsDegraded, Network: maas.TestsDegraded}, metav1.ConditionFalse, infrav1.TestsDegradedReason, "network"},
		"pending":      {maas.Tests{All: maas.TestsPending}, metav1.ConditionUnknown, infrav1.TestsRunningReason, ""},
		"running":      {maas.Tests{All: maas.TestsRunning}, metav1.ConditionUnknown, infrav1.TestsRunningReason, ""},
		"aborted":      {maas.Tests{All: maas.TestsAborted}, metav1.ConditionUnknown, infrav1.NotTestedReason, ""},
		"never tested": {maas.Tests{All: maas.TestsNone}, metav1.ConditionUnknown, infrav1.NotTestedReason, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := &infrav1.MaasMachine{}
			markHardware(m, tt.tests)
			got := conditions.Get(m, infrav1.HardwareHealthyCondition)
			if got.Status != tt.status || got.Reason != tt.reason || !strings.Contains(got.Message, tt.names) {
				t.Errorf("got %+v, want %s, %s, naming %q", got, tt.status, tt.reason, tt.names)
			}
		})
	}
}

// What MAAS does not know is left out, and what it makes up is bounded.
func TestHardwareOf(t *testing.T) {
	m := &maas.Machine{
		Hostname: "metal-a1", CPUCount: 8, Memory: 16384, HardwareInfo: maas.HardwareInfo{Vendor: "Acme", Product: "R1\nroot: yes", Serial: "Unknown"},
		Disks:      []*maas.Disk{{Name: "sda", Model: strings.Repeat("m", 1000), Serial: "S1", Size: 480_103_981_056}},
		Interfaces: []*maas.Interface{{Name: "bond0", Type: "bond"}, {Name: "eno1", Type: "physical", MACAddress: "00:16:3e:00:00:01", LinkSpeed: 10000}},
	}
	got := hardwareOf(m)
	if len(got.Disks) != 1 || len(got.Disks[0].Model) > 128 || strings.Contains(got.Product, "\n") {
		t.Errorf("it is not bounded: %+v", got)
	}
	got.Disks[0].Model, got.Product = "", ""
	want := &infrav1.MachineHardware{
		Hostname: "metal-a1", Cores: 8, Memory: 16384, Vendor: "Acme", Disks: []infrav1.HardwareDisk{{Name: "sda", Serial: "S1", Size: 480}},
		NICs: []infrav1.HardwareNIC{{Name: "eno1", MACAddress: "00:16:3e:00:00:01", LinkSpeed: 10000}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hardware (-want +got):\n%s", diff)
	}
	for range 1000 {
		m.Disks = append(m.Disks, m.Disks[0])
	}
	if got := hardwareOf(m); len(got.Disks) != maxParts {
		t.Errorf("%d disks, want %d", len(got.Disks), maxParts)
	}
}
