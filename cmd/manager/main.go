// SPDX-License-Identifier: Apache-2.0

// Command manager runs the controllers of the MAAS infrastructure provider.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capmaas/cluster-api-provider-maas/internal/logging"
)

// gcPercent is how much garbage the heap may have before it is collected, in percent of what is in use. The manager
// keeps much and makes little garbage: with Go's default of 100, half of its memory would be garbage.
const gcPercent = 50

// version is set when the binary is built.
var version = "dev"

func main() {
	if len(os.Args) > 1 && os.Args[1] == checkCommand {
		ctrl.SetLogger(logr.Discard())
		os.Exit(runCheck(ctrl.SetupSignalHandler(), os.Args[2:], os.Stdout, os.Stderr))
	}
	opts := defaultOptions()
	flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	opts.addFlags(flags)
	showVersion := flags.Bool("version", false, "Print the version and exit.")
	if err := flags.Parse(os.Args[1:]); errors.Is(err, pflag.ErrHelp) {
		return
	} else if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if *showVersion {
		fmt.Println(version)
		return
	}
	log, err := logging.New(opts.logLevel, opts.logFormat)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	if _, given := os.LookupEnv("GOGC"); !given {
		debug.SetGCPercent(gcPercent)
	}

	ctx := logr.NewContext(ctrl.SetupSignalHandler(), log)
	if err := run(ctx, opts); err != nil {
		log.Error(err, "The manager ended")
		os.Exit(1)
	}
}

// run starts the manager and ends with the context.
func run(ctx context.Context, opts options) error {
	log := ctrl.LoggerFrom(ctx)
	mgr, err := newManager(ctx, opts)
	if err != nil {
		return err
	}
	log.Info("Starting", "version", version, "namespace", opts.reconcile.Namespace, "watchFilter",
		opts.reconcile.WatchFilter)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}
	return nil
}
