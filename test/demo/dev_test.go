// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// manager counts how often it is reloaded, which fails the first time.
type manager struct{ reloaded int }

var errBuild = errors.New("controllers/x.go:1:1: syntax error")

func (m *manager) Reload(context.Context) error {
	m.reloaded++
	if m.reloaded == 1 {
		return errBuild
	}
	return nil
}

// Each line of input is one reload; why one failed is shown, and the next is tried all the same.
func TestEachLineReloads(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "screen"))
	if err != nil {
		t.Fatal(err)
	}
	out := newScreen(file)
	m := &manager{}
	for range linesOf(strings.NewReader("\n\nanything\n")) {
		reload(t.Context(), out, m)
	}
	out.close()
	if m.reloaded != 3 {
		t.Errorf("reloaded %d times, want 3", m.reloaded)
	}
	shown, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(shown), errBuild.Error()) != 1 || strings.Count(string(shown), "runs anew") != 2 {
		t.Errorf("the screen shows:\n%s", shown)
	}
}

// Flags that ask for different things exclude each other.
func TestOneFlagAtMost(t *testing.T) {
	for _, tc := range []struct {
		opts options
		want bool
	}{
		{options{}, true},
		{options{dev: true, keep: true}, true},
		{options{once: true}, true},
		{options{dev: true, once: true}, false},
		{options{dev: true, empty: true}, false},
		{options{once: true, empty: true}, false},
		{options{once: true, real: true, upgrade: true}, true},
		{options{drain: true, real: true}, false},
		{options{upgrade: true}, false},
		{options{once: true, mixed: true}, true},
		{options{mixed: true, drain: true}, false},
	} {
		if got := tc.opts.oneAtMost(); got != tc.want {
			t.Errorf("%+v: %t, want %t", tc.opts, got, tc.want)
		}
	}
}
