// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
)

// What clusterctl reads on CRDs and objects: of which kinds are discovered, and what moves, alone or with all it owns.
const (
	clusterctlLabel = "clusterctl.cluster.x-k8s.io"
	moveLabel       = clusterctlLabel + "/move"
	hierarchyLabel  = moveLabel + "-hierarchy"
)

// alwaysHierarchies are the kinds whose objects move with all they own.
var alwaysHierarchies = []schema.GroupKind{
	{Group: "cluster.x-k8s.io", Kind: "Cluster"},
	{Group: "cluster.x-k8s.io", Kind: "ClusterClass"},
	{Group: "addons.cluster.x-k8s.io", Kind: "ClusterResourceSet"},
}

func checkMoveCommand() command {
	return command{
		use: "move", short: "Check whether clusterctl move leaves something of a namespace behind",
		long: `clusterctl leaves an object behind, without a word, if one of its owners does not move: a Secret of External
Secrets, for example, with all that the Secret owns. It changes nothing.`,
		example: "check move --namespace=default\ncheck move -n default -o json",
		page:    "clusterctl.md", needsCluster: true, inNamespace: true, hasTimeout: true,
		find: func(ctx context.Context, o options, _ surroundings) result {
			var found checks
			if err := found.move(ctx, o.cluster, o.namespace); err != nil {
				problem, remedy := explainAll(err)
				found.failed("objects", remedy, "%s", problem)
			}
			return newReport("check move", found, false, false)
		},
	}
}

// movable is an object that clusterctl knows.
type movable struct {
	*metav1.PartialObjectMetadata
	moves, withAll bool
}

func (m *movable) String() string { return strings.ToLower(m.Kind) + "/" + m.Name }

func (m *movable) isOwnedBy(owner *movable) bool {
	return slices.ContainsFunc(m.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == owner.UID })
}

// namespaceToMove is what clusterctl knows of a namespace.
type namespaceToMove map[types.UID]*movable

// readMove reads what clusterctl does: the objects of kinds with its label, Secrets and ConfigMaps.
func readMove(ctx context.Context, cluster client.Client, namespace string) (namespaceToMove, error) {
	crds := &metav1.PartialObjectMetadataList{}
	crds.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinitionList"))
	if err := cluster.List(ctx, crds, client.HasLabels{clusterctlLabel}); err != nil {
		return nil, fmt.Errorf("listing the kinds that move: %w", err)
	}
	all := namespaceToMove{}
	for i := range crds.Items {
		resource := schema.ParseGroupResource(crds.Items[i].Name)
		kind, err := cluster.RESTMapper().KindFor(resource.WithVersion(""))
		if meta.IsNoMatchError(err) {
			continue // It is not served yet, or not any more.
		}
		if err != nil {
			return nil, fmt.Errorf("finding the kind of %s: %w", resource, err)
		}
		if err := all.read(ctx, cluster, namespace, kind, crds.Items[i].Labels); err != nil {
			return nil, err
		}
	}
	for _, kind := range []string{"Secret", "ConfigMap"} {
		if err := all.read(ctx, cluster, namespace, schema.GroupVersionKind{Version: "v1", Kind: kind}, nil); err != nil {
			return nil, err
		}
	}
	for _, m := range all {
		if m.withAll {
			all.moveOwned(m)
		}
	}
	return all, nil
}

// read adds the objects of a kind; labels are those of its CRD.
func (n namespaceToMove) read(
	ctx context.Context, cluster client.Client, namespace string, kind schema.GroupVersionKind, labels map[string]string,
) error {
	objects := &metav1.PartialObjectMetadataList{}
	objects.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := cluster.List(ctx, objects, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing the %ss of namespace %s: %w", kind.Kind, namespace, err)
	}
	has := func(m *metav1.PartialObjectMetadata, label string) bool {
		_, ofKind := labels[label]
		_, itself := m.Labels[label]
		return ofKind || itself
	}
	for i := range objects.Items {
		m := &movable{PartialObjectMetadata: &objects.Items[i]}
		m.SetGroupVersionKind(kind)
		m.withAll = has(m.PartialObjectMetadata, hierarchyLabel) || slices.Contains(alwaysHierarchies, kind.GroupKind())
		m.moves = m.withAll || has(m.PartialObjectMetadata, moveLabel)
		n[m.UID] = m
	}
	return nil
}

