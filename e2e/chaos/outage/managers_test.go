// SPDX-License-Identifier: Apache-2.0

package outage_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/kubelet"
)

// A leader is stopped for longer than its lease, as one that dies: the other manager continues its work. It gives up when it
// resumes.
func TestALeaderIsStoppedForLongerThanItsLease(t *testing.T) {
	w := newWorld(t)
	w.twoManagers()
	c := w.cluster(life.Namespace, "sleep")
	made := func(op string) (vm, metal string) { return "sleep-vm-" + op, "sleep-metal-" + op }
	for _, op := range []string{"allocate", "compose", "release"} {
		asleep := make(chan kubelet.Container, 1)
		w.after(op, func() {
			sleeper := w.leader()
			w.signal(sleeper, syscall.SIGSTOP)
			asleep <- sleeper
		})
		if op == "release" {
			vm, metal := made("compose")
			c.remove(vm)
			c.remove(metal)
			c.awaitGone(vm, metal)
		} else {
			vm, metal := made(op)
			c.add(machine{name: vm, vm: true, worker: true}, machine{name: metal, worker: true})
			c.awaitRunning(vm, metal)
		}
		select {
		case sleeper := <-asleep:
			before := restarts()
			w.signal(sleeper, syscall.SIGCONT)
			c.wait("the manager that slept to give up", func() (bool, string, error) {
				return restarts() > before, fmt.Sprintf("%d restarts", restarts()), nil
			})
			if len(box.Kubelet.Fallen()) == 0 {
				t.Error("it is not said that the manager ended by itself")
			}
		default:
			t.Fatalf("MAAS was not asked to %s", op)
		}
		c.settled()
	}
	w.end(c)
}

// twoManagers starts a second manager as a standby.
func (w *world) twoManagers() {
	w.Helper()
	if err := box.UpgradeChart(w.Context(), map[string]any{"replicas": 2}); err != nil {
		w.Fatal(err)
	}
	w.leader()
}

// leader waits until a manager leads, and returns it. It may be called from other goroutines.
func (w *world) leader() (leads kubelet.Container) {
	err := eventually.Wait(w.Context(), "a manager to lead", func() (found bool, _ string, _ error) {
		leads, found = leader(w.Context())
		return found, fmt.Sprintf("%d managers run", len(managers())), nil
	})
	if err != nil {
		w.Error(err)
	}
	return leads
}

func (w *world) signal(c kubelet.Container, signal syscall.Signal) {
	if c.PID == 0 {
		return // there was no leader, and that was already reported
	}
	if err := syscall.Kill(c.PID, signal); err != nil {
		w.Errorf("%s of the manager %s: %v", signal, c.Pod, err)
	}
}

// Two managers that know nothing of each other manage two namespaces, with the same names in both, one MAAS and one
// key.
func TestTwoManagersOnOneMAAS(t *testing.T) {
	w := newWorld(t)
	other, err := box.AddManager(t.Context(), sandbox.ManagerOptions{Name: "capmaas-other", Watch: "other"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Uninstall(); err != nil {
			t.Error(err)
		}
	})
	names := []string{"twin-a", "twin-b", "twin-c", "twin-d", "twin-e"}
	one, two := w.cluster(life.Namespace, "twin"), w.cluster("other", "twin")
	for i, name := range names {
		for _, c := range []*cluster{one, two} {
			c.add(machine{name: name, vm: i < 4, worker: i > 0, cores: 5})
		}
	}
	one.awaitRunning(names...)
	two.awaitRunning(names...)
	one.settled()
	two.settled()
	one.delete()
	two.awaitRunning(names...)
	two.settled()
	w.end(two)
}
