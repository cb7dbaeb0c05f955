// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// replaces returns which machines are replaced when a variable changes: those whose templates a patch with it changes.
// A change of the MaasCluster replaces none.
func replaces(class *clusterv1.ClusterClass, variable string) string {
	controlPlanes, workers := false, false
	for _, patch := range class.Spec.Patches {
		for _, definition := range patch.Definitions {
			if !uses(patch, definition, variable) {
				continue
			}
			match := definition.Selector.MatchResources
			controlPlanes = controlPlanes || ptr.Deref(match.ControlPlane, false)
			workers = workers || match.MachineDeploymentClass != nil
		}
	}
	switch {
	case controlPlanes && workers:
		return "control planes and workers"
	case controlPlanes:
		return "control planes"
	case workers:
		return "workers"
	}
	return "nothing"
}

// uses reports whether a variable affects how a patch changes a template for machines.
func uses(patch clusterv1.ClusterClassPatch, definition clusterv1.PatchDefinition, variable string) bool {
	for _, p := range definition.JSONPatches {
		// The rollout strategy of a control plane, for example, does not change its machines.
		if definition.Selector.Kind == "KubeadmControlPlaneTemplate" && !strings.HasPrefix(p.Path, "/spec/template/spec/kubeadmConfigSpec/") {
			continue
		}
		if inTemplate(patch.EnabledIf, variable) {
			return true
		}
		if usesValue(p, variable) {
			return true
		}
	}
	return false
}

// usesValue reports whether what a JSON patch writes comes from a variable.
func usesValue(p clusterv1.JSONPatch, variable string) bool {
	if p.ValueFrom == nil {
		return false
	}
	name, _, _ := strings.Cut(p.ValueFrom.Variable, ".")
	return name == variable || inTemplate(p.ValueFrom.Template, variable)
}

// inTemplate reports whether a Go template uses a variable's value, or tests whether it is set.
func inTemplate(template, variable string) bool {
	name := regexp.QuoteMeta(variable)
	return regexp.MustCompile(`(^|[^\w.])\.` + name + `\b|hasKey \. "` + name + `"`).MatchString(template)
}
