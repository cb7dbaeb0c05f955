// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/ledger"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/emptyimage"
)

const (
	hostsFlavor = "lxd-host"
	hostNodes   = 3
	// lxdProject is MAAS's LXD project.
	lxdProject = "maas"
)

// hosts is what happens to the host cluster.
type hosts struct {
	*story
	daemons *ledger.Daemons // the nodes' LXD

	came, went time.Duration
	left       []string
}

func newHosts(s *story) *hosts {
	return &hosts{story: s, daemons: ledger.FollowDaemons(func() map[string]string { return sockets(s.box) })}
}

// sockets are those of all LXD daemons that run, by node.
func sockets(box *sandbox.Sandbox) map[string]string {
	all := map[string]string{}
	for node, daemon := range box.LXDs() {
		all[node] = daemon.Socket()
	}
	return all
}

// create makes the host cluster and waits until all of its nodes are VM hosts.
func (h *hosts) create(ctx context.Context) error {
	applying, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	settings := variables(hostsName, hostNodes, 0)
	// zfs, the default, needs a kernel module that this computer may not have.
	settings["LXD_STORAGE_BACKEND"], settings["LXD_RESOURCE_POOL"] = "btrfs", resourcePool
	settings["LXD_STORAGE_SIZE"] = sandbox.PoolGB // and its disk is no server's
	started := time.Now()
	if err := h.apply(applying, hostsFlavor, settings); err != nil {
		return fmt.Errorf("creating the host cluster: %w", err)
	}
	creating, cancel := h.bounded(ctx, h.createTimeout)
	defer cancel()
	if err := h.box.WaitAvailable(creating, hostsName, hostNodes); err != nil {
		return err
	}
	cluster := &infrav1.MaasCluster{}
	err := eventually.Wait(creating, "all nodes to be VM hosts", func() (bool, string, error) {
		err := h.box.Client.Get(creating, hostsName, cluster)
		return conditions.IsTrue(cluster, infrav1.LXDReadyCondition), sandbox.Conditions(cluster.Status.Conditions), err
	})
	h.came = time.Since(started)
	if err != nil || !h.opts.direct() {
		return err
	}
	return h.upload(creating)
}

// upload gives the hosts the images of the VMs, as an operator does where MAAS does not bring them. Their disks are empty.
func (h *hosts) upload(ctx context.Context) error {
	for _, image := range h.vmImages() {
		disk, err := emptyimage.Disk(ctx, image)
		if err != nil {
			return err
		}
		file := filepath.Join(h.box.WorkDir(), image+".qcow2")
		if err := os.WriteFile(file, disk, 0o600); err != nil {
			return fmt.Errorf("writing the image: %w", err)
		}
		if err := h.capmaasctl(ctx, "image", "upload", file, "--name="+image, "--lxd-host=*", "--namespace="+hostsName.Namespace); err != nil {
			return err
		}
	}
	return nil
}

// delete deletes the host cluster, and reports what was left in a node's LXD when its machine was released.
func (h *hosts) delete(ctx context.Context) error {
	deleting, cancel := h.bounded(ctx, deleteTimeout)
	defer cancel()
	started := time.Now()
	if err := h.box.DeleteCluster(deleting, hostsName); err != nil {
		return err
	}
	h.went, h.left = time.Since(started), h.daemons.Left()
	return nil
}

// hints returns how to inspect the nodes' LXD.
func (h *hosts) hints() []string {
	lines := []string{"The VMs, in the LXD of each node of the host cluster:"}
	for _, node := range h.box.HostNodes() {
		if node.LXD != nil {
			lines = append(lines, fmt.Sprintf("  LXD_DIR=%s lxc list --project %s   # %s", node.LXD.Dir(), lxdProject, node.Name))
		}
	}
	return lines
}
