// SPDX-License-Identifier: Apache-2.0

// Package clusters makes clusters that cost little, for tests that do bad things to them: machines in the simulated
// MAAS with the objects of Cluster API, and nothing that runs on them. Many live side by side: each is measured by its
// own marks in MAAS.
package clusters

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/audit"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// patience bounds all waiting: some retries are a minute apart.
const patience = 8 * time.Minute

// Cluster is one cluster. Errors fail the test.
type Cluster struct {
	*testing.T
	// Box is its sandbox.
	Box *sandbox.Sandbox
	// Key is the name of the Cluster and of the MaasCluster.
	Key client.ObjectKey
	// Record watches the DNS record of the API endpoint, until the cluster is deleted. It is nil where a test changes
	// the record by hand.
	Record *life.Record

	auditor           *audit.Auditor
	neighbours        bool
	ownerID, endpoint string
	gone              bool
}

// Options are the name and the kind of the cluster.
type Options struct {
	// Key is the name of the Cluster and of the MaasCluster.
	Key client.ObjectKey
	// Auditor finds what the cluster leaves behind in MAAS.
	Auditor *audit.Auditor
	// RecordChanges: a test changes the DNS record of the API endpoint by hand, so that it is not watched.
	RecordChanges bool
	// Neighbours: other tests change MAAS at the same time, so that only objects with the cluster's own marks count.
	Neighbours bool
}

// New makes a cluster with machines. It is deleted when the test ends, if the test did not do so, and what matters is
// shown when it failed.
func New(t *testing.T, box *sandbox.Sandbox, options Options, machines ...Machine) *Cluster {
	t.Helper()
	c := &Cluster{T: t, Box: box, Key: options.Key, auditor: options.Auditor, neighbours: options.Neighbours}
	t.Cleanup(func() {
		if t.Failed() {
			c.dump()
		}
		if !c.gone {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
			defer cancel()
			if err := box.DeleteCluster(ctx, c.Key); err != nil {
				t.Errorf("cleaning up: %v", err)
			}
		}
	})
	c.apply(c.plain().Manifest())
	maasCluster := &infrav1.MaasCluster{}
	c.Wait("the API endpoint to have a name", func() (bool, string, error) {
		err := box.Client.Get(t.Context(), c.Key, maasCluster)
		return maasCluster.Spec.ControlPlaneEndpoint.Host != "", sandbox.Conditions(maasCluster.Status.Conditions), err
	})
	c.ownerID, c.endpoint = maasCluster.Annotations[infrav1.OwnerIDAnnotation], maasCluster.Spec.ControlPlaneEndpoint.Host
	if !options.RecordChanges {
		c.Record = life.WatchRecord(t, box.MAAS, c.endpoint)
	}
	c.Add(machines...)
	return c
}

// Add adds machines.
func (c *Cluster) Add(machines ...Machine) {
	c.Helper()
	for _, m := range machines {
		c.apply(c.plain().Machines(m.plain()))
	}
}

func (c *Cluster) apply(manifest string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	if err := c.Box.ApplyYAML(ctx, strings.NewReader(manifest)); err != nil {
		c.Fatal(err)
	}
}

// Endpoint is the DNS name of the cluster's API endpoint.
func (c *Cluster) Endpoint() string { return c.endpoint }

// LeadsTo waits until the API endpoint leads to these addresses alone.
func (c *Cluster) LeadsTo(addresses ...string) {
	c.Helper()
	addresses = slices.Sorted(slices.Values(addresses))
	c.Wait("the endpoint to lead to other machines", func() (bool, string, error) {
		var got []string
		for _, address := range c.Box.MAAS.Lookup(c.endpoint) {
			got = append(got, address.String())
		}
		slices.Sort(got)
		return slices.Equal(got, addresses), fmt.Sprintf("it is at %v, want %v", got, addresses), nil
	})
}

// OwnerID is the cluster's mark on everything that it has in MAAS.
func (c *Cluster) OwnerID() string { return c.ownerID }

// Wait waits for something that happens in time.
func (c *Cluster) Wait(what string, check func() (bool, string, error)) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	if err := sandbox.WaitFor(ctx, what, check); err != nil {
		c.Fatal(err)
	}
}

// MaasMachine reads one; nil if it is gone.
func (c *Cluster) MaasMachine(name string) *infrav1.MaasMachine {
	c.Helper()
	m := &infrav1.MaasMachine{}
	err := c.Box.Client.Get(c.Context(), client.ObjectKey{Namespace: c.Key.Namespace, Name: name}, m)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.Fatal(err)
	}
	return m
}

