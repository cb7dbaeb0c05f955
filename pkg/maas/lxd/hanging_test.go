// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/test/hostile"
)

type theseObjects []HostObject

func (o theseObjects) HostObjects(context.Context) ([]HostObject, error) { return o, nil }

// deaf is a server that accepts requests and responds to none, and how it is reached. asked receives for each request.
func deaf(t *testing.T) (o lxdhost.Options, asked <-chan struct{}) {
	t.Helper()
	silence := hostile.NewSilence()
	address, certificate := hostile.ServeTLS(t, silence)
	keys, err := lxdnode.NewKeys("test")
	if err != nil {
		t.Fatal(err)
	}
	return lxdhost.Options{
		Address: address, Project: "maas", ServerCertificate: certificate, ClientCertificate: keys.Certificate, ClientKey: keys.Key,
	}, silence.Requests()
}

// An LXDHost of a tenant may lead to a server that does not respond. Whom it is not for never asks it, nor its Secrets.
func TestAnLXDHostThatIsNotForAVMIsNotAsked(t *testing.T) {
	region := newRegion(t, fuzzRegion)
	server, asked := deaf(t)
	for name, tc := range map[string]struct {
		object HostObject
		spec   VMSpec
		opened int32 // how often its Secrets are asked for
	}{
		"for another namespace":                 {HostObject{}, VMSpec{Namespace: "victim"}, 0},
		"for another namespace, by its Secrets": {HostObject{Unproven: true}, VMSpec{Namespace: "offered"}, 1},
		"for another MAAS, by its Secrets":      {HostObject{Unproven: true, Zone: "other MAAS"}, VMSpec{Namespace: "tenant"}, 1},
		"in another zone":                       {HostObject{Zone: "b"}, VMSpec{Namespace: "tenant", Zone: "a"}, 0},
		"in another resource pool":              {HostObject{ResourcePool: "b"}, VMSpec{Namespace: "tenant", ResourcePool: "a"}, 0},
		"without a tag":                         {HostObject{}, VMSpec{Namespace: "tenant", Tags: []string{"ssd"}}, 0},
		"with a tag":                            {HostObject{Tags: []string{"old"}}, VMSpec{Namespace: "tenant", NotTags: []string{"old"}}, 0},
		"not the pinned one":                    {HostObject{}, VMSpec{Namespace: "tenant", HostName: "pinned"}, 0},
		"of another project":                    {HostObject{}, VMSpec{Namespace: "tenant", Project: "other"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var opened atomic.Int32
			object := tc.object
			object.Namespace, object.Name, object.Direct, object.Server, object.Problem = "tenant", "hangs", true, server, ErrUnopened
			object.Allows = func(namespace string) bool { return namespace == "tenant" || namespace == "offered" }
			object.Open = func(_ context.Context, o *HostObject, _ string, _ time.Duration) {
				opened.Add(1)
				o.Problem, o.Direct = nil, o.Zone != "other MAAS"
				o.Allows = func(namespace string) bool { return namespace == "tenant" }
			}
			service := NewService(NewComposer(region.inventory, NewHostRefresher(), theseObjects{object}, &lxdhost.Connections{}), NewReservations())
			tc.spec.Hostname, tc.spec.Resources = "vm", Resources{1, 1024, 8}
			if _, err := service.GetAvailableLXDHosts(t.Context(), tc.spec); err != nil && tc.spec.Project == "" {
				t.Fatal(err)
			}
			select {
			case <-asked:
				t.Error("its LXD was asked")
			default:
			}
			if n := opened.Load(); n != tc.opened {
				t.Errorf("its Secrets were asked for %d times, want %d", n, tc.opened)
			}
		})
	}
}

// Nor does an LXD that does not respond hold a worker of those whom it is for.
func TestAPlacementThatWaitsForAnLXDHoldsNoWorker(t *testing.T) {
	region := newRegion(t, fuzzRegion)
	server, asked := deaf(t)
	objects := theseObjects{{Namespace: "tenant", Name: "hangs", Direct: true, Server: server, Allows: func(string) bool { return true }}}
	service := NewService(NewComposer(region.inventory, NewHostRefresher(), objects, &lxdhost.Connections{}), NewReservations())
	var idle atomic.Int32
	ctx := guard.WithIdle(t.Context(), func() func() { idle.Add(1); return func() { idle.Add(-1) } })
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan []Host, 1)
	go func() {
		hosts, err := service.GetAvailableLXDHosts(ctx, VMSpec{Namespace: "tenant", Hostname: "vm", Resources: Resources{1, 1024, 8}})
		if err != nil {
			t.Error(err)
		}
		ended <- hosts
	}()
	<-asked
	if idle.Load() == 0 {
		t.Error("the worker is held while LXD does not respond")
	}
	cancel()
	if hosts := <-ended; len(hosts) != 2 || idle.Load() != 0 {
		t.Errorf("%d hosts, %d waits are left", len(hosts), idle.Load())
	}
}
