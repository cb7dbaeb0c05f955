// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"testing"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/lifetest"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

func TestWaitForADeadHostContinuesAfterARestart(t *testing.T) {
	t.Parallel()
	r := New(&life.Steps{Base: reconciler.Base{Client: fake.NewClientBuilder().WithScheme(allkinds.Scheme()).Build(), Clock: clock.RealClock{}, Recorder: events.NewFakeRecorder(10)}}, time.Minute)
	m := &infrav1.MaasMachine{Spec: infrav1.MaasMachineSpec{DynamicLXD: true}}
	why := lxd.Presence{State: lxd.Unreachable, Host: "h", After: time.Second, Why: &maas.Error{Kind: maas.Unavailable}}
	began := time.Now()
	for _, step := range []struct {
		after time.Duration
		waits bool
	}{{0, true}, {30 * time.Second, true}, {59 * time.Second, true}, {61 * time.Second, false}} {
		l := lifetest.Of(t, m) // As a new manager reads it.
		l.Machine = lifetest.ScopeOf(m)
		out, err := r.hostUnreachable(t.Context(), l, "1/h", why, began.Add(step.after))
		m = &infrav1.MaasMachine{Spec: infrav1.MaasMachineSpec{DynamicLXD: true}}
		m.Annotations = map[string]string{infrav1.RecordAnnotation: recordText(t, l.Record.MachineData)}
		if err != nil || out.Waits() != step.waits {
			t.Errorf("after %s it waits: %t, want %t", step.after, out.Waits(), step.waits)
		}
	}
	// MAAS was down for long: one attempt is not enough.
	l := lifetest.Of(t, &infrav1.MaasMachine{Spec: infrav1.MaasMachineSpec{DynamicLXD: true}})
	l.Machine = lifetest.ScopeOf(l.MaasMachine)
	if out, err := r.hostUnreachable(t.Context(), l, "1/h", why, began); err != nil || !out.Waits() {
		t.Error("a host is given up after one try")
	}
}

// recordText returns the annotation for a record.
func recordText(t testing.TB, data record.MachineData) string {
	t.Helper()
	text, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The host of the VM that a machine has, or had, is asked for no second one. If it is not known which of the recorded
// hosts that is, none is asked: a VM host that was registered anew is recorded under both of its ids.
func TestTheOwnHostOfAVM(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		systemID, host string // of the spec and of the status
		machine        *maas.Machine
		record         record.MachineData
		want           string
	}{
		"it is being made":                         {record: record.MachineData{Hosts: []string{"1/a"}}},
		"it is being made, with an id of a person": {systemID: "abc", record: record.MachineData{Hosts: []string{"lxdhost:ns/a"}, Registers: true}},
		"it runs from an image":                    {systemID: "abc", record: record.MachineData{Hosts: []string{"1/a", "lxdhost:ns/b"}, Runs: "lxdhost:ns/b"}, want: "lxdhost:ns/b"},
		"MAAS shows its host":                      {systemID: "abc", host: "a", machine: &maas.Machine{Pod: &maas.Ref{ID: 2, Name: "b"}}, record: record.MachineData{Hosts: []string{"1/a", "2/b"}}, want: "2/b"},
		"MAAS lost it":                             {systemID: "abc", host: "b", record: record.MachineData{Hosts: []string{"1/a", "2/b"}}, want: "2/b"},
		"MAAS lost it, on a host with two ids":     {systemID: "abc", host: "b", record: record.MachineData{Hosts: []string{"1/a", "2/b", "7/b"}}},
		"MAAS lost it, on a host with another name": {
			systemID: "abc", host: "c", record: record.MachineData{Hosts: []string{"1/a", "2/b"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := lifetest.Of(t, &infrav1.MaasMachine{Spec: infrav1.MaasMachineSpec{SystemID: tc.systemID}, Status: infrav1.MaasMachineStatus{LXDHost: tc.host}})
			l.Machine, l.MAAS, l.Record.MachineData = lifetest.ScopeOf(l.MaasMachine), tc.machine, tc.record
			l.Machine.Cluster.Region = &scope.Region{Machines: machine.NewService(nil, &lxd.Service{})}
			if got := ownHost(l); got != tc.want {
				t.Errorf("it is %q, want %q", got, tc.want)
			}
			if tc.want != "" {
				return
			}
			if out, err := New(&life.Steps{}, time.Minute).secondVMRemoval(t.Context(), l); err != nil || out.Waits() { // To ask a host would end the test.
				t.Errorf("hosts are asked: %+v, %v", out, err)
			}
		})
	}
}
