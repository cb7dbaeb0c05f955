// SPDX-License-Identifier: Apache-2.0

package flows_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
)

// step is a part of a life. The next parts need it, so a failure ends the life.
func step(l *life.Life, name string, do func(*life.Life)) {
	l.Helper()
	ok := l.Run(name, func(t *testing.T) {
		part := *l
		part.T = t
		do(&part)
	})
	if !ok {
		l.FailNow()
	}
}

// Control planes of one cluster, in VMs: three; then a host dies, and there are more than zones.
func TestLXDControlPlanesAcrossThreeZones(t *testing.T) {
	l := life.Begin(t, box, "spread")
	l.Create(topology(t, "spread", 3, 0, lxd))
	step(l, "ThreeAcrossThreeZones", func(l *life.Life) {
		l.Available(3)
		checkSpread(l, "zone-a", "zone-b", "zone-c")
	})
	step(l, "HAFailover", failover)
	l.Delete()
}

// checkSpread: no zone has two control planes more than another, and no host has two where another one of its zone has
// none.
func checkSpread(l *life.Life, zones ...string) {
	l.Helper()
	controlPlanes, _ := l.MaasMachines()
	inZone, onHost := map[string]int{}, map[string]int{}
	for _, zone := range zones {
		inZone[zone] = 0
	}
	for _, m := range l.Held(controlPlanes) {
		inZone[m.Zone]++
		onHost[m.VMHost]++
	}
	counts := slices.Sorted(maps.Values(inZone))
	if len(counts) != len(zones) || counts[len(counts)-1]-counts[0] > 1 {
		l.Errorf("the %d control planes are in the zones %v", len(controlPlanes), inZone)
	}
	if apart := onHost["lxd-a1"] - onHost["lxd-a2"]; apart < -1 || apart > 1 {
		l.Errorf("the control planes in zone-a are on the hosts %v", onHost)
	}
}

// failover: a VM host dies with the control planes on it, and no other host is in its zone. The MachineHealthCheck
// replaces them.
func failover(l *life.Life) {
	l.Change(func(cluster *clusterv1.Cluster) {
		cluster.Spec.Topology.ControlPlane.HealthCheck.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, TimeoutSeconds: ptr.To[int32](5)},
		}
	})
	controlPlanes, _ := l.MaasMachines()
	onHost := map[string][]infrav1.MaasMachine{}
	for _, m := range controlPlanes {
		onHost[m.Status.LXDHost] = append(onHost[m.Status.LXDHost], m)
	}
	const host, others = "lxd-c1", "zone-b" // The only host of its zone, and another zone with one.
	dead := onHost[host]
	if len(dead) == 0 {
		l.Fatalf("no control plane is on %s", host)
	}
	for _, m := range dead {
		l.Control("machines/"+m.Spec.SystemID+"/power", `{"power": "off", "unnoticed": true}`)
	}
	if !box.MAAS.BreakVMHost(host, true, false) {
		l.Fatalf("there is no VM host %q", host)
	}
	l.Cleanup(func() {
		box.MAAS.BreakVMHost(host, false, false)
		// A manager skips a host that did not respond for minutes. A new one does not, for the next tests.
		if err := box.Manager.Kill(); err != nil {
			l.Error(err)
		}
	})
	l.Logf("%s died with %d control planes", host, len(dead))

	l.Wait("the control planes of the dead host to be replaced", func() (bool, string, error) {
		now, _ := l.MaasMachines()
		elsewhere := 0
		for _, m := range now {
			if m.Status.Ready && m.Status.LXDHost != host {
				elsewhere++
			}
		}
		done := len(now) == len(controlPlanes) && elsewhere == len(now)
		return done, fmt.Sprintf("%d of %d are ready elsewhere", elsewhere, len(now)), nil
	})
	l.Available(len(controlPlanes))
	checkSpread(l, "zone-a", others)
	says(l, host, dead)
	box.MAAS.BreakVMHost(host, false, false)
	l.Wait("what the host kept to be deleted", func() (bool, string, error) {
		var left []string
		for _, h := range box.MAAS.VMHosts() {
			for _, vm := range h.VMs {
				if slices.ContainsFunc(dead, func(m infrav1.MaasMachine) bool { return m.Status.Hostname == vm.Name }) {
					left = append(left, vm.Name)
				}
			}
		}
		return len(left) == 0, fmt.Sprint(left), nil
	})
	says(l, host, nil)
}

// says waits until the LXDHost of a VM host names these VMs, and no others, as left on it.
func says(l *life.Life, host string, left []infrav1.MaasMachine) {
	l.Wait(fmt.Sprintf("LXDHost %s to name %d VMs", host, len(left)), func() (bool, string, error) {
		list := &infrav1.LXDHostList{}
		if err := box.Client.List(l.Context(), list); err != nil {
			return false, "", err
		}
		at := slices.IndexFunc(list.Items, func(h infrav1.LXDHost) bool { return strings.HasPrefix(h.Name, host+"-") || h.Name == host })
		if at < 0 {
			return false, "there is none", nil
		}
		c := conditions.Get(&list.Items[at], infrav1.NoVMsLeftCondition)
		if c == nil {
			return len(left) == 0, "it names none", nil
		}
		named := !slices.ContainsFunc(left, func(m infrav1.MaasMachine) bool { return !strings.Contains(c.Message, m.Status.Hostname) })
		return named && len(left) > 0, c.Message, nil
	})
}
