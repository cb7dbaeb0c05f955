// SPDX-License-Identifier: Apache-2.0

package flows_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/ipam"
)

// servePools runs an IPAM provider until the test ends.
func servePools(t *testing.T) {
	t.Helper()
	provider, err := ipam.Start(t.Context(), box.RESTConfig, life.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := provider.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// newPool makes a pool that is deleted with the test, and returns a variable's reference to it.
func newPool(t *testing.T, name string, addresses ...string) map[string]any {
	t.Helper()
	pool := ipam.NewPool(life.Namespace, name, addresses...)
	if err := box.Client.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Client.Delete(context.WithoutCancel(t.Context()), pool); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	return map[string]any{"apiGroup": ipam.Kind.Group, "kind": ipam.Kind.Kind, "name": name}
}

// given are the addresses that the pools have given.
func given(t *testing.T) []string {
	t.Helper()
	list := &ipamv1.IPAddressList{}
	if err := box.Client.List(t.Context(), list, client.InNamespace(life.Namespace)); err != nil {
		t.Fatal(err)
	}
	addresses := []string{}
	for _, address := range list.Items {
		addresses = append(addresses, address.Spec.Address)
	}
	slices.Sort(addresses)
	return addresses
}

// checkAddresses checks that each machine has its own static address, in MAAS and for Cluster API, and returns the
// addresses.
func checkAddresses(l *life.Life, machines []infrav1.MaasMachine) []string {
	l.Helper()
	var addresses []string
	for i, held := range l.Held(machines) {
		m := machines[i]
		if len(held.Addresses) != 1 || held.Addresses[0].String() != m.Status.StaticIP {
			l.Errorf("%s has the addresses %v in MAAS, want %s", m.Name, held.Addresses, m.Status.StaticIP)
		}
		if len(m.Status.Addresses) == 0 || m.Status.Addresses[0].Address != m.Status.StaticIP {
			l.Errorf("%s has the addresses %v, want %s first", m.Name, m.Status.Addresses, m.Status.StaticIP)
		}
		addresses = append(addresses, m.Status.StaticIP)
	}
	slices.Sort(addresses)
	return addresses
}

// Control planes in VMs and workers on bare metal take their addresses from pools. A rollout of the control plane to a
// new image gives the new machines other ones, and returns the old ones; in the end all are free.
func TestIPAMPoolsAndRollout(t *testing.T) {
	// First: it must still exist when a cluster is cleaned up.
	servePools(t)
	controlPlanePool := []string{"10.77.0.60", "10.77.0.61", "10.77.0.62", "10.77.0.63"} // One more than control planes.
	workerPool := []string{"10.77.0.70", "10.77.0.71"}
	variables := maps.Clone(lxd)
	variables["staticIPPoolRef"] = newPool(t, "control-planes", controlPlanePool...)
	variables["workerStaticIPPoolRef"] = newPool(t, "workers", workerPool...)
	l := life.Begin(t, box, "ipam")
	l.Create(topology(t, "ipam", 3, 2, variables))
	l.Available(5)
	controlPlanes, workers := l.MaasMachines()
	first := checkAddresses(l, controlPlanes)
	if diff := cmp.Diff(controlPlanePool[:3], first); diff != "" {
		t.Errorf("addresses of the control planes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(workerPool, checkAddresses(l, workers)); diff != "" {
		t.Errorf("addresses of the workers (-want +got):\n%s", diff)
	}
	for _, m := range l.Held(workers) {
		if m.VMHost != "" {
			t.Errorf("the worker %s is a VM", m.Hostname)
		}
	}
	if diff := cmp.Diff(first, l.Record.Addresses()); diff != "" {
		t.Errorf("the API endpoint (-want +got):\n%s", diff)
	}

	old := names(l.Machines(), util.IsControlPlaneMachine)
	rolledOnce := l.Rolls(3)
	l.Change(func(cluster *clusterv1.Cluster) {
		raw, err := json.Marshal(newImage)
		if err != nil {
			t.Fatal(err)
		}
		variable := clusterv1.ClusterVariable{Name: "image"}
		variable.Value.Raw = raw
		cluster.Spec.Topology.ControlPlane.Variables.Overrides = []clusterv1.ClusterVariable{variable}
	})
	l.Wait("the control plane to be rolled", func() (bool, string, error) {
		now := names(l.Machines(), util.IsControlPlaneMachine)
		done := len(now) == 3 && !slices.ContainsFunc(now, func(name string) bool { return slices.Contains(old, name) })
		return done, fmt.Sprint(now), nil
	})
	l.Available(5)
	rolledOnce()
	controlPlanes, _ = l.MaasMachines()
	for _, m := range l.Held(controlPlanes) {
		if m.Image != "custom/"+newImage || m.VMHost == "" {
			t.Errorf("%s has the image %s, on VM host %q", m.Hostname, m.Image, m.VMHost)
		}
	}
	second := checkAddresses(l, controlPlanes)
	for _, address := range second {
		if !slices.Contains(controlPlanePool, address) {
			t.Errorf("%s is not of the pool", address)
		}
	}
	if diff := cmp.Diff(slices.Concat(second, workerPool), given(t)); diff != "" {
		t.Errorf("the pools have given (-want +got):\n%s", diff)
	}
	checkSecrets(t)
	checkOrder := watchReturns(t, slices.Concat(second, workerPool))
	l.Delete()
	checkOrder()
	if left := given(t); len(left) > 0 {
		t.Errorf("the pools did not get back %v", left)
	}
}

// watchReturns checks all the time that no address returns to its pool while MAAS has it in use; check ends that, and
// fails the test if one did. Nothing may be assigned meanwhile.
func watchReturns(t *testing.T, addresses []string) (check func()) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	early := map[string]bool{}
	var watching sync.WaitGroup
	watching.Go(func() {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			list := &ipamv1.IPAddressList{}
			if box.Client.List(ctx, list, client.InNamespace(life.Namespace)) != nil {
				return
			}
			for _, m := range box.MAAS.Machines() {
				for _, address := range m.Addresses {
					isGiven := slices.ContainsFunc(list.Items, func(a ipamv1.IPAddress) bool { return a.Spec.Address == address.String() })
					if slices.Contains(addresses, address.String()) && !isGiven {
						early[m.Hostname+" has "+address.String()] = true
					}
				}
			}
		}, returnInterval)
	})
	t.Cleanup(end)
	return func() {
		t.Helper()
		end()
		watching.Wait()
		for what := range early {
			t.Errorf("%s, which was back in its pool", what)
		}
	}
}

// returnInterval is how often the pools are checked for returned addresses.
const returnInterval = 50 * time.Millisecond

func names(machines []clusterv1.Machine, which func(*clusterv1.Machine) bool) []string {
	var list []string
	for i := range machines {
		if which(&machines[i]) {
			list = append(list, machines[i].Name)
		}
	}
	return list
}
