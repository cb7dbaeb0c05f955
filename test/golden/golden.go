// SPDX-License-Identifier: Apache-2.0

// Package golden compares what tests get with files. With -update, they write these.
package golden

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Compare compares with a file.
func Compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s differs (-want +got); if that is wanted: go test -run %s -args -update\n%s", path, t.Name(), diff)
	}
}

// Sentences compares what wrong inputs lead to, by their names, with a file of test/golden/messages. All that users read about
// wrong inputs is there: each sentence names the field, what there is, and the remedy.
func Sentences(t *testing.T, file string, got map[string]string) {
	t.Helper()
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(got)) {
		sentence := strings.ReplaceAll(strings.TrimSpace(got[name]), "\n", "\n    ")
		if sentence == "" {
			t.Errorf("%s is not refused", name)
		}
		fmt.Fprintf(&text, "%s\n    %s\n", name, sentence)
	}
	Compare(t, filepath.Join(root(t), "test", "golden", "messages", file), text.String())
}

// root is the repository's directory.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	for ; err == nil && len(dir) > 1; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatalf("no directory above has a go.mod: %v", err)
	return ""
}
