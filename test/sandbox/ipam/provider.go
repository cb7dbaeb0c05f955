// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	claimFinalizer   = "ipam.test.capmaas.io/claim"
	addressFinalizer = "ipam.cluster.x-k8s.io/protect-address"
	// exhaustedRetry is how soon a full pool is checked again.
	exhaustedRetry = 200 * time.Millisecond
)

// Provider serves the claims of one namespace.
type Provider struct {
	cancel context.CancelFunc
	done   chan error
}

// Start makes the kind of the pools known, and serves claims until Stop.
func Start(ctx context.Context, restConfig *rest.Config, namespace string) (*Provider, error) {
	if err := Install(ctx, restConfig); err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, ipamv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("making the scheme: %w", err)
		}
	}
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme: scheme, Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
	})
	if err != nil {
		return nil, fmt.Errorf("making the IPAM provider: %w", err)
	}
	// Reads are not cached: an address that was assigned a moment ago must be known.
	r := &reconciler{client: mgr.GetClient(), reader: mgr.GetAPIReader()}
	if err := ctrl.NewControllerManagedBy(mgr).Named("test-ipam").For(&ipamv1.IPAddressClaim{}).Complete(r); err != nil {
		return nil, fmt.Errorf("making the IPAM provider: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &Provider{cancel: cancel, done: make(chan error, 1)}
	go func() { p.done <- mgr.Start(ctx) }()
	return p, nil
}

// Stop ends it.
func (p *Provider) Stop() error {
	p.cancel()
	if err := <-p.done; err != nil {
		return fmt.Errorf("the IPAM provider ended: %w", err)
	}
	return nil
}

// reconciler serves claims, one at a time.
type reconciler struct {
	client client.Client
	reader client.Reader
}

// Reconcile gives a claim an address, or returns it to the pool.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	claim := &ipamv1.IPAddressClaim{}
	if err := r.reader.Get(ctx, req.NamespacedName, claim); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if claim.Spec.PoolRef.Kind != Kind.Kind || claim.Spec.PoolRef.APIGroup != Kind.Group {
		return ctrl.Result{}, nil
	}
	// The contract: nothing is done for a cluster that is paused or gone.
	cluster := &clusterv1.Cluster{}
	if err := r.reader.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: claim.Spec.ClusterName}, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if annotations.IsPaused(cluster, claim) {
		return ctrl.Result{RequeueAfter: exhaustedRetry}, nil
	}
	if !claim.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.takeBack(ctx, claim)
	}
	if controllerutil.AddFinalizer(claim, claimFinalizer) {
		if err := r.client.Update(ctx, claim); err != nil {
			return ctrl.Result{}, fmt.Errorf("holding the claim %s: %w", claim.Name, err)
		}
	}
	return r.give(ctx, claim)
}

// give finds or makes the claim's address, and sets its status.
func (r *reconciler) give(ctx context.Context, claim *ipamv1.IPAddressClaim) (ctrl.Result, error) {
	if claim.Status.AddressRef.Name != "" {
		return ctrl.Result{}, nil
	}
	before := claim.DeepCopy()
	refusal, err := r.allocate(ctx, claim)
	if err != nil {
		return ctrl.Result{}, err
	}
	ready := metav1.Condition{Type: ipamv1.IPAddressClaimReadyCondition, Status: metav1.ConditionTrue, Reason: "Allocated"}
	if refusal != "" {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, refusal, "pool "+claim.Spec.PoolRef.Name
	} else {
		claim.Status.AddressRef.Name = claim.Name
	}
	conditions.Set(claim, ready)
	if err := r.client.Status().Patch(ctx, claim, client.MergeFrom(before)); err != nil {
		return ctrl.Result{}, fmt.Errorf("answering the claim %s: %w", claim.Name, err)
	}
	if refusal != "" {
		return ctrl.Result{RequeueAfter: exhaustedRetry}, nil
	}
	return ctrl.Result{}, nil
}

// allocate makes the claim's IPAddress; refusal is the reason if there is none.
func (r *reconciler) allocate(ctx context.Context, claim *ipamv1.IPAddressClaim) (refusal string, err error) {
	pool := &unstructured.Unstructured{}
	pool.SetGroupVersionKind(Kind)
	err = r.reader.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: claim.Spec.PoolRef.Name}, pool)
	if apierrors.IsNotFound(err) {
		return ipamv1.IPAddressClaimReadyPoolNotReadyReason, nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the pool %s: %w", claim.Spec.PoolRef.Name, err)
	}
	given := &ipamv1.IPAddressList{}
	if err := r.reader.List(ctx, given, client.InNamespace(claim.Namespace)); err != nil {
		return "", fmt.Errorf("listing addresses: %w", err)
	}
	if slices.ContainsFunc(given.Items, func(a ipamv1.IPAddress) bool { return a.Name == claim.Name }) {
		return "", nil
	}
	addresses, err := addressesOf(pool)
	if err != nil {
		return "", err
	}
	free := slices.IndexFunc(addresses, func(address string) bool {
		return !slices.ContainsFunc(given.Items, func(a ipamv1.IPAddress) bool {
			return a.Spec.PoolRef == claim.Spec.PoolRef && a.Spec.Address == address
		})
	})
	if free < 0 {
		return ipamv1.IPAddressClaimReadyPoolExhaustedReason, nil
	}
	return "", r.create(ctx, claim, pool, addresses[free])
}

func (r *reconciler) create(ctx context.Context, claim *ipamv1.IPAddressClaim, pool *unstructured.Unstructured, text string) error {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return fmt.Errorf("pool %s: %w", pool.GetName(), err)
	}
	prefix := int32(64)
	if ip.Is4() {
		prefix = 24
	}
	address := &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: claim.Name, Namespace: claim.Namespace, Finalizers: []string{addressFinalizer}},
		Spec: ipamv1.IPAddressSpec{
			ClaimRef: ipamv1.IPAddressClaimReference{Name: claim.Name}, PoolRef: claim.Spec.PoolRef, Address: text, Prefix: ptr.To(prefix),
		},
	}
	if err := controllerutil.SetControllerReference(claim, address, r.client.Scheme()); err != nil {
		return fmt.Errorf("owning the address %s: %w", text, err)
	}
	if err := controllerutil.SetOwnerReference(pool, address, r.client.Scheme(), controllerutil.WithBlockOwnerDeletion(true)); err != nil {
		return fmt.Errorf("owning the address %s: %w", text, err)
	}
	if err := r.client.Create(ctx, address); err != nil {
		return fmt.Errorf("giving the address %s: %w", text, err)
	}
	return nil
}

// takeBack deletes the claim's address, and removes the claim's finalizer.
func (r *reconciler) takeBack(ctx context.Context, claim *ipamv1.IPAddressClaim) error {
	address := &ipamv1.IPAddress{}
	err := r.reader.Get(ctx, client.ObjectKeyFromObject(claim), address)
	if err == nil {
		before := address.DeepCopy()
		if controllerutil.RemoveFinalizer(address, addressFinalizer) {
			err = r.client.Patch(ctx, address, client.MergeFrom(before))
		}
		if err == nil {
			err = r.client.Delete(ctx, address)
		}
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("taking the address %s back: %w", address.Spec.Address, err)
	}
	before := claim.DeepCopy()
	controllerutil.RemoveFinalizer(claim, claimFinalizer)
	if err := r.client.Patch(ctx, claim, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("letting the claim %s go: %w", claim.Name, err)
	}
	return nil
}
