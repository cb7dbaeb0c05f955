// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write the overview anew")

// The overview fits on a screen, and says what each word does.
func TestOverview(t *testing.T) {
	got := call(t, "", nil, "capmaasctl", "--help").stdout
	path := filepath.Join("testdata", "overview.txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the overview changed; if that is wanted: go test ./cmd/capmaasctl -run TestOverview -args -update\n%s", diff)
	}
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if len(lines) > 30 {
		t.Errorf("it has %d lines, which fit on no screen", len(lines))
	}
	for _, line := range lines {
		if len(line) > helpWidth {
			t.Errorf("%d columns fit on no screen: %s", len(line), line)
		}
	}
	p, root := newProgram(surroundings{}, "capmaasctl")
	for _, c := range everyCommand(root) {
		if p.doers[c] != nil && !strings.Contains(got, "  "+strings.TrimPrefix(c.CommandPath(), "capmaasctl ")+" ") {
			t.Errorf("the overview lacks %s", c.CommandPath())
		}
	}
}

// Each command says what it does, has an example that it accepts, and is in a group.
func TestEveryCommandIsDescribed(t *testing.T) {
	p, root := newProgram(surroundings{}, "capmaasctl")
	titles := map[string]bool{"": true}
	for _, group := range groups {
		titles[group.ID] = true
	}
	for _, c := range everyCommand(root)[1:] {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") || !unicode.IsUpper(rune((c.Short + " ")[0])) {
			t.Errorf("%s: %q is no line of help", c.CommandPath(), c.Short)
		}
		if top := c.Parent() == root; top != (c.GroupID != "") || !titles[c.GroupID] {
			t.Errorf("%s is in the group %q", c.CommandPath(), c.GroupID)
		}
		this := p.doers[c]
		if this == nil {
			continue
		}
		help := call(t, "", nil, append(strings.Fields(c.CommandPath()), "--help")...).stdout
		for line := range strings.Lines(help) {
			if len(line) > helpWidth+1 && !strings.HasPrefix(line, "  capmaasctl ") {
				t.Errorf("%s: %d columns fit on no screen: %s", c.CommandPath(), len(line), line)
			}
		}
		if _, err := os.Stat(filepath.Join("..", "..", "docs", this.page)); err != nil {
			t.Errorf("%s: %v", c.CommandPath(), err)
		}
		if (this.find == nil) == (this.act == nil) {
			t.Errorf("%s has find and act, or none", c.CommandPath())
		}
		if got := c.Flags().Lookup("output") != nil; got != (this.find != nil) {
			t.Errorf("%s has --output: %v", c.CommandPath(), got)
		}
		for _, line := range strings.Split(strings.TrimSpace(c.Example), "\n") {
			if !strings.HasPrefix(strings.TrimSpace(line), c.CommandPath()) {
				t.Errorf("%s: %q is no example of it", c.CommandPath(), line)
			}
		}
		for line := range strings.Lines(this.example) {
			line, _, _ = strings.Cut(line, "<")
			words := strings.Fields(strings.ReplaceAll(line, "'new disks'", "disks"))
			fresh, root := newProgram(surroundings{}, append([]string{"capmaasctl"}, words...)...)
			found, rest, err := root.Find(fresh.args)
			if err != nil || found.CommandPath() != c.CommandPath() {
				t.Errorf("%s: the example %q is of %s (%v)", c.CommandPath(), line, found.CommandPath(), err)
			}
			names, least := this.operands()
			if problems := slips(found.Flags(), rest); len(problems) > 0 || found.Flags().NArg() < least || found.Flags().NArg() > len(names) {
				t.Errorf("%s: the example %q: %q, %q", c.CommandPath(), line, problems, found.Flags().Args())
			}
		}
	}
}

// A flag has one meaning: what it is for, its type and its letter are the same wherever it is. Only its default may differ.
func TestAFlagHasOneMeaning(t *testing.T) {
	_, root := newProgram(surroundings{}, "capmaasctl")
	type meaning struct{ usage, kind, letter string }
	known, letters := map[string]meaning{}, map[string]string{}
	for _, c := range everyCommand(root) {
		if c.Name() == completionCommand || c.HasParent() && c.Parent().Name() == completionCommand {
			continue // They are cobra's.
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			is := meaning{f.Usage, f.Value.Type(), f.Shorthand}
			if before, seen := known[f.Name]; seen && before != is {
				t.Errorf("%s: --%s is %v, and elsewhere %v", c.CommandPath(), f.Name, is, before)
			}
			known[f.Name] = is
			if before := letters[f.Shorthand]; f.Shorthand != "" && before != "" && before != f.Name {
				t.Errorf("-%s is --%s, and elsewhere --%s", f.Shorthand, f.Name, before)
			}
			letters[f.Shorthand] = f.Name
			if !strings.HasSuffix(f.Usage, ".") {
				t.Errorf("--%s: %q is no sentence", f.Name, f.Usage)
			}
			if complaints[f.Value.Type()] == "" && !slices.Contains([]string{"string", "stringArray"}, f.Value.Type()) {
				t.Errorf("--%s: nothing is said of a wrong %s", f.Name, f.Value.Type())
			}
		})
	}
	if len(known) < 30 {
		t.Errorf("only %d flags were found", len(known))
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := call(t, "", nil, "capmaasctl", "completion", shell); got.code != exitOK || !strings.Contains(got.stdout, "__complete") {
			t.Errorf("%s: %+v", shell, got)
		}
	}
	for line, want := range map[string]string{
		"capmaasctl __complete ho":               "host\t",
		"capmaasctl __complete host d":           "drain\t",
		"capmaasctl __complete plan -o y":        "yaml",
		"capmaasctl __complete check lxd --stor": "--storage-pool\t",
		"kubectl_complete-capmaas image up":      "upload\t",
	} {
		if got := call(t, "", nil, strings.Fields(line)...); got.code != exitOK || !strings.Contains(got.stdout, want) {
			t.Errorf("%s: %+v, want %q", line, got, want)
		}
	}
}

func TestFormats(t *testing.T) {
	for format, want := range map[string]string{"text": "capmaasctl dev (", "json": "{\n  \"version\": \"dev\",\n", "yaml": "version: dev\n"} {
		if got := call(t, "", nil, "capmaasctl", "version", "--output", format); got.code != exitOK || !strings.Contains(got.stdout, want) {
			t.Errorf("%s: %+v, want %q", format, got, want)
		}
	}
}
