// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/setup"
	capicontroller "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/cluster-api/util/flags"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers"
	"github.com/capmaas/cluster-api-provider-maas/controllers/objectmetrics"
	"github.com/capmaas/cluster-api-provider-maas/controllers/orphanaudit"
	"github.com/capmaas/cluster-api-provider-maas/controllers/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/internal/nodes"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

const (
	controllerName = "capmaas-controller-manager"
	// clusterCacheConcurrency is how many workload clusters are connected to at the same time.
	clusterCacheConcurrency = 10
	// workloadQPS and workloadBurst limit requests to one workload cluster; there are few.
	workloadQPS   = 20
	workloadBurst = 30
)

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	add := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, clusterv1.AddToScheme, ipamv1.AddToScheme,
		infrav1.AddToScheme)
	if err := add.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("making the scheme: %w", err)
	}
	return scheme, nil
}

// newManager makes a manager with all controllers and their shared services.
func newManager(ctx context.Context, opts options) (ctrl.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	_, metricsOptions, err := flags.GetManagerOptions(opts.diagnostics)
	if err != nil {
		return nil, fmt.Errorf("reading the diagnostics flags: %w", err)
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the Kubernetes API: %w", err)
	}
	config.QPS, config.Burst = opts.kubeQPS, opts.kubeBurst
	failures := objectmetrics.NewWatchFailures()
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		LeaderElection:                opts.leaderElect,
		LeaderElectionID:              controllerName,
		LeaderElectionNamespace:       opts.leaderElectionNamespace,
		LeaderElectionReleaseOnCancel: true, // Nothing is done after Start returns.
		LeaseDuration:                 &opts.leaseDuration,
		RenewDeadline:                 &opts.renewDeadline,
		RetryPeriod:                   &opts.retryPeriod,
		HealthProbeBindAddress:        opts.healthAddr,
		Metrics:                       *metricsOptions,
		Cache:                         cacheOptions(scheme, opts, failures),
		Client:                        setup.ManagerClientOptions(),
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	metrics.Registry.MustRegister(objectmetrics.NewBuildInfo(version), failures)
	metrics.Registry.MustRegister(maas.Collectors()...)
	metrics.Registry.MustRegister(lxdhost.Collectors()...)
	opts.reconcile.Quarantined = quarantine.NewMetric()
	metrics.Registry.MustRegister(opts.reconcile.Quarantined, &objectmetrics.Collector{
		Reader: mgr.GetCache(), Leading: mgr.Elected(), Logger: mgr.GetLogger().WithName("metrics"),
		Namespace: opts.reconcile.Namespace, WatchFilter: opts.reconcile.WatchFilter,
	})
	if err := addControllers(ctx, mgr, opts); err != nil {
		return nil, err
	}
	return mgr, addChecks(mgr)
}

// cacheOptions gives informers of metadata their own name in the metrics, where a kind counts once under a name: the
// manager has informers of Secrets in both forms. What they can't read is counted.
func cacheOptions(scheme *runtime.Scheme, opts options, failures objectmetrics.WatchFailures) cache.Options {
	cacheOptions := setup.ManagerCacheOptions(scheme, controllerName, opts.reconcile.Namespace, opts.syncPeriod)
	whole, metadata := cacheOptions.NewInformer, capicontroller.NewInformerFunc(scheme, controllerName+"-metadata")
	cacheOptions.NewInformer = func(
		lister toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers,
	) toolscache.SharedIndexInformer {
		if _, ok := example.(*metav1.PartialObjectMetadata); ok {
			return metadata(lister, example, resync, indexers)
		}
		return whole(lister, example, resync, indexers)
	}
	makeLean(&cacheOptions)
	cacheOptions.DefaultWatchErrorHandler = failures.Handle
	return cacheOptions
}

// makeLean makes all cached objects lean, also those of a kind with a transform of its own, which replaces the default.
func makeLean(options *cache.Options) {
	options.DefaultTransform = lean
	for object, its := range options.ByObject {
		further := its.Transform
		if further == nil {
			continue
		}
		its.Transform = func(in any) (any, error) {
			in, err := lean(in)
			if err != nil {
				return nil, err
			}
			return further(in)
		}
		options.ByObject[object] = its
	}
}

