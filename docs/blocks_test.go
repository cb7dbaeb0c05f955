// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/document"
)

// notRun are the blocks of commands that no test runs as a reader would: by the reason, and by their pages, what they
// begin with.
var notRun = map[string]map[string][]string{
	"a target of make is a suite, or a build, that is run by itself; TestMakeTargetsInDocumentsExist": {
		"../README.md":        {"# A simulated MAAS", "make docker-build"},
		"conformance-capi.md": {"make conformance-capi", "export CAPI_CONFORMANCE_KUBECONFIG"},
		"development.md":      {"make tools build", "make chaos", "make test PKG=./pkg/lxdhost"},
		"lxd-versions.md":     {"CAPMAAS_LXD=/path/to/lxd make test"},
		"making-a-release.md": {"make release"},
		"quick-start.md":      {"make build", "make docker-build"},
	},
	"MAAS's own shell": {
		"hardware-checks.md": {"#!/usr/bin/env bash", "maas admin node-scripts create", "kubectl get maasmachines"},
		"host-clusters.md": {
			"maas admin vm-host update", "maas admin resource-pools create", "maas $PROFILE machine read", "maas $PROFILE interfaces read", "of() {",
		},
		"maas-4.md": {
			"capmaasctl check maas --maas-endpoint=http://maas.example.com:5240/MAAS --maas-api-key-file=key\nmaas admin vm-hosts read",
			"capmaasctl check maas --maas-endpoint=http://maas.example.com:5240/MAAS --maas-api-key-file=key\nmaas admin machine query",
		},
		"quick-start.md": {"maas login"},
		"security.md":    {"GROUP=$(maas admin"},
	},
	"a real machine, with systemd, snapd, or an LXD of its own; cmd/capmaasctl checks real LXDs, e2e/hosts and e2e/real have nodes": {
		"host-clusters.md":   {"snap wait system", "snap download"},
		"lxdhost-objects.md": {"lxc storage create"},
		"maas-4.md":          {"sudo capmaasctl check lxd"},
		"operator-checks.md": {"hack/build-and-transfer.sh", "sudo ./capmaasctl check lxd"},
		"quick-start.md":     {"sudo capmaasctl check lxd"},
		"troubleshooting.md": {"sudo cat"},
	},
	"the internet: releases of others, or ours, of which there is none yet": {
		"bootstrap-providers.md":   {"clusterctl init --bootstrap k3s", "clusterctl init --bootstrap canonical"},
		"capmaasctl.md":            {"rm -rf ~/.krew"},
		"host-clusters.md":         {"clusterctl get kubeconfig hosts"},
		"hosted-control-planes.md": {"CACPPK_SKIP_INFRA_CLUSTER_PATCH=true clusterctl init"},
		"making-a-release.md":      {"identity="},
		"quick-start.md":           {"export PATH=$PWD/bin", "CLUSTER_TOPOLOGY=true clusterctl init", "kubectl --kubeconfig my-cluster.kubeconfig apply"},
	},
	"a kubelet that serves the logs of pods: the sandbox's does not": {
		"../.github/ISSUE_TEMPLATE/bug.md": {"kubectl logs"},
		"troubleshooting.md":               {"kubectl logs"},
	},
}

// Each block of commands is run by a test, which names it as its page does, or is not, for a reason.
func TestEveryCommandOfADocumentIsRun(t *testing.T) {
	run, seen := stepsInTests(t), 0
	excused := map[string]map[string]string{} // by page and beginning
	for reason, pages := range notRun {
		for page, beginnings := range pages {
			for _, beginning := range beginnings {
				if excused[page] == nil {
					excused[page] = map[string]string{}
				}
				excused[page][beginning] = reason
			}
		}
	}
	for _, page := range append(documents(t), filepath.Join("..", ".github", "ISSUE_TEMPLATE", "bug.md")) {
		names := map[string]bool{}
		for _, block := range document.Blocks(read(t, page)) {
			seen++
			first, _, _ := strings.Cut(block.Script, "\n")
			if block.Step != "" {
				if names[block.Step] {
					t.Errorf("%s has two blocks %q", page, block.Step)
				}
				names[block.Step] = true
				if !run[filepath.Base(page)][block.Step] {
					t.Errorf("%s: no test runs the block %q", page, block.Step)
				}
				continue
			}
			why := ""
			for beginning := range excused[filepath.ToSlash(page)] {
				if strings.HasPrefix(block.Script, beginning) {
					why = beginning
				}
			}
			if why == "" {
				t.Errorf("%s: no test runs %q: name the block with <!-- run: NAME -->, and run it, or say in notRun why not", page, first)
			}
			delete(excused[filepath.ToSlash(page)], why)
		}
	}
	for page, beginnings := range excused {
		for beginning := range beginnings {
			t.Errorf("notRun: %s has no block that begins with %q and is not run", page, beginning)
		}
	}
	if seen < 100 {
		t.Errorf("only %d blocks were found: the pattern is wrong", seen)
	}
}

// stepsInTests are the literals in tests that use a document's shell, by the pages that tests of the same package name:
// a page's step that is run is one of them.
func stepsInTests(t *testing.T) map[string]map[string]bool {
	t.Helper()
	literals := map[string][]string{} // by directory
	opens := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "bin" || entry.Name() == "out"):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"), path == filepath.Join("..", "docs", "blocks_test.go"): // which names all pages
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, uses := filepath.Dir(path), false
		inFile := map[string]bool{}
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.SelectorExpr:
				of, ok := node.X.(*ast.Ident)
				opens[dir] = opens[dir] || ok && of.Name == "document" && node.Sel.Name == "Open"
				uses = uses || ok && of.Name == "document" || node.Sel.Name == "shell"
			case *ast.BasicLit:
				if text, err := strconv.Unquote(node.Value); err == nil && node.Kind == token.STRING {
					inFile[text] = true
				}
			}
			return true
		})
		for text := range inFile {
			if uses || strings.HasSuffix(text, ".md") {
				literals[dir] = append(literals[dir], text)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	steps := map[string]map[string]bool{}
	for dir := range opens {
		for _, text := range literals[dir] {
			if page := filepath.Base(text); strings.HasSuffix(page, ".md") {
				if steps[page] == nil {
					steps[page] = map[string]bool{}
				}
				for _, step := range literals[dir] {
					steps[page][step] = true
				}
			}
		}
	}
	return steps
}
