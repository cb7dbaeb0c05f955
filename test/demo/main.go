// SPDX-License-Identifier: Apache-2.0

// Command demo shows the whole story in a sandbox: the chart is installed, a host cluster comes up on bare metal in a
// simulated MAAS and turns its nodes into LXD hosts, a cluster with LXD control planes and bare-metal workers comes up,
// with --drain one of the LXD hosts is emptied, and, with --once, everything is deleted again. If this computer can't run LXD, the hosts exist from the beginning,
// and are simulated. With --real the second cluster's nodes are real: kubeadm makes it, pods on two nodes reach each other
// through a Service, and with --upgrade one line upgrades Kubernetes. With --mixed there is one cluster, which is another
// provider's but for its workers. With --empty the sandbox is left to the user; with --dev the provider is installed in it, and is
// rebuilt whenever the user wants. Beside one that runs, `demo env` prints the variables for a shell, and `demo break NAME` and
// `demo mend NAME` switch a server off and on.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

func main() {
	opts := options{}
	flags := flag.NewFlagSet("demo", flag.ExitOnError) // Packages that are linked in have flags of their own.
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "Without a command, demo starts a sandbox. Flags:\n")
		flags.PrintDefaults()
		fmt.Fprintf(flags.Output(), "Commands, for the sandbox of this directory, or of $%s:\n%s\n", controlVariable, visits)
	}
	flags.BoolVar(&opts.once, "once", false, "Delete the clusters when they have come up, say what it took and what is left in MAAS and LXD, and exit.")
	flags.BoolVar(&opts.mixed, "mixed", false, "Make a cluster of Cluster API's own provider instead, whose control plane is in that provider's memory, with workers in MAAS. It takes root and what `make tools-dev` builds.")
	flags.BoolVar(&opts.drain, "drain", false, "Empty the LXD host of a control plane when the clusters have come up.")
	flags.Float64Var(&opts.timeScale, "time-scale", 60, "How much faster than in reality MAAS's machines deploy.")
	flags.BoolVar(&opts.real, "real", false, "Have real operating systems with kubeadm and kubelet on the cluster's machines, and run pods. It takes root, LXD and what `make tools-node` builds.")
	flags.BoolVar(&opts.upgrade, "upgrade", false, "With --real, upgrade Kubernetes when the pods run.")
	flags.BoolVar(&opts.empty, "empty", false, "Start Cluster API and the simulated MAAS alone, and say how to install the chart and create clusters by hand.")
	flags.BoolVar(&opts.dev, "dev", false, "Start everything but clusters, and build the manager and upgrade the chart at each press of Enter.")
	flags.StringVar(&opts.maasVersion, "maas-version", "", "The version that the simulated MAAS is: "+simulator.Series()+". From 4.0 on there are no VM hosts. Default: "+simulator.DefaultVersion.String()+".")
	flags.BoolVar(&opts.keep, "keep", false, "Leave the directory with all logs behind.")
	_ = flags.Parse(os.Args[1:]) // It exits.
	if flags.NArg() > 0 {
		if err := visit(context.Background(), os.Stdout, flags.Args()); err != nil {
			fmt.Fprintln(os.Stderr, "demo:", err)
			os.Exit(1)
		}
		return
	}
	if opts.timeScale <= 0 || !opts.oneAtMost() {
		fmt.Fprintln(os.Stderr, "demo: it takes a positive --time-scale, one of --empty, --dev and --once, and --drain without --empty, --dev and --real, --upgrade with --real, and --mixed without all of these")
		os.Exit(2)
	}
	if _, err := simulator.ParseVersion(opts.maasVersion); err != nil {
		fmt.Fprintln(os.Stderr, "demo: --maas-version:", err)
		os.Exit(2)
	}
	if err := opts.missing(); err != nil {
		fmt.Fprintln(os.Stderr, "demo: --real:", err)
		os.Exit(1)
	}
	os.Exit(run(opts))
}

// run returns the exit code.
func run(opts options) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := newScreen(os.Stdout)
	defer out.close()
	context.AfterFunc(ctx, func() {
		// A second signal ends the program at once. The kernel then kills what it started.
		stop()
		out.close()
	})
	play := runStory
	switch {
	case opts.empty:
		play = lend
	case opts.dev:
		play = develop
	}
	switch err := play(ctx, out, opts); {
	case err == nil:
		return 0
	case errors.Is(err, errInterrupted):
		return 130
	default:
		out.close()
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
}
