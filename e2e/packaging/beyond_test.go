// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// writing is how a person writes a field that others rest on: by making an object that has it, and by changing one that there
// is. Nothing but the missing right speaks against it.
type writing struct {
	kind          string
	made          object
	before, after object
}

// object is what differs from one kind to the other.
type object struct {
	annotations map[string]string
	spec        map[string]any
}

// with returns the object with another value of a field of spec; nil: without it.
func (o object) with(field string, value any) object {
	spec := maps.Clone(o.spec)
	if spec[field] = value; value == nil {
		delete(spec, field)
	}
	return object{annotations: o.annotations, spec: spec}
}

func (o object) annotated(key, value string) object {
	annotations := map[string]string{key: value}
	maps.Copy(annotations, o.annotations)
	annotations[key] = value
	return object{annotations: annotations, spec: o.spec}
}

func (o object) in(namespace, kind string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": maps.Clone(o.spec)}}
	u.SetGroupVersionKind(infrav1.GroupVersion.WithKind(kind))
	u.SetNamespace(namespace)
	u.SetGenerateName("o-")
	u.SetAnnotations(o.annotations)
	return u
}

const certificate = "-----BEGIN CERTIFICATE-----"

// The objects of each kind, as a tenant makes them; and the two sorts of LXDHosts that concern other namespaces.
var (
	plain = map[string]object{
		"MaasCluster":     {spec: map[string]any{"dnsDomain": "maas.sim"}},
		"MaasMachine":     {spec: map[string]any{"image": "ubuntu/jammy"}},
		"MaasRemediation": {spec: map[string]any{}},
		"LXDHost": {spec: map[string]any{
			"address": "10.0.0.1", "serverCertificate": certificate, "credentialsRef": map[string]any{"name": "lxd"},
		}},
	}
	ofMAAS = object{
		annotations: map[string]string{infrav1.MAASAnnotation: "maas.example.com/MAAS"},
		spec: map[string]any{
			"vmHost": map[string]any{"id": int64(1), "systemID": "abc123"}, "address": "10.0.0.1", "serverCertificate": certificate,
		},
	}
	open = plain["LXDHost"].with("allowedNamespaces", []any{"*"})
)

// specOfHosts has another value for each field of an LXDHost but those that keep VMs off and empty it.
var specOfHosts = map[string]any{
	"vmHost": map[string]any{"id": int64(1), "systemID": "def456"}, "address": "10.0.0.66", "serverCertificate": certificate + "\nother", "project": "other",
	"credentialsRef": map[string]any{"name": "other"}, "maasCredentialsRef": map[string]any{"name": "other"}, "zone": "other", "resourcePool": "other",
	"tags": []any{"other"}, "storagePool": "other", "networkBridge": "other", "subnet": "10.1.0.0/24", "nameservers": []any{"10.1.0.53"},
	"overCommit":        map[string]any{"cpuPercent": int64(900)},
	"allowedNamespaces": []any{"other"}, "allowedDevices": []any{map[string]any{"type": "gpu"}},
}

// writings returns how each guarded field is written, by its name in the table of docs/security.md.
func writings() map[string][]writing {
	all := map[string][]writing{}
	annotate := func(key, value string, kinds ...string) {
		for _, kind := range kinds {
			name := kind + " annotation " + key
			all[name] = append(all[name], writing{kind, plain[kind].annotated(key, value), plain[kind], plain[kind].annotated(key, value)},
				writing{kind, plain[kind].annotated(key, value), plain[kind].annotated(key, value), plain[kind].annotated(key, value+"0")})
		}
	}
	const readsAs = "{}"
	annotate(infrav1.RecordAnnotation, readsAs, "MaasMachine", "MaasCluster", "MaasRemediation", "LXDHost")
	annotate(infrav1.StaticIPAnnotation, "10.0.0.7", "MaasMachine")
	annotate(infrav1.InterfacesAnnotation, readsAs, "MaasMachine")
	annotate(infrav1.OwnerIDAnnotation, oneID, "MaasMachine")
	annotate(infrav1.MAASAnnotation, "maas.example.com/MAAS", "LXDHost", "MaasCluster")
	annotate(infrav1.LXDAnnotation, "0a1b2c/maas", "LXDHost")
	cluster := plain["MaasCluster"]
	all["MaasCluster annotation "+infrav1.OwnerIDAnnotation] = []writing{
		{"MaasCluster", cluster.annotated(infrav1.OwnerIDAnnotation, oneID), cluster, cluster.annotated(infrav1.OwnerIDAnnotation, oneID)},
	}
	for field, value := range specOfHosts {
		name := "LXDHost spec." + field
		all[name] = []writing{{"LXDHost", ofMAAS.with(field, value), ofMAAS, ofMAAS.with(field, value)}}
		if field != "vmHost" && field != "maasCredentialsRef" && field != "project" { // These are immutable, or close the host.
			all[name] = append(all[name], writing{"LXDHost", open.with(field, value), open, open.with(field, value)})
		}
	}
	host, closed := plain["LXDHost"], open.with("maasCredentialsRef", map[string]any{"name": "maas"})
	all["LXDHost spec.allowedNamespaces"] = append(all["LXDHost spec.allowedNamespaces"], writing{"LXDHost", open, host, open})
	all["LXDHost spec.maasCredentialsRef"] = append(all["LXDHost spec.maasCredentialsRef"], writing{"LXDHost", open, closed, open})
	return all
}

// row is a decision of the table.
type row struct {
	decision, restsOn string
	guarded           []string
}

