// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/capmaas/cluster-api-provider-maas/test/replay"
)

// A run of the code is held against tables of transitions, in test/replay. Here these are held against the models: a
// table allows what a model does, in random walks, and refuses what it does when a guard is taken away.

const (
	// walks is how many random walks there are for each search of a model, walkSteps how long one is.
	walks, walkSteps = 12, 6000
)

var objectsSwitch = regexp.MustCompile(`\bOBJECTS=(\d+)`)

// objects is how many objects a search has.
func (s *search) objects() int {
	if strings.Contains(s.switches(), "SUCCESSOR") {
		return 2
	}
	if found := objectsSwitch.FindStringSubmatch(s.switches()); found != nil {
		n, _ := strconv.Atoi(found[1]) // The pattern is a number's.
		return n
	}
	return 1
}

// replay holds the tables against the models, and prints what was replayed. It returns what is not as expected.
func (o options) replay(ctx context.Context, all []search, results []result) (surprises []string, err error) {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	taken := map[string]map[string]bool{}
	rows := 0
	row := func(columns ...string) {
		if rows++; rows == 1 {
			fmt.Printf("\nThe tables that runs are held against\n")
			fmt.Fprintln(out, "MODEL\tSWITCHES\tTRACES\tEVENTS\tTHE TABLE")
		}
		fmt.Fprintln(out, strings.Join(columns, "\t"))
	}
	for _, s := range all {
		table := replay.For(s.Model)
		if table == nil || s.part != partSearches || s.Ends != "" ||
			!strings.Contains(s.Model+" "+s.Name+" "+s.switches(), o.only) {
			continue
		}
		if taken[table.Model] == nil {
			taken[table.Model] = map[string]bool{}
		}
		events := 0
		for seed := range walks {
			args := append([]string{"-n" + strconv.Itoa(seed+1), "-u" + strconv.Itoa(walkSteps)}, s.flags()...)
			printed, err := output(ctx, o.dir, "spin", append(args, s.Model+".pml")...)
			if err != nil {
				return nil, fmt.Errorf("walking through %s: %w: %s", s.Model, err, last(printed))
			}
			n, difference, err := replayAll(table, strings.Split(printed, "\n"), s.objects(), taken[table.Model])
			if err != nil {
				return nil, err
			}
			events += n
			if difference != nil {
				surprises = append(surprises, fmt.Sprintf("%s %s, seed %d: the table refuses what the model does: %s",
					s.Model, cmp.Or(s.switches(), s.Name), seed+1, difference))
				break
			}
		}
		row(s.Model, cmp.Or(s.switches(), s.Name), strconv.Itoa(walks), strconv.Itoa(events), "allows")
	}
	for _, r := range results {
		table := replay.For(r.Model)
		if table == nil || r.part != partGuards || len(r.lines) == 0 {
			continue
		}
		n, difference, err := replayAll(table, r.lines, r.objects(), map[string]bool{})
		if err != nil {
			return nil, err
		}
		switch {
		case table.Refuses != nil && !slices.Contains(table.Refuses, r.Guard):
		case difference == nil:
			surprises = append(surprises, fmt.Sprintf("%s %s: the table allows what the guard forbids", r.Model, r.switches()))
		case difference.Promise:
			surprises = append(surprises, fmt.Sprintf("%s %s: the table refuses only what MAAS does then, and no decision: %s",
				r.Model, r.switches(), difference))
		default:
			row(r.Model, r.switches(), "1", strconv.Itoa(n), "refuses: "+difference.Event.String())
		}
	}
	_ = out.Flush() // To standard output.
	if o.only != "" {
		return surprises, nil
	}
	for _, model := range slices.Sorted(maps.Keys(taken)) {
		for _, row := range replay.Of(model).Rows {
			if walked := taken[model][row.Name]; walked != (row.Beyond == "") {
				surprises = append(surprises, fmt.Sprintf("%s: the table's transition %q: the model takes it: %v; beyond it: %q",
					model, row.Name, walked, row.Beyond))
			}
		}
	}
	return surprises, nil
}

// replayAll replays all objects of a trace. It notes which rows were taken.
func replayAll(table *replay.Table, lines []string, objects int, taken map[string]bool) (
	events int, difference *replay.Difference, err error,
) {
	all, err := replay.ReadSpin(lines, objects)
	if err != nil {
		return 0, nil, fmt.Errorf("reading a trace of %s: %w", table.Model, err)
	}
	for _, object := range slices.Sorted(maps.Keys(all)) {
		found, rows := table.Replay("object "+object, all[object])
		maps.Copy(taken, rows)
		events += len(all[object])
		if found != nil && (difference == nil || difference.Promise) {
			difference = found
		}
	}
	return events, difference, nil
}
