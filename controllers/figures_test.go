// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/plan"
	"github.com/capmaas/cluster-api-provider-maas/test/figures"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/ipam"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
)

// measured is a kind of machine whose life is measured.
type measured struct {
	subject string
	spec    infrav1.MaasMachineSpec
	// told is what capmaasctl plan tells of it.
	told plan.Calls
}

// What the life of each kind of machine costs, alone in its cluster, in a MAAS that refuses and forgets nothing.
func TestFiguresOfLives(t *testing.T) {
	w := measuredWorld(t)
	w.servePools()
	w.provisionedCluster()
	w.create(ipam.NewPool(w.namespace, "pool", "10.77.0.60", "10.77.0.61"))
	metal := infrav1.MaasMachineSpec{}
	for _, l := range []measured{
		{"VM", vm, plan.CallsForVM},
		{"VM with an address of its spec", withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.StaticIP = "10.77.0.50" }), plan.CallsForVMWithAddress},
		{"VM with an address of a pool", fromPool(vm, "pool"), plan.CallsForVMWithAddress},
		{"bare metal", metal, plan.CallsForMetal},
		{"bare metal by its size and zone", infrav1.MaasMachineSpec{FailureDomain: "zone-b", MinCPU: 4, MinMemory: 8192, MinDiskSize: 50}, plan.CallsForMetal},
		{"bare metal with an address of a pool", fromPool(metal, "pool"), plan.CallsForMetalWithAddress},
		{"bare metal with a layout", shaped("lvm", nil, nil), plan.Calls{}},
		{"bare metal that is erased", erasing(infrav1.EraseQuick), plan.Calls{}},
		{"bare metal whose checks are young", checked(infrav1.MachineChecks{Scripts: []string{shortTest}, ValidForSeconds: 86400}), plan.Calls{}},
		{"bare metal of choice", infrav1.MaasMachineSpec{SystemID: w.named("metal-a")}, plan.Calls{}},
	} {
		w.measure(l)
	}
}

// What the life of a VM costs that is made through LXD's own API. MAAS is not asked once more where the finalizer can't be
// removed at once, because the object was written meanwhile.
func TestFiguresOfAVMOnAnLXDHost(t *testing.T) {
	server := directhost.Start(t)
	w := measuredWorld(t, withLXDHosts, func(w *world) { w.between = w.conflictOnce })
	w.addLXDHost(server, "host-a", "zone-a")
	w.provisionedCluster()
	w.measure(measured{subject: "VM through LXD", spec: vm})
}

// How often the endpoint's record is read while its only control plane goes. MAAS takes its time, and the cluster is
// reconciled again and again meanwhile.
func TestFiguresOfTheOnlyControlPlane(t *testing.T) {
	t.Parallel()
	slow := func(w *world) { w.region += "timings: {power_off: 100m, decompose: 100m}\n" }
	for subject, spec := range map[string]infrav1.MaasMachineSpec{"VM, the only control plane": vm, "bare metal, the only control plane": {}} {
		t.Run(subject, func(t *testing.T) {
			t.Parallel()
			w, cluster := clusterWorld(t, slow)
			m := w.deployedMachine("cp-0", true, spec)
			w.eventually(m, "in DNS", func() bool { return m.Status.DNSAttached })
			w.maas.ResetCalls()
			w.beginDeletion(m)
			pokes := 0
			w.await("the machine is gone", m, func(ctx context.Context) bool {
				w.poke(cluster)
				pokes++
				return w.isGone(ctx, m)
			})
			reads := 0
			for _, call := range w.maas.Calls().Log {
				if call.Method == http.MethodGet && call.Endpoint == "dnsresources/" {
					reads++
				}
			}
			t.Logf("the cluster was changed %d times", pokes)
			figures.Check(t, subject, "delete dns reads", reads)
		})
	}
}

// measuredWorld is a world that counts what its manager changes in the Kubernetes API. Its tests run alone: LXD's metrics
// are those of the whole process.
func measuredWorld(t *testing.T, change ...func(*world)) *world {
	t.Helper()
	return newWorld(t, append([]func(*world){func(w *world) {
		w.writes = &atomic.Int64{}
		w.between = w.countWrites
	}}, change...)...)
}

// measure makes and deletes a machine, and checks what that costs.
func (w *world) measure(l measured) {
	w.t.Helper()
	w.t.Run(l.subject, func(t *testing.T) {
		outer := w.t
		w.t = t
		defer func() { w.t = outer }()
		m := w.newMachine(strings.ToLower(strings.ReplaceAll(l.subject, " ", "-")), false, l.spec)
		made := w.costs(l.subject, "create", func() { w.deployed(m) })
		gone := w.costs(l.subject, "delete", func() { w.delete(m) })
		if got := (plan.Calls{Create: made, Delete: gone}); l.told != (plan.Calls{}) && l.told != got {
			t.Errorf("capmaasctl plan tells of %+v, and it took %+v", l.told, got)
		}
	})
}

// costs checks what a part of a life costs, and returns the number of calls to MAAS about the machine.
func (w *world) costs(subject, part string, do func()) int {
	w.t.Helper()
	w.maas.ResetCalls()
	w.writes.Store(0)
	requests := lxdRequests(w.t)
	do()
	calls, tagged := w.callsFor(), w.tagged()
	w.t.Logf("calls to %s it:\n%s", part, strings.Join(slices.Concat(calls, tagged), "\n"))
	figures.Check(w.t, subject, part+" maas", len(calls))
	figures.Check(w.t, subject, part+" tags", len(tagged))
	figures.Check(w.t, subject, part+" lxd", lxdRequests(w.t)-requests)
	figures.Check(w.t, subject, part+" writes", int(w.writes.Load()))
	return len(calls)
}

// tagged are the calls that give machines a tag, and take it away.
func (w *world) tagged() (calls []string) {
	for _, call := range w.maas.Calls().Log {
		if call.User == "admin" && call.SystemID == "" && strings.HasPrefix(call.Endpoint, "tags/") && call.Method != http.MethodGet {
			calls = append(calls, fmt.Sprintf("%s %s %s", call.Method, call.Endpoint, call.Op))
		}
	}
	return calls
}

// lxdRequests is how many requests LXD hosts got, but for those that only look: the slower the computer is, the more often
// a reconcile looks again.
func lxdRequests(t *testing.T) (n int) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(lxdhost.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			looks := func(l *dto.LabelPair) bool { return slices.Contains([]string{"connect", "read", "find"}, l.GetValue()) }
			if !slices.ContainsFunc(metric.GetLabel(), looks) {
				n += int(metric.GetCounter().GetValue())
			}
		}
	}
	return n
}

// countWrites counts the requests that change something.
func (w *world) countWrites(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if request.Method != http.MethodGet && !strings.Contains(request.URL.Path, "/events") {
			w.writes.Add(1)
		}
		return next.RoundTrip(request)
	})
}

// conflictOnce counts writes, and has the first removal of a finalizer conflict with another write.
func (w *world) conflictOnce(next http.RoundTripper) http.RoundTripper {
	var conflicted atomic.Bool
	return w.countWrites(conflicting(func(_ string, body []byte) bool {
		return bytes.Contains(body, []byte(`"finalizers":null`)) && conflicted.CompareAndSwap(false, true)
	})(next))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
