// SPDX-License-Identifier: Apache-2.0

// Package credentialssecret keeps Secrets with credentials while a MaasCluster or an LXDHost names them.
package credentialssecret

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/workers"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
)

// secretsPage is how many Secrets one call lists. There may be many thousands.
const secretsPage = 500

// Reconciler removes the finalizer from Secrets with credentials that no MaasCluster or LXDHost names any more. The
// MaasCluster's reconciler adds it, because it must be there before MAAS is changed, and must not be added for clusters
// that are paused or that another manager reconciles. For LXDHosts it is added here, once they work.
type Reconciler struct {
	Client client.Client
	// APIReader reads Secrets: the cache has only those with the label of a cluster.
	APIReader client.Reader
	// Namespace limits the reconciler to one namespace; "" is all.
	Namespace string
}

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;patch

// SetupWithManager makes the manager run the reconciler.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	setup, limited := workers.Manage(ctx, mgr, "credentialssecret", r, options)
	return setup.
		Watches(&infrav1.MaasCluster{}, handler.EnqueueRequestsFromMapFunc(enqueueNamed), namesItNoMore).
		Watches(&infrav1.LXDHost{}, handler.EnqueueRequestsFromMapFunc(enqueueNamed), needsItOrNamesItNoMore).
		WatchesRawSource(source.Func(r.enqueueHeld)).
		Complete(ctx, limited)
}

// namesItNoMore handles the events after which a Secret may be free. If a MaasCluster changed, it also enqueues the
// Secret that it named before.
var namesItNoMore = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool { return !slices.Equal(named(e.ObjectOld), named(e.ObjectNew)) },
}

// needsItOrNamesItNoMore also handles those after which an LXDHost needs its Secrets.
var needsItOrNamesItNoMore = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return needs(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return namesItNoMore.Update(e) || needs(e.ObjectNew) && !needs(e.ObjectOld)
	},
}

// named are the Secrets that a MaasCluster or an LXDHost names.
func named(object client.Object) (keys []client.ObjectKey) {
	var refs []*infrav1.LocalObjectReference
	switch o := object.(type) {
	case *infrav1.MaasCluster:
		refs = append(refs, o.Spec.CredentialsRef, ptr.Deref(o.Spec.LXDConfig, infrav1.LXDHostConfig{}).CredentialsRef)
	case *infrav1.LXDHost:
		refs = append(refs, o.Spec.CredentialsRef, o.Spec.MAASCredentialsRef)
	}
	for _, ref := range refs {
		if ref != nil {
			keys = append(keys, client.ObjectKey{Namespace: object.GetNamespace(), Name: ref.Name})
		}
	}
	return keys
}

// needs reports whether the VMs of an LXDHost can't be deleted without its Secrets. Those of host clusters are kept by
// the MaasMachine that owns the LXDHost.
func needs(object client.Object) bool {
	host, ok := object.(*infrav1.LXDHost)
	return ok && controllerutil.ContainsFinalizer(host, infrav1.LXDHostFinalizer) && metav1.GetControllerOf(host) == nil &&
		conditions.IsTrue(host, infrav1.TrustedCondition)
}

func enqueueNamed(_ context.Context, object client.Object) []reconcile.Request {
	return list.Each(named(object), func(key client.ObjectKey) reconcile.Request {
		return reconcile.Request{NamespacedName: key}
	})
}

// enqueueHeld enqueues all Secrets with the finalizer when the manager starts: the last MaasCluster that named one may
// have been deleted while no manager ran.
func (r *Reconciler) enqueueHeld(
	ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request],
) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	for {
		err := r.APIReader.List(ctx, list, client.InNamespace(r.Namespace), client.Limit(secretsPage),
			client.Continue(list.Continue))
		if err != nil {
			return fmt.Errorf("listing Secrets for those with the finalizer %s: %w", infrav1.CredentialsFinalizer, err)
		}
		for i := range list.Items {
			if controllerutil.ContainsFinalizer(&list.Items[i], infrav1.CredentialsFinalizer) {
				queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			}
		}
		if list.Continue == "" {
			return nil
		}
	}
}

