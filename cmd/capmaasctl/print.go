// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"
)

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

// table writes lines below the titles of their columns.
func table(w io.Writer, titles string, lines [][]any) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ReplaceAll(titles, ",", "\t"))
	for _, line := range lines {
		for i, cell := range line {
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
