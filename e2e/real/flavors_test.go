// SPDX-License-Identifier: Apache-2.0

package real_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/ledger"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

const (
	// createTimeout is enough on two processors that others use, too.
	createTimeout, deleteTimeout = 20 * time.Minute, eventually.Limit
	domain                       = "maas.sim"
)

// flavors are those that real nodes can be, with the variables that each needs besides those that all have.
var flavors = map[string]map[string]string{
	"":             nil,
	"lxd":          nil,
	"lxd-kube-vip": {"MAAS_VIRTUAL_IP_SUBNET": "10.77.0.0/24"},
	"topology":     nil,
	"lxd-topology": nil,
}

// hostFlavors are those of host clusters.
var hostFlavors = map[string]map[string]string{
	"lxd-host":          hostVariables,
	"lxd-host-topology": hostVariables,
}

var hostVariables = map[string]string{"LXD_STORAGE_BACKEND": "btrfs", "LXD_STORAGE_SIZE": "10", "LXD_RESOURCE_POOL": "capi"}

// notYet are the flavors that real nodes can't be, and why.
var notYet = map[string]string{
	"lxd-rke2":          "RKE2 is in no image of real nodes",
	"lxd-rke2-topology": "RKE2 is in no image of real nodes",
	"lxd-k3s":           "k3s is in no image of real nodes",
	"lxd-k3s-topology":  "k3s is in no image of real nodes",
	"lxd-ck8s":          "Canonical Kubernetes is in no image of real nodes",
}

// Every flavor is run below, or named with the reason why it is not.
func TestEveryFlavor(t *testing.T) {
	files, err := filepath.Glob("../../templates/cluster-template*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are the flavors %v, %v", files, err)
	}
	for _, file := range files {
		name := strings.TrimPrefix(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "cluster-template"), ".yaml"), "-")
		_, run := flavors[name]
		run = run || hostFlavors[name] != nil
		if reason := notYet[name]; run == (reason != "") {
			t.Errorf("the flavor %q is run: %t; it is not, because %q", name, run, reason)
		} else if reason != "" {
			t.Logf("The flavor %s is not run: %s", name, reason)
		}
	}
}

// A cluster of each flavor is made by kubeadm, of the Nodes that MAAS's machines are, and nothing of it is left.
func TestFlavors(t *testing.T) {
	for _, flavor := range slices.Sorted(maps.Keys(flavors)) {
		t.Run(strings.TrimSuffix("flavor-"+flavor, "-"), func(t *testing.T) {
			_, version := box.NodeVersions()
			c := create(t, "real", flavor, version, flavors[flavor])
			c.checkNodes()
			c.checkGuests()
			c.checkPods()
			c.delete()
		})
	}
}

// cluster is a cluster of a test.
type cluster struct {
	*testing.T
	// box is the management cluster that it is in.
	box *sandbox.Sandbox
	key client.ObjectKey
	// machines is how many it has: at first one control plane and one worker.
	machines int
	// before is MAAS's state without it.
	before   []byte
	workload client.Client
}

func begin(t *testing.T, name string) *cluster {
	t.Helper()
	return &cluster{T: t, box: box, key: client.ObjectKey{Namespace: life.Namespace, Name: name}, machines: 2, before: box.MAAS.State()}
}

// create makes a cluster of a flavor, and returns when it is available.
func create(t *testing.T, name, flavor, version string, more map[string]string) *cluster {
	t.Helper()
	c := begin(t, name)
	c.apply(c.manifest(flavor, version, more))
	return c
}

// manifest is the flavor's of the cluster.
func (c *cluster) manifest(flavor, version string, more map[string]string) string {
	c.Helper()
	variables := map[string]string{
		"CLUSTER_NAME": c.key.Name, "NAMESPACE": c.key.Namespace, "KUBERNETES_VERSION": version, "MAAS_DNS_DOMAIN": domain,
		"MAAS_IMAGE": sandbox.NodeImageOf(version), "CONTROL_PLANE_MACHINE_RESOURCEPOOL": "capi", "WORKER_MACHINE_RESOURCEPOOL": "capi",
	}
	maps.Copy(variables, more)
	manifest, err := box.Flavor(flavor, variables)
	if err != nil {
		c.Fatal(err)
	}
	return manifest
}

// apply makes the cluster's objects, and returns when it is available.
func (c *cluster) apply(manifest string) {
	c.Helper()
	ctx := within(c.T, createTimeout)
	began := time.Now()
	if err := c.box.ApplyYAML(ctx, strings.NewReader(manifest)); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		if c.Failed() {
			c.dump()
			_ = c.box.DeleteCluster(within(c.T, deleteTimeout), c.key) // The next test finds the machines free.
		}
	})
	if err := c.box.InstallPodNetwork(ctx, c.key); err != nil {
		c.Fatal(err)
	}
	if err := c.box.WaitAvailable(ctx, c.key, c.machines); err != nil {
		c.Fatal(err)
	}
	var err error
	if c.workload, err = c.box.WorkloadClient(ctx, c.key); err != nil {
		c.Fatal(err)
	}
	c.Logf("%s is available after %s", c.key.Name, time.Since(began).Round(time.Second))
}

// change merges a patch into the Cluster.
func (c *cluster) change(patch string) {
	c.Helper()
	object := &clusterv1.Cluster{}
	object.Namespace, object.Name = c.key.Namespace, c.key.Name
	if err := c.box.Client.Patch(c.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		c.Fatal(err)
	}
}

// delete deletes the cluster, and checks that MAAS is as it was before, but for what it keeps.
func (c *cluster) delete() {
	c.Helper()
	began := time.Now()
	if err := c.box.DeleteCluster(within(c.T, deleteTimeout), c.key); err != nil {
		c.Fatal(err)
	}
	c.Logf("%s is deleted after %s", c.key.Name, time.Since(began).Round(time.Second))
	remains, err := ledger.Remains(c.before, box.MAAS.State())
	if err != nil {
		c.Fatal(err)
	}
	for _, line := range remains {
		c.Errorf("MAAS is not as before: %s", line)
	}
}