// lean drops the parts of a cached object that nothing here reads. An object that is already lean may be in the cache,
// and is not written to (kubernetes/kubernetes#124337).
func lean(in any) (any, error) {
	object, ok := in.(client.Object)
	if !ok {
		return in, nil
	}
	if object.GetManagedFields() != nil {
		object.SetManagedFields(nil)
	}
	if annotations := object.GetAnnotations(); annotations[corev1.LastAppliedConfigAnnotation] != "" {
		annotations = maps.Clone(annotations)
		delete(annotations, corev1.LastAppliedConfigAnnotation)
		object.SetAnnotations(annotations)
	}
	switch o := in.(type) {
	case *metav1.PartialObjectMetadata: // of a Secret: which one it is, and whether it changed
		return &metav1.PartialObjectMetadata{TypeMeta: o.TypeMeta, ObjectMeta: identity(o.ObjectMeta)}, nil
	case *corev1.Secret:
		return &corev1.Secret{ObjectMeta: identity(o.ObjectMeta), Type: o.Type, Data: o.Data}, nil
	case *clusterv1.Cluster:
		if o.Status.Deprecated != nil {
			o.Status.Deprecated = nil
		}
	case *clusterv1.Machine:
		if o.Status.Deprecated != nil {
			o.Status.Deprecated = nil
		}
	}
	return in, nil
}

// identity returns what says which object it is, and whether it changed.
func identity(meta metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID,
		ResourceVersion: meta.ResourceVersion, DeletionTimestamp: meta.DeletionTimestamp}
}

func addChecks(mgr ctrl.Manager) error {
	err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping))
	if err != nil {
		return fmt.Errorf("adding the checks of liveness and readiness: %w", err)
	}
	return nil
}

// addControllers adds the reconcilers with what they need of the cluster that the manager runs in.
func addControllers(ctx context.Context, mgr ctrl.Manager, opts options) error {
	clusterCache, err := newClusterCache(ctx, mgr, opts)
	if err != nil {
		return err
	}
	reconcile := opts.reconcile
	reconcile.ClusterCache, reconcile.ManagerNamespace = clusterCache, opts.leaderElectionNamespace
	if len(reconcile.Credentials.Namespaces) == 0 {
		reconcile.Credentials.Namespaces = []string{reconcile.Namespace}
	}
	if reconcile.ManagementID, err = managementID(ctx, mgr); err != nil {
		return err
	}
	_, err = controllers.Setup(ctx, mgr, reconcile)
	return err
}

// managementID is read once: it never changes. A manager that may not read it works without this mark.
func managementID(ctx context.Context, mgr ctrl.Manager) (string, error) {
	id, err := orphanaudit.ManagementID(ctx, mgr.GetAPIReader())
	if apierrors.IsForbidden(err) {
		ctrl.LoggerFrom(ctx).Info("Machines in MAAS don't get the mark of this management cluster", "error", err.Error())
		return "", nil
	}
	return id, err
}

// newClusterCache connects to the workload clusters with a MaasCluster. A Cluster that gets one later is looked at
// again when it changes, as it does with each of its machines, and with each sync period.
func newClusterCache(ctx context.Context, mgr ctrl.Manager, opts options) (clustercache.ClusterCache, error) {
	secrets, err := setup.CreateSecretCachingClient(mgr)
	if err != nil {
		return nil, fmt.Errorf("making the client for kubeconfig Secrets: %w", err)
	}
	connections, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient:     kubeconfigs{secrets},
		WatchFilterValue: opts.reconcile.WatchFilter,
		ClusterFilter:    func(cluster *clusterv1.Cluster) bool { return controllers.Serves(ctx, mgr.GetClient(), cluster) },
		// No index: it would begin to watch. What is read of Nodes is in nodes.Cache; nothing else is read from a cache.
		Cache:  clustercache.CacheOptions{DefaultTransform: lean},
		Client: setup.ClusterCacheClientOptions(controllerName, workloadQPS, workloadBurst),
	}, controller.Options{MaxConcurrentReconciles: clusterCacheConcurrency})
	if err != nil {
		return nil, fmt.Errorf("setting up the cluster cache: %w", err)
	}
	// The default of 30 s would make the first Node of each cluster wait that much longer for its provider ID. There is
	// no option.
	tunable, ok := connections.(interface{ SetConnectionCreationRetryInterval(time.Duration) })
	if !ok {
		return nil, errors.New("setting up the cluster cache: its retry interval can't be set in this version of Cluster API")
	}
	tunable.SetConnectionCreationRetryInterval(opts.connectRetry)
	workloads := nodes.New(connections, mgr.GetScheme())
	if err := mgr.Add(workloads); err != nil {
		return nil, fmt.Errorf("adding the cache of Nodes: %w", err)
	}
	return workloads, nil
}
