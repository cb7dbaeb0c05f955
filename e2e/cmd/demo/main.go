// SPDX-License-Identifier: Apache-2.0

// Command demo shows the whole story in a sandbox: the chart is installed, a host cluster comes up on bare metal in a
// simulated MAAS and turns its nodes into LXD hosts, a cluster with LXD control planes and bare-metal workers comes up, and,
// with --once, all goes again. Where this computer can't run LXD, the hosts are there from the beginning, and simulated.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	opts := options{}
	flag.BoolVar(&opts.once, "once", false, "Delete the clusters when they have come up, say what it took and what is left in MAAS and LXD, and exit.")
	flag.Float64Var(&opts.timeScale, "time-scale", 60, "How much faster than in reality MAAS's machines deploy.")
	flag.BoolVar(&opts.keep, "keep", false, "Leave the directory with all logs behind.")
	flag.Parse()
	if flag.NArg() > 0 || opts.timeScale <= 0 {
		fmt.Fprintln(os.Stderr, "demo: takes no arguments but its flags, and a positive --time-scale")
		os.Exit(2)
	}
	os.Exit(run(opts))
}

// run answers the exit code.
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
	switch err := tell(ctx, out, opts); {
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
