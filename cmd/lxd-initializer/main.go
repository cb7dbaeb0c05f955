// SPDX-License-Identifier: Apache-2.0

// Command lxd-initializer runs on each node of a host cluster: it prepares the node's LXD, registers it in MAAS as a VM
// host, and keeps both in this state.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/capmaas/cluster-api-provider-maas/internal/logging"
)

// kubeTimeout bounds a request to the Kubernetes API.
const kubeTimeout = 30 * time.Second

// version is set when the binary is built.
var version = "dev"

func main() {
	opts, showVersion, err := parseOptions(os.Args[1:], os.LookupEnv)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return
	case showVersion:
		fmt.Println(version)
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	log, err := logging.New(opts.logLevel, opts.logFormat)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	klog.SetLogger(log)

	ctx, stop := signal.NotifyContext(logr.NewContext(context.Background(), log), os.Interrupt, syscall.SIGTERM)
	err = run(ctx, opts)
	stop()
	if err != nil {
		log.Error(err, "The initializer ended")
		os.Exit(1)
	}
}

// run works until the context ends, and then returns nil.
func run(ctx context.Context, opts options) error {
	config, err := kubeConfig()
	if err != nil {
		return fmt.Errorf("finding the Kubernetes API: %w", err)
	}
	config.Timeout = kubeTimeout
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making the client of the Kubernetes API: %w", err)
	}
	events, stopEvents := newRecorder(kube, opts.nodeName)
	defer stopEvents()
	a := newAgent(opts, kube, events)
	health, err := net.Listen("tcp", opts.healthAddr)
	if err != nil {
		return fmt.Errorf("serving health: %w", err)
	}
	metrics, err := net.Listen("tcp", opts.metricsAddr)
	if err != nil {
		return fmt.Errorf("serving metrics: %w", err)
	}
	logr.FromContextOrDiscard(ctx).Info("Starting", "version", version, "node", opts.nodeName,
		"health", health.Addr().String(), "metrics", metrics.Addr().String())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serve(ctx, health, a.probes()) })
	group.Go(func() error { return serve(ctx, metrics, a.metrics.handler()) })
	group.Go(func() error { return a.run(ctx) })
	return group.Wait()
}

// kubeConfig returns that of the pod's ServiceAccount, or of the file that KUBECONFIG names.
func kubeConfig() (*rest.Config, error) {
	if file := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); file != "" {
		return clientcmd.BuildConfigFromFlags("", file)
	}
	return rest.InClusterConfig()
}
