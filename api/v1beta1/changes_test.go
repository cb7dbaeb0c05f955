// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"context"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/specs"
)

// Package specs walks all changes of a spec. It decides itself which are refused, with the API server's code: here it is
// held against the API server, for each field of each kind.
func TestTheJudgeOfSpecsDecidesAsTheAPIServer(t *testing.T) {
	kinds, err := specs.Kinds(crds)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		t.Run(kind.Name, func(t *testing.T) {
			judge, err := specs.NewJudge(kind)
			if err != nil {
				t.Fatal(err)
			}
			objects := map[string]*unstructured.Unstructured{}
			for _, base := range kind.Bases() {
				if _, problems := judge.Create(base.Spec); len(problems) == 0 {
					objects[base.Name] = specified(kind.Name, base.Spec)
					if err := api.Create(t.Context(), objects[base.Name]); err != nil {
						t.Fatalf("%s: %v", base.Name, err)
					}
				}
			}
			t.Cleanup(func() {
				for _, object := range objects {
					_ = api.Delete(context.WithoutCancel(t.Context()), object)
				}
			})
			var all sync.WaitGroup
			for _, group := range kind.Groups() {
				if object := objects[group.Base]; object != nil && len(group.Fields) == 1 {
					all.Go(func() { compareVerdicts(t, judge, object, group) })
				}
			}
			all.Wait()
		})
	}
}

func specified(kind string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(infrav1.GroupVersion.WithKind(kind))
	o.SetNamespace(metav1.NamespaceDefault)
	o.SetGenerateName("changes-")
	return o
}

// compareVerdicts compares what judge and API server say of each spec of a group, alone and as a change of an object.
func compareVerdicts(t *testing.T, judge *specs.Judge, object *unstructured.Unstructured, group specs.Group) {
	before := object.Object["spec"].(map[string]any)
	for _, spec := range group.Specs {
		to, problems := judge.Create(spec)
		said := api.Create(t.Context(), specified(group.Kind, spec), client.DryRunAll)
		if len(problems) == 0 && said == nil {
			changed := object.DeepCopy()
			changed.Object["spec"] = spec
			problems, said = judge.Update(before, to), api.Update(t.Context(), changed, client.DryRunAll)
		}
		if (len(problems) > 0) != (said != nil) || (said != nil && !apierrors.IsInvalid(said)) {
			t.Errorf("%s of %q: the judge says %v, the API server %v, of\n  %s", group.Fields, group.Base, problems, said, specs.Text(spec))
		}
	}
}
