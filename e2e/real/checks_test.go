// SPDX-License-Identifier: Apache-2.0

package real_test

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	scriptTimeout = 5 * time.Minute
	podsTimeout   = eventually.Limit
)

func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	t.Cleanup(cancel)
	return ctx
}

// nodes are the cluster's, each with its machine, which its provider id names.
func (c *cluster) nodes() map[*corev1.Node]simulator.MachineSnapshot {
	c.Helper()
	list := &corev1.NodeList{}
	if err := c.workload.List(c.Context(), list); err != nil {
		c.Fatal(err)
	}
	all := map[*corev1.Node]simulator.MachineSnapshot{}
	for i := range list.Items {
		node := &list.Items[i]
		m, ok := box.Machine(node.Spec.ProviderID[strings.LastIndex(node.Spec.ProviderID, "/")+1:])
		if !ok {
			c.Fatalf("the Node %s has the provider id %q, of no machine", node.Name, node.Spec.ProviderID)
		}
		all[node] = m
	}
	if len(all) != c.machines {
		c.Fatalf("there are %d Nodes, want %d", len(all), c.machines)
	}
	return all
}

// checkNodes compares each Node with its machine.
func (c *cluster) checkNodes() {
	c.Helper()
	for node, m := range c.nodes() {
		kind := "maas://"
		if m.VMHost != "" {
			kind = "maas-lxd://"
		}
		if want := kind + m.Zone + "/" + m.SystemID; node.Spec.ProviderID != want {
			c.Errorf("the Node %s has the provider id %q, want %q", node.Name, node.Spec.ProviderID, want)
		}
		if m.Hostname != node.Name {
			c.Errorf("the Node %s is the machine %s", node.Name, m.Hostname)
		}
		var internal []string
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				internal = append(internal, address.Address)
			}
		}
		if len(internal) == 0 || !slices.ContainsFunc(m.Addresses, func(a netip.Addr) bool { return a.String() == internal[0] }) {
			c.Errorf("the Node %s has the internal addresses %v, its machine has %v", node.Name, internal, m.Addresses)
		}
	}
}

// ours are warnings of kubeadm and cloud-init, and errors of scripts.
var ours = regexp.MustCompile(`(?i)\bwarn|deprecat|invalid|not found|no such|failed|error`)

// known are lines that match, and are none of ours: the image has no SSH server; netplan warns of the gateways that MAAS
// writes, of the file that cloud-init makes of them, and that there is no bus yet; kubeadm warns of cgroups v1, which this
// computer may have, promotes a member of etcd again until it has caught up, and asks the next member when one is leaving
// or slow.
var known = regexp.MustCompile(`ssh_pwauth|Failed generating key type|gateway4|Permissions for /etc/netplan/50-cloud-init|Running \['netplan', 'apply'\]|` +
	`Failed to connect system bus|SystemVerification|\[preflight\] The system verification failed|` +
	`/etcdserverpb\.Cluster/MemberPromote.*in sync with leader|/etcdserverpb\.Cluster/.*code = (DeadlineExceeded|Unavailable)`)

// checkGuests reads what cloud-init and kubeadm wrote on each machine: cloud-init took the user data as valid, everything
// in it succeeded, and there is no warning.
func (c *cluster) checkGuests() {
	c.Helper()
	for node, m := range c.nodes() {
		ctx := within(c.T, scriptTimeout)
		status, err := box.RunOnNode(ctx, m.SystemID, "cloud-init status --wait --long")
		if err != nil || !strings.Contains(string(status), "status: done") {
			c.Errorf("cloud-init on %s: %v: %s", node.Name, err, status)
		}
		said, err := box.RunOnNode(ctx, m.SystemID, "cat /var/log/cloud-init-output.log; grep -E 'WARN|ERR' /var/log/cloud-init.log || true")
		if err != nil {
			c.Error(err)
			continue
		}
		for line := range strings.Lines(string(said)) {
			if line = strings.TrimSpace(line); ours.MatchString(line) && !known.MatchString(line) {
				c.Errorf("%s said: %s", node.Name, line)
			}
		}
	}
}

// checkPods waits until the cluster's own pods run, on all nodes.
func (c *cluster) checkPods() {
	c.Helper()
	ctx := within(c.T, podsTimeout)
	err := eventually.Wait(ctx, "the pods of kube-system to run", func() (bool, string, error) {
		sets, pods := &appsv1.DaemonSetList{}, &corev1.PodList{}
		for _, list := range []client.ObjectList{sets, pods} {
			if err := c.workload.List(ctx, list, client.InNamespace("kube-system")); err != nil {
				return false, err.Error(), nil //nolint:nilerr // the API server may be away for a moment
			}
		}
		said, ready := fmt.Sprintf("%d DaemonSets; ", len(sets.Items)), len(sets.Items) == 2
		for _, s := range sets.Items {
			ready = ready && s.Status.NumberReady == int32(c.machines) && s.Status.UpdatedNumberScheduled == int32(c.machines)
		}
		for _, pod := range pods.Items {
			if !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}) {
				said, ready = said+pod.Name+" is not ready; ", false
			}
		}
		return ready, said, nil
	})
	if err != nil {
		c.Error(err)
	}
}

// dump shows what happened on the machines that are on.
func (c *cluster) dump() {
	ctx := within(c.T, scriptTimeout)
	for _, m := range box.Machines() {
		if len(m.UserData) == 0 || !m.Running {
			continue
		}
		said, err := box.RunOnNode(ctx, m.SystemID, "tail -n 60 /var/log/cloud-init-output.log; journalctl --unit=kubelet --lines=30 --no-pager; ctr -n k8s.io containers list -q | wc -l")
		c.Logf("The machine %s: %v\n%s", m.Hostname, err, said)
	}
}
