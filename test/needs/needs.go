// SPDX-License-Identifier: Apache-2.0

// Package needs is for tests that need what not every computer has: a program, or rights. Where it is missing they are
// skipped, and `make test` names them at its end.
package needs

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// FileVariable names the file that gets a line for each test that was skipped, or that tested less: its directory, its
// name and what is missing, with tabs between them.
const FileVariable = "CAPMAAS_SKIPPED"

// Skip skips a test because of what is missing, and fails it where the variable required is set.
func Skip(t testing.TB, missing error, required string) {
	t.Helper()
	note(t, missing, required)
	t.Skip(missing)
}

// Without is Skip for a test that goes on, and tests less.
func Without(t testing.TB, missing error, required string) {
	t.Helper()
	note(t, missing, required)
	t.Logf("it tests less: %v", missing)
}

func note(t testing.TB, missing error, required string) {
	t.Helper()
	if os.Getenv(required) != "" {
		t.Fatalf("%s is set, but: %v", required, missing)
	}
	if err := add(os.Getenv(FileVariable), t.Name(), missing); err != nil {
		t.Error(err)
	}
}

// add adds a line to a file; tests of several processes do.
func add(file, test string, missing error) error {
	if file == "" {
		return nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("naming a skipped test: %w", err)
	}
	to, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("naming a skipped test: %w", err)
	}
	line := strings.Join([]string{dir, test, strings.Join(strings.Fields(missing.Error()), " ")}, "\t") + "\n"
	if _, err := to.WriteString(line); err != nil {
		return fmt.Errorf("naming a skipped test: %w", err)
	}
	return to.Close()
}
