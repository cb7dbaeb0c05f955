// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/e2e/rights"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

const (
	oneID     = "x7k2m9qwzc4t"
	anotherID = "bcdfghjklmnp"
)

// clientOf returns a client of a user who has only the rights that are granted by name.
func clientOf(t *testing.T, user string) client.Client {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", management.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.Impersonate, config.QPS = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}, -1
	c, err := client.New(config, client.Options{Scheme: management.Scheme(), Mapper: management.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func managersClient(t *testing.T) client.Client {
	return clientOf(t, "system:serviceaccount:"+releaseNamespace+":capmaas-manager")
}

// newTenant returns a client of a user with the rights of the usual roles for our kinds in a namespace, and more if
// given.
func newTenant(t *testing.T, user, namespace string, more ...string) client.Client {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: user}
	verbs := append([]string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}, more...)
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{infrav1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: verbs,
		}}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		},
	} {
		if err := management.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	c := clientOf(t, user)
	eventually.Succeeds(t, "the tenant has his rights", func(ctx context.Context) error {
		return c.List(ctx, &infrav1.MaasClusterList{}, client.InNamespace(namespace))
	})
	return c
}

// withID returns a new MaasCluster with an owner id, or without one.
func withID(namespace, id string) *infrav1.MaasCluster {
	c := &infrav1.MaasCluster{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "c-", Namespace: namespace}, Spec: infrav1.MaasClusterSpec{DNSDomain: "maas.sim"},
	}
	setID(c, id)
	return c
}

func setID(c *infrav1.MaasCluster, id string) {
	c.Annotations = map[string]string{"example.com/note": "kept"}
	if id != "" {
		c.Annotations[infrav1.OwnerIDAnnotation] = id
	}
}

// created is a MaasCluster that is there.
func created(t *testing.T, namespace, id string) *infrav1.MaasCluster {
	t.Helper()
	c := withID(namespace, id)
	if err := management.Create(t.Context(), c); err != nil {
		t.Fatalf("an administrator makes a MaasCluster: %v", err)
	}
	return c
}

// replace writes all of a MaasCluster, as kubectl replace does, with another owner id.
func replace(t *testing.T, by client.Client, c *infrav1.MaasCluster, id string) error {
	t.Helper()
	fresh := &infrav1.MaasCluster{}
	if err := management.Get(t.Context(), client.ObjectKeyFromObject(c), fresh); err != nil {
		t.Fatal(err)
	}
	setID(fresh, id)
	return by.Update(t.Context(), fresh)
}

func awaitOwnerIDPolicy(t *testing.T, tenant client.Client, namespace string) {
	t.Helper()
	eventually.Succeeds(t, "a tenant can't bring an owner id", func(ctx context.Context) error {
		if tenant.Create(ctx, withID(namespace, oneID), client.DryRunAll) == nil {
			return errors.New("it is accepted")
		}
		return nil
	})
}

func wantRefused(t *testing.T, what string, err error, is func(error) bool, says ...string) {
	t.Helper()
	if !is(err) {
		t.Errorf("%s: got error %v, want that it is refused", what, err)
		return
	}
	for _, part := range append(says, infrav1.OwnerIDAnnotation) {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: the error %v does not name %s", what, err, part)
		}
	}
}

// The provider, and users who may adopt, write an owner id. Other users could set that of another cluster, and with it
// take its machines.
func TestOnlyWhoMayAdoptBringsAnOwnerID(t *testing.T) {
	namespace := newNamespace(t)
	tenant, manager := newTenant(t, "tenant", namespace), managersClient(t)
	adopter := newTenant(t, "adopter", namespace, "adopt")
	awaitOwnerIDPolicy(t, tenant, namespace)

	wantRefused(t, "a tenant makes one with an id", tenant.Create(t.Context(), withID(namespace, oneID)), apierrors.IsForbidden, "adopt")
	c := withID(namespace, "")
	if err := tenant.Create(t.Context(), c); err != nil {
		t.Fatalf("a tenant makes one without: %v", err)
	}
	wantRefused(t, "a tenant adds an id", replace(t, tenant, c, oneID), apierrors.IsForbidden, "adopt")
	patch := `{"metadata":{"annotations":{"` + infrav1.OwnerIDAnnotation + `":"` + oneID + `"}}}`
	if err := manager.Patch(t.Context(), c, client.RawPatch(client.Merge.Type(), []byte(patch))); err != nil {
		t.Errorf("the manager gives it one: %v", err)
	}
	for who, c := range map[string]client.Client{"an administrator": management.Client, "one who may adopt": adopter} {
		if err := c.Create(t.Context(), withID(namespace, oneID)); err != nil {
			t.Errorf("%s makes one with an id: %v", who, err)
		}
		wantRefused(t, who+" makes one with a bad id", c.Create(t.Context(), withID(namespace, "a/b")), apierrors.IsInvalid)
	}
	elsewhere := newNamespace(t)
	err := newTenant(t, "adopter", elsewhere).Create(t.Context(), withID(elsewhere, oneID))
	wantRefused(t, "one who may adopt in another namespace", err, apierrors.IsForbidden)
	for id, good := range map[string]bool{
		"": true, anotherID: true, "0123456789ab": true,
		"0123456789a": false, "0123456789abc": false, "0123456789aB": false, "0123456789a/": false,
		"0123456789a\n": false, "0123456789ab\n": false,
	} {
		if err := management.Create(t.Context(), withID(namespace, id), client.DryRunAll); (err == nil) != good {
			t.Errorf("the id %q: %v", id, err)
		}
	}
}

