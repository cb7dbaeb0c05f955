// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/reconcilers/cluster"
	"sigs.k8s.io/cluster-api/core/reconcilers/clusterclass"
	"sigs.k8s.io/cluster-api/core/reconcilers/clusterresourceset"
	"sigs.k8s.io/cluster-api/core/reconcilers/clusterresourcesetbinding"
	"sigs.k8s.io/cluster-api/core/reconcilers/machine"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinedeployment"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinehealthcheck"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinepool"
	"sigs.k8s.io/cluster-api/core/reconcilers/machineset"
	topologycluster "sigs.k8s.io/cluster-api/core/reconcilers/topology/cluster"
	topologymachinedeployment "sigs.k8s.io/cluster-api/core/reconcilers/topology/machinedeployment"
	topologymachineset "sigs.k8s.io/cluster-api/core/reconcilers/topology/machineset"
	coresetup "sigs.k8s.io/cluster-api/core/setup"
	"sigs.k8s.io/cluster-api/core/webhooks/admission"
	"sigs.k8s.io/cluster-api/core/webhooks/conversion"
	"sigs.k8s.io/cluster-api/util/index"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

const coreName = "cluster-api-controller-manager"

// coreManager is Cluster API's core provider: the same reconcilers and webhooks, with the same options, as its program.
func coreManager(ctx context.Context, s settings) (ctrl.Manager, error) {
	scheme := coreScheme()
	mgr, err := newManager(s, scheme, coresetup.ManagerCacheOptions(scheme, s.informers(coreName), "", syncPeriod), coresetup.ManagerClientOptions())
	if err != nil {
		return nil, err
	}
	if err := index.AddDefaultIndexes(ctx, mgr); err != nil {
		return nil, err
	}
	secrets, err := coresetup.CreateSecretCachingClient(mgr)
	if err != nil {
		return nil, err
	}
	clusters, err := clusterCache(ctx, mgr, clustercache.Options{
		SecretClient: secrets,
		Cache:        coresetup.ClusterCacheCacheOptions(),
		Client:       coresetup.ClusterCacheClientOptions(coreName, clusterQPS, clusterBurst),
	})
	if err != nil {
		return nil, err
	}
	reconcilers := append([]reconciler{clusterReconciler(mgr, clusters)}, topologyReconcilers(mgr, clusters)...)
	if !s.topologyOnly {
		reconcilers = append(reconcilers, machineReconcilers(mgr, clusters)...)
	}
	if err := setupAll(ctx, mgr, reconcilers); err != nil {
		return nil, err
	}
	if err := setupResourceSets(ctx, mgr, clusters); err != nil {
		return nil, err
	}
	conversion.SetAPIVersionGetter(apiVersionGetter(mgr.GetClient()))
	return mgr, setupWebhooks(mgr, coreWebhooks(mgr, clusters))
}

func clusterReconciler(mgr ctrl.Manager, clusters clustercache.ClusterCache) reconciler {
	return &cluster.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), ClusterCache: clusters, RemoteConnectionGracePeriod: 50 * time.Second,
	}
}

func machineReconcilers(mgr ctrl.Manager, clusters clustercache.ClusterCache) []reconciler {
	c, r := mgr.GetClient(), mgr.GetAPIReader()
	return []reconciler{
		&machine.Reconciler{
			Client: c, APIReader: r, ClusterCache: clusters, RemoteConditionsGracePeriod: remoteConditionsGrace,
		},
		&machineset.Reconciler{Client: c, APIReader: r, ClusterCache: clusters, PreflightChecks: sets.New(clusterv1.MachineSetPreflightCheckAll)},
		&machinedeployment.Reconciler{Client: c, APIReader: r},
		&machinepool.Reconciler{Client: c, APIReader: r, ClusterCache: clusters},
		&machinehealthcheck.Reconciler{Client: c, ClusterCache: clusters},
	}
}

func topologyReconcilers(mgr ctrl.Manager, clusters clustercache.ClusterCache) []reconciler {
	c, r := mgr.GetClient(), mgr.GetAPIReader()
	return []reconciler{
		&clusterclass.Reconciler{Client: c},
		&topologycluster.Reconciler{Client: c, APIReader: r, ClusterCache: clusters},
		&topologymachinedeployment.Reconciler{Client: c, APIReader: r},
		&topologymachineset.Reconciler{Client: c, APIReader: r},
	}
}

// setupResourceSets starts what needs a cache that holds whole Secrets, and only those.
func setupResourceSets(ctx context.Context, mgr ctrl.Manager, clusters clustercache.ClusterCache) error {
	period := syncPeriod
	secrets, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(), SyncPeriod: &period,
	})
	if err != nil {
		return err
	}
	if err := mgr.Add(secrets); err != nil {
		return err
	}
	c := mgr.GetClient()
	if err := (&clusterresourceset.Reconciler{Client: c, ClusterCache: clusters}).SetupWithManager(ctx, mgr, concurrency(5), secrets); err != nil {
		return err
	}
	return (&clusterresourcesetbinding.Reconciler{Client: c}).SetupWithManager(ctx, mgr, concurrency(5))
}

func coreWebhooks(mgr ctrl.Manager, clusters clustercache.ClusterCache) []webhookSetup {
	return []webhookSetup{
		&admission.ClusterClass{Client: mgr.GetClient()},
		&admission.Cluster{Client: mgr.GetClient(), ClusterCacheReader: clusters},
		&admission.Machine{},
		&admission.MachineSet{},
		&admission.MachineDeployment{},
		&admission.MachineDrainRule{},
		&admission.MachinePool{},
		&admission.ClusterResourceSet{},
		&admission.ClusterResourceSetBinding{},
		&admission.MachineHealthCheck{},
		&admission.ExtensionConfig{},
		&admission.IPAddress{Client: mgr.GetAPIReader()},
		&admission.IPAddressClaim{},
	}
}
