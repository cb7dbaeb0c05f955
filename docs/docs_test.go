// SPDX-License-Identifier: Apache-2.0

// Package docs_test checks what the documents say of the code.
package docs_test

import (
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var (
	declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	named    = regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)[`/]")
)

// testsOf are the names of all tests of the repository.
func testsOf(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, found := range declared.FindAllStringSubmatch(read(t, path), -1) {
			tests[found[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

// What is tested by a test that was renamed or removed is not.
func TestTheTestsThatDocumentsNameExist(t *testing.T) {
	tests, names := testsOf(t), 0
	for _, document := range documents(t) {
		for _, found := range named.FindAllStringSubmatch(read(t, document), -1) {
			names++
			if !tests[found[1]] {
				t.Errorf("%s names %s, which does not exist", document, found[1])
			}
		}
	}
	if names == 0 {
		t.Error("no document names a test: the pattern is wrong")
	}
}

// A promise without a test is none.
func TestEveryPromiseIsAttacked(t *testing.T) {
	attacks := map[string][]string{}
	if err := yaml.UnmarshalStrict([]byte(read(t, "promises.yaml")), &attacks); err != nil {
		t.Fatal(err)
	}
	tests := testsOf(t)
	promises, _, _ := strings.Cut(read(t, "reliability.md"), "\n## What is not promised")
	for _, found := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(promises, -1) {
		promise := slugOf(found[1])
		if len(attacks[promise]) == 0 {
			t.Errorf("promises.yaml names no test that attacks %q", promise)
		}
		for _, test := range attacks[promise] {
			if !tests[test] {
				t.Errorf("promises.yaml: %s names %s, which does not exist", promise, test)
			}
		}
		delete(attacks, promise)
	}
	for promise := range attacks {
		t.Errorf("promises.yaml: reliability.md does not promise %q", promise)
	}
}

// What reliability.md says of the model is a sentence of it, and each sentence of the model is a promise.
func TestThePromisesOfTheModelAreThose(t *testing.T) {
	models, err := filepath.Glob(filepath.Join("..", "model", "*.pml"))
	if err != nil {
		t.Fatal(err)
	}
	states, named := map[string]bool{}, map[string]bool{}
	for _, model := range models {
		for _, found := range regexp.MustCompile(`(?:(?:promise|also)\(|\bltl )([A-Z]\w+)`).FindAllStringSubmatch(read(t, model), -1) {
			states[found[1]] = true
		}
	}
	for _, line := range regexp.MustCompile(`(?m)^In the model: .*$`).FindAllString(read(t, "reliability.md"), -1) {
		for _, found := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(line, -1) {
			named[found[1]] = true
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(states)), slices.Sorted(maps.Keys(named))); diff != "" {
		t.Errorf("sentences (-model +reliability.md):\n%s", diff)
	}
	if len(named) < 5 {
		t.Errorf("only %d sentences were found: a pattern is wrong", len(named))
	}
}

// Each kind has one row in the table of the objects.
func TestEveryKindIsInTheTableOfTheObjects(t *testing.T) {
	table, kinds := section(t, "concepts.md", "The objects"), 0
	crds, err := filepath.Glob(filepath.Join("..", "charts", "capmaas", "files", "crds", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		for _, found := range regexp.MustCompile(`(?m)^    kind: (\w+)$`).FindAllStringSubmatch(read(t, crd), -1) {
			kinds++
			if rows := regexp.MustCompile("(?m)^\\|[^|]*`"+found[1]+"`").FindAllString(table, -1); len(rows) != 1 {
				t.Errorf("concepts.md has %d rows for %s", len(rows), found[1])
			}
		}
	}
	if kinds < 7 {
		t.Errorf("only %d kinds were found: the pattern is wrong", kinds)
	}
}

// LXDHosts are rarely in the user's own namespace: without another, kubectl finds none.
func TestLXDHostsAreLookedForInANamespace(t *testing.T) {
	for _, document := range documents(t) {
		for line := range strings.Lines(read(t, document)) {
			looks := regexp.MustCompile(`kubectl get (?:lxdhosts?|lxh)\b`).MatchString(line)
			if looks && !regexp.MustCompile(`(?:--all-namespaces|--namespace|-A\b|-n )`).MatchString(line) {
				t.Errorf("%s: %s", document, line)
			}
		}
	}
}
