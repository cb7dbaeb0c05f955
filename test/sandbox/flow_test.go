// SPDX-License-Identifier: Apache-2.0

package sandbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/kubelet"
)

const lxdCluster = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: lxd, namespace: default}
spec:
  clusterNetwork: {pods: {cidrBlocks: [10.244.0.0/16]}, services: {cidrBlocks: [10.96.0.0/12]}}
  topology:
    classRef: {name: capmaas}
    version: v1.35.0
    controlPlane: {replicas: 3}
    workers: {machineDeployments: [{class: default-worker, name: md-0, replicas: 1}]}
    variables:
    - {name: dnsDomain, value: maas.sim}
    - {name: image, value: u-2204-k8s-1.35}
    - {name: lxdConfig, value: {}}
`

// flow is a cluster in a sandbox.
type flow struct {
	*sandbox.Sandbox
	name     client.ObjectKey
	workload client.Client
}

// TestClusters makes clusters in one sandbox, does to their machines what happens to machines, and deletes them.
func TestClusters(t *testing.T) {
	box := start(t, sandbox.Options{})
	t.Run("three control planes in VMs", func(t *testing.T) { lead(t, box) })
	t.Run("a node with LXD", func(t *testing.T) { leadHost(t, box) })
}

func lead(t *testing.T, box *sandbox.Sandbox) {
	f := &flow{Sandbox: box, name: client.ObjectKey{Namespace: "default", Name: "lxd"}}
	before := f.MAAS.State()
	if err := f.ApplyFile(within(t, 3*time.Minute), "clusterclass/clusterclass-capmaas.yaml"); err != nil {
		t.Fatal(err)
	}
	if err := f.ApplyYAML(within(t, 3*time.Minute), strings.NewReader(lxdCluster)); err != nil {
		t.Fatal(err)
	}
	if err := f.WaitAvailable(within(t, 5*time.Minute), f.name, 4); err != nil {
		t.Fatal(err)
	}
	var err error
	if f.workload, err = f.WorkloadClient(t.Context(), f.name); err != nil {
		t.Fatal(err)
	}
	t.Run("nodes", f.checkNodes)
	t.Run("power", f.checkPower)
	t.Run("secrets", f.checkSecrets)
	t.Run("reload", f.checkReload)
	if err := f.DeleteCluster(within(t, 3*time.Minute), f.name); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(before), string(f.MAAS.State())); diff != "" {
		t.Errorf("MAAS (-before +after):\n%s", diff)
	}
}

func (f *flow) checkNodes(t *testing.T) {
	nodes := &corev1.NodeList{}
	if err := f.workload.List(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	controlPlanes := 0
	for _, node := range nodes.Items {
		if node.Spec.ProviderID == "" {
			t.Errorf("node %s has no provider ID", node.Name)
		}
		if _, ok := node.Labels["node-role.kubernetes.io/control-plane"]; ok {
			controlPlanes++
		}
		if got := node.Status.NodeInfo.KubeletVersion; got != "v1.35.0" {
			t.Errorf("node %s has a kubelet %s", node.Name, got)
		}
	}
	if len(nodes.Items) != 4 || controlPlanes != 3 {
		t.Errorf("%d nodes, %d of them control planes; want 4 and 3", len(nodes.Items), controlPlanes)
	}
}

// checkReload rebuilds the manager: another process of the new program runs then. It still has to delete the cluster.
func (f *flow) checkReload(t *testing.T) {
	manager := func() kubelet.Container {
		containers := f.Kubelet.Containers()
		if i := slices.IndexFunc(containers, func(c kubelet.Container) bool { return c.Name == sandbox.ManagerContainer }); i >= 0 {
			return containers[i]
		}
		return kubelet.Container{}
	}
	before := manager().PID
	if err := f.Manager.Reload(within(t, 5*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := sandbox.WaitFor(within(t, 3*time.Minute), "the new manager to be ready", func() (bool, string, error) {
		now := manager()
		return now.Ready && now.PID != before && now.PID != 0, fmt.Sprintf("%+v", now), nil
	}); err != nil {
		t.Fatal(err)
	}
	running, err := os.Stat(filepath.Join("/proc", strconv.Itoa(manager().PID), "exe"))
	if err != nil {
		t.Fatal(err)
	}
	if built, err := os.Stat(filepath.Join(f.WorkDir(), "manager")); err != nil || !os.SameFile(running, built) {
		t.Errorf("the manager that runs is not the one that was built (%v)", err)
	}
}

// checkPower cuts the power of one control plane, which the cluster survives, and of a second one, which it does not.
func (f *flow) checkPower(t *testing.T) {
	var vms []simulator.MachineSnapshot
	for _, machine := range f.MAAS.Machines() {
		if machine.VMHost != "" {
			vms = append(vms, machine)
		}
	}
	if len(vms) != 3 {
		t.Fatalf("%d virtual machines, want 3", len(vms))
	}
	f.power(t, vms[0], "off")
	f.awaitNode(t, vms[0], corev1.ConditionUnknown)
	f.power(t, vms[1], "off")
	if err := sandbox.WaitFor(within(t, 3*time.Minute), "etcd to lose its quorum", func() (bool, string, error) {
		err := f.workload.List(t.Context(), &corev1.NodeList{})
		return err != nil, fmt.Sprint(err), nil
	}); err != nil {
		t.Error(err)
	}
	f.power(t, vms[1], "on")
	f.awaitNode(t, vms[1], corev1.ConditionTrue)
	f.power(t, vms[0], "on")
	f.awaitNode(t, vms[0], corev1.ConditionTrue)
}

// power switches a machine without MAAS knowing.
func (f *flow) power(t *testing.T, machine simulator.MachineSnapshot, state string) {
	t.Helper()
	if err := f.Control(t.Context(), "machines/"+machine.SystemID+"/power", fmt.Sprintf(`{"power": %q, "unnoticed": true}`, state)); err != nil {
		t.Fatal(err)
	}
}

func (f *flow) awaitNode(t *testing.T, machine simulator.MachineSnapshot, want corev1.ConditionStatus) {
	t.Helper()
	what := fmt.Sprintf("node %s to be ready: %s", machine.Hostname, want)
	if err := sandbox.WaitFor(within(t, 3*time.Minute), what, func() (bool, string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		node := &corev1.Node{}
		if err := f.workload.Get(ctx, client.ObjectKey{Name: machine.Hostname}, node); err != nil {
			return false, err.Error(), nil
		}
		i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
		return i >= 0 && node.Status.Conditions[i].Status == want, fmt.Sprint(node.Status.Conditions), nil
	}); err != nil {
		t.Error(err)
	}
}
