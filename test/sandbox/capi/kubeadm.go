// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"context"
	"time"

	"go.uber.org/zap"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/reconcilers/kubeadmconfig"
	bootstrapsetup "sigs.k8s.io/cluster-api/bootstrap/kubeadm/setup"
	bootstrapadmission "sigs.k8s.io/cluster-api/bootstrap/kubeadm/webhooks/admission"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/reconcilers/kubeadmcontrolplane"
	controlplanesetup "sigs.k8s.io/cluster-api/controlplane/kubeadm/setup"
	controlplaneadmission "sigs.k8s.io/cluster-api/controlplane/kubeadm/webhooks/admission"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/webhooks/conversion"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	bootstrapName    = "cluster-api-kubeadm-bootstrap-manager"
	controlPlaneName = "cluster-api-kubeadm-control-plane-manager"
)

// bootstrapManager is the kubeadm bootstrap provider.
func bootstrapManager(ctx context.Context, s settings) (ctrl.Manager, error) {
	scheme := bootstrapScheme()
	mgr, err := newManager(s, scheme, bootstrapsetup.ManagerCacheOptions(scheme, s.informers(bootstrapName), "", syncPeriod), bootstrapsetup.ManagerClientOptions())
	if err != nil {
		return nil, err
	}
	secrets, err := bootstrapsetup.CreateSecretCachingClient(mgr)
	if err != nil {
		return nil, err
	}
	clusters, err := clusterCache(ctx, mgr, clustercache.Options{
		SecretClient: secrets,
		Cache:        bootstrapsetup.ClusterCacheCacheOptions(),
		Client:       bootstrapsetup.ClusterCacheClientOptions(bootstrapName, clusterQPS, clusterBurst),
	})
	if err != nil {
		return nil, err
	}
	if !s.topologyOnly {
		if err := (&kubeadmconfig.Reconciler{
			Client: mgr.GetClient(), SecretCachingClient: secrets, APIReader: mgr.GetAPIReader(), ClusterCache: clusters,
			TokenTTL: kubeadmconfig.DefaultTokenTTL,
		}).SetupWithManager(ctx, mgr, concurrency(10)); err != nil {
			return nil, err
		}
	}
	return mgr, setupWebhooks(mgr, []webhookSetup{
		&bootstrapadmission.KubeadmConfig{},
		&bootstrapadmission.KubeadmConfigTemplate{},
	})
}

// controlPlaneManager is the kubeadm control-plane provider.
func controlPlaneManager(ctx context.Context, s settings) (ctrl.Manager, error) {
	scheme := controlPlaneScheme()
	mgr, err := newManager(s, scheme, controlplanesetup.ManagerCacheOptions(scheme, s.informers(controlPlaneName), "", syncPeriod), controlplanesetup.ManagerClientOptions())
	if err != nil {
		return nil, err
	}
	secrets, err := controlplanesetup.CreateSecretCachingClient(mgr)
	if err != nil {
		return nil, err
	}
	clusters, err := clusterCache(ctx, mgr, clustercache.Options{
		SecretClient: secrets,
		Cache:        controlplanesetup.ClusterCacheCacheOptions(),
		Client:       controlplanesetup.ClusterCacheClientOptions(controlPlaneName, clusterQPS, clusterBurst),
	})
	if err != nil {
		return nil, err
	}
	if !s.topologyOnly {
		if err := (&kubeadmcontrolplane.Reconciler{
			Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), SecretCachingClient: secrets, ClusterCache: clusters,
			EtcdDialTimeout: 10 * time.Second, EtcdCallTimeout: 15 * time.Second, EtcdLogger: zap.NewNop(),
			RemoteConditionsGracePeriod: remoteConditionsGrace,
		}).SetupWithManager(ctx, mgr, concurrency(10)); err != nil {
			return nil, err
		}
	}
	conversion.SetAPIVersionGetter(apiVersionGetter(mgr.GetClient()))
	return mgr, setupWebhooks(mgr, []webhookSetup{
		&controlplaneadmission.KubeadmControlPlane{},
		&controlplaneadmission.ScaleValidator{Client: mgr.GetClient()},
		&controlplaneadmission.KubeadmControlPlaneTemplate{},
	})
}
