// SPDX-License-Identifier: Apache-2.0

package rights_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/e2e/rights"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// unusedByEvacuation are rights that the chart adds for emptying hosts and that this life does not need.
var unusedByEvacuation = map[string]string{
	"patch kthreescontrolplanes.controlplane.cluster.x-k8s.io": "a cluster's control plane may be of this kind, which is not in the sandbox",
	"patch rke2controlplanes.controlplane.cluster.x-k8s.io":    "a cluster's control plane may be of this kind, which is not in the sandbox",
}

// leadEvacuation empties the hosts of a control plane of one and a worker: without the chart's value nothing is tried,
// and with it just what that adds is needed.
func leadEvacuation(t *testing.T, box *sandbox.Sandbox, log *rights.Log) {
	t.Helper()
	granted := grantedTo(t, box.Client, box.RESTConfig, manager)
	l := life.Begin(t, box, "drained")
	manifest, err := box.Flavor("lxd", map[string]string{
		"NAMESPACE": l.Key.Namespace, "CLUSTER_NAME": l.Key.Name, "KUBERNETES_VERSION": "v1.35.0",
		"MAAS_DNS_DOMAIN": "maas.sim", "MAAS_IMAGE": "u-2204-k8s-1.35", "CONTROL_PLANE_MACHINE_COUNT": "1", "WORKER_MACHINE_COUNT": "1",
		"CONTROL_PLANE_MACHINE_RESOURCEPOOL": "capi", "WORKER_MACHINE_RESOURCEPOOL": "capi",
	})
	if err != nil {
		t.Fatal(err)
	}
	l.Create(strings.Replace(manifest, "    spec:\n      image:", "    spec:\n      provisioningMode: lxd\n      image:", 1))
	l.Available(2)
	controlPlanes, workers := l.MaasMachines()
	before := slices.Concat(controlPlanes, workers)
	var hosts []*infrav1.LXDHost
	for _, m := range before {
		host := &infrav1.LXDHost{}
		host.Namespace, host.Name = sandbox.Namespace, m.Status.LXDHost
		evacuate(l, host, true)
		hosts = append(hosts, host)
	}
	say := func(host *infrav1.LXDHost, reason string) (bool, string, error) {
		err := box.Client.Get(l.Context(), client.ObjectKeyFromObject(host), host)
		return conditions.GetReason(host, infrav1.EvacuatedCondition) == reason, sandbox.Conditions(host.Status.Conditions), err
	}
	for _, host := range hosts {
		l.Wait(host.Name+" to say that the right is missing", func() (bool, string, error) { return say(host, infrav1.EvacuationNotEnabledReason) })
	}
	usesOf(t, log, manager) // Nothing is denied.

	upgrade(t, box, map[string]any{"evacuation": map[string]any{"enabled": true}})
	more := slices.DeleteFunc(grantedTo(t, box.Client, box.RESTConfig, manager), func(r rights.Right) bool { return slices.Contains(granted, r) })
	for _, host := range hosts {
		l.Wait(host.Name+" to be empty", func() (bool, string, error) { return say(host, infrav1.EvacuatedReason) })
	}
	l.Available(2)
	controlPlanes, workers = l.MaasMachines()
	for _, m := range slices.Concat(controlPlanes, workers) {
		if slices.ContainsFunc(before, func(old infrav1.MaasMachine) bool {
			return old.Name == m.Name || old.Status.LXDHost == m.Status.LXDHost
		}) {
			t.Errorf("%s on %s is not another machine elsewhere", m.Name, m.Status.LXDHost)
		}
	}
	check(t, manager, more, usesOf(t, log, manager), unusedByEvacuation)
	for _, host := range hosts {
		evacuate(l, host, false)
	}
	l.Delete()
	upgrade(t, box, map[string]any{"evacuation": map[string]any{"enabled": false}})
}

// evacuate asks for a host to be empty, or takes that back.
func evacuate(l *life.Life, host *infrav1.LXDHost, wanted bool) {
	l.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"evacuate":%t}}`, wanted)
	if err := l.Box.Client.Patch(l.Context(), host, client.RawPatch(client.Merge.Type(), patch)); err != nil {
		l.Fatal(err)
	}
}
