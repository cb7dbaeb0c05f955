// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/audit"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// mostKept is how many machines are tried until one is kept: the hardware may fail, and a thief may have the machine.
const mostKept = 4

// leaveNamespace deletes a namespace in which a machine waits for the next Machine, and another one runs.
func (a *assault) leaveNamespace(ctx context.Context, number int) error {
	ctx, cancel := context.WithTimeout(ctx, attack.limit)
	defer cancel()
	name := fmt.Sprintf("leaving-%d", number)
	cluster := own{key: client.ObjectKey{Namespace: name, Name: name}}
	if err := cluster.make(ctx); err != nil {
		return err
	}
	kept, err := a.keepOne(ctx, cluster)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, a.dump(ctx, name))
	}
	if err := a.auditor.Learn(ctx); err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := box.Client.Delete(ctx, namespace); err != nil {
		return fmt.Errorf("deleting a namespace: %w", err)
	}
	if err := eventually.Wait(ctx, "the deletion of the namespace "+name, func() (bool, string, error) {
		err := box.Client.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
		return apierrors.IsNotFound(err), fmt.Sprint(namespace.Status.Conditions), client.IgnoreNotFound(err)
	}); err != nil {
		return fmt.Errorf("%w\n%s", err, a.dump(ctx, name))
	}
	a.figures.add("namespaces deleted", 1)
	a.figures.add("machines kept in namespaces that were deleted", kept)
	if kept == 0 {
		a.t.Errorf("no machine waited in the namespace %s when it was deleted", name)
	}
	findings, err := a.auditor.Gone(ctx, audit.Who{Namespace: name})
	a.report("when the namespace "+name+" was gone", findings, err)
	return nil
}

// keepOne makes machines until one of them waits for the next Machine, and returns how many do.
func (a *assault) keepOne(ctx context.Context, cluster own) (kept int, err error) {
	for i := range mostKept {
		m := member{Name: fmt.Sprintf("%s-m%d", cluster.key.Name, i), Cluster: cluster.key.Name}
		m.Of = m.Name
		if err := cluster.add(ctx, m.plain()); err != nil {
			return 0, err
		}
		provisioned, err := cluster.settles(ctx, m.Name)
		if err != nil {
			return 0, err
		}
		if !provisioned {
			continue
		}
		if kept, err = cluster.keeps(ctx, m.Name); err != nil || kept > 0 {
			return kept, err
		}
	}
	return 0, nil
}

// keeps deletes a Machine, and returns how many machines the cluster keeps when it is gone.
func (o own) keeps(ctx context.Context, name string) (kept int, err error) {
	key := client.ObjectKey{Namespace: o.key.Namespace, Name: name}
	machine, maasMachine, maasCluster := &clusterv1.Machine{}, &infrav1.MaasMachine{}, &infrav1.MaasCluster{}
	machine.Namespace, machine.Name = key.Namespace, key.Name
	if err := box.Client.Delete(ctx, machine); err != nil {
		return 0, fmt.Errorf("deleting %s, whose machine is kept: %w", key, err)
	}
	if err := eventually.Wait(ctx, name+" to be gone", func() (bool, string, error) {
		err := box.Client.Get(ctx, key, maasMachine)
		return apierrors.IsNotFound(err), sandbox.Conditions(maasMachine.Status.Conditions), client.IgnoreNotFound(err)
	}); err != nil {
		return 0, err
	}
	if err := box.Client.Get(ctx, o.key, maasCluster); err != nil {
		return 0, fmt.Errorf("reading what %s keeps: %w", o.key, err)
	}
	recorded, err := record.OfCluster(maasCluster)
	return len(recorded.Kept), err
}
