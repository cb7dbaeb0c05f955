// SPDX-License-Identifier: Apache-2.0

// Command manager runs the controllers of the MAAS infrastructure provider.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

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
	log, err := newLogger(opts.logLevel, opts.logFormat)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	ctrl.SetLogger(log)
	klog.SetLogger(log)

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
	log.Info("Starting", "version", version, "namespace", opts.namespace, "watchFilter", opts.watchFilter)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}
	return nil
}

// newLogger makes a logr.Logger over zap: level is debug, info or error, format is json or text.
func newLogger(level, format string) (logr.Logger, error) {
	config := zap.NewProductionConfig()
	config.EncoderConfig.EncodeTime = zapcore.RFC3339TimeEncoder
	config.Sampling = nil
	config.DisableStacktrace = true
	switch format {
	case "json":
	case "text":
		config.Encoding = "console"
	default:
		return logr.Logger{}, fmt.Errorf("--log-format is json or text, not %q", format)
	}
	parsed, err := zapcore.ParseLevel(level)
	if err != nil {
		return logr.Logger{}, fmt.Errorf("--log-level is debug, info or error, not %q", level)
	}
	config.Level = zap.NewAtomicLevelAt(parsed)
	logger, err := config.Build()
	if err != nil {
		return logr.Logger{}, fmt.Errorf("making the logger: %w", err)
	}
	return zapr.NewLogger(logger), nil
}
