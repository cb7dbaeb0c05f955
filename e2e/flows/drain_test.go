// SPDX-License-Identifier: Apache-2.0

package flows_test

import (
	"fmt"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// drain empties the only host of a zone. The manager dies meanwhile. At no moment does more than one control plane lack.
func drain(l *life.Life) {
	controlPlanes, _ := l.MaasMachines()
	at := slices.IndexFunc(controlPlanes, func(m infrav1.MaasMachine) bool { return m.Status.LXDHost == "lxd-b1" })
	if at < 0 {
		l.Fatal("no control plane is on lxd-b1")
	}
	was := controlPlanes[at]
	host := &infrav1.LXDHost{}
	host.Namespace, host.Name = sandbox.Namespace, "lxd-b1"
	life.ChangeLXDHost(l.T, l.Box, host, func(spec *infrav1.LXDHostSpec) { spec.Evacuate = true })
	killed := false
	l.Wait("the host to be empty, and its control plane to be replaced", func() (bool, string, error) {
		machines := &clusterv1.MachineList{}
		of := client.MatchingLabels{clusterv1.ClusterNameLabel: l.Key.Name}
		if err := l.Box.Client.List(l.Context(), machines, client.InNamespace(l.Key.Namespace), of); err != nil {
			return false, "", err
		}
		healthy, deleting := 0, 0
		for i := range machines.Items {
			m := &machines.Items[i]
			switch {
			case !m.DeletionTimestamp.IsZero():
				deleting++
			case conditions.IsTrue(m, clusterv1.ReadyCondition):
				healthy++
			}
		}
		if healthy < len(controlPlanes)-1 || deleting > 1 {
			return false, "", fmt.Errorf("%d Machines are healthy, %d are being deleted", healthy, deleting)
		}
		if deleting == 1 && !killed {
			killed = true
			if err := l.Box.Manager.Kill(); err != nil {
				return false, "", err
			}
		}
		err := l.Box.Client.Get(l.Context(), client.ObjectKeyFromObject(host), host)
		empty := conditions.IsTrue(host, infrav1.EvacuatedCondition)
		return empty && healthy == len(controlPlanes), fmt.Sprintf("%d are healthy; %s", healthy, conditions.GetMessage(host, infrav1.EvacuatedCondition)), err
	})
	l.Available(len(controlPlanes))
	now, _ := l.MaasMachines()
	if slices.ContainsFunc(now, func(m infrav1.MaasMachine) bool { return m.Name == was.Name || m.Status.LXDHost == "lxd-b1" }) || !killed {
		l.Errorf("it is not another control plane elsewhere; the manager was killed: %v", killed)
	}
	life.ChangeLXDHost(l.T, l.Box, host, func(spec *infrav1.LXDHostSpec) { spec.Evacuate = false })
	l.Wait("control planes to be wanted in its zone again", func() (bool, string, error) {
		cluster := &clusterv1.Cluster{}
		err := l.Box.Client.Get(l.Context(), l.Key, cluster)
		wanted := slices.ContainsFunc(cluster.Status.FailureDomains, func(d clusterv1.FailureDomain) bool {
			return d.Name == was.Status.FailureDomain && d.ControlPlane != nil && *d.ControlPlane
		})
		return wanted, fmt.Sprint(cluster.Status.FailureDomains), err
	})
}