// decisions reads the table of docs/security.md.
func decisions(t *testing.T) []row {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(sources, "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n### What reaches beyond a namespace\n")
	if !found {
		t.Fatal("docs/security.md has no section about what reaches beyond a namespace")
	}
	section, _, _ = strings.Cut(section, "\n#")
	field := regexp.MustCompile("`((?:MaasCluster|MaasMachine|MaasRemediation|LXDHost) (?:annotation |spec\\.)[^`]+)`")
	var rows []row
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) != 3 || strings.HasPrefix(cells[0], "---") || strings.Contains(cells[0], "Decision") {
			continue
		}
		one := row{decision: strings.TrimSpace(cells[0]), restsOn: cells[1]}
		for _, match := range field.FindAllStringSubmatch(cells[2], -1) {
			one.guarded = append(one.guarded, match[1])
		}
		rows = append(rows, one)
	}
	if len(rows) < 10 {
		t.Fatalf("the table has %d decisions", len(rows))
	}
	return rows
}

// Each decision of the manager that reaches beyond a namespace rests on MAAS, on LXD, or on fields that no tenant writes,
// neither in a new object nor in one that there is.
func TestTenantsWriteNothingThatOthersRestOn(t *testing.T) {
	namespace := newNamespace(t)
	tenant, adopter := newTenant(t, "tenant", namespace), newTenant(t, "adopter", namespace, "adopt")
	awaitOwnerIDPolicy(t, tenant, namespace)
	awaitRefusal(t, tenant, ofMAAS.in(namespace, "LXDHost"))
	awaitRefusal(t, tenant, plain["MaasMachine"].annotated(infrav1.RecordAnnotation, "{}").in(namespace, "MaasMachine"))
	tried, named := writings(), map[string]bool{}
	inMAAS := regexp.MustCompile(`\b(MAAS|LXD)\b`)
	for _, row := range decisions(t) {
		if len(row.guarded) == 0 && !inMAAS.MatchString(row.restsOn) {
			t.Errorf("%q rests on %q: neither on MAAS, nor on LXD, nor on a guarded field", row.decision, row.restsOn)
		}
		for _, field := range row.guarded {
			if named[field] = true; len(tried[field]) == 0 {
				t.Errorf("%q rests on %s, which nothing here tries to write", row.decision, field)
			}
		}
	}
	for field, all := range tried {
		if !named[field] {
			t.Errorf("%s is guarded, and the table does not say what rests on it", field)
		}
		t.Run(field, func(t *testing.T) {
			for _, a := range all {
				a.check(t, namespace, tenant, adopter)
			}
		})
	}
}

func awaitRefusal(t *testing.T, tenant client.Client, u *unstructured.Unstructured) {
	t.Helper()
	eventually.Succeeds(t, "a policy is in force", func(ctx context.Context) error {
		if tenant.Create(ctx, u.DeepCopy(), client.DryRunAll) == nil {
			return errors.New("a tenant may make a " + u.GetKind())
		}
		return nil
	})
}

func (a writing) check(t *testing.T, namespace string, tenant, adopter client.Client) {
	t.Helper()
	refused := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "adopt") {
			t.Errorf("a tenant %s: %v, want a refusal that names the verb adopt", what, err)
		}
	}
	refused("makes one", tenant.Create(t.Context(), a.made.in(namespace, a.kind)))
	if err := adopter.Create(t.Context(), a.made.in(namespace, a.kind), client.DryRunAll); err != nil {
		t.Errorf("one who may adopt makes one: %v", err)
	}
	there := a.before.in(namespace, a.kind)
	if err := management.Create(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	after := a.after.in(namespace, a.kind)
	there.SetAnnotations(after.GetAnnotations())
	there.Object["spec"] = after.Object["spec"]
	refused("changes one", tenant.Update(t.Context(), there.DeepCopy()))
	if err := adopter.Update(t.Context(), there, client.DryRunAll); err != nil {
		t.Errorf("one who may adopt changes one: %v", err)
	}
}

// A field that is added to LXDHosts is guarded, too. Whoever may write an LXDHost keeps new VMs off it, and empties it.
func TestAllOfAnLXDHostThatConcernsOthersIsGuarded(t *testing.T) {
	free := []string{"unschedulable", "evacuate"}
	kind := reflect.TypeFor[infrav1.LXDHostSpec]()
	for i := range kind.NumField() {
		name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
		if _, guarded := specOfHosts[name]; guarded == slices.Contains(free, name) {
			t.Errorf("spec.%s of an LXDHost is guarded: %t", name, guarded)
		}
	}
	namespace := newNamespace(t)
	tenant := newTenant(t, "tenant", namespace)
	for _, sort := range []object{ofMAAS, open, plain["LXDHost"]} {
		there := sort.in(namespace, "LXDHost")
		if err := management.Create(t.Context(), there); err != nil {
			t.Fatal(err)
		}
		for _, field := range free {
			patch := client.RawPatch(client.Merge.Type(), []byte(`{"spec":{"`+field+`":true}}`))
			if err := tenant.Patch(t.Context(), there.DeepCopy(), patch); err != nil {
				t.Errorf("a tenant sets %s of LXDHost %v in his namespace: %v", field, sort.spec, err)
			}
		}
	}
	own := plain["LXDHost"].with("allowedNamespaces", []any{"friends"}).with("maasCredentialsRef", map[string]any{"name": "maas"})
	for what, object := range map[string]object{"for his namespace": plain["LXDHost"], "for others, with a MAAS key of his own": own} {
		if err := tenant.Create(t.Context(), object.in(namespace, "LXDHost")); err != nil {
			t.Errorf("a tenant makes an LXDHost %s: %v", what, err)
		}
	}
}
