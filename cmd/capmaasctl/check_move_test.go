// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// labelled gives CRDs the label by which clusterctl finds their kinds, as clusterctl and the chart do.
func (k *kubernetes) labelled(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		crd := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
		crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		patch := fmt.Sprintf(`{"metadata": {"labels": {%q: ""}}}`, clusterctlLabel)
		if err := k.client.Patch(t.Context(), crd, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
}

// What a move would leave behind without a word is named, and what it moves, or does not concern it, is not.
func TestCheckMove(t *testing.T) {
	k := newKubernetes(t)
	k.labelled(t, "clusters.cluster.x-k8s.io", "maasclusters.infrastructure.cluster.x-k8s.io", "maasmachines.infrastructure.cluster.x-k8s.io")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "move-"}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(k.client.Create(t.Context(), namespace))
	create := func(o client.Object, labels map[string]string, owners ...metav1.OwnerReference) metav1.OwnerReference {
		t.Helper()
		o.SetNamespace(namespace.Name)
		o.SetLabels(labels)
		o.SetOwnerReferences(owners)
		must(k.client.Create(t.Context(), o))
		kind, err := k.client.GroupVersionKindFor(o)
		must(err)
		return metav1.OwnerReference{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: o.GetName(), UID: o.GetUID()}
	}
	of := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	foreign := metav1.OwnerReference{APIVersion: "external-secrets.io/v1", Kind: "ExternalSecret", Name: "own-maas", UID: "4"}
	moves := map[string]string{moveLabel: ""}
	cluster := create(&clusterv1.Cluster{ObjectMeta: of("c1"), Spec: clusterv1.ClusterSpec{
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "MaasCluster", Name: "c1"},
	}}, nil)
	create(&infrav1.MaasCluster{ObjectMeta: of("c1"), Spec: infrav1.MaasClusterSpec{DNSDomain: "maas", CredentialsRef: &infrav1.LocalObjectReference{Name: "own-maas"}}}, nil, cluster)
	create(&infrav1.MaasCluster{ObjectMeta: of("c2"), Spec: infrav1.MaasClusterSpec{DNSDomain: "maas", CredentialsRef: &infrav1.LocalObjectReference{Name: "plain"}}}, nil)
	own := create(&corev1.Secret{ObjectMeta: of("own-maas")}, map[string]string{hierarchyLabel: ""}, foreign)
	create(&corev1.ConfigMap{ObjectMeta: of("below")}, nil, own)
	create(&corev1.Secret{ObjectMeta: of("plain")}, nil)                  // MaasCluster c2 names it, and it has no label.
	create(&corev1.Secret{ObjectMeta: of("of-others")}, nil, foreign)     // Nothing of ours.
	create(&corev1.Secret{ObjectMeta: of("good")}, moves)                 // It moves.
	create(&corev1.Secret{ObjectMeta: of("c1-kubeconfig")}, nil, cluster) // So does this.
	create(&corev1.Secret{ObjectMeta: of("c1-two")}, nil, cluster, foreign)
	machine := &infrav1.MaasMachine{ObjectMeta: of("m"), Spec: infrav1.MaasMachineSpec{Image: "ubuntu/jammy"}}
	create(machine, nil, cluster, foreign)

	check := func(want int) []string {
		t.Helper()
		got := call(t, "", nil, "capmaasctl", "check", "move", "--kubeconfig="+k.kubeconfig, "--namespace="+namespace.Name, "-o", "json")
		var r report
		if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || got.code != want {
			t.Fatalf("exit code %d, want %d: %v\n%s%s", got.code, want, err, got.stdout, got.err)
		}
		var lines []string
		for _, c := range r.Checks {
			lines = append(lines, string(c.State)+" "+c.Name)
			if (c.State == stateFailed) != (c.Remedy != "") {
				t.Errorf("%s has the remedy %q", c.Name, c.Remedy)
			}
		}
		return lines
	}
	if diff := cmp.Diff([]string{"failed maasmachine/m", "failed secret/c1-two", "failed secret/own-maas", "failed secret/plain"}, check(exitFailed)); diff != "" {
		t.Errorf("what stays differs (-want +got):\n%s", diff)
	}
	text := call(t, "", nil, "capmaasctl", "check", "move", "--kubeconfig="+k.kubeconfig, "--namespace="+namespace.Name).stdout
	if !strings.Contains(text, "with 1 object(s)") || !strings.Contains(text, "ExternalSecret own-maas") {
		t.Errorf("the report does not name the owner, and what stays with the Secret:\n%s", text)
	}

	secrets := &corev1.SecretList{}
	must(k.client.List(t.Context(), secrets, client.InNamespace(namespace.Name)))
	for _, o := range append(objectsOf(secrets), machine) {
		o.SetOwnerReferences(slices.DeleteFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == foreign.UID }))
		if o.GetName() == "plain" {
			o.SetLabels(moves)
		}
		must(k.client.Update(context.WithoutCancel(t.Context()), o))
	}
	if got := check(exitOK); !slices.Equal(got, []string{"ok objects"}) {
		t.Errorf("all moves, and the report is %v", got)
	}
}

func objectsOf(secrets *corev1.SecretList) (all []client.Object) {
	for i := range secrets.Items {
		all = append(all, &secrets.Items[i])
	}
	return all
}
