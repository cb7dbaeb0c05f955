// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
)

// state is the result of one check. The words are part of the output's contract.
type state string

const (
	stateOK      state = "ok"      // nothing to do
	stateChanged state = "changed" // it was wrong, and --apply corrected it
	stateMissing state = "missing" // it does not exist, and --apply would create it
	stateFailed  state = "failed"  // a person has to do something
	stateUnknown state = "unknown" // MAAS does not tell
)

// check is one line of the output. The JSON names are part of its contract.
type check struct {
	Name   string `json:"name"`
	State  state  `json:"state"`
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"`
}

// checks grows while a command checks one thing after the other.
type checks []check

func (c *checks) add(state state, name, remedy, format string, args ...any) {
	*c = append(*c, check{name, state, fmt.Sprintf(format, args...), remedy})
}

func (c *checks) ok(name, format string, args ...any) { c.add(stateOK, name, "", format, args...) }

// done adds changed or ok.
func (c *checks) done(name string, changed bool, format string, args ...any) {
	c.add(map[bool]state{true: stateChanged, false: stateOK}[changed], name, "", format, args...)
}

// failed also takes the remedy.
func (c *checks) failed(name, remedy, format string, args ...any) {
	c.add(stateFailed, name, remedy, format, args...)
}

// good reports whether nothing is left to do.
func (c *checks) good() bool {
	return !slices.ContainsFunc(*c, func(one check) bool { return one.State == stateFailed || one.State == stateMissing })
}

// report is the result of a command.
type report struct {
	Command string `json:"command"`
	// Applied: the command was allowed to change things.
	Applied bool   `json:"applied"`
	OK      bool   `json:"ok"`
	Checks  checks `json:"checks"`
	Summary string `json:"summary"`
}

// newReport sums up. canApply reports whether the command has --apply.
func newReport(command string, found checks, canApply, applied bool) report {
	var counts []string
	for _, s := range []state{stateOK, stateChanged, stateMissing, stateFailed, stateUnknown} {
		if n := len(list.Where(found, func(one check) bool { return one.State == s })); n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, s))
		}
	}
	summary := strings.Join(counts, ", ") + "."
	switch {
	case applied:
	case canApply:
		summary += " Nothing was changed: without --apply this only looks."
	default:
		summary += " Nothing was changed: this only looks."
	}
	return report{Command: command, Applied: applied, OK: found.good(), Checks: found, Summary: summary}
}

func (r report) good() bool { return r.OK }

// text writes a line for each check, and its remedy below it.
func (r report) text(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.DiscardEmptyColumns)
	for _, one := range r.Checks {
		fmt.Fprintf(table, "%s\t%s\t%s\n", one.Name, one.State, one.Found)
		if one.Remedy != "" {
			fmt.Fprintf(table, "\t\t-> %s\n", one.Remedy)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, r.Summary)
	return err
}

// formats are those of --output: for people, and the result as JSON or YAML.
var formats = []string{"text", "json", "yaml"}

// result is what a command found. As JSON and YAML it is printed as it is.
type result interface {
	// text writes it for people.
	text(io.Writer) error
	// good reports whether nothing is left to do.
	good() bool
}

// print writes a result in one of the formats to the standard output.
func (s surroundings) print(r result, format string) error {
	switch format {
	case "json":
		encoder := json.NewEncoder(s.out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	case "yaml":
		text, err := yaml.Marshal(r)
		if err == nil {
			_, err = s.out.Write(text)
		}
		return err
	}
	return r.text(s.out)
}

// table writes rows below the titles of their columns; nothing if there are none.
func table[T any](w io.Writer, titles string, rows []T, cells func(T) []any) error {
	if len(rows) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ReplaceAll(titles, ",", "\t"))
	for _, row := range rows {
		for i, cell := range cells(row) {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			if cell == "" {
				cell = "-"
			}
			fmt.Fprint(t, cell)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// trouble is why there is no result, and what to do.
type trouble struct {
	Problem string `json:"problem,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
}

func (t trouble) text(w io.Writer) {
	if t.Problem != "" {
		fmt.Fprintln(w, t.Problem)
	}
	if t.Remedy != "" {
		fmt.Fprintf(w, "  -> %s\n", t.Remedy)
	}
}

// endWith prints a problem with its remedy, and returns the exit code.
func (s surroundings) endWith(problem, remedy string) int {
	trouble{"error: " + problem, remedy}.text(s.err)
	return exitFailed
}

// ending is what the result of a list ends with.
type ending struct {
	trouble
	Summary string `json:"summary"`
}

// end writes it after the rest, unless writing that failed.
func (e ending) end(w io.Writer, err error) error {
	if err != nil {
		return err
	}
	e.trouble.text(w)
	_, err = fmt.Fprintln(w, e.Summary)
	return err
}
