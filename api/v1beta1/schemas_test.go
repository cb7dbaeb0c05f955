// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// generated returns the CRDs that the chart installs.
func generated(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(crds, "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no CRDs in %s (%v)", crds, err)
	}
	all := make([]*apiextensionsv1.CustomResourceDefinition, len(paths))
	for i, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(content, &all[i]); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	return all
}

// eachSchema calls f with each schema in a schema and its path, for example .spec.tags[].
func eachSchema(path string, schema apiextensionsv1.JSONSchemaProps, f func(path string, schema apiextensionsv1.JSONSchemaProps)) {
	f(path, schema)
	for name, property := range schema.Properties {
		eachSchema(path+"."+name, property, f)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		eachSchema(path+"[]", *schema.Items.Schema, f)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		eachSchema(path+"{}", *schema.AdditionalProperties.Schema, f)
	}
}

// Nothing converts between versions: what one of them lacks, each write through it erases.
func TestEveryServedVersionHasEveryField(t *testing.T) {
	for _, crd := range generated(t) {
		fields := map[string][]string{}
		for _, version := range crd.Spec.Versions {
			if !version.Served {
				continue
			}
			paths := map[string]bool{}
			eachSchema("", *version.Schema.OpenAPIV3Schema, func(path string, _ apiextensionsv1.JSONSchemaProps) { paths[path] = true })
			fields[version.Name] = slices.Sorted(maps.Keys(paths))
		}
		first := crd.Spec.Versions[0].Name
		for version, got := range fields {
			if diff := cmp.Diff(fields[first], got); diff != "" || len(got) < 10 {
				t.Errorf("%s: fields (-%s +%s):\n%s", crd.Name, first, version, diff)
			}
		}
	}
}

// A rule at the root sees the metadata: it is never left out for what did not change, so that an object that breaks it could
// not even lose its finalizers.
func TestNoRuleStandsAtTheRootOfASchema(t *testing.T) {
	rules := 0
	for _, crd := range generated(t) {
		for _, version := range crd.Spec.Versions {
			root := version.Schema.OpenAPIV3Schema
			if len(root.XValidations) > 0 {
				t.Errorf("%s %s has %d rules at its root: move them to the spec, or to the field", crd.Name, version.Name, len(root.XValidations))
			}
			eachSchema("", *root, func(_ string, schema apiextensionsv1.JSONSchemaProps) { rules += len(schema.XValidations) })
		}
	}
	if rules == 0 {
		t.Error("the CRDs have no rules at all")
	}
}

// validates returns a function that reports whether the API server takes a value where the schema is.
func validates(t *testing.T, schema apiextensionsv1.JSONSchemaProps) func(any) bool {
	t.Helper()
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&schema, internal, nil); err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		t.Fatal(err)
	}
	return func(value any) bool { return len(validation.ValidateCustomResource(nil, value, validator)) == 0 }
}

// at returns an object that has nothing but the value at the path.
func at(path string, value any) any {
	cut := strings.LastIndexAny(path, ".[{")
	switch {
	case cut < 0:
		return value
	case path[cut] == '[':
		return at(path[:cut], []any{value})
	case path[cut] == '{':
		return at(path[:cut], map[string]any{"a": value})
	default:
		return at(path[:cut], map[string]any{path[cut+1:]: value})
	}
}

