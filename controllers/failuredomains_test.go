// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// controlPlane makes the KubeadmControlPlane that the Cluster refers to, and its template.
func (w *world) controlPlane(spec infrav1.MaasMachineSpec) *infrav1.MaasMachineTemplate {
	w.t.Helper()
	w.create(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
		"metadata": map[string]any{"name": clusterName, "namespace": w.namespace},
		"spec": map[string]any{"version": "v1.35.0", "machineTemplate": map[string]any{
			"spec": map[string]any{"infrastructureRef": map[string]any{
				"apiGroup": infrav1.GroupVersion.Group, "kind": "MaasMachineTemplate", "name": "control-plane",
			}},
		}},
	}})
	return w.template("control-plane", spec)
}

// template makes a MaasMachineTemplate of the cluster.
func (w *world) template(name string, spec infrav1.MaasMachineSpec) *infrav1.MaasMachineTemplate {
	w.t.Helper()
	template := &infrav1.MaasMachineTemplate{}
	template.Name, template.Namespace = name, w.namespace
	spec.Image = "ubuntu/jammy"
	template.Spec.Template.Spec = spec
	w.own(w.cluster, template)
	w.create(template)
	return template
}

func domainsText(cluster *infrav1.MaasCluster) (text []string) {
	for _, d := range cluster.Status.FailureDomains {
		text = append(text, fmt.Sprintf("%s %t %v", d.Name, *d.ControlPlane, d.Attributes))
	}
	return text
}

// As when MAAS's zones are renamed. Without failure domains a control plane would be placed in any zone.
func TestControlPlanesWaitForZonesThatAreGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cluster := w.provisionedCluster(func(c *infrav1.MaasCluster) { c.Spec.FailureDomains = []string{"zone-a"} })
	w.patch(cluster, func() { cluster.Spec.FailureDomains = []string{"zone-y", "zone-z"} })
	w.eventually(cluster, "without its zones, which are its failure domains", func() bool {
		// The conditions are stored in a patch of their own, before the rest.
		return conditions.GetReason(cluster, infrav1.FailureDomainsReadyCondition) == infrav1.ZonesNotFoundReason &&
			slices.Equal(domainsText(cluster), []string{"zone-y true map[]", "zone-z true map[]"})
	})
}

// The manager may not read control planes of all kinds.
func TestFailureDomainsFollowTheMachinesOfAnUnknownControlPlane(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	w.template("control-plane", withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.LXDConfig = &infrav1.LXDMachineConfig{VMHost: "lxd-b"} }))
	m := w.newMachine("cp", true, vm)
	w.patch(m, func() { m.Annotations = map[string]string{clusterv1.TemplateClonedFromNameAnnotation: "control-plane"} })
	w.eventually(cluster, "updated with the zones where control planes fit", func() bool {
		w.nudge(cluster)
		able := slices.DeleteFunc(slices.Clone(cluster.Status.FailureDomains), func(d clusterv1.FailureDomain) bool { return !*d.ControlPlane })
		return len(able) == 1 && able[0].Name == "zone-b"
	})
}

// A replacement must not be sent to a zone whose only host failed together with a control plane.
func TestAZoneIsNoFailureDomainWhileItsHostDoesNotRespond(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t)
	w.controlPlane(vm)
	m := w.deployedMachine("cp", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.FailureDomain = "zone-b" }))
	able := func(zones ...string) func() bool {
		return func() bool {
			var got []string
			for _, domain := range cluster.Status.FailureDomains {
				if *domain.ControlPlane {
					got = append(got, domain.Name)
				}
			}
			return slices.Equal(got, zones)
		}
	}
	w.eventually(cluster, "of use in all zones", able("zone-a", "zone-b", "zone-c"))
	w.maas.BreakVMHost(m.Status.LXDHost, true, false)
	w.beginDeletion(m)
	w.eventually(cluster, "usable if hosts respond", able("zone-a", "zone-c"))
	other := w.newMachine("other", true, withSpec(vm, func(s *infrav1.MaasMachineSpec) { s.FailureDomain = "zone-b" }))
	w.refused(other, infrav1.LXDHostSelectedCondition, infrav1.NoHostAvailableReason)
	if n := w.calls("compose"); n != 1 {
		t.Errorf("MAAS was asked for %d VMs, want none on the host that does not respond", n-1)
	}
	w.delete(other)
	w.maas.BreakVMHost(m.Status.LXDHost, false, false)
	w.goes(m)
	w.eventually(cluster, "of use in all zones again", able("zone-a", "zone-b", "zone-c"))
}
