// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// The kinds that references of Cluster API lead to.
const (
	maasClusterKind = "MaasCluster"
	maasMachineKind = "MaasMachine"
)

// MaasClusterKey returns which MaasCluster is the infrastructure of a Cluster. It is false if none is: the Cluster's
// infrastructure may be another provider's, with an object of the same name.
func MaasClusterKey(cluster *clusterv1.Cluster) (key client.ObjectKey, is bool) {
	ref := cluster.Spec.InfrastructureRef
	return client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}, isOurs(ref, maasClusterKind)
}

// MaasMachineKey returns which MaasMachine is the infrastructure of a Machine. It is false if none is.
func MaasMachineKey(machine *clusterv1.Machine) (key client.ObjectKey, is bool) {
	ref := machine.Spec.InfrastructureRef
	return client.ObjectKey{Namespace: machine.Namespace, Name: ref.Name}, isOurs(ref, maasMachineKind)
}

func isOurs(ref clusterv1.ContractVersionedObjectReference, kind string) bool {
	return ref.Kind == kind && ref.APIGroup == infrav1.GroupVersion.Group
}

// OwnerName returns the name of the first owner of one of Cluster API's kinds; "" if there is none.
func OwnerName(object metav1.Object, kind string) string {
	owners := OwnersOf(object, clusterv1.GroupVersion.WithKind(kind).GroupKind())
	if len(owners) == 0 {
		return ""
	}
	return owners[0].Name
}

// OwnerMachine reads the Machine that owns an object; nil if none does. The error is NotFound of Kubernetes if it is
// gone, also if another one has its name by now.
func OwnerMachine(ctx context.Context, c client.Reader, object metav1.Object) (*clusterv1.Machine, error) {
	machine := &clusterv1.Machine{}
	if owned, err := readOwner(ctx, c, object, MachineKind, machine); err != nil || !owned {
		return nil, err
	}
	return machine, nil
}

// Member is a Machine with its Cluster.
type Member struct {
	Cluster     *clusterv1.Cluster
	Machine     *clusterv1.Machine
	MaasMachine *infrav1.MaasMachine // nil: it has none
}

// OwnerMember reads the Machine that owns an object, with what belongs to it; nil if it, or its Cluster, is gone.
func OwnerMember(ctx context.Context, c client.Client, object metav1.Object) (*Member, error) {
	machine, err := OwnerMachine(ctx, c, object)
	if machine == nil || err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	cluster, err := util.GetClusterByName(ctx, c, machine.Namespace, machine.Spec.ClusterName)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	m := &Member{Cluster: cluster, Machine: machine}
	if key, is := MaasMachineKey(machine); is {
		m.MaasMachine = &infrav1.MaasMachine{}
		if err = c.Get(ctx, key, m.MaasMachine); err != nil {
			m.MaasMachine = nil
		}
	}
	return m, client.IgnoreNotFound(err)
}

// OwnerCluster is OwnerMachine for the Cluster.
func OwnerCluster(ctx context.Context, c client.Reader, object metav1.Object) (*clusterv1.Cluster, error) {
	cluster := &clusterv1.Cluster{}
	if owned, err := readOwner(ctx, c, object, ClusterKind, cluster); err != nil || !owned {
		return nil, err
	}
	return cluster, nil
}

// ClusterOf reads the Cluster that a MaasCluster belongs to: the one that owns it; with spec.clusterName the one of
// that name, if it owns it. It returns nil while none does. Errors are those of OwnerCluster.
func ClusterOf(ctx context.Context, c client.Reader, m *infrav1.MaasCluster) (*clusterv1.Cluster, error) {
	if m.Spec.ClusterName == "" {
		return OwnerCluster(ctx, c, m)
	}
	cluster := &clusterv1.Cluster{}
	err := c.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName}, cluster)
	if err != nil || !IsOwnedBy(m, ClusterKind, cluster) {
		return nil, err
	}
	return cluster, nil
}

// readOwner reads the first owner of a kind, and reports whether there is one.
func readOwner(
	ctx context.Context, c client.Reader, object metav1.Object, kind schema.GroupKind, into client.Object,
) (bool, error) {
	refs := OwnersOf(object, kind)
	if len(refs) == 0 {
		return false, nil
	}
	if err := c.Get(ctx, client.ObjectKey{Namespace: object.GetNamespace(), Name: refs[0].Name}, into); err != nil {
		return true, err
	}
	if !IsOwner(refs[0], kind, into) {
		return true, apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, refs[0].Name)
	}
	return true, nil
}

// IsOwnedBy reports whether one of an object's references is to an owner of a kind.
func IsOwnedBy(object metav1.Object, kind schema.GroupKind, owner metav1.Object) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(),
		func(ref metav1.OwnerReference) bool { return IsOwner(ref, kind, owner) })
}

// The kinds of owners that something is decided by.
var (
	ClusterKind     = clusterv1.GroupVersion.WithKind("Cluster").GroupKind()
	MachineKind     = clusterv1.GroupVersion.WithKind("Machine").GroupKind()
	MaasMachineKind = infrav1.GroupVersion.WithKind(maasMachineKind).GroupKind()
)

// IsOwner reports whether a reference is to an object of a kind, and not to an earlier one of its name, or to another
// kind's.
func IsOwner(ref metav1.OwnerReference, kind schema.GroupKind, object metav1.Object) bool {
	return IsOfKind(ref, kind) && ref.Name == object.GetName() && ref.UID == object.GetUID()
}

// OwnersOf returns the references of an object to owners of a kind.
func OwnersOf(object metav1.Object, kind schema.GroupKind) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(object.GetOwnerReferences()),
		func(ref metav1.OwnerReference) bool { return !IsOfKind(ref, kind) })
}

// IsOfKind reports whether a reference is to an object of a kind.
func IsOfKind(ref metav1.OwnerReference, kind schema.GroupKind) bool {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && version.Group == kind.Group && ref.Kind == kind.Kind
}
