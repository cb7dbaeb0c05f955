// SPDX-License-Identifier: Apache-2.0

// Package capi runs Cluster API in this process: the unmodified reconcilers and webhooks of its core, kubeadm
// bootstrap and kubeadm control-plane providers, installed from the manifests of their release. The webhooks
// listen on 127.0.0.1. Other providers run as programs (StartExternal).
package capi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/feature"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/port"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/process"
)

const (
	loopback              = "127.0.0.1"
	syncPeriod            = 10 * time.Minute
	remoteConditionsGrace = 5 * time.Minute
	// clusterRetry is how soon an unreachable workload cluster is tried again. The default of 30 s fits real machines,
	// which take minutes to boot.
	clusterRetry = 2 * time.Second
	clusterQPS   = 20
	clusterBurst = 30
)

// Options are the environment of Cluster API.
type Options struct {
	// Config of the management cluster's administrator.
	Config *rest.Config
	// ModuleDir is a directory of the Go module that this code belongs to.
	ModuleDir string
	// Env is the environment of the go command, which finds the manifests.
	Env []string
	// Dir is a directory for certificates.
	Dir string
	// Logger gets the logs of all three providers.
	Logger logr.Logger
	// TopologyOnly leaves out the reconcilers of machines and control planes: what a topology is made of is written, and
	// nothing comes of it. Their webhooks run.
	TopologyOnly bool
	// Eager makes reconcilers handle an object whenever it changed; by default they do so once in a second, which takes
	// most of a cluster's life.
	Eager bool
	// NoDeprecated serves no deprecated versions of Cluster API's kinds.
	NoDeprecated bool
}

// Providers are the running providers.
type Providers struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mutex    sync.Mutex
	failures []error
}

// settings of one provider's manager.
type settings struct {
	config  *rest.Config
	logger  logr.Logger
	port    int
	certDir string
	// topologyOnly is Options.TopologyOnly.
	topologyOnly bool
	// run counts how often the providers were started in this process.
	run int64
}

// runs counts starts.
var runs atomic.Int64

// informers is the name that a manager's informers have in logs and metrics. It must be another one each time.
func (s settings) informers(manager string) string {
	return manager + "-" + strconv.FormatInt(s.run, 10)
}

type provider struct {
	name string
	// dir of the provider in Cluster API's module.
	dir   string
	setup func(context.Context, settings) (ctrl.Manager, error)
	port  int
}

// Start installs and runs the providers, and returns when their webhooks respond.
func Start(ctx context.Context, options Options) (*Providers, error) {
	gates := map[string]bool{
		string(feature.ClusterTopology): true, string(feature.MachinePool): true, string(feature.ReconcilerRateLimiting): !options.Eager,
	}
	if err := feature.MutableGates.SetFromMap(gates); err != nil {
		return nil, fmt.Errorf("setting Cluster API's feature gates: %w", err)
	}
	ca, err := writeWebhookCertificate(options.Dir)
	if err != nil {
		return nil, err
	}
	providers := []provider{
		{name: "core", dir: "core", setup: coreManager},
		{name: "kubeadm-bootstrap", dir: filepath.Join("bootstrap", "kubeadm"), setup: bootstrapManager},
		{name: "kubeadm-control-plane", dir: filepath.Join("controlplane", "kubeadm"), setup: controlPlaneManager},
	}
	release, err := reservePorts(providers)
	if err != nil {
		return nil, err
	}
	defer release()
	rendered, err := renderAll(ctx, options, providers, ca)
	if err != nil {
		return nil, err
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	var webhooks []client.Object
	for _, m := range rendered {
		crds = append(crds, m.crds...)
		webhooks = append(webhooks, m.webhooks...)
	}
	install := envtest.CRDInstallOptions{CRDs: crds, Scheme: runtime.NewScheme(), MaxTime: eventually.Limit}
	if _, err := envtest.InstallCRDs(options.Config, install); err != nil {
		return nil, fmt.Errorf("installing Cluster API's CRDs: %w", err)
	}
	p, err := run(ctx, options, providers)
	if err != nil {
		return nil, err
	}
	if err := p.finish(ctx, options.Config, providers, webhooks, ca); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// finish waits until the webhooks respond, and only then makes the API server call them.
func (p *Providers) finish(ctx context.Context, config *rest.Config, providers []provider, webhooks []client.Object, ca []byte) error {
	ctx, cancel := context.WithTimeout(ctx, eventually.Limit)
	defer cancel()
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(ca)
	for _, provider := range providers {
		if err := awaitWebhooks(ctx, provider.port, trusted, p.Err); err != nil {
			return fmt.Errorf("waiting for the webhooks of %s: %w", provider.name, err)
		}
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return createAll(ctx, c, webhooks)
}

func renderAll(ctx context.Context, options Options, providers []provider, ca []byte) ([]*manifests, error) {
	module, err := moduleDir(ctx, options.ModuleDir, options.Env, clusterAPI)
	if err != nil {
		return nil, err
	}
	rendered := make([]*manifests, len(providers))
	failures := make([]error, len(providers))
	var wait sync.WaitGroup
	for i, provider := range providers {
		wait.Go(func() {
			host := "https://" + net.JoinHostPort(loopback, strconv.Itoa(provider.port))
			rendered[i], failures[i] = render(module, provider.dir, host, ca)
			if failures[i] == nil && options.NoDeprecated {
				rendered[i].dropDeprecated()
			}
		})
	}
	wait.Wait()
	return rendered, errors.Join(failures...)
}

// run sets up all managers before it starts the first.
func run(ctx context.Context, options Options, providers []provider) (*Providers, error) {
	// The managers live until Stop, not until the context of Start ends.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &Providers{cancel: cancel}
	managers := make([]ctrl.Manager, len(providers))
	count := runs.Add(1)
	for i, provider := range providers {
		var err error
		managers[i], err = provider.setup(ctx, settings{
			config: options.Config, logger: options.Logger.WithName(provider.name), port: provider.port, certDir: options.Dir,
			topologyOnly: options.TopologyOnly, run: count,
		})
		if err != nil {
			cancel()
			return nil, fmt.Errorf("setting up %s: %w", provider.name, err)
		}
	}
	for i, provider := range providers {
		p.done.Go(func() {
			if err := managers[i].Start(ctx); err != nil {
				p.fail(fmt.Errorf("running %s: %w", provider.name, err))
			}
		})
	}
	return p, nil
}

func (p *Providers) fail(err error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.failures = append(p.failures, err)
}

// Err returns why providers ended by themselves.
func (p *Providers) Err() error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return errors.Join(p.failures...)
}

// Stop ends the providers.
func (p *Providers) Stop() error {
	p.cancel()
	return process.AwaitEnd("the Cluster API providers", &p.done)
}

// awaitWebhooks waits until they respond, or what serves them has failed.
func awaitWebhooks(ctx context.Context, port int, trusted *x509.CertPool, failure func() error) error {
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}}
	return eventually.Wait(ctx, "a TLS connection", func() (bool, string, error) {
		connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
		if err == nil {
			return true, "", connection.Close()
		}
		return false, err.Error(), failure()
	})
}