func oneOf[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// someTime returns what resembles a date-time, of parts that some reader or other takes.
func someTime(r *rand.Rand) string {
	two := func() string {
		return oneOf(r, fmt.Sprintf("%02d", r.IntN(32)), fmt.Sprintf("%02d", r.IntN(100)), "1", "00", "24", "60")
	}
	year := oneOf(r, fmt.Sprintf("%04d", r.IntN(10000)), "0000", "2000", "2100", "9999", "10000", "-001")
	month := oneOf(r, fmt.Sprintf("%02d", 1+r.IntN(12)), "02", two())
	day := oneOf(r, fmt.Sprintf("%02d", 1+r.IntN(31)), "29", two())
	fraction := oneOf(r, "", "", ".", oneOf(r, ".", ",", ":", " ")+strings.Repeat("7", 1+r.IntN(12)))
	zone := oneOf(r, "Z", "Z", "z", "", "UTC", oneOf(r, "+", "-", "")+two()+oneOf(r, ":", "", ".")+two())
	return year + oneOf(r, "-", "-", "-", "/") + month + "-" + day + oneOf(r, "T", "T", "t", " ") +
		two() + ":" + two() + oneOf(r, ":"+two(), ":"+two(), "") + fraction + zone
}

// someQuantity returns what resembles a quantity.
func someQuantity(r *rand.Rand) string {
	digits := func() string {
		return strings.Repeat(fmt.Sprint(r.IntN(10)), oneOf(r, 0, 1, 2, 5, 19, 20, 40, 80, 5000))
	}
	number := digits() + oneOf(r, "", ".", "."+digits())
	exponent := oneOf(r, "e", "E") + oneOf(r, "", "+", "-") + digits() + oneOf(r, "", "", "."+digits())
	return oneOf(r, "", "", "+", "-", " ") + number +
		oneOf(r, "", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "n", "u", "m", "k", "K", "M", "G", "T", "P", "E", "i", "mi", exponent, exponent)
}

// someValues are what an API server may be sent for a field: it reads whole numbers as int64, and all others as float64.
func someValues(r *rand.Rand) []any {
	values := []any{true, "", "x", strings.Repeat("9", 30)}
	for _, power := range []int{0, 7, 15, 16, 31, 32, 53, 62, 63, 64, 1000} {
		for _, sign := range []float64{1, -1} {
			number := sign * math.Ldexp(1, min(power, 1020))
			values = append(values, number, number+0.5)
			if power < 63 {
				values = append(values, int64(number), int64(number)-1)
			}
		}
	}
	for range 200 {
		values = append(values, someTime(r), someQuantity(r))
	}
	return values
}

// The API server stores what a schema takes. If Go could not read it, each list of the kind would fail, of all namespaces.
func TestGoReadsWhatTheSchemasTake(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same in each run
	values := someValues(r)
	types := api.Scheme().KnownTypes(infrav1.GroupVersion)
	taken := map[string]int{}
	for _, crd := range generated(t) {
		kind := types[crd.Spec.Names.Kind]
		if kind == nil {
			t.Fatalf("no type for %s", crd.Spec.Names.Kind)
		}
		eachSchema("", *crd.Spec.Versions[0].Schema.OpenAPIV3Schema, func(path string, schema apiextensionsv1.JSONSchemaProps) {
			if schema.Type == "object" || schema.Type == "array" {
				return
			}
			takes, class := validates(t, schema), schema.Type+" "+schema.Format
			more := values
			if schema.XIntOrString || schema.Format == "date-time" {
				more = nil
				for range 3000 {
					more = append(more, someTime(r), someQuantity(r))
				}
				more = append(more, values...)
			}
			for _, value := range more {
				if !takes(value) {
					continue
				}
				taken[class]++
				content, err := json.Marshal(at(path, value))
				if err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal(content, reflect.New(kind).Interface()); err != nil {
					t.Errorf("%s%s takes %.80q, and Go does not read it: %v", crd.Spec.Names.Kind, path, fmt.Sprint(value), err)
					return // One of a class is enough.
				}
			}
		})
	}
	for _, class := range []string{"string ", "string date-time", "integer int32", "integer int64", "boolean ", " "} {
		if taken[class] < 2 {
			t.Errorf("of the class %q, %d values are taken: the test has none that are good", class, taken[class])
		}
	}
}

func TestSchemasTakeWhatGoWrites(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // the same in each run
	found := map[bool]int{}
	for _, crd := range generated(t) {
		eachSchema("", *crd.Spec.Versions[0].Schema.OpenAPIV3Schema, func(path string, schema apiextensionsv1.JSONSchemaProps) {
			if !schema.XIntOrString && schema.Format != "date-time" {
				return
			}
			found[schema.XIntOrString]++
			takes := validates(t, schema)
			for range 3000 {
				written := writtenByGo(r, schema.XIntOrString)
				content, err := json.Marshal(written)
				if err != nil {
					t.Fatal(err)
				}
				var value any
				if err := json.Unmarshal(content, &value); err != nil {
					t.Fatal(err)
				}
				if !takes(value) {
					t.Errorf("%s%s does not take %s", crd.Spec.Names.Kind, path, content)
					return
				}
			}
		})
	}
	if found[true] == 0 || found[false] == 0 {
		t.Errorf("the CRDs have %d quantities and %d date-times", found[true], found[false])
	}
}

// writtenByGo returns a quantity or a time.
func writtenByGo(r *rand.Rand, quantity bool) any {
	if quantity {
		format := oneOf(r, resource.BinarySI, resource.DecimalSI, resource.DecimalExponent)
		value := oneOf(r, int64(r.Uint64()), r.Int64N(100), r.Int64N(1000)*int64(math.Pow10(r.IntN(16))), r.Int64N(1000)<<r.IntN(50))
		return oneOf(r, *resource.NewQuantity(value, format), *resource.NewMilliQuantity(value, format),
			*resource.NewScaledQuantity(value, resource.Scale(r.IntN(28)-9)))
	}
	first, last := time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC).Unix(), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC).Unix()
	some := time.Unix(first+r.Int64N(last-first), r.Int64N(int64(time.Second))).In(time.FixedZone("", 60*(r.IntN(1440)-720)))
	return oneOf[any](r, metav1.NewTime(some), metav1.NewMicroTime(some), some)
}

// The same, of the API server itself: whoever may write the status of one object can't stop the lists of its kind.
func TestAStatusThatGoCannotReadIsRefused(t *testing.T) {
	machine := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "test-"}}
	machine.Spec.Image = "i"
	template := &infrav1.MaasMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "test-"}}
	template.Spec.Template.Spec.Image = "i"
	now := time.Now().UTC().Format(time.RFC3339)
	condition := func(since string) map[string]any {
		return map[string]any{"conditions": []any{map[string]any{
			"type": "Ready", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": since,
		}}}
	}
	capacity := func(cpu string) map[string]any { return map[string]any{"capacity": map[string]any{"cpu": cpu}} }
	for name, tc := range map[string]struct {
		object    client.Object
		good, bad map[string]any
	}{
		"a time":     {machine, condition(now), condition(strings.ToLower(now))},
		"a quantity": {template, capacity("4"), capacity("1e" + strings.Repeat("1", 25))},
	} {
		if err := api.Create(t.Context(), tc.object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = api.Delete(t.Context(), tc.object) })
		for _, status := range []map[string]any{tc.bad, tc.good} {
			patch, err := json.Marshal(map[string]any{"status": status})
			if err != nil {
				t.Fatal(err)
			}
			err = api.Status().Patch(t.Context(), tc.object.DeepCopyObject().(client.Object), client.RawPatch(client.Merge.Type(), patch))
			if wrong := reflect.DeepEqual(status, tc.bad); wrong && !apierrors.IsInvalid(err) || !wrong && err != nil {
				t.Errorf("%s: the error of %s is %v", name, patch, err)
			}
		}
	}
	for _, list := range []client.ObjectList{&infrav1.MaasMachineList{}, &infrav1.MaasMachineTemplateList{}} {
		if err := api.List(t.Context(), list); err != nil {
			t.Errorf("listing %T: %v", list, err)
		}
	}
}
