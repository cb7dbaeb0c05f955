// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"path/filepath"
	"testing"

	lua "github.com/yuin/gopher-lua"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// kindWithConditions is a kind of ours as Argo CD sees it.
type kindWithConditions interface {
	metav1.Object
	conditions.Setter
}

// changedCase is about an object that was changed after its conditions were set.
const changedCase = "changed, and not seen yet"

func TestArgoCDsHealthChecks(t *testing.T) {
	machine := func() *infrav1.MaasMachine { return &infrav1.MaasMachine{} }
	provisioned := func() *infrav1.MaasMachine {
		m := machine()
		m.Status.Initialization.Provisioned = ptr.To(true)
		return m
	}
	deleted := func(o kindWithConditions) kindWithConditions {
		o.SetDeletionTimestamp(ptr.To(metav1.Now()))
		return o
	}
	failed := machine()
	failed.Status.FailureReason, failed.Status.FailureMessage = "DeploymentFailed", "it failed"
	for name, tc := range map[string]struct {
		kind   string
		object kindWithConditions
		// ready is the condition Ready; "": there is none. paused is whether Paused is true.
		ready  metav1.ConditionStatus
		paused bool
		want   string
	}{
		"new":                           {"MaasMachine", machine(), "", false, "Progressing"},
		"being made":                    {"MaasMachine", machine(), metav1.ConditionFalse, false, "Progressing"},
		"failed":                        {"MaasMachine", failed, metav1.ConditionFalse, false, "Degraded"},
		"ready":                         {"MaasMachine", provisioned(), metav1.ConditionTrue, false, "Healthy"},
		changedCase:                     {"MaasMachine", provisioned(), metav1.ConditionTrue, false, "Progressing"},
		"powered off":                   {"MaasMachine", provisioned(), metav1.ConditionFalse, false, "Degraded"},
		"unknown":                       {"MaasMachine", provisioned(), metav1.ConditionUnknown, false, "Degraded"},
		"deleted":                       {"MaasMachine", deleted(provisioned()), metav1.ConditionFalse, false, "Progressing"},
		"paused":                        {"MaasMachine", provisioned(), metav1.ConditionTrue, true, "Suspended"},
		"a cluster that waits":          {"MaasCluster", &infrav1.MaasCluster{}, metav1.ConditionFalse, false, "Progressing"},
		"a cluster that is ready":       {"MaasCluster", &infrav1.MaasCluster{}, metav1.ConditionTrue, false, "Healthy"},
		"a host that is ready":          {"LXDHost", &infrav1.LXDHost{}, metav1.ConditionTrue, false, "Healthy"},
		"a host that does not respond":  {"LXDHost", &infrav1.LXDHost{}, metav1.ConditionFalse, false, "Degraded"},
		"a host that nobody looked at":  {"LXDHost", &infrav1.LXDHost{}, "", false, "Progressing"},
		"a host that is being deleted":  {"LXDHost", deleted(&infrav1.LXDHost{}), metav1.ConditionTrue, false, "Progressing"},
		"a cluster that is being moved": {"MaasCluster", &infrav1.MaasCluster{}, metav1.ConditionTrue, true, "Suspended"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.object.SetGeneration(1)
			if tc.ready != "" {
				conditions.Set(tc.object, metav1.Condition{
					Type: infrav1.ReadyCondition, Status: tc.ready, Reason: "Test", Message: "a message",
				})
			}
			if tc.paused {
				conditions.Set(tc.object, metav1.Condition{Type: clusterv1.PausedCondition, Status: metav1.ConditionTrue, Reason: "Paused"})
			}
			if name == changedCase {
				tc.object.SetGeneration(2)
			}
			status, message := argoHealth(t, tc.kind, tc.object)
			if status != tc.want {
				t.Errorf("it is %s (%q), want %s", status, message, tc.want)
			}
			if tc.ready == metav1.ConditionFalse && message == "" {
				t.Error("nobody learns why")
			}
		})
	}
}

// argoHealth runs the script of a kind, as Argo CD does: with the object in the global obj.
func argoHealth(t *testing.T, kind string, object kindWithConditions) (status, message string) {
	t.Helper()
	configMap := struct{ Data map[string]string }{}
	if err := yaml.UnmarshalStrict([]byte(read(t, filepath.Join("examples", "argocd-cm.yaml"))), &configMap); err != nil {
		t.Fatal(err)
	}
	script := configMap.Data["resource.customizations.health."+infrav1.GroupVersion.Group+"_"+kind]
	if script == "" {
		t.Fatalf("there is no script for %s", kind)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	content["kind"] = kind
	state := lua.NewState()
	defer state.Close()
	state.SetGlobal("obj", luaValue(state, content))
	if err := state.DoString(script); err != nil {
		t.Fatal(err)
	}
	result, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the script returned %s", state.Get(-1))
	}
	return lua.LVAsString(result.RawGetString("status")), lua.LVAsString(result.RawGetString("message"))
}

// luaValue converts what JSON can have.
func luaValue(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case bool:
		return lua.LBool(value)
	case int64:
		return lua.LNumber(value)
	case float64:
		return lua.LNumber(value)
	case string:
		return lua.LString(value)
	case []any:
		table := state.NewTable()
		for _, element := range value {
			table.Append(luaValue(state, element))
		}
		return table
	case map[string]any:
		table := state.NewTable()
		for key, element := range value {
			table.RawSetString(key, luaValue(state, element))
		}
		return table
	}
	return lua.LNil
}
