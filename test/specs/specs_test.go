// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/capmaas/cluster-api-provider-maas/test/chaos"
)

var crds = filepath.Join("..", "..", "charts", "capmaas", "files", "crds")

// change is a change of a spec to another one, both valid and as they are stored.
type change struct {
	Group
	from, to map[string]any
	refused  field.ErrorList
}

// changes returns the changes of a kind's specs that a user may try, and the valid specs of each field. Of the specs of a
// pair, those are changed that differ from the base or go back to it, unless a full attack is wanted.
func changes(t *testing.T, kind Kind) (all []change, valid map[string]map[string]bool) {
	t.Helper()
	judge, err := NewJudge(kind)
	if err != nil {
		t.Fatal(err)
	}
	seen, stored := map[string]bool{}, map[string]map[string]any{}
	valid = map[string]map[string]bool{}
	for _, group := range kind.Groups() {
		var specs []map[string]any
		for _, spec := range group.Specs {
			text := Text(spec)
			if _, judged := stored[text]; !judged {
				stored[text] = nil
				if made, problems := judge.Create(spec); len(problems) == 0 {
					stored[text] = made
				}
			}
			if made := stored[text]; made != nil {
				specs = append(specs, made)
			}
		}
		specs = unique(specs)
		if len(group.Fields) == 1 {
			path := group.Fields[0]
			if valid[path] == nil {
				valid[path] = map[string]bool{}
			}
			for _, spec := range specs {
				valid[path][Text(spec)] = true
			}
		}
		for i, from := range specs {
			for j, to := range specs {
				key := Text(from) + Text(to)
				if i == j || seen[key] || (len(group.Fields) > 1 && i > 0 && j > 0 && !chaos.Full()) {
					continue
				}
				seen[key] = true
				all = append(all, change{group, from, to, judge.Update(from, to)})
			}
		}
	}
	return all, valid
}

func kinds(t *testing.T) []Kind {
	t.Helper()
	all, err := Kinds(crds)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// remedy finds what a sentence tells users to do.
var remedy = regexp.MustCompile(`[:;,] (or, .*, )?(change|create|delete|make|remove|set|use) `)

// Each change between two valid specs is refused, by a sentence that names the field and the remedy, or has a row that
// says what comes of it, and each row is needed.
func TestEachChangeOfASpec(t *testing.T) {
	used := map[*Row]int{}
	for _, kind := range kinds(t) {
		t.Run(kind.Name, func(t *testing.T) {
			all, valid := changes(t, kind)
			for _, f := range kind.Fields() {
				if len(valid[f.Path]) < 2 && f.Path != ".template" && f.Path != ".template.spec" {
					t.Errorf("no two valid specs differ in %s: give it values in samples, or a base", f.Path)
				}
			}
			refused := 0
			for _, c := range all {
				if len(c.refused) > 0 {
					refused++
					c.checkRefusal(t)
					continue
				}
				for _, path := range c.Fields {
					if row := RowOf(kind.Name, path); row == nil {
						t.Errorf("%s of %q: no row says what a change from\n  %s to\n  %s leads to", path, c.Base, Text(c.from), Text(c.to))
					} else {
						used[row]++
						c.checkSame(t, row)
					}
				}
			}
			// Cluster API finds out by a dry run of a change of a template whether it has to make another one.
			if strings.HasSuffix(kind.Name, "Template") && refused > 0 {
				t.Errorf("rules refuse %d changes of a template", refused)
			}
			t.Logf("%d changes of %d fields: %d are refused, %d accepted", len(all), len(kind.Fields()), refused, len(all)-refused)
		})
	}
	for i := range Rows {
		if used[&Rows[i]] == 0 {
			t.Errorf("no change needs the row of %s%s", Rows[i].Kind, Rows[i].Field)
		}
	}
}

// checkRefusal checks that each sentence is about a field that was changed, or that contains such a field, and that it
// names the field and the remedy.
func (c change) checkRefusal(t *testing.T) {
	t.Helper()
	for _, problem := range c.refused {
		path := strings.TrimPrefix(index.ReplaceAllString(problem.Field, "[]"), "spec")
		about := slices.ContainsFunc(c.Fields, func(changed string) bool {
			return strings.HasPrefix(changed, path) || strings.HasPrefix(path, changed)
		})
		name := path[strings.LastIndex(path, ".")+1:]
		if !about || !strings.Contains(problem.Detail, name) || !remedy.MatchString(problem.Detail) {
			t.Errorf("%s of %q: the refusal %q of %s names not the field, or no remedy; from\n  %s to\n  %s", c.Fields, c.Base,
				problem.Detail, problem.Field, Text(c.from), Text(c.to))
		}
	}
}

var index = regexp.MustCompile(`\[[^\]]*\]`)

// checkSame checks that a field whose row says that only what is empty may come or go is empty before and after, if it was
// changed.
func (c change) checkSame(t *testing.T, row *Row) {
	t.Helper()
	name := strings.TrimPrefix(row.Field, ".")
	before, after := Text(map[string]any{"": c.from[name]}), Text(map[string]any{"": c.to[name]})
	if row.Effect != Same || before == after {
		return
	}
	for _, text := range []string{before, after} {
		if empty := []string{`{"":null}`, `{"":false}`, `{"":[]}`}; !slices.Contains(empty, text) {
			t.Errorf("%s of %q is changed to or from %s", c.Fields, c.Base, text)
		}
	}
}

// Users read of what does not follow at once.
func TestDescriptionsSayWhatDoesNotFollow(t *testing.T) {
	for _, kind := range kinds(t) {
		descriptions := map[string]string{"": kind.Description}
		for _, f := range kind.Fields() {
			descriptions[f.Path] = f.Schema.Description
		}
		for _, row := range Rows {
			if row.Kind != kind.Name {
				continue
			}
			text, is := descriptions[row.Field]
			if silent := row.Effect == Follows || row.Effect == Same; silent != (row.Says == "") || !is {
				t.Errorf("the row of %s%s: says %q, and the field exists: %v", row.Kind, row.Field, row.Says, is)
			}
			if !strings.Contains(strings.Join(strings.Fields(text), " "), row.Says) {
				t.Errorf("the description of %s%s does not say %q: %s", row.Kind, row.Field, row.Says, text)
			}
		}
	}
}
