// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	flavorsPage    = "flavors.md"
	everyFlavor    = "Variables"
	templatePrefix = "cluster-template"
)

// variable is one of clusterctl's in a template: ${NAME}, ${NAME:=default}.
var variable = regexp.MustCompile(`\$\{([A-Z_0-9]+)(?::?=(\$\{[A-Z_0-9]+\}|[^}]*))?\}`)

// variablesOf are the variables of a template, with their defaults.
func variablesOf(t *testing.T, template string) map[string]string {
	t.Helper()
	defaults := map[string]string{}
	text := read(t, template)
	// A default may itself be a variable.
	for _, found := range variable.FindAllStringSubmatch(text, -1) {
		defaults[found[1]] = max(defaults[found[1]], found[2])
		for _, inner := range variable.FindAllStringSubmatch(found[2], -1) {
			defaults[inner[1]] = max(defaults[inner[1]], inner[2])
		}
	}
	return defaults
}

// flavors are the templates by the names of their flavors.
func flavors(t *testing.T) map[string]string {
	t.Helper()
	templates, err := filepath.Glob(filepath.Join("..", "templates", templatePrefix+"*.yaml"))
	if err != nil || len(templates) < 7 {
		t.Fatalf("%d templates: %v", len(templates), err)
	}
	named := map[string]string{}
	for _, template := range templates {
		name := strings.TrimPrefix(strings.TrimSuffix(filepath.Base(template), ".yaml"), templatePrefix)
		named[strings.TrimPrefix(name, "-")] = template
	}
	return named
}

// section is what stands below a heading, up to the next one of its level or above.
func section(t *testing.T, page, title string) string {
	t.Helper()
	text := read(t, page)
	for _, at := range heading.FindAllStringSubmatchIndex(text, -1) {
		if strings.Trim(text[at[2]:at[3]], "`") != title {
			continue
		}
		level, below := strings.Index(text[at[0]:], " "), text[at[1]:]
		if next := regexp.MustCompile(`(?m)^#{1,` + string(rune('0'+level)) + `} `).FindStringIndex(below); next != nil {
			below = below[:next[0]]
		}
		return below
	}
	t.Errorf("%s has no heading %q", page, title)
	return ""
}

// rows are the rows of tables in a text, by what their first cells quote.
func rows(text string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(text) {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		for _, name := range quoted.FindAllStringSubmatch(cells[0], -1) {
			found[name[1]] = strings.Join(cells[1:], " | ")
		}
	}
	return found
}

// Each flavor says which variables it takes, with the default that the template has; and no other.
func TestEveryVariableOfEveryFlavorIsDocumented(t *testing.T) {
	common := rows(section(t, flavorsPage, everyFlavor))
	for flavor, template := range flavors(t) {
		title := flavor
		if flavor == "" {
			title = "default"
		}
		own, variables := rows(section(t, flavorsPage, title)), variablesOf(t, template)
		for name, value := range variables {
			row, documented := own[name], own[name] != ""
			if !documented {
				row, documented = common[name], common[name] != ""
			}
			switch {
			case !documented:
				t.Errorf("%s: the flavor %q does not name %s", flavorsPage, title, name)
			case value != "" && !strings.HasPrefix(row, "`"+value+"`"):
				t.Errorf("%s: the flavor %q has %s by default in %s, and says %q", flavorsPage, title, value, name, row)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(common)) {
			if _, there := variables[name]; !there {
				t.Errorf("%s: %s is not a variable of the flavor %q", flavorsPage, name, title)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(own)) {
			if _, there := variables[name]; !there {
				t.Errorf("%s: the flavor %q names %s, which it does not have", flavorsPage, title, name)
			}
		}
	}
}
