// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
)

// A third of all writes of records conflict with somebody else's, and their reconciles begin anew. Clusters and machines come
// and go all the same: nothing is made twice, nothing is left, and nobody is warned.
func TestRecordsThatConflict(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]infrav1.MaasMachineSpec{
		"vm":    vm,
		"metal": withSpec(shaped("lvm", nil, nil), func(s *infrav1.MaasMachineSpec) { s.Interfaces = bonded }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, conflicts := conflictingWorld(t)
			w.liveThrough(conflicts, spec, name)
		})
	}
	t.Run("vm-on-lxdhost", func(t *testing.T) {
		t.Parallel()
		server := directhost.Start(t)
		w, conflicts := conflictingWorld(t, withLXDHosts)
		w.addLXDHost(server, "host-a", "zone-a")
		w.liveThrough(conflicts, vm, "vm", "next") // There is room for one.
		if left := server.VMs(t); len(left) > 0 {
			t.Errorf("LXD has the VMs %v", left)
		}
	})
}

// conflictingWorld is a world in which a third of the manager's writes of records conflict; conflicts counts them.
func conflictingWorld(t *testing.T, change ...func(*world)) (w *world, conflicts *atomic.Int64) {
	t.Helper()
	conflicts = &atomic.Int64{}
	var last sync.Map // by object, whether its last write conflicted: what is repeated at once succeeds
	conflict := conflicting(func(path string, _ []byte) bool {
		before, _ := last.Load(path)
		now := before != true && rand.N(2) > 0
		last.Store(path, now)
		if now {
			conflicts.Add(1)
		}
		return now
	})
	return newWorld(t, append(change, func(w *world) { w.between = conflict })...), conflicts
}

// liveThrough has machines made and deleted, one after the other.
func (w *world) liveThrough(conflicts *atomic.Int64, spec infrav1.MaasMachineSpec, names ...string) {
	w.t.Helper()
	before := w.maas.State()
	cluster := w.provisionedCluster()
	for _, name := range names {
		m := w.deployedMachine(name, true, spec)
		w.delete(m)
	}
	w.deleteCluster(cluster)
	w.unchanged(before)
	if n := conflicts.Load(); n == 0 {
		w.t.Error("no write conflicted")
	}
	list := &corev1.EventList{}
	w.must(w.client.List(w.t.Context(), list, client.InNamespace(w.namespace)))
	for _, e := range list.Items {
		if e.Type == corev1.EventTypeWarning {
			w.t.Errorf("%s %s: %s", e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
}

// conflicting makes those writes conflict, with an optimistic lock on an object of ours, whose body is chosen.
func conflicting(choose func(path string, body []byte) bool) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if request.Method != http.MethodPatch || !strings.Contains(request.URL.Path, infrav1.GroupVersion.Group) {
				return next.RoundTrip(request)
			}
			body, err := io.ReadAll(request.Body)
			if err != nil {
				return nil, err
			}
			if lock.Match(body) && choose(request.URL.Path, body) {
				body = lock.ReplaceAll(body, []byte(`"resourceVersion":"1"`))
			}
			request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			return next.RoundTrip(request)
		})
	}
}

var lock = regexp.MustCompile(`"resourceVersion":"\d+"`)
