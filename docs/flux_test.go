// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"testing"

	"github.com/google/cel-go/cel"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/yaml"
)

// Flux waits for a Cluster that is being made, although a Cluster has no condition Ready.
func TestFluxWaitsForClusters(t *testing.T) {
	for name, tc := range map[string]struct {
		available metav1.ConditionStatus // "": there is no such condition
		want      bool
	}{
		"new": {"", false}, "being made": {metav1.ConditionFalse, false}, "not known": {metav1.ConditionUnknown, false},
		"available": {metav1.ConditionTrue, true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &clusterv1.Cluster{}
			cluster.Status.Phase = string(clusterv1.ClusterPhaseProvisioning)
			if tc.available != "" {
				conditions.Set(cluster, metav1.Condition{Type: "Another", Status: metav1.ConditionTrue, Reason: "Test"})
				conditions.Set(cluster, metav1.Condition{Type: clusterv1.AvailableCondition, Status: tc.available, Reason: "Test"})
			}
			if got := fluxHealth(t, cluster); got != tc.want {
				t.Errorf("it is healthy: %v, want %v", got, tc.want)
			}
		})
	}
}

// fluxHealth evaluates the document's expression as Flux does: with the object's fields as variables of no type.
func fluxHealth(t *testing.T, cluster *clusterv1.Cluster) bool {
	t.Helper()
	type check struct{ APIVersion, Kind, Current string }
	settings := struct {
		Spec struct {
			Wait             bool
			Timeout          metav1.Duration
			HealthCheckExprs []check
		}
	}{}
	for _, b := range blocks(t) {
		if b.document == "gitops.md" && b.language == "yaml" {
			if err := yaml.UnmarshalStrict([]byte(b.text), &settings); err != nil {
				t.Fatal(err)
			}
		}
	}
	checks := settings.Spec.HealthCheckExprs
	if len(checks) != 1 || checks[0].APIVersion != clusterv1.GroupVersion.String() || checks[0].Kind != "Cluster" || !settings.Spec.Wait {
		t.Fatalf("the document has the settings %+v", settings)
	}
	environment, err := cel.NewEnv()
	if err != nil {
		t.Fatal(err)
	}
	parsed, issues := environment.Parse(checks[0].Current)
	if err := issues.Err(); err != nil {
		t.Fatal(err)
	}
	program, err := environment.Program(parsed)
	if err != nil {
		t.Fatal(err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(cluster)
	if err != nil {
		t.Fatal(err)
	}
	result, _, err := program.Eval(content)
	if err != nil {
		t.Fatal(err)
	}
	return result.Value() == true
}
