// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func required(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}
}

func expression(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

func named(operator corev1.NodeSelectorOperator, name string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: operator, Values: []string{name}}}}
}

func TestFits(t *testing.T) {
	for name, tt := range map[string]struct {
		pod  corev1.PodSpec
		node corev1.NodeSpec
		want bool
	}{
		"asks for nothing":         {want: true},
		"selects the node":         {pod: corev1.PodSpec{NodeSelector: map[string]string{"disks": "4"}}, want: true},
		"selects another":          {pod: corev1.PodSpec{NodeSelector: map[string]string{"disks": "5"}}},
		"names the node":           {pod: corev1.PodSpec{Affinity: required(named(corev1.NodeSelectorOpIn, "one"))}, want: true},
		"names another":            {pod: corev1.PodSpec{Affinity: required(named(corev1.NodeSelectorOpIn, "two"))}},
		"names what it is not":     {pod: corev1.PodSpec{Affinity: required(named(corev1.NodeSelectorOpNotIn, "one"))}},
		"label in":                 {pod: corev1.PodSpec{Affinity: required(expression("disks", corev1.NodeSelectorOpIn, "3", "4"))}, want: true},
		"label not in":             {pod: corev1.PodSpec{Affinity: required(expression("disks", corev1.NodeSelectorOpNotIn, "4"))}},
		"label greater":            {pod: corev1.PodSpec{Affinity: required(expression("disks", corev1.NodeSelectorOpGt, "3"))}, want: true},
		"label less":               {pod: corev1.PodSpec{Affinity: required(expression("disks", corev1.NodeSelectorOpLt, "4"))}},
		"label missing":            {pod: corev1.PodSpec{Affinity: required(expression("gpu", corev1.NodeSelectorOpExists))}},
		"label rightly missing":    {pod: corev1.PodSpec{Affinity: required(expression("gpu", corev1.NodeSelectorOpDoesNotExist))}, want: true},
		"one term of two is met":   {pod: corev1.PodSpec{Affinity: required(expression("gpu", corev1.NodeSelectorOpExists), named(corev1.NodeSelectorOpIn, "one"))}, want: true},
		"empty term":               {pod: corev1.PodSpec{Affinity: required(corev1.NodeSelectorTerm{})}},
		"taint NoSchedule":         {node: tainted(corev1.TaintEffectNoSchedule)},
		"taint NoExecute":          {node: tainted(corev1.TaintEffectNoExecute)},
		"taint PreferNoSchedule":   {node: tainted(corev1.TaintEffectPreferNoSchedule), want: true},
		"taint tolerated":          {pod: tolerates("special", corev1.TolerationOpExists), node: tainted(corev1.TaintEffectNoSchedule), want: true},
		"another taint tolerated":  {pod: tolerates("other", corev1.TolerationOpExists), node: tainted(corev1.TaintEffectNoSchedule)},
		"another value tolerated":  {pod: tolerates("special", corev1.TolerationOpEqual), node: tainted(corev1.TaintEffectNoSchedule)},
		"cordoned":                 {node: corev1.NodeSpec{Unschedulable: true}},
		"cordoned, but all are ok": {pod: tolerates("", corev1.TolerationOpExists), node: corev1.NodeSpec{Unschedulable: true}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{"disks": "4"}}, Spec: tt.node}
			got, err := fits(&corev1.Pod{Spec: tt.pod}, node)
			if got != tt.want || err != nil {
				t.Errorf("fits = %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

func tainted(effect corev1.TaintEffect) corev1.NodeSpec {
	return corev1.NodeSpec{Taints: []corev1.Taint{{Key: "special", Value: "yes", Effect: effect}}}
}

func tolerates(key string, operator corev1.TolerationOperator) corev1.PodSpec {
	return corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: key, Operator: operator}}}
}
