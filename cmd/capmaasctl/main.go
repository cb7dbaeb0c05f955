// SPDX-License-Identifier: Apache-2.0

// Command capmaasctl is the operator's tool. It checks whether a node's LXD, its registration in MAAS, and MAAS itself
// are as the provider needs them, prints the remedy if not, and repairs a node with --apply. It also finds machines
// that were left over in MAAS (orphans), and removes them with --delete; it plans where machines would go; it
// cordons LXDHosts, and empties them; it keeps machines of MAAS from being allocated; and it uploads images.
//
// Called as lxd-test, vmhost-test or maas-test, also with a suffix such as lxd-test-linux, it is one of its checks.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// version is set when the binary is built.
var version = "dev"

// Exit codes; they are part of the contract.
const (
	exitOK     = 0 // every check is ok or was repaired; no orphans were found, or all were removed; everything was converted; what was planned fits; the host, machine or image is as asked
	exitFailed = 1 // a check failed, or something is missing; orphans were found or left; something could not be converted; something does not fit; the host, machine or image is not as asked
	exitUsage  = 2 // wrong usage; nothing was checked
)

// surroundings are the inputs of a command other than its arguments.
type surroundings struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
}

func main() {
	ctrllog.SetLogger(logr.Discard()) // Without a logger, controller-runtime prints a warning.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args, surroundings{in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv})
	stop()
	os.Exit(code)
}

// run is the program; args begin with its own name.
func run(ctx context.Context, args []string, s surroundings) int {
	chosen, done, code := choose(args, s)
	if done {
		return code
	}
	opts := defaultOptions()
	flags := chosen.flags(&opts)
	least, most := chosen.names()
	problems, err := parse(flags, chosen.rest, least, most)
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(s.out, "%s\n\nUsage: %s [flags]\n\n%s", chosen.about, chosen.usage, flags.FlagUsages())
		return exitOK
	}
	if err != nil {
		problems = append(problems, err.Error())
	}
	problems = append(problems, opts.complete(chosen, flags, s)...)
	if len(problems) > 0 {
		for _, problem := range problems {
			fmt.Fprintf(s.err, "%s: %s\n", chosen.program, problem)
		}
		fmt.Fprintf(s.err, "Try %s --help\n", chosen.usage)
		return exitUsage
	}
	if chosen.rewrite != nil {
		return chosen.rewrite(opts, s)
	}
	if chosen.act != nil {
		return chosen.act(ctx, opts, s)
	}
	ctx, cancel := context.WithTimeout(ctx, opts.timeout)
	defer cancel()
	answer := chosen.run(ctx, opts, s)
	if err := outputs[opts.output](answer, s.out); err != nil {
		fmt.Fprintf(s.err, "%s: writing the result: %v\n", chosen.program, err)
		return exitFailed
	}
	if !answer.good() {
		return exitFailed
	}
	return exitOK
}

func (c choice) run(ctx context.Context, opts options, s surroundings) result {
	if c.isCheck() {
		return newReport(c.title(), c.check(ctx, opts), c.canApply, opts.apply)
	}
	return c.find(ctx, opts, s)
}
