// SPDX-License-Identifier: Apache-2.0

// Package figures holds the project to its figures: what a machine may cost other servers, in one file.
package figures

import (
	_ "embed"
	"fmt"
	"os"
	"runtime"
	"testing"

	"sigs.k8s.io/yaml"
)

//go:embed figures.yaml
var file []byte

// Range is what a figure may be, both ends included.
type Range [2]int

// All returns the ranges of figures.yaml: for each subject those of its figures.
func All() (all map[string]map[string]Range, err error) {
	err = yaml.UnmarshalStrict(file, &all)
	return all, err
}

// Check fails a test whose figure is not in its range. It appends each figure to the file CAPMAAS_FIGURES, if that is set.
func Check(t testing.TB, subject, figure string, got int) {
	t.Helper()
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	want, known := all[subject][figure]
	line := fmt.Sprintf("%s: %s: %d (%d to %d)", subject, figure, got, want[0], want[1])
	if !known || got < want[0] || got > want[1] {
		t.Errorf("figures.yaml is not met: %s", line)
	}
	if path := os.Getenv("CAPMAAS_FIGURES"); path != "" {
		out, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		if _, err := fmt.Fprintln(out, line); err != nil {
			t.Fatal(err)
		}
	}
}

// Heap returns how many bytes are in use.
func Heap() int {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}