// An owner id stays: without it the cluster's machines in MAAS have no owner. Other changes are not refused, whoever
// makes them.
func TestAnOwnerIDStays(t *testing.T) {
	namespace := newNamespace(t)
	tenant, manager := newTenant(t, "tenant", namespace), managersClient(t)
	awaitOwnerIDPolicy(t, tenant, namespace)
	c := created(t, namespace, oneID)
	for who, by := range map[string]client.Client{"a tenant": tenant, "an administrator": management.Client} {
		for what, id := range map[string]string{"removes": "", "changes": anotherID} {
			wantRefused(t, who+" "+what+" it", replace(t, by, c, id), apierrors.IsInvalid, "Replace=true", "apply")
		}
		if err := replace(t, by, c, oneID); err != nil {
			t.Errorf("%s replaces the object with its id: %v", who, err)
		}
	}
	labels := client.RawPatch(client.Merge.Type(), []byte(`{"metadata":{"labels":{"a":"b"},"finalizers":["example.com/a"]}}`))
	for who, by := range map[string]client.Client{"a tenant": tenant, "the manager": manager} {
		if err := by.Patch(t.Context(), c.DeepCopy(), labels); err != nil {
			t.Errorf("%s changes something else: %v", who, err)
		}
	}
	status := &infrav1.MaasCluster{}
	if err := management.Get(t.Context(), client.ObjectKeyFromObject(c), status); err != nil {
		t.Fatal(err)
	}
	setID(status, anotherID)
	if err := tenant.Status().Update(t.Context(), status); err != nil || status.Annotations[infrav1.OwnerIDAnnotation] != oneID {
		t.Errorf("by a change of the status (%v) the annotations become %v", err, status.Annotations)
	}
	if err := tenant.Delete(t.Context(), c); err != nil {
		t.Errorf("a tenant deletes it: %v", err)
	}
	free := client.RawPatch(client.Merge.Type(), []byte(`{"metadata":{"finalizers":null}}`))
	if err := tenant.Patch(t.Context(), c, free); err != nil {
		t.Errorf("its finalizer is removed: %v", err)
	}
}

// If the provider reports a bad owner id, an administrator may correct it.
func TestABadOwnerIDCanBeMended(t *testing.T) {
	namespace := newNamespace(t)
	tenant := newTenant(t, "tenant", namespace)
	awaitOwnerIDPolicy(t, tenant, namespace)
	for _, reason := range []string{infrav1.OwnerIDTakenReason, "OwnerIDInvalid", "OwnerIDLost"} {
		for _, id := range []string{"", anotherID} {
			c := created(t, namespace, oneID)
			c.Status.Conditions = []metav1.Condition{{
				Type: infrav1.ReadyCondition, Status: metav1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.Now(),
			}}
			if err := tenant.Status().Update(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			wantRefused(t, "a tenant mends it", replace(t, tenant, c, id), apierrors.IsForbidden, "adopt")
			if err := replace(t, management.Client, c, id); err != nil {
				t.Errorf("an administrator makes the id %q, after %s: %v", id, reason, err)
			}
		}
	}
}

// clusterctl removes all annotations from what it has moved. No other client can remove an owner id in this way.
func TestClusterctlMayTakeAnOwnerIDOff(t *testing.T) {
	namespace := newNamespace(t)
	tenant := newTenant(t, "tenant", namespace)
	awaitOwnerIDPolicy(t, tenant, namespace)
	c := created(t, namespace, oneID)
	patch := func(annotations string) client.Patch {
		return client.RawPatch("application/json-patch+json", []byte(`[{"op":"add","path":"/metadata/annotations","value":`+annotations+`}]`))
	}
	moved := patch(`{"` + clusterctlv1.DeleteForMoveAnnotation + `":""}`)
	changed := patch(`{"` + clusterctlv1.DeleteForMoveAnnotation + `":"","` + infrav1.OwnerIDAnnotation + `":"` + anotherID + `"}`)
	wantRefused(t, "a tenant", tenant.Patch(t.Context(), c.DeepCopy(), moved), apierrors.IsForbidden)
	wantRefused(t, "another id", management.Patch(t.Context(), c.DeepCopy(), changed), apierrors.IsInvalid)
	if err := management.Patch(t.Context(), c, moved); err != nil {
		t.Errorf("clusterctl move: %v", err)
	}
}

// Cluster API makes MaasClusters from templates that tenants may write, with their annotations. It must not bring an
// owner id for them.
func TestClusterAPIMayNotAdopt(t *testing.T) {
	command := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api")
	module, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(module)), "core", "config", "rbac", "role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.Unmarshal(content, role); err != nil || len(role.Rules) == 0 {
		t.Fatalf("reading Cluster API's rules: %v, %d rules", err, len(role.Rules))
	}
	served := []*metav1.APIResourceList{{GroupVersion: infrav1.GroupVersion.String(), APIResources: []metav1.APIResource{{
		Name: "maasclusters", Verbs: metav1.Verbs{"adopt", "create"},
	}}}}
	may := map[string]bool{}
	for _, right := range rights.Expand(role.Rules, "", served) {
		if right.Group == infrav1.GroupVersion.Group && right.Resource == "maasclusters" {
			may[right.Verb] = true
		}
	}
	if !may["create"] || may["adopt"] {
		t.Errorf("Cluster API may %v MaasClusters, want that it may create and not adopt them", may)
	}
}
