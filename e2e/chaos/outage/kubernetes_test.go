// SPDX-License-Identifier: Apache-2.0

package outage_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// What MAAS did can't be written down, and the manager loses its lease: the next one finds it.
func TestTheAPIServerIsAway(t *testing.T) {
	w := newWorld(t)
	c := w.cluster(life.Namespace, "kube")
	w.withoutKubernetesAfter("allocate", func() {
		c.add(machine{name: "kube-a", vm: true, staticIP: "10.77.0.62"}, machine{name: "kube-b", vm: true, worker: true},
			machine{name: "kube-c", worker: true}, machine{name: "kube-d", worker: true})
	})
	c.awaitRunning("kube-a", "kube-b", "kube-c", "kube-d")
	c.settled()
	w.withoutKubernetesAfter("release", func() {
		for _, name := range []string{"kube-b", "kube-c", "kube-d"} {
			c.remove(name)
		}
	})
	c.awaitGone("kube-b", "kube-c", "kube-d")
	c.awaitRunning("kube-a")
	c.settled()
	w.end(c)
}

// withoutKubernetesAfter stops the Kubernetes API when MAAS has executed a call, and all is asked for, before the manager gets
// the response, until the manager gives up.
func (w *world) withoutKubernetesAfter(op string, do func()) {
	w.Helper()
	stopped, asked := make(chan error, 1), make(chan struct{})
	w.after(op, func() {
		<-asked
		stopped <- box.StopKubernetes()
	})
	func() {
		defer close(asked) // Also if it fails.
		do()
	}()
	select {
	case err := <-stopped:
		if err != nil {
			w.Fatal(err)
		}
	case <-time.After(eventually.Limit):
		w.Fatalf("MAAS was not asked to %s", op)
	}
	start := sync.OnceFunc(func() {
		if err := box.StartKubernetes(context.WithoutCancel(w.Context())); err != nil {
			w.Error(err)
		}
	})
	w.Cleanup(start)
	before := restarts()
	err := eventually.Wait(w.Context(), "the manager to end", func() (bool, string, error) {
		return restarts() > before, fmt.Sprintf("it was started again %d times", restarts()), nil
	})
	if err != nil {
		w.Error(err)
	}
	start()
}

// after calls a function once, when MAAS has executed the next call of an operation and has not responded yet.
func (w *world) after(op string, do func()) {
	var once sync.Once
	box.MAAS.SetHook(func(call simulator.Call, phase simulator.Phase) error {
		if phase == simulator.After && call.Op == op {
			once.Do(do)
		}
		return nil
	})
	w.Cleanup(func() { box.MAAS.SetHook(nil) })
}

// restarts is how often managers were started again.
func restarts() int {
	n := 0
	for _, c := range box.Kubelet.Containers() {
		if c.Name == sandbox.ManagerContainer {
			n += c.Restarts
		}
	}
	return n
}
