// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
)

// Serving are the MaasClusters that machines of one Cluster may be of: its infrastructure, and those that name it in
// spec.clusterName. No label and no owner decides which these are.
type Serving struct {
	cluster        *clusterv1.Cluster
	infrastructure *infrav1.MaasCluster   // nil: it is another provider's, or not there
	named          []*infrav1.MaasCluster // by name
}

// ReadServing reads the MaasClusters of a Cluster. Nothing of them may be changed.
func ReadServing(ctx context.Context, c client.Reader, cluster *clusterv1.Cluster) (*Serving, error) {
	all := &infrav1.MaasClusterList{}
	if err := c.List(ctx, all, client.InNamespace(cluster.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the MaasClusters of Cluster %s: %w", cluster.Name, err)
	}
	found := make([]*infrav1.MaasCluster, len(all.Items))
	for i := range all.Items {
		found[i] = &all.Items[i]
	}
	return ServingOf(cluster, found), nil
}

// ServingOf finds a Cluster's among MaasClusters of its namespace.
func ServingOf(cluster *clusterv1.Cluster, all []*infrav1.MaasCluster) *Serving {
	s := &Serving{cluster: cluster}
	key, is := MaasClusterKey(cluster)
	for _, m := range all {
		switch {
		case is && m.Name == key.Name, IsGone(cluster) && m.Spec.ClusterName == "" && NameOf(m) == cluster.Name:
			s.infrastructure = m
		case cluster.Name != "" && m.Spec.ClusterName == cluster.Name:
			s.named = append(s.named, m)
		}
	}
	slices.SortFunc(s.named, func(a, b *infrav1.MaasCluster) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// IsGone reports whether a Cluster is only a name: it was not read from Kubernetes.
func IsGone(cluster *clusterv1.Cluster) bool {
	return cluster.UID == "" && !cluster.Spec.InfrastructureRef.IsDefined()
}

// All returns them, the infrastructure first.
func (s *Serving) All() []*infrav1.MaasCluster {
	if s.infrastructure == nil {
		return s.named
	}
	return append([]*infrav1.MaasCluster{s.infrastructure}, s.named...)
}

// Of returns the MaasCluster of a machine: the one that it names; else the one with the owner id under which MAAS was
// asked for it, which stays when others are added; else the infrastructure, and where that is another provider's, the
// only one. It is nil if there is none, or if there are several.
func (s *Serving) Of(m *infrav1.MaasMachine) *infrav1.MaasCluster {
	all := s.All()
	if name := m.Spec.MaasClusterName; name != "" {
		return list.First(all, func(c *infrav1.MaasCluster) bool { return c.Name == name })
	}
	_, is := MaasClusterKey(s.cluster)
	switch asked := list.Where(all, func(c *infrav1.MaasCluster) bool { return hasID(c, m) }); {
	case len(asked) > 0: // The others are copies.
		return slices.MinFunc(asked, func(a, b *infrav1.MaasCluster) int {
			if isOlder(a, b) {
				return -1
			}
			return 1
		})
	case is || s.infrastructure != nil:
		return s.infrastructure
	case len(s.named) == 1:
		return s.named[0]
	}
	return nil
}

// hasID reports whether MAAS was asked for a machine under the owner id of a MaasCluster.
func hasID(c *infrav1.MaasCluster, m *infrav1.MaasMachine) bool {
	id := m.Annotations[infrav1.OwnerIDAnnotation]
	return id != "" && id == c.Annotations[infrav1.OwnerIDAnnotation]
}

// has reports whether a machine is of a MaasCluster. Of one that names a Cluster that is gone, or that was made anew,
// only those are for which MAAS was asked: the others need none. Those that are of none count for one that names no
// Cluster.
func (s *Serving) has(c *infrav1.MaasCluster, m *infrav1.MaasMachine) bool {
	if c.Spec.ClusterName != "" && !IsOwnedBy(c, ClusterKind, s.cluster) {
		return hasID(c, m)
	}
	found := s.Of(m)
	// A label says which the infrastructure of a Cluster was that is gone, and several may have it.
	if found == nil || (found == s.infrastructure && IsGone(s.cluster) && m.Spec.MaasClusterName == "") {
		return c.Spec.ClusterName == ""
	}
	return found.Name == c.Name
}

// lacks returns why Of finds none.
func (s *Serving) lacks(m *infrav1.MaasMachine) report.Problem {
	names := text.List(list.Each(s.All(), func(c *infrav1.MaasCluster) string { return c.Name }), maxNamed)
	ref, of := s.cluster.Spec.InfrastructureRef, s.cluster.Name
	p := report.Problem{Reason: infrav1.WaitingForClusterInfrastructureReason, RetryAfter: report.MendRetry}
	switch {
	case m.Spec.MaasClusterName != "":
		there := ""
		if names != "" {
			there = fmt.Sprintf(", or name %s", names)
		}
		p.Message = fmt.Sprintf("spec.maasClusterName is %s, which is neither the infrastructure of Cluster %s nor a "+
			"MaasCluster with spec.clusterName %s: make that%s in the MaasMachineTemplate", m.Spec.MaasClusterName, of, of,
			there)
	case len(s.named) > 1:
		p.Message = fmt.Sprintf("the MaasClusters %s have spec.clusterName %s: name one in spec.maasClusterName of the "+
			"MaasMachineTemplate", names, of)
	case !ref.IsDefined():
		p.Message = NotProvisioned
	default:
		p.Message = fmt.Sprintf("spec.infrastructureRef of Cluster %s names the %s %s of %s: machines in MAAS need a "+
			"MaasCluster with spec.clusterName %s in its namespace", of, ref.Kind, ref.Name, ref.APIGroup, of)
	}
	return p
}

const (
	// NotProvisioned is what a machine says while its cluster is being set up.
	NotProvisioned = "the cluster's infrastructure is not provisioned yet"
	// maxNamed is how many MaasClusters a message names.
	maxNamed = 5
)

// MaasClusterOf reads the MaasCluster of a machine of a Cluster, or of a template's machines: all that is known of
// these is their spec. Errors: a *report.NotReadyError if there is none, and NotFound of Kubernetes if the
// infrastructure is a MaasCluster that is not there.
func MaasClusterOf(
	ctx context.Context, c client.Reader, cluster *clusterv1.Cluster, m *infrav1.MaasMachine,
) (*infrav1.MaasCluster, error) {
	s, err := ReadServing(ctx, c, cluster)
	if err != nil {
		return nil, err
	}
	return s.Ready(m)
}

// Ready is Of for what asks MAAS. Errors are those of MaasClusterOf.
func (s *Serving) Ready(m *infrav1.MaasMachine) (*infrav1.MaasCluster, error) {
	found, of := s.Of(m), s.cluster
	key, is := MaasClusterKey(of)
	switch {
	case found == nil && is && m.Spec.MaasClusterName == "":
		kind := schema.GroupResource{Group: infrav1.GroupVersion.Group, Resource: "maasclusters"}
		return nil, fmt.Errorf("reading MaasCluster %s: %w", key, apierrors.NewNotFound(kind, key.Name))
	case found == nil:
		return nil, report.NotReady(s.lacks(m))
	case is && found.Name != key.Name && IsControlPlane(m):
		return nil, report.Later(report.MendRetry, infrav1.WaitingForClusterInfrastructureReason,
			"spec.maasClusterName is %s, and control planes of Cluster %s are of its infrastructure, MaasCluster %s, which "+
				"has their API endpoint: remove spec.maasClusterName from the MaasMachineTemplate", found.Name, of.Name, key.Name)
	case found != s.infrastructure && !IsOwnedBy(found, ClusterKind, of):
		return nil, report.Later(report.MendRetry, infrav1.WaitingForClusterInfrastructureReason,
			"MaasCluster %s does not belong to Cluster %s yet: see its condition Ready", found.Name, of.Name)
	}
	return found.DeepCopy(), nil
}

// MachinesOf lists the machines of a MaasCluster, among those of its Cluster.
func MachinesOf(
	ctx context.Context, c client.Client, cluster *clusterv1.Cluster, of *infrav1.MaasCluster,
) ([]infrav1.MaasMachine, error) {
	machines, err := Machines(ctx, c, of.Namespace, cluster.Name)
	if err != nil || len(machines) == 0 {
		return nil, err
	}
	return Only(ctx, c, cluster, of, machines)
}

// Only returns those of the machines of a Cluster that are of one MaasCluster.
func Only(
	ctx context.Context, c client.Reader, cluster *clusterv1.Cluster, of *infrav1.MaasCluster,
	machines []infrav1.MaasMachine,
) ([]infrav1.MaasMachine, error) {
	s, err := ReadServing(ctx, c, cluster)
	if err != nil {
		return nil, err
	}
	return list.Where(machines, func(m infrav1.MaasMachine) bool { return s.has(of, &m) }), nil
}

// Requests wakes the MaasClusters of a Cluster.
func Requests(ctx context.Context, c client.Reader, cluster *clusterv1.Cluster) (woken []reconcile.Request) {
	key, is := MaasClusterKey(cluster)
	if is {
		woken = append(woken, reconcile.Request{NamespacedName: key})
	}
	s, err := ReadServing(ctx, c, cluster)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to find the MaasClusters of a Cluster")
		return woken
	}
	return append(woken, list.Each(s.named, func(m *infrav1.MaasCluster) reconcile.Request {
		return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)}
	})...)
}

