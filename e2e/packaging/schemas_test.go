// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

const templateCRD = "maasmachinetemplates.infrastructure.cluster.x-k8s.io"

// chartWithAField is a later version of the chart, in which machines have a field that this one does not know.
func chartWithAField(t *testing.T) *chart.Chart {
	t.Helper()
	return laterChart(t, func(crd *apiextensionsv1.CustomResourceDefinition) {
		number, err := strconv.Atoi(crd.Annotations[infrav1.SchemaAnnotation])
		if err != nil {
			t.Fatal(err)
		}
		crd.Annotations[infrav1.SchemaAnnotation] = strconv.Itoa(number + 1)
		if crd.Name == templateCRD {
			crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["template"].Properties["spec"].Properties["later"] =
				apiextensionsv1.JSONSchemaProps{Type: "string"}
		}
	})
}

// withField makes a template that uses the later field, once it is served.
func withField(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	template := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"image": "i", "later": "precious"}}},
	}}
	template.SetGroupVersionKind(infrav1.GroupVersion.WithKind("MaasMachineTemplate"))
	template.SetNamespace(newNamespace(t))
	template.SetName("template")
	eventually.Succeeds(t, "the later field is served", func(ctx context.Context) error {
		return management.strict.Create(ctx, template.DeepCopy())
	})
	return template
}

// checkField writes the template's status, as the manager does, and checks what is left of its spec.
func checkField(t *testing.T, when string, template *unstructured.Unstructured, fits int) {
	t.Helper()
	patch := fmt.Sprintf(`{"status": {"room": {"fits": %d}}}`, fits)
	if err := management.Status().Patch(t.Context(), template, client.RawPatch(client.Merge.Type(), []byte(patch))); err != nil {
		t.Fatal(err)
	}
	if got, _, _ := unstructured.NestedString(template.Object, "spec", "template", "spec", "later"); got != "precious" {
		t.Errorf("%s, the later field is %q after a write of the status, want what its user set", when, got)
	}
}

// tryEarlier updates the CRD in a dry run, as a client does that applies the present chart's.
func tryEarlier(ctx context.Context, name string, change func(*apiextensionsv1.CustomResourceDefinition)) error {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := management.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
		return err
	}
	change(crd)
	return management.Update(ctx, crd, client.DryRunAll)
}

// The CRDs of an earlier release would erase what a later one has stored, at the next write of a status. Helm's rollback
// applies them, so it is refused. The manager goes back alone.
func TestCRDsDoNotGoBack(t *testing.T) {
	earlier, later := thisChart(t), chartWithAField(t)
	upgradeChart(t, later, nil)
	t.Cleanup(func() { goBack(t, earlier) })
	eventually.Succeeds(t, "the policy acts", func(ctx context.Context) error {
		err := tryEarlier(ctx, clusterCRD, func(crd *apiextensionsv1.CustomResourceDefinition) {
			delete(crd.Annotations, infrav1.SchemaAnnotation)
			crd.Spec.Versions[0].AdditionalPrinterColumns = nil
		})
		if !apierrors.IsInvalid(err) {
			return fmt.Errorf("an earlier CRD is not refused (%w)", err)
		}
		return nil
	})
	template := withField(t)

	out, err := helmTool(t, "rollback", releaseName, "--namespace", releaseNamespace)
	if err == nil || !strings.Contains(out, "crds.install=false") || strings.Contains(out, "crds.keep=true") {
		t.Errorf("helm rollback ends with %v, want a refusal with the remedy:\n%s", err, out)
	}
	checkField(t, "after helm rollback", template, 1)

	// The remedy.
	upgradeChart(t, earlier, values{"crds": values{"install": false}})
	state, err := installedState(t.Context())
	if err != nil || state.image != "capmaas-manager:v0.1.0" {
		t.Errorf("after the remedy the manager is %s (%v), want the earlier one", state.image, err)
	}
	checkField(t, "with the earlier manager", template, 2)

	upgradeChart(t, later, nil)
	checkField(t, "after the upgrade again", template, 3)
}

// goBack installs an earlier chart with its CRDs, by the way that is there for those who accept the loss.
func goBack(t *testing.T, earlier *chart.Chart) {
	t.Helper()
	ctx := context.Background() // The test's own is done.
	for _, crd := range ofKind(mustRender(t, nil), "CustomResourceDefinition") {
		patch := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: null}}}`, infrav1.SchemaAnnotation)
		if err := management.Patch(ctx, crd, client.RawPatch(client.Merge.Type(), patch)); err != nil {
			t.Fatal(err)
		}
	}
	configuration, err := helmConfiguration(releaseNamespace)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newUpgrade(configuration).RunWithContext(ctx, releaseName, earlier, nil); err != nil {
		t.Fatalf("going back: %v", err)
	}
}

// What the policy is not about is never refused, whatever the number.
func TestCRDsOfTheSameSchemaMayChange(t *testing.T) {
	number := func(value string) func(*apiextensionsv1.CustomResourceDefinition) {
		return func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Annotations[infrav1.SchemaAnnotation] = value
			crd.Spec.Versions[0].AdditionalPrinterColumns = nil
		}
	}
	eventually.Succeeds(t, "the policy acts", func(ctx context.Context) error {
		if tryEarlier(ctx, templateCRD, number("0")) == nil {
			return errors.New("an earlier CRD is accepted")
		}
		return nil
	})
	for name, tc := range map[string]struct {
		change  func(*apiextensionsv1.CustomResourceDefinition)
		refused bool
	}{
		"an earlier schema": {number("0"), true},
		"no number":         {number("one"), true},
		"a later schema":    {number("999999"), false},
		"the same schema": {func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Spec.Versions[0].AdditionalPrinterColumns = nil
		}, false},
		"the number alone": {func(crd *apiextensionsv1.CustomResourceDefinition) {
			delete(crd.Annotations, infrav1.SchemaAnnotation)
		}, false},
	} {
		if err := tryEarlier(t.Context(), templateCRD, tc.change); tc.refused != apierrors.IsInvalid(err) || !tc.refused && err != nil {
			t.Errorf("%s: %v, want it refused: %v", name, err, tc.refused)
		}
	}
	if err := tryEarlier(t.Context(), templateCRD, number("0")); err == nil || !strings.Contains(err.Error(), "crds.install=false") {
		t.Errorf("the refusal has no remedy: %v", err)
	}
}
