// SPDX-License-Identifier: Apache-2.0

package life

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Topology is a Cluster of the ClusterClass capmaas with such variables, as JSON.
func Topology(t *testing.T, name, version string, controlPlanes, workers int, variables map[string]any) string {
	t.Helper()
	values := []any{}
	for _, variable := range slices.Sorted(maps.Keys(variables)) {
		values = append(values, map[string]any{"name": variable, "value": variables[variable]})
	}
	machineDeployment := map[string]any{"class": "default-worker", "name": "md-0", "replicas": workers}
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": clusterv1.GroupVersion.String(), "kind": "Cluster",
		"metadata": map[string]any{"name": name, "namespace": Namespace},
		"spec": map[string]any{
			"clusterNetwork": map[string]any{
				"pods": map[string]any{"cidrBlocks": []string{"10.244.0.0/16"}}, "services": map[string]any{"cidrBlocks": []string{"10.96.0.0/12"}},
			},
			"topology": map[string]any{
				"classRef": map[string]any{"name": "capmaas"}, "version": version,
				"controlPlane": map[string]any{"replicas": controlPlanes},
				"workers":      map[string]any{"machineDeployments": []any{machineDeployment}},
				"variables":    values,
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(manifest)
}