// Homes are the MaasClusters by Cluster. Who may write a label has a say in it: it is no proof of what is in MAAS.
type Homes map[client.ObjectKey]*Serving

// ReadHomes reads all MaasClusters. Nothing of them may be changed.
func ReadHomes(ctx context.Context, c client.Reader, in ...client.ListOption) (Homes, error) {
	all := &infrav1.MaasClusterList{}
	if err := c.List(ctx, all, append(in, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("listing MaasClusters: %w", err)
	}
	return HomesOf(all.Items), nil
}

// HomesOf sorts MaasClusters.
func HomesOf(all []infrav1.MaasCluster) Homes {
	of := map[client.ObjectKey][]*infrav1.MaasCluster{}
	for i := range all {
		m := &all[i]
		key := client.ObjectKey{Namespace: m.Namespace, Name: NameOf(m)}
		of[key] = append(of[key], m)
	}
	homes := Homes{}
	for key, all := range of {
		cluster := &clusterv1.Cluster{}
		cluster.Namespace, cluster.Name = key.Namespace, key.Name
		homes[key] = ServingOf(cluster, all)
	}
	return homes
}

// Of returns the MaasCluster of a machine; nil if it is not known.
func (h Homes) Of(m *infrav1.MaasMachine) *infrav1.MaasCluster {
	if s := h[KeyOf(m)]; s != nil {
		return s.Of(m)
	}
	return nil
}

// Where returns the MAAS of a machine, as far as its MaasCluster records it.
func (h Homes) Where(m *infrav1.MaasMachine) (where string, known bool) {
	of := h.Of(m)
	if of == nil {
		return "", false
	}
	where, _, _ = strings.Cut(of.Annotations[infrav1.MAASAnnotation], "#")
	return where, true
}
