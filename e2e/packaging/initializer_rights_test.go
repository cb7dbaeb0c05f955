// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/charts"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// initializerPod makes the initializer's pod on a node, and returns it.
func initializerPod(t *testing.T, namespace, node string) *corev1.Pod {
	t.Helper()
	daemonSet := appsv1.DaemonSet{}
	convert(t, ofKind(initializerObjects(t, namespace), "DaemonSet")[0], &daemonSet)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "on-" + node}, Spec: daemonSet.Spec.Template.Spec}
	pod.Spec.NodeName = node
	if err := management.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = management.Delete(context.Background(), pod, client.GracePeriodSeconds(0)) })
	return pod
}

// initializerClient returns a client with a token of the initializer's ServiceAccount: bound to a pod, as a pod's own
// is, or to none.
func initializerClient(t *testing.T, namespace string, pod *corev1.Pod) client.Client {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: charts.InitializerName}}
	if err := management.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	admin, err := clientcmd.BuildConfigFromFlags("", management.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken, config.QPS = request.Status.Token, -1
	c, err := client.New(config, client.Options{Scheme: management.Scheme(), Mapper: management.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// attempt is something that an initializer on node-a tries.
type attempt struct {
	name string
	do   func(context.Context, client.Client) error
}

func patchNode(node, patch string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		return c.Patch(ctx, o, client.RawPatch(types.StrategicMergePatchType, []byte(patch)))
	}
}

func patchNodeStatus(node string, patchType types.PatchType, patch string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		return c.Status().Patch(ctx, o, client.RawPatch(patchType, []byte(patch)))
	}
}

func secret(namespace, name string, kind corev1.SecretType) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Type:       kind,
		StringData: map[string]string{corev1.TLSCertKey: "c", corev1.TLSPrivateKeyKey: "k"},
	}
}

func create(o client.Object) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Create(ctx, o.DeepCopyObject().(client.Object))
	}
}

func update(o client.Object) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Update(ctx, o.DeepCopyObject().(client.Object))
	}
}

func remove(o client.Object) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Delete(ctx, o.DeepCopyObject().(client.Object))
	}
}

func get(o client.Object) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Get(ctx, client.ObjectKeyFromObject(o), o.DeepCopyObject().(client.Object))
	}
}

func list(o client.ObjectList) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error { return c.List(ctx, o) }
}

func nodeEvent(namespace, node string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, GenerateName: "test-"},
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: node},
		Reason:         "Registered", Type: corev1.EventTypeNormal,
	}
}

const condition = `{"status": {"conditions": [{"type": "` + infrav1.LXDHostReadyNodeCondition + `", "status": "True", "reason": "Registered"}]}}`

func label(value string) string {
	return `{"metadata": {"labels": {"` + infrav1.LXDHostLabel + `": ` + value + `}}}`
}

// allowed is what an initializer does, in an order that works.
func allowed(namespace string) []attempt {
	own := secret(namespace, "lxd-initializer-node-a", corev1.SecretTypeTLS)
	return []attempt{
		{"read its Node", get(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}})},
		{"set its label", patchNode("node-a", label(`"true"`))},
		{"set its condition", patchNodeStatus("node-a", types.StrategicMergePatchType, condition)},
		{"set it again", patchNodeStatus("node-a", types.StrategicMergePatchType, condition)},
		{"remove its label", patchNode("node-a", label("null"))},
		{"make its Secret", create(own)},
		{"read its Secret", get(own)},
		{"write its Secret", update(own)},
		{"delete its Secret", remove(own)},
		{"tell of its Node", create(nodeEvent("default", "node-a"))},
	}
}

