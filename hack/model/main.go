// SPDX-License-Identifier: Apache-2.0

// Command model checks the models of model/ with Spin: each search of searches.yaml finds nothing, and each guard
// that is taken away gives a counterexample. It prints tables, and the trace of what it did not expect.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	o := options{}
	flag.StringVar(&o.dir, "models", "model", "the directory of the models and of searches.yaml")
	flag.BoolVar(&o.full, "full", false, "also run what takes minutes, and more memory")
	flag.StringVar(&o.only, "only", "", "run only those whose model, name or switches contain this")
	flag.StringVar(&o.traces, "traces", "", "write the trace of each counterexample into this directory")
	flag.IntVar(&o.jobs, "jobs", 2, "how many run at the same time")
	flag.Parse()
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type options struct {
	dir, only, traces string
	full              bool
	jobs              int
}

// run runs all searches that are asked for. The error says how many gave a surprise.
func run(ctx context.Context, o options) error {
	all, err := load(o.dir)
	if err != nil {
		return err
	}
	for _, tool := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing: install it (Debian: apt-get install spin gcc): %w", tool, err)
		}
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(s search) bool {
		return (s.Full && !o.full) || !strings.Contains(s.Model+" "+s.Name+" "+s.switches(), o.only)
	})
	if len(chosen) == 0 {
		return fmt.Errorf("no search contains %q", o.only)
	}
	began := time.Now()
	results := make([]result, len(chosen))
	next := make(chan int)
	var workers sync.WaitGroup
	for range max(o.jobs, 1) {
		workers.Go(func() {
			for at := range next {
				results[at] = o.one(ctx, chosen[at])
				fmt.Fprintf(os.Stderr, "%s\n", results[at].progress())
			}
		})
	}
	for at := range chosen {
		next <- at
	}
	close(next)
	workers.Wait()
	surprises := report(results)
	replayed, err := o.replay(ctx, all, results)
	if err != nil {
		return err
	}
	for _, surprise := range replayed {
		fmt.Printf("\nSURPRISE: %s\n", surprise)
	}
	surprises += len(replayed)
	fmt.Printf("\n%d searches in %s\n", len(results), time.Since(began).Round(time.Second))
	if surprises > 0 {
		return fmt.Errorf("%d of %d gave a surprise", surprises, len(results))
	}
	return nil
}

// one runs one search in a directory of its own.
func (o options) one(ctx context.Context, s search) result {
	r := result{search: s}
	dir, err := os.MkdirTemp("", "model")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.CopyFS(dir, os.DirFS(o.dir))
	}
	if err == nil {
		err = s.run(ctx, dir, &r)
	}
	if err != nil {
		r.surprise = err.Error()
		return r
	}
	r.judge()
	if o.traces != "" && len(r.trace) > 0 {
		name := strings.Join(strings.Fields(s.Model+" "+cmp.Or(s.switches(), s.Name)), "-") + ".txt"
		if err := writeTrace(o.traces, name, r.trace); err != nil {
			r.surprise = cmp.Or(r.surprise, err.Error())
		}
	}
	return r
}

func writeTrace(dir, name string, trace []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the directory of the traces: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Join(trace, "\n")+"\n"), 0o644); err != nil {
		return fmt.Errorf("writing a trace: %w", err)
	}
	return nil
}

// report prints the tables, and what is not as expected. It returns how many that are.
func report(results []result) (surprises int) {
	for _, part := range parts {
		table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		rows := 0
		for _, r := range results {
			if r.part != part.name {
				continue
			}
			if rows++; rows == 1 {
				fmt.Printf("\n%s\n", part.title)
				fmt.Fprintln(table, part.columns)
			}
			fmt.Fprintln(table, strings.Join(r.row(), "\t"))
		}
		_ = table.Flush() // To standard output.
	}
	for _, r := range results {
		if r.surprise == "" {
			continue
		}
		surprises++
		fmt.Printf("\nSURPRISE: %s %s: %s\n", r.Model, cmp.Or(r.switches(), r.Name), r.surprise)
		for _, step := range r.trace {
			fmt.Println("  " + step)
		}
	}
	return surprises
}
