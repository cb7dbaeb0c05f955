// SPDX-License-Identifier: Apache-2.0

package hosts_test

import (
	"fmt"
	"slices"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/vmhosts"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// hasNamesake: a Node of another host cluster gets the name of this cluster's worker. The VM host of that name stays
// the worker's, and the VM on it, while the other Node is there and when its machine goes; and the worker's VM holds
// nothing of the other cluster.
func (h *hostCluster) hasNamesake() {
	h.Helper()
	_, host := h.worker()
	before, err := h.maas.ListVMHosts(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	other := life.Several(h.T, h.Box, "namesake")[0]
	other.Create(flavor(h.T, "lxd-host", other.Key.Name, map[string]string{
		"CONTROL_PLANE_MACHINE_COUNT": "1", "WORKER_MACHINE_COUNT": "1",
		"LXD_STORAGE_BACKEND": "btrfs", "LXD_STORAGE_SIZE": "30", "LXD_RESOURCE_POOL": pool,
	}))
	other.Available(2)
	other.Wait("the other cluster's nodes to be VM hosts", func() (bool, string, error) {
		cluster := &infrav1.MaasCluster{}
		err := h.Box.Client.Get(h.Context(), other.Key, cluster)
		return conditions.IsTrue(cluster, infrav1.LXDReadyCondition), sandbox.Conditions(cluster.Status.Conditions), err
	})
	_, workers := other.MaasMachines()
	nodes := h.Box.HostNodes()
	node := nodes[slices.IndexFunc(nodes, func(n sandbox.HostNode) bool { return n.SystemID == workers[0].Spec.SystemID })]
	if err := h.Box.RenameNode(h.Within(renameTimeout), node, host.Name); err != nil {
		h.Fatal(err)
	}
	other.Wait("the namesake to say that its name is taken", func() (bool, string, error) {
		condition, err := h.conditionIn(other.Key, host.Name)
		return condition.Reason == "VMHostNameTaken", fmt.Sprint(condition), err
	})
	h.isStill(host.ID, host.Name)
	other.Delete()
	h.hosts(len(before))
	h.checkSame(before)
	h.isStill(host.ID, host.Name)
	h.checkInstance(host.Name, foreign)
}

// isStill checks that a VM host has the name, and runs on the worker.
func (h *hostCluster) isStill(id int, name string) {
	h.Helper()
	worker, _ := h.worker()
	host, err := h.maas.GetVMHost(h.Context(), id)
	if err != nil {
		h.Errorf("the worker's VM host: %v", err)
		return
	}
	hosts, err := h.maas.ListVMHosts(h.Context())
	on := vmhosts.OnMachine(hosts, worker.Spec.SystemID)
	if err != nil || host.Name != name || len(on) != 1 || on[0].ID != id {
		h.Errorf("the worker's VM host is %s, and %+v runs on the worker (%v), want %s", host.Name, on, err, name)
	}
}