// refused is what an attacker on the node could try with the initializer's token.
func refused(namespace string) []attempt {
	other := secret(namespace, "lxd-initializer-node-b", corev1.SecretTypeTLS)
	credentials := secret(namespace, "maas-credentials", corev1.SecretTypeOpaque)
	own := "lxd-initializer-node-a"
	unnamed := secret(namespace, "", corev1.SecretTypeTLS)
	unnamed.GenerateName = own
	token := secret(namespace, own, corev1.SecretTypeServiceAccountToken)
	token.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
	ofSystem := secret("kube-system", own, corev1.SecretTypeTLS)
	return []attempt{
		{"another Node's label", patchNode("node-b", label(`"true"`))},
		{"another Node's condition", patchNodeStatus("node-b", types.StrategicMergePatchType, condition)},
		{"another label", patchNode("node-a", `{"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}`)},
		{"another label, by its status", patchNodeStatus("node-a", types.StrategicMergePatchType, `{"metadata": {"labels": {"a": "b"}}}`)},
		{"change of another label", patchNode("node-a", `{"metadata": {"labels": {"team": "mine"}}}`)},
		{"removal of another label", patchNode("node-a", `{"metadata": {"labels": {"team": null}}}`)},
		{"another value of its label", patchNode("node-a", label(`"maybe"`))},
		{"annotation", patchNode("node-a", `{"metadata": {"annotations": {"`+infrav1.LXDHostRetireAnnotation+`": ""}}}`)},
		{"removal of an annotation", patchNode("node-a", `{"metadata": {"annotations": {"note": null}}}`)},
		{"finalizer", patchNode("node-a", `{"metadata": {"finalizers": ["example.com/mine"]}}`)},
		{"owner", patchNode("node-a", `{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "node-b", "uid": "1"}]}}`)},
		{"taint", patchNode("node-a", `{"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}`)},
		{"unschedulable", patchNode("node-a", `{"spec": {"unschedulable": true}}`)},
		{"provider ID", patchNode("node-a", `{"spec": {"providerID": "maas://a/b"}}`)},
		{"capacity", patchNodeStatus("node-a", types.StrategicMergePatchType, `{"status": {"capacity": {"cpu": "1k"}}}`)},
		{"address", patchNodeStatus("node-a", types.StrategicMergePatchType, `{"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}}`)},
		{"another condition", patchNodeStatus("node-a", types.StrategicMergePatchType, `{"status": {"conditions": [{"type": "Ready", "status": "False"}]}}`)},
		{"all conditions", patchNodeStatus("node-a", types.MergePatchType, condition)},
		{"deletion of its Node", remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}})},
		{"list of Nodes", list(&corev1.NodeList{})},

		{"another node's Secret", create(secret(namespace, "lxd-initializer-node-c", corev1.SecretTypeTLS))},
		{"write to another node's Secret", update(other)},
		{"deletion of another node's Secret", remove(other)},
		{"another Secret", create(secret(namespace, "mine", corev1.SecretTypeTLS))},
		{"Secret without a name", create(unnamed)},
		{"Secret of another type", create(secret(namespace, own, corev1.SecretTypeOpaque))},
		{"Secret that gets another account's token", create(token)},
		{"write to the credentials", update(credentials)},
		{"deletion of the credentials", remove(credentials)},
		{"list of Secrets", list(&corev1.SecretList{})},
		{"Secret in another namespace", create(ofSystem)},
		{"reading in another namespace", get(ofSystem)},

		{"events about pods", create(&corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "test-"}, InvolvedObject: corev1.ObjectReference{Namespace: namespace, Kind: "Pod", Name: "a"},
		})},
		{"pod", create(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mine"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		})},
	}
}

