// SPDX-License-Identifier: Apache-2.0

// Command replay replays once more what tests have kept of their runs, in files of the directory CAPMAAS_REPLAY. It
// prints how often each transition was taken; those that were never taken must be in test/replay/never.yaml.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/capmaas/cluster-api-provider-maas/test/replay"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: replay DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return fmt.Errorf("looking for runs in %s: %w", dir, err)
	}
	if len(files) == 0 {
		return fmt.Errorf("there are no runs in %s: run tests with CAPMAAS_REPLAY=%s", dir, dir)
	}
	taken, wrong := map[string]map[string]int{}, 0
	for _, name := range files {
		logs, err := readFile(name)
		if err != nil {
			return err
		}
		events := 0
		for _, log := range logs {
			difference, rows := replay.Of(log.Model).Replay(log.Object, log.Events)
			if taken[log.Model] == nil {
				taken[log.Model] = map[string]int{}
			}
			for row := range rows {
				taken[log.Model][row]++
			}
			events += len(log.Events)
			if difference != nil && log.Meddles == "" {
				wrong++
				fmt.Printf("%s: %v\n", log.Test, difference)
			}
		}
		fmt.Printf("%s: %d objects, %d events\n", filepath.Base(name), len(logs), events)
	}
	unexpected, err := report(taken)
	if err != nil {
		return err
	}
	if wrong+unexpected > 0 {
		return fmt.Errorf("%d differences, %d transitions that are not as never.yaml says", wrong, unexpected)
	}
	return nil
}

func readFile(name string) ([]replay.Log, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading a run: %w", err)
	}
	defer file.Close()
	return replay.ReadLogs(file)
}

// report prints how many objects took each transition. It returns how many are not as never.yaml says.
func report(taken map[string]map[string]int) (unexpected int, err error) {
	never, err := replay.NeverTaken()
	if err != nil {
		return 0, fmt.Errorf("reading never.yaml: %w", err)
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "MODEL\tTRANSITION\tOBJECTS\tWHY NOT")
	for _, table := range replay.Tables() {
		for _, row := range table.Rows {
			if row.Kind == replay.Settles {
				continue // Nobody sees it.
			}
			times, why := taken[table.Model][row.Name], never[table.Model][row.Name]
			if (times == 0) != (why != "") && !strings.HasPrefix(why, "seldom: ") {
				unexpected++
				why += " (UNEXPECTED)"
			}
			fmt.Fprintf(out, "%s\t%s\t%d\t%s\n", table.Model, row.Name, times, why)
		}
	}
	return unexpected, out.Flush()
}