// Reconcile frees one Secret, unless it is named, and keeps one that an LXDHost needs.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	used, needed, err := r.use(ctx, req.NamespacedName)
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case needed:
		return ctrl.Result{}, client.IgnoreNotFound(hold(ctx, r.Client, r.APIReader, req.NamespacedName))
	case used:
		return ctrl.Result{}, nil
	}
	secret, err := secretMetadata(ctx, r.APIReader, req.NamespacedName)
	if err == nil {
		err = patchFinalizers(ctx, r.Client, secret, controllerutil.RemoveFinalizer)
	}
	if err != nil || !secret.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// A MaasCluster created meanwhile may have seen the finalizer that is gone now.
	if used, _, err := r.use(ctx, req.NamespacedName); err != nil || !used {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, client.IgnoreNotFound(patchFinalizers(ctx, r.Client, secret, controllerutil.AddFinalizer))
}

// use reports whether a MaasCluster or an LXDHost names a Secret, and whether an LXDHost needs it. An object also
// counts if it is paused, is another manager's, or is being deleted.
func (r *Reconciler) use(ctx context.Context, key client.ObjectKey) (used, needed bool, err error) {
	clusters, hosts := &infrav1.MaasClusterList{}, &infrav1.LXDHostList{}
	for _, all := range []client.ObjectList{clusters, hosts} {
		if err := r.Client.List(ctx, all, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return false, false, fmt.Errorf("looking for what uses Secret %s: %w", key.Name, err)
		}
	}
	used = slices.ContainsFunc(clusters.Items, func(c infrav1.MaasCluster) bool { return names(&c, key) })
	for i := range hosts.Items {
		if host := &hosts.Items[i]; names(host, key) {
			used, needed = true, needed || needs(host)
		}
	}
	return used, needed, nil
}

func names(object client.Object, key client.ObjectKey) bool {
	return slices.Contains(named(object), key)
}

// Hold keeps the Secrets of a cluster while the MaasCluster exists, even if its namespace is deleted. That of a host
// cluster's nodes may be missing: LXDReady says so. The reader does not cache.
func Hold(ctx context.Context, c client.Client, reader client.Reader, maasCluster *infrav1.MaasCluster) error {
	for _, key := range named(maasCluster) {
		own := maasCluster.Spec.CredentialsRef
		err := hold(ctx, c, reader, key)
		if err != nil && (!apierrors.IsNotFound(err) || own != nil && own.Name == key.Name) {
			return err
		}
	}
	return nil
}

func hold(ctx context.Context, c client.Client, reader client.Reader, key client.ObjectKey) error {
	secret, err := secretMetadata(ctx, reader, key)
	if err != nil {
		return err
	}
	if !secret.DeletionTimestamp.IsZero() {
		return nil // Kubernetes refuses further finalizers.
	}
	return patchFinalizers(ctx, c, secret, controllerutil.AddFinalizer)
}

func secretMetadata(
	ctx context.Context, reader client.Reader, key client.ObjectKey,
) (*metav1.PartialObjectMetadata, error) {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if err := reader.Get(ctx, key, secret); err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", key.Name, err)
	}
	return secret, nil
}

// patchFinalizers adds or removes our finalizer. The patch contains all finalizers, so Kubernetes refuses it if the
// Secret changed meanwhile.
func patchFinalizers(
	ctx context.Context, c client.Client, secret *metav1.PartialObjectMetadata, change func(client.Object, string) bool,
) error {
	before := secret.DeepCopy()
	if !change(secret, infrav1.CredentialsFinalizer) {
		return nil
	}
	if err := c.Patch(ctx, secret, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patching the finalizers of Secret %s: %w", secret.Name, err)
	}
	return nil
}