// moveOwned marks all that an object owns.
func (n namespaceToMove) moveOwned(owner *movable) {
	for _, m := range n {
		if m.isOwnedBy(owner) && !m.withAll {
			m.moves, m.withAll = true, true
			n.moveOwned(m)
		}
	}
}

// foreign returns the first owner of an object that does not move; nil if there is none.
func (n namespaceToMove) foreign(m *movable) *metav1.OwnerReference {
	return list.Find(m.OwnerReferences, func(ref metav1.OwnerReference) bool {
		owner := n[ref.UID]
		return owner == nil || !owner.moves
	})
}

// ownedBy counts the objects that stay with one.
func (n namespaceToMove) ownedBy(owner *movable, seen map[types.UID]bool) {
	for uid, m := range n {
		if m.isOwnedBy(owner) && m.moves && !seen[uid] {
			seen[uid] = true
			n.ownedBy(m, seen)
		}
	}
}

// sorted returns the objects that move.
func (n namespaceToMove) sorted() (moving []*movable) {
	for _, m := range n {
		if m.moves {
			moving = append(moving, m)
		}
	}
	slices.SortFunc(moving, func(a, b *movable) int { return strings.Compare(a.String(), b.String()) })
	return moving
}

// move checks whether all objects of a namespace move that should.
func (c *checks) move(ctx context.Context, cluster client.Client, namespace string) error {
	all, err := readMove(ctx, cluster, namespace)
	if err != nil {
		return err
	}
	moving := all.sorted()
	for _, m := range moving {
		owner := all.foreign(m)
		if owner == nil {
			continue
		}
		with := map[types.UID]bool{}
		all.ownedBy(m, with)
		c.failed(m.String(), fmt.Sprintf("take the ownerReference to %s %s away, and keep its controller from setting it "+
			"again, or make the object at the target yourself", owner.Kind, owner.Name),
			"it stays, with %d object(s) that it owns: its owner, %s %s, does not move", len(with), owner.Kind, owner.Name)
	}
	if err := c.credentials(ctx, cluster, namespace, all); err != nil {
		return err
	}
	if c.good() {
		c.ok("objects", "%d object(s) of namespace %s move, with all their owners", len(moving), namespace)
	}
	return nil
}

// credentials checks whether the Secrets move that MaasClusters and LXDHosts name.
func (c *checks) credentials(
	ctx context.Context, cluster client.Client, namespace string, all namespaceToMove,
) error {
	users := map[string]string{} // by the name of the Secret
	note := func(user string, refs ...*infrav1.LocalObjectReference) {
		for _, ref := range refs {
			if ref != nil && users[ref.Name] == "" {
				users[ref.Name] = user
			}
		}
	}
	maasClusters, hosts := &infrav1.MaasClusterList{}, &infrav1.LXDHostList{}
	if err := cluster.List(ctx, maasClusters, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing the MaasClusters of namespace %s: %w", namespace, err)
	}
	if err := cluster.List(ctx, hosts, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing the LXDHosts of namespace %s: %w", namespace, err)
	}
	for i := range maasClusters.Items {
		m := &maasClusters.Items[i]
		note("MaasCluster "+m.Name, m.Spec.CredentialsRef)
		if m.Spec.LXDConfig != nil {
			note("MaasCluster "+m.Name, m.Spec.LXDConfig.CredentialsRef)
		}
	}
	for i := range hosts.Items {
		if h := &hosts.Items[i]; all[h.UID] != nil && all[h.UID].moves {
			note("LXDHost "+h.Name, h.Spec.CredentialsRef, h.Spec.MAASCredentialsRef)
		}
	}
	var secrets []*movable
	for _, m := range all {
		if m.Kind == "Secret" && !m.moves && users[m.Name] != "" {
			secrets = append(secrets, m)
		}
	}
	slices.SortFunc(secrets, func(a, b *movable) int { return strings.Compare(a.Name, b.Name) })
	for _, m := range secrets {
		c.failed(m.String(), fmt.Sprintf("kubectl label secret %s --namespace %s %s=", m.Name, namespace, moveLabel),
			"it stays, and %s names it: it has no label %s", users[m.Name], moveLabel)
	}
	return nil
}