// In is the machine in MAAS that a MaasMachine is.
func (c *Cluster) In(name string) simulator.MachineSnapshot {
	c.Helper()
	m := c.MaasMachine(name)
	if m == nil {
		c.Fatalf("there is no MaasMachine %s", name)
	}
	found, ok := c.Box.MAAS.Machine(m.Spec.SystemID)
	if !ok {
		c.Fatalf("MAAS has no machine %q, which %s is", m.Spec.SystemID, name)
	}
	return found
}

// AwaitProvisioned waits until machines are deployed, and Cluster API knows it.
func (c *Cluster) AwaitProvisioned(names ...string) {
	c.Helper()
	for _, name := range names {
		c.Await(name+" to be provisioned", name, func(m *infrav1.MaasMachine) bool {
			return ptr.Deref(m.Status.Initialization.Provisioned, false)
		})
	}
}

// AwaitRunning waits until machines are provisioned and Ready.
func (c *Cluster) AwaitRunning(names ...string) {
	c.Helper()
	for _, name := range names {
		c.Await(name+" to run", name, func(m *infrav1.MaasMachine) bool {
			return ptr.Deref(m.Status.Initialization.Provisioned, false) && conditions.IsTrue(m, infrav1.ReadyCondition)
		})
	}
}

// Join marks control planes as Nodes of their cluster, as Cluster API does if there is a cluster: the endpoint then
// contains them.
func (c *Cluster) Join(names ...string) {
	c.Helper()
	for _, name := range names {
		c.setNode(name, clusterv1.MachineNodeReference{Name: name})
	}
}

func (c *Cluster) setNode(name string, node clusterv1.MachineNodeReference) {
	c.Helper()
	machine := &clusterv1.Machine{}
	if err := c.Box.Client.Get(c.Context(), client.ObjectKey{Namespace: c.Key.Namespace, Name: name}, machine); err != nil {
		c.Fatal(err)
	}
	changed := machine.DeepCopy()
	changed.Status.NodeRef = node
	if err := c.Box.Client.Status().Patch(c.Context(), changed, client.MergeFrom(machine)); err != nil {
		c.Fatal(err)
	}
}

// AwaitReason waits until a machine reports why it does not run. It returns the machine as it is then.
func (c *Cluster) AwaitReason(name, reason string) *infrav1.MaasMachine {
	c.Helper()
	return c.Await(name+" to say "+reason, name, func(m *infrav1.MaasMachine) bool {
		return conditions.GetReason(m, infrav1.MachineDeployedCondition) == reason
	})
}

// Await waits until is returns true for a MaasMachine, and returns the MaasMachine as it is then.
func (c *Cluster) Await(what, name string, is func(*infrav1.MaasMachine) bool) (m *infrav1.MaasMachine) {
	c.Helper()
	c.Wait(what, func() (bool, string, error) {
		m = c.MaasMachine(name)
		if m == nil {
			return false, "there is no such MaasMachine", nil
		}
		return is(m), sandbox.Conditions(m.Status.Conditions), nil
	})
	return m
}

// Remove deletes a machine, and does not wait until it is gone. There is no Node to drain.
func (c *Cluster) Remove(name string) {
	c.Helper()
	c.setNode(name, clusterv1.MachineNodeReference{})
	machine := &clusterv1.Machine{}
	machine.Namespace, machine.Name = c.Key.Namespace, name
	if err := c.Box.Client.Delete(c.Context(), machine); client.IgnoreNotFound(err) != nil {
		c.Fatal(err)
	}
}

// AwaitGone waits until machines that were removed are gone.
func (c *Cluster) AwaitGone(names ...string) {
	c.Helper()
	for _, name := range names {
		c.Wait(name+" to be gone", func() (bool, string, error) {
			m := c.MaasMachine(name)
			if m == nil {
				return true, "", nil
			}
			return false, sandbox.Conditions(m.Status.Conditions), nil
		})
	}
}

// Delete deletes the cluster, and waits until it is gone.
func (c *Cluster) Delete() {
	c.Helper()
	if err := c.auditor.Learn(c.Context()); err != nil {
		c.Fatal(err)
	}
	if c.Record != nil {
		c.Record.End()
	}
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	if err := c.Box.DeleteCluster(ctx, c.Key); err != nil {
		c.Fatal(err)
	}
	c.gone = true
}
