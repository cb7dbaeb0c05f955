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

	"github.com/capmaas/cluster-api-provider-maas/internal/reasons"
)

const troubleshootingPage = "troubleshooting.md"

// A page that says which reason something has names one that there is.
func TestReasonsThatDocumentsNameExist(t *testing.T) {
	seen := 0
	named := regexp.MustCompile("(?:says?|said|becomes|reasons?(?: is)?) `([A-Z][A-Za-z]+)`")
	for _, document := range documents(t) {
		for _, found := range named.FindAllStringSubmatch(read(t, document), -1) {
			seen++
			if reasons.Of(found[1]) == (reasons.Reason{}) {
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
	controllers := filepath.Join("..", "controllers", "*")
	events := slices.Concat(eventsOf(t, controllers, "Eventf", 3), eventsOf(t, controllers, "Warn", 1), eventsOf(t, controllers, "Tell", 1),
		eventsOf(t, filepath.Join("..", "cmd", "lxd-initializer"), "event", 1))
	for _, event := range events {
		if listed[event] == "" {
			t.Errorf("%s does not say what the event %s means", troubleshootingPage, event)
		}
	}
}
