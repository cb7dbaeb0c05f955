// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// documents are all pages that users read, by their paths from here.
func documents(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "adr/*.md", "../*.md", "../charts/*/README.md"} {
		pages, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pages...)
	}
	if !slices.Contains(all, filepath.Join("..", "README.md")) || len(all) < 20 {
		t.Fatalf("%d documents were found: %v", len(all), all)
	}
	return all
}

var (
	heading = regexp.MustCompile(`(?m)^#+ +(.*?) *$`)
	link    = regexp.MustCompile(`\[[^\]]*\]\(([^()\s]+)\)`)
	anchor  = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
)

// anchors are what links into a page may lead to, as GitHub makes them of its headings.
func anchors(page string) map[string]bool {
	known := map[string]bool{}
	for _, found := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		slug := slugOf(found[1])
		unique := slug
		for n := 1; known[unique]; n++ {
			unique = slug + "-" + strconv.Itoa(n)
		}
		known[unique] = true
	}
	for _, found := range anchor.FindAllStringSubmatch(page, -1) {
		known[found[1]] = true
	}
	return known
}

// slugOf is the anchor of a heading.
func slugOf(title string) string {
	title = link.ReplaceAllStringFunc(title, func(l string) string { return l[1:strings.Index(l, "]")] })
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}

func TestSlugOf(t *testing.T) {
	for title, want := range map[string]string{
		"A static address":                                "a-static-address",
		"Zones: `status.failureDomains`":                  "zones-statusfailuredomains",
		"Hosts: which of those that are left":             "hosts-which-of-those-that-are-left",
		"The machine's console and logs":                  "the-machines-console-and-logs",
		"Of [lxd-hosts](host-clusters.md) -- and `x_y.z`": "of-lxd-hosts----and-x_yz",
	} {
		if got := slugOf(title); got != want {
			t.Errorf("slugOf(%q) = %q, want %q", title, got, want)
		}
	}
}

// Each link to a file of the repository, and to a heading in it, leads somewhere.
func TestLinksLeadSomewhere(t *testing.T) {
	links := 0
	for _, document := range documents(t) {
		page := fenced.ReplaceAllString(read(t, document), "")
		for _, found := range link.FindAllStringSubmatch(page, -1) {
			target, fragment, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			links++
			file := document
			if target != "" {
				file = filepath.Join(filepath.Dir(document), filepath.FromSlash(target))
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: link to %s: %v", document, found[1], err)
				continue
			}
			if fragment != "" && !anchors(read(t, file))[fragment] {
				t.Errorf("%s: link to %s: there is no such heading", document, found[1])
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links were found: the pattern is wrong", links)
	}
}

// Whoever looks for a page finds it in the README's index, by its task. The decision records are in an index of their own.
func TestEveryPageIsInTheIndex(t *testing.T) {
	index, indexed := section(t, filepath.Join("..", "README.md"), "Documents"), map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^- \[[^\]]+\]\((\S+\.md)\): \S`).FindAllStringSubmatch(index, -1) {
		indexed[filepath.Join("..", filepath.FromSlash(found[1]))] = true
	}
	here := filepath.Join("..", "docs")
	for _, document := range documents(t) {
		page := filepath.Join(here, document)
		record, _ := filepath.Match(filepath.Join(here, "adr", "[0-9]*"), page)
		if page != filepath.Join("..", "README.md") && !record && !indexed[page] {
			t.Errorf("README.md's index lacks %s: the site has no place for it", document)
		}
	}
}