// The initializer writes only to its own Node and Secret, and there only its own fields.
func TestInitializersRights(t *testing.T) {
	namespace := installInitializer(t)
	newNode(t, "node-a")
	newNode(t, "node-b")
	for _, o := range []*corev1.Secret{
		secret(namespace, "lxd-initializer-node-b", corev1.SecretTypeTLS), secret(namespace, "maas-credentials", corev1.SecretTypeOpaque),
	} {
		if err := management.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	a := initializerClient(t, namespace, initializerPod(t, namespace, "node-a"))
	// Roles and a policy act some time after they were created.
	eventually.Succeeds(t, "it may write to its own Node", func(ctx context.Context) error { return patchNode("node-a", label(`"true"`))(ctx, a) })
	eventually.Succeeds(t, "it may not write to another Node", func(ctx context.Context) error {
		if err := patchNode("node-b", label(`"true"`))(ctx, client.NewDryRunClient(a)); !apierrors.IsForbidden(err) {
			return errors.New("it is not forbidden")
		}
		return nil
	})

	for _, tt := range allowed(namespace) {
		if err := tt.do(t.Context(), a); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	for _, tt := range refused(namespace) {
		if err := tt.do(t.Context(), client.NewDryRunClient(a)); !apierrors.IsForbidden(err) {
			t.Errorf("%s: got error %v, want that it is forbidden", tt.name, err)
		}
	}

	b := client.NewDryRunClient(initializerClient(t, namespace, initializerPod(t, namespace, "node-b")))
	for _, tt := range []attempt{
		{"the other way round", patchNode("node-a", label(`"true"`))},
		{"Secret, the other way round", create(secret(namespace, "lxd-initializer-node-a", corev1.SecretTypeTLS))},
	} {
		if err := tt.do(t.Context(), b); !apierrors.IsForbidden(err) {
			t.Errorf("%s: got error %v, want that it is forbidden", tt.name, err)
		}
	}
	if err := update(secret(namespace, "lxd-initializer-node-b", corev1.SecretTypeTLS))(t.Context(), b); err != nil {
		t.Errorf("the same by the pod whose Secret it is: %v", err)
	}

	// A token that was made by hand, and not for a pod, is good for nothing.
	unbound := client.NewDryRunClient(initializerClient(t, namespace, nil))
	if err := patchNode("node-a", label(`"true"`))(t.Context(), unbound); !apierrors.IsForbidden(err) {
		t.Errorf("a token that is bound to no pod: got error %v, want that it is forbidden", err)
	}
	if err := patchNode("node-b", label(`"true"`))(t.Context(), management.Client); err != nil {
		t.Errorf("the policy is about others, too: %v", err)
	}
}

// A label that another client set to another value is no reason to refuse the condition.
func TestInitializerLivesWithAStrangeLabel(t *testing.T) {
	namespace := installInitializer(t)
	newNode(t, "node-a")
	a := initializerClient(t, namespace, initializerPod(t, namespace, "node-a"))
	if err := patchNode("node-a", label(`"no"`))(t.Context(), management.Client); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, "it may set its condition", func(ctx context.Context) error {
		return patchNodeStatus("node-a", types.StrategicMergePatchType, condition)(ctx, a)
	})
	eventually.Succeeds(t, "the policy acts", func(ctx context.Context) error {
		if patchNode("node-a", label(`"maybe"`))(ctx, client.NewDryRunClient(a)) == nil {
			return errors.New("another value is accepted")
		}
		return nil
	})
	if err := patchNodeStatus("node-a", types.StrategicMergePatchType, condition)(t.Context(), a); err != nil {
		t.Error(err)
	}
}

// The policy names each field of a Node's status, because CEL can't express "all but one".
func TestPolicyKnowsNodeStatus(t *testing.T) {
	policy := ofKind(initializerObjects(t, "any"), "ValidatingAdmissionPolicy")[0]
	content, err := policy.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for field := range reflect.TypeFor[corev1.NodeStatus]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !strings.Contains(string(content), "oldObject.status.?"+name) {
			t.Errorf("an initializer may change status.%s of its Node", name)
		}
	}
}

// A pod doesn't get a token of this ServiceAccount unless it asks for one.
func TestOnlyTheInitializerGetsItsToken(t *testing.T) {
	objects := initializerObjects(t, "any")
	account := corev1.ServiceAccount{}
	convert(t, ofKind(objects, "ServiceAccount")[0], &account)
	daemonSet := appsv1.DaemonSet{}
	convert(t, ofKind(objects, "DaemonSet")[0], &daemonSet)
	if ptr.Deref(account.AutomountServiceAccountToken, true) || !ptr.Deref(daemonSet.Spec.Template.Spec.AutomountServiceAccountToken, false) {
		t.Error("the token is mounted into more than the initializer's pods, or not into these")
	}
}
