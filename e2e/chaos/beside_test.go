// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// elsewhere begins the names of the namespaces whose clusters are in another MAAS.
const elsewhere = "elsewhere-"

// isHere reports whether the clusters of a namespace are in the MAAS that is attacked.
func isHere(namespace string) bool { return !strings.HasPrefix(namespace, elsewhere) }

// share is of how many clusters one thing is done to something beside them.
const share = 5

// times is how often something is done beside the clusters.
func times() int { return max(1, attack.clusters/share) }

// beside is what goes on beside the clusters, and should change nothing for them: a MAAS with production's database,
// tenants with servers that do harm, namespaces that are deleted, and managers that are rolled back. It begins when a
// cluster has all its machines, so that there are some in production's database.
type beside struct {
	once    sync.Once
	going   sync.WaitGroup
	tenants *tenants
}

func (b *beside) begin(ctx context.Context, a *assault) {
	b.once.Do(func() {
		staging, err := restoreStaging(a)
		if err != nil {
			a.t.Error(err)
			return
		}
		if b.tenants, err = startTenants(ctx, a); err != nil {
			a.t.Error(err)
			return
		}
		repeat := func(times int, does func(context.Context, int) error) {
			b.going.Go(func() {
				for number := range times {
					if err := does(ctx, number); err != nil {
						a.t.Error(err)
						return
					}
				}
			})
		}
		repeat(times(), staging.live)
		repeat(times(), a.leaveNamespace)
		repeat(times()/2, a.rollBack) // Each lasts long.
	})
}

// end waits for all of it.
func (b *beside) end(ctx context.Context, a *assault) {
	b.once.Do(func() { a.t.Error("no cluster ever had all its machines: nothing went on beside them") })
	b.going.Wait()
	if b.tenants == nil {
		return // That is an error already.
	}
	if err := b.tenants.end(ctx); err != nil {
		a.t.Error(err)
	}
}

// own is a cluster in a namespace of its own, with a MAAS of its own.
type own struct {
	key client.ObjectKey
	url string // "": the MAAS that is attacked
}

// plain is the cluster as it is made.
func (o own) plain() sandbox.Plain {
	plain := sandbox.Plain{Key: o.key}
	if o.url != "" {
		plain.Credentials = o.key.Name + "-maas"
	}
	return plain
}

// make makes the namespace, the Secret and the cluster.
func (o own) make(ctx context.Context, machines ...sandbox.PlainMachine) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.key.Namespace}}
	if err := box.Client.Create(ctx, namespace); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("making the namespace of %s: %w", o.key, err)
	}
	if o.url != "" {
		meta := metav1.ObjectMeta{Namespace: o.key.Namespace, Name: o.key.Name + "-maas"}
		secret := &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{
			scope.EndpointKey: o.url + "/MAAS", scope.APIKeyKey: box.MAASAPIKey,
		}}
		if err := box.Client.Create(ctx, secret); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("making the credentials of %s: %w", o.key, err)
		}
	}
	return box.ApplyYAML(ctx, strings.NewReader(o.plain().Manifest(machines...)))
}

// add adds machines, with the MachineDeployments that they are of.
func (o own) add(ctx context.Context, machines ...sandbox.PlainMachine) error {
	manifest := o.plain().Machines(machines...)
	for _, m := range machines {
		if m.Deployment != "" {
			manifest += o.plain().Deployment(m.Deployment)
		}
	}
	return box.ApplyYAML(ctx, strings.NewReader(manifest))
}

// hasEndpoint waits until the cluster has one.
func (o own) hasEndpoint(ctx context.Context) error {
	cluster := &infrav1.MaasCluster{}
	return eventually.Wait(ctx, o.key.String()+" to have an endpoint", func() (bool, string, error) {
		err := box.Client.Get(ctx, o.key, cluster)
		return cluster.Spec.ControlPlaneEndpoint.Host != "", sandbox.Conditions(cluster.Status.Conditions), err
	})
}

// settles waits until a machine of the cluster is provisioned, or has failed.
func (o own) settles(ctx context.Context, name string) (provisioned bool, err error) {
	m := &infrav1.MaasMachine{}
	err = eventually.Wait(ctx, name+" to be provisioned or to fail", func() (bool, string, error) {
		err := box.Client.Get(ctx, client.ObjectKey{Namespace: o.key.Namespace, Name: name}, m)
		provisioned = ptr.Deref(m.Status.Initialization.Provisioned, false) && conditions.IsTrue(m, infrav1.ReadyCondition)
		return provisioned || m.Status.FailureReason != "", sandbox.Conditions(m.Status.Conditions), err
	})
	return provisioned, err
}

// delete deletes the cluster, and its credentials.
func (o own) delete(ctx context.Context) error {
	return errors.Join(box.DeleteCluster(ctx, o.key), forgetKey(ctx, o.key))
}
