// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
)

const (
	image    = "u-2204-k8s-1.35"
	newImage = "u-2404-k8s-1.35"
	// grown is how many control planes a cluster has that grew.
	grown = 3
)

// phase is what a cluster is doing when MAAS is upgraded.
type phase string

const (
	idle      phase = "idle"
	growing   phase = "growing"
	rolling   phase = "rolling"
	leaving   phase = "leaving"
	beginning phase = "beginning"
)

// cluster has control planes in VMs, and workers on bare metal.
type cluster struct {
	*life.Life
	phase             phase
	replicas, workers int32
	// lived are the provider IDs of its machines before the upgrade.
	lived map[string]string
}

// planned is a cluster of a round.
type planned struct {
	phase   phase
	workers int32
}

// The least clusters make each kind of call; the most have each phase with and without workers.
var (
	least = []planned{{idle, 0}, {growing, 1}, {rolling, 0}, {leaving, 1}, {beginning, 0}}
	most  = []planned{{idle, 1}, {growing, 1}, {rolling, 1}, {leaving, 1}, {leaving, 0}, {beginning, 1}, {beginning, 0}}
)

func newClusters(t *testing.T, round int, dice *rand.Rand) []*cluster {
	t.Helper()
	var names []string
	for i, one := range attack.clusters {
		names = append(names, fmt.Sprintf("%s-%d%d", one.phase, round, i))
	}
	var clusters []*cluster
	for i, l := range life.Several(t, box, names...) {
		c := &cluster{Life: l, phase: attack.clusters[i].phase, workers: attack.clusters[i].workers, replicas: attack.replicas[dice.IntN(len(attack.replicas))]}
		if c.phase == growing {
			c.replicas = 1
		}
		clusters = append(clusters, c)
	}
	return clusters
}

// start makes the cluster. Its VMs are too small for those who look for bare metal.
func (c *cluster) start() {
	c.Helper()
	manifest, err := c.Box.Flavor("lxd-topology", map[string]string{
		"NAMESPACE": life.Namespace, "CLUSTER_NAME": c.Key.Name, "KUBERNETES_VERSION": "v1.35.0",
		"MAAS_DNS_DOMAIN": "maas.sim", "MAAS_IMAGE": image,
		"CONTROL_PLANE_MACHINE_COUNT": strconv.Itoa(int(c.replicas)), "CONTROL_PLANE_MACHINE_RESOURCEPOOL": pool,
		"CONTROL_PLANE_MACHINE_MINCPU": "1", "CONTROL_PLANE_MACHINE_MINMEMORY": "2048", "CONTROL_PLANE_MACHINE_MINDISKSIZE": "8",
		"WORKER_MACHINE_COUNT": strconv.Itoa(int(c.workers)), "WORKER_MACHINE_RESOURCEPOOL": pool,
	})
	if err != nil {
		c.Fatal(err)
	}
	c.Apply(manifest)
}

// act does what its phase is called after.
func (c *cluster) act() {
	c.Helper()
	switch c.phase {
	case idle:
	case growing:
		c.grow()
	case rolling:
		c.roll()
	case leaving:
		c.leave()
	case beginning:
		c.start()
	}
}

func (c *cluster) grow() {
	c.Helper()
	c.replicas = grown
	c.Change(func(cluster *clusterv1.Cluster) { cluster.Spec.Topology.ControlPlane.Replicas = ptr.To(c.replicas) })
}

// roll replaces all control planes by those of another image.
func (c *cluster) roll() {
	c.Helper()
	raw, err := json.Marshal(newImage)
	if err != nil {
		c.Fatal(err)
	}
	c.Change(func(cluster *clusterv1.Cluster) {
		overrides := cluster.Spec.Topology.ControlPlane.Variables.Overrides
		for i := range overrides {
			if overrides[i].Name == "image" {
				overrides[i].Value.Raw = raw
			}
		}
	})
}

// leave begins to delete the cluster, and with it the record of its endpoint.
func (c *cluster) leave() {
	c.Helper()
	c.Record.End()
	cluster := &clusterv1.Cluster{}
	cluster.Namespace, cluster.Name = c.Key.Namespace, c.Key.Name
	if err := c.Box.Client.Delete(c.Context(), cluster); err != nil {
		c.Fatal(err)
	}
}

// available waits until the cluster is as it was asked for.
func (c *cluster) available() {
	c.Helper()
	if c.phase == rolling {
		c.Wait("the control plane to be rolled", func() (bool, string, error) {
			controlPlanes, _ := c.MaasMachines()
			for _, m := range controlPlanes {
				if c.lived[m.Name] != "" {
					return false, m.Name + " is still there", nil
				}
			}
			return int32(len(controlPlanes)) == c.replicas, fmt.Sprintf("%d control planes", len(controlPlanes)), nil
		})
	}
	c.Available(int(c.replicas + c.workers))
}

func (c *cluster) machines() []infrav1.MaasMachine {
	c.Helper()
	controlPlanes, workers := c.MaasMachines()
	return append(controlPlanes, workers...)
}

// remember remembers the machines.
func (c *cluster) remember() {
	c.Helper()
	c.lived = map[string]string{}
	for _, m := range c.machines() {
		c.lived[m.Name] = m.Spec.ProviderID
	}
}

// checkLived wants the machines from before the upgrade to be those that they were. Only a control plane that is rolled
// may have gone.
func (c *cluster) checkLived() {
	c.Helper()
	now := map[string]string{}
	for _, m := range c.machines() {
		now[m.Name] = m.Spec.ProviderID
	}
	for name, before := range c.lived {
		id, there := now[name]
		if there && id != before || !there && c.phase != rolling {
			c.Errorf("%s of %s had the provider ID %s before the upgrade, and has %q", name, c.Key.Name, before, id)
		}
	}
}
