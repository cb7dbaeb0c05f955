// SPDX-License-Identifier: Apache-2.0

package needs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// required is set where a test of this package that is skipped must fail.
const required = "CAPMAAS_REQUIRE_NOTHING"

// What was skipped is named at the end, once, by package and by what it lacks.
func TestWhatWasSkippedIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "skipped")
	if got := summary(t, file); got != "" {
		t.Errorf("nothing was skipped, and there is %q", got)
	}
	t.Setenv(FileVariable, file)
	why := errors.New("there is no such program:\n\tinstall it")
	for range 2 {
		t.Run("of it", func(t *testing.T) { Skip(t, why, required) })
	}
	Without(t, errors.New("not root"), required)
	want := "\nSkipped, or tested in part: not root\n  test/needs: TestWhatWasSkippedIsNamed\n" +
		"\nSkipped, or tested in part: there is no such program: install it\n  test/needs: TestWhatWasSkippedIsNamed\n"
	if got := summary(t, file); got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}

// failing is a test that is not run.
type failing struct {
	testing.TB
	failed, skipped bool
}

func (f *failing) Helper()               {}
func (f *failing) Name() string          { return "TestX" }
func (f *failing) Fatalf(string, ...any) { f.failed = true }
func (f *failing) Skip(...any)           { f.skipped = true }

func TestWhatIsRequiredFails(t *testing.T) {
	t.Setenv(FileVariable, "")
	f := &failing{TB: t}
	Skip(f, errors.New("no"), required)
	if f.failed || !f.skipped {
		t.Errorf("%+v, want it to be skipped", f)
	}
	t.Setenv(required, "1")
	if Skip(f, errors.New("no"), required); !f.failed {
		t.Error("it is skipped where it is required")
	}
}

func summary(t *testing.T, file string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), filepath.Join(root, "hack", "skipped.sh"), file)
	command.Dir, command.Stderr = root, os.Stderr
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