// writeWebhookCertificate makes the pair that all webhooks serve, and returns the certificate.
func writeWebhookCertificate(dir string) ([]byte, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of the webhooks' certificate: %w", err)
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey(loopback, []net.IP{net.ParseIP(loopback)}, nil)
	if err != nil {
		return nil, fmt.Errorf("making the webhooks' certificate: %w", err)
	}
	for name, data := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return nil, fmt.Errorf("writing the webhooks' certificate: %w", err)
		}
	}
	return cert, nil
}

// reservePorts gives each provider a port, which the provider listens on by the time of the release.
func reservePorts(providers []provider) (release func(), err error) {
	var all []*port.Reserved
	release = func() {
		for _, reserved := range all {
			_ = reserved.Close()
		}
	}
	for i := range providers {
		reserved, err := port.Reserve()
		if err != nil {
			release()
			return nil, err
		}
		all, providers[i].port = append(all, reserved), reserved.Number()
	}
	return release, nil
}

func newManager(s settings, scheme *runtime.Scheme, cacheOptions cache.Options, clientOptions client.Options) (ctrl.Manager, error) {
	restConfig := rest.CopyConfig(s.config)
	restConfig.QPS, restConfig.Burst = 100, 200
	return ctrl.NewManager(restConfig, ctrl.Options{
		Logger: s.logger,
		Scheme: scheme,
		// Three managers share one process, and their controllers' names.
		Controller:              config.Controller{UsePriorityQueue: ptr.To(true), SkipNameValidation: ptr.To(true)},
		GracefulShutdownTimeout: ptr.To(10 * time.Second),
		HealthProbeBindAddress:  "0",
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		Cache:                   cacheOptions,
		Client:                  clientOptions,
		WebhookServer:           webhook.NewServer(webhook.Options{Host: loopback, Port: s.port, CertDir: s.certDir}),
	})
}

func concurrency(n int) controller.Options { return controller.Options{MaxConcurrentReconciles: n} }

// clusterCache is the connections to workload clusters, retried soon.
func clusterCache(ctx context.Context, mgr ctrl.Manager, options clustercache.Options) (clustercache.ClusterCache, error) {
	clusters, err := clustercache.SetupWithManager(ctx, mgr, options, concurrency(10))
	if err != nil {
		return nil, err
	}
	retry, ok := clusters.(interface {
		SetConnectionCreationRetryInterval(interval time.Duration)
	})
	if !ok {
		return nil, errors.New("this version of Cluster API has no SetConnectionCreationRetryInterval")
	}
	retry.SetConnectionCreationRetryInterval(clusterRetry)
	return clusters, nil
}

type reconciler interface {
	SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error
}

func setupAll(ctx context.Context, mgr ctrl.Manager, reconcilers []reconciler) error {
	for _, r := range reconcilers {
		if err := r.SetupWithManager(ctx, mgr, concurrency(5)); err != nil {
			return err
		}
	}
	return nil
}

type webhookSetup interface {
	SetupWebhookWithManager(mgr ctrl.Manager) error
}

func setupWebhooks(mgr ctrl.Manager, webhooks []webhookSetup) error {
	for _, w := range webhooks {
		if err := w.SetupWebhookWithManager(mgr); err != nil {
			return err
		}
	}
	return nil
}
