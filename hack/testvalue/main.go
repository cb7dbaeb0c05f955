// SPDX-License-Identifier: Apache-2.0

// Command testvalue tells what each test of a package is worth: the blocks that it alone reaches, and the mutants that
// it alone kills. A mutant is the package with one condition inverted, or one statement left out; a test kills it if it
// fails with it. A test with neither may be deleted, unless it is there for another reason.
//
// All mutants are in one program: each run of a test has one of them, by its number.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"time"
)

func main() {
	every := flag.Int("every", 1, "try each Nth mutant")
	jobs := flag.Int("jobs", runtime.NumCPU(), "run this many tests at once")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "testvalue: name packages, as ./pkg/maas/record")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	for _, name := range flag.Args() {
		if err := value(ctx, name, *every, *jobs); err != nil {
			fmt.Fprintf(os.Stderr, "testvalue: %s: %v\n", name, err)
			stop()
			os.Exit(1)
		}
	}
	stop()
}

// value prints what the tests of a package are worth.
func value(ctx context.Context, name string, every, jobs int) error {
	dir, err := os.MkdirTemp("", "testvalue-")
	if err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	p, err := build(ctx, dir, name)
	if err != nil {
		return err
	}
	tests, mutants, err := p.measure(ctx, every, jobs)
	if err == nil {
		report(name, p, tests, mutants)
	}
	return err
}

// report prints the tests, those of least value first, and the mutants that live on.
func report(name string, p *program, tests []*test, mutants []*mutant) {
	slices.SortStableFunc(tests, func(a, b *test) int { return (a.blocks + a.kills) - (b.blocks + b.kills) })
	fmt.Printf("%s\n%8s %8s %10s  %s\n", name, "blocks", "mutants", "time", "test")
	for _, t := range tests {
		note := ""
		if t.failed {
			note = " (fails alone)"
		}
		fmt.Printf("%8d %8d %10s  %s%s\n", t.blocks, t.kills, t.took.Round(10*time.Millisecond), t.name, note)
	}
	killed := 0
	for _, m := range mutants {
		switch {
		case len(m.killers) > 0:
			killed++
		case m.reached:
			fmt.Printf("survives     %s\n", p.points[m.number-1])
		default:
			fmt.Printf("not reached  %s\n", p.points[m.number-1])
		}
	}
	fmt.Printf("%d of %d mutants are killed (%d%%)\n", killed, len(mutants), 100*killed/max(1, len(mutants)))
}
