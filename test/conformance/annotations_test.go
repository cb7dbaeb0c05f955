// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func (m *maas) annotate(t *testing.T, machine object, pairs ...string) *answer {
	t.Helper()
	return m.machineOp(t, machine, "set_workload_annotations", pairs...)
}

func TestAnnotationsNeedAnOwner(t *testing.T) {
	tests := map[string]func(t *testing.T, m *maas) object{
		"Ready": func(t *testing.T, m *maas) object { return m.spare(t) },
		"New":   func(t *testing.T, m *maas) object { return m.newMachine(t) },
	}
	for name, machine := range tests {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, m *maas) {
				m.annotate(t, machine(t, m), "a", "b").
					refuses(t, http.StatusConflict, "Cannot set workload annotation: it hasn't been acquired.")
			})
		})
	}
}

func TestAnnotationsAreShown(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.newDeployedMachine(t)
		m.annotate(t, machine, "role", "control-plane", "cluster.name_1", "x y/z").object(t)
		want := map[string]any{"role": "control-plane", "cluster.name_1": "x y/z"}
		got := m.machine(t, machine.str("system_id"))
		for _, key := range []string{"workload_annotations", "owner_data"} {
			if diff := cmp.Diff(want, got[key]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", key, diff)
			}
		}
	})
}

func TestAnnotationsAreMerged(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.newDeployedMachine(t)
		m.annotate(t, machine, "keep", "1", "change", "1", "remove", "1").object(t)
		m.annotate(t, machine, "change", "2", "remove", "").object(t)
		want := map[string]any{"keep": "1", "change": "2"}
		if diff := cmp.Diff(want, m.machine(t, machine.str("system_id"))["workload_annotations"]); diff != "" {
			t.Errorf("annotations (-want +got):\n%s", diff)
		}
	})
}

// Annotation keys have letters, digits, dots, dashes and underscores; with a slash, as Kubernetes uses, MAAS fails.
func TestAnnotationKeysCannotHaveASlash(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		m.annotate(t, m.newDeployedMachine(t), "cluster.x-k8s.io/cluster-name", "x").
			refuses(t, http.StatusInternalServerError, "Invalid character in key name")
	})
}

func TestAnnotationsAreWipedByTheRelease(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		machine := m.newDeployedMachine(t)
		m.annotate(t, machine, "a", "b").object(t)
		m.release(t, machine).object(t)
		released := m.awaitMachine(t, machine.str("system_id"), "released", func(o object) bool {
			return o.at("owner") == nil
		})
		if diff := cmp.Diff(map[string]any{}, released["workload_annotations"]); diff != "" {
			t.Errorf("annotations (-want +got):\n%s", diff)
		}
	})
}

func TestAnnotationsOfAnotherUsersMachineAreForbidden(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		plain := m.asPlainUser(t)
		plain.annotate(t, m.newDeployedMachine(t), "a", "b").refusesSilently(t, http.StatusForbidden)
	})
}
