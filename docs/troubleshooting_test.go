// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	troubleshootingPage = "troubleshooting.md"
	progressReasons     = "Reasons of progress"
)

// A reason that needs an operator has a heading of its own, with what it means and what is to be done. One that
// needs no operator has a row in a table. Nothing else is listed: a reason that is gone misleads.
func TestEveryReasonIsDocumented(t *testing.T) {
	all := section(t, troubleshootingPage, "Reasons")
	progress := rows(section(t, troubleshootingPage, progressReasons))
	reasons := reasonsOf(t, filepath.Join("..", "api", "v1beta1"))
	titles := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^#### (.*)$`).FindAllStringSubmatch(all, -1) {
		titles[found[1]] = true
	}
	for _, reason := range reasons {
		_, needsNobody := progress[reason]
		if titles[reason] == needsNobody {
			t.Errorf("%s: %s needs either a heading of its own, or a row in %q", troubleshootingPage, reason, progressReasons)
		}
	}
	for title := range titles {
		if !slices.Contains(reasons, title) {
			t.Errorf("%s explains %s, which is no reason", troubleshootingPage, title)
		}
		entry := section(t, troubleshootingPage, title)
		if meaning, remedy, found := strings.Cut(entry, "\n- **You**: "); !found || strings.TrimSpace(meaning) == "" || strings.TrimSpace(remedy) == "" {
			t.Errorf("%s: %s lacks what it means, or what is to be done", troubleshootingPage, title)
		}
	}
	for reason := range progress {
		if !slices.Contains(reasons, reason) {
			t.Errorf("%s explains %s, which is no reason", troubleshootingPage, reason)
		}
	}
}

// A page that says which reason something has names one that there is.
func TestReasonsThatDocumentsNameExist(t *testing.T) {
	reasons, seen := reasonsOf(t, filepath.Join("..", "api", "v1beta1")), 0
	named := regexp.MustCompile("(?:says?|said|becomes|reasons?(?: is)?) `([A-Z][A-Za-z]+)`")
	for _, document := range documents(t) {
		for _, found := range named.FindAllStringSubmatch(read(t, document), -1) {
			seen++
			if !slices.Contains(reasons, found[1]) {
				t.Errorf("%s: %s: there is no such reason", document, found[0])
			}
		}
	}
	if seen < 5 {
		t.Errorf("only %d reasons were found: the pattern is wrong", seen)
	}
}

// eventsOf are the reasons, as literals, with which a package writes events: the argument at that place of calls of functions of that name.
func eventsOf(t *testing.T, dir, function string, argument int) (events []string) {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || len(call.Args) <= argument {
				return true
			}
			if called, ok := call.Fun.(*ast.SelectorExpr); !ok || called.Sel.Name != function {
				return true
			}
			if literal, ok := call.Args[argument].(*ast.BasicLit); ok {
				event, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				events = append(events, event)
			}
			return true
		})
	}
	if len(events) == 0 {
		t.Errorf("no event was found in %s: the pattern is wrong", dir)
	}
	return events
}

func TestEveryEventIsInTroubleshooting(t *testing.T) {
	listed := rows(section(t, troubleshootingPage, "Events"))
	events := append(eventsOf(t, filepath.Join("..", "controllers", "*"), "Eventf", 3), eventsOf(t, filepath.Join("..", "cmd", "lxd-initializer"), "event", 1)...)
	for _, event := range events {
		if listed[event] == "" {
			t.Errorf("%s does not say what the event %s means", troubleshootingPage, event)
		}
	}
}

// The reasons that the initializer puts into the condition of a Node are explained.
func TestEveryReasonOfANodeIsInTroubleshooting(t *testing.T) {
	listed := rows(section(t, troubleshootingPage, "A node does not become a VM host"))
	source := read(t, filepath.Join("..", "cmd", "lxd-initializer", "problem.go"))
	found := regexp.MustCompile(`(?m)^\treason\w+ += "(\w+)"$`).FindAllStringSubmatch(source, -1)
	if len(found) < 5 {
		t.Fatalf("only %d reasons were found: the pattern is wrong", len(found))
	}
	for _, reason := range found {
		if listed[reason[1]] == "" {
			t.Errorf("%s does not say what %s on a Node means", troubleshootingPage, reason[1])
		}
	}
}
