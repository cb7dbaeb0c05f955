// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLinesAreCutOffAtTheWidth(t *testing.T) {
	l := line{{"machine  ", plain}, {"Running", green}, {"  a long\nmessage", dim}}
	for name, tt := range map[string]struct {
		width int
		color bool
		want  string
	}{
		"all":        {80, false, "machine  Running  a long message"},
		"part":       {20, false, "machine  Running  a"},
		"first only": {5, false, "machi"},
		"colors":     {18, true, "machine  \x1b[32mRunning\x1b[0m\x1b[2m  \x1b[0m"},
		"no room":    {0, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, l.render(tt.width, tt.color)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTableAlignsColumns(t *testing.T) {
	var got []string
	for _, l := range table([]line{{{"A", plain}, {"B", plain}, {"", plain}}, {{"long", plain}, {"x", plain}, {"message", plain}}}) {
		got = append(got, l.render(80, false))
	}
	if diff := cmp.Diff([]string{"A     B", "long  x  message"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A file is no terminal: nothing but lines is written to it.
func TestNoFrameWithoutTerminal(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	s := newScreen(file)
	s.paint([]line{{{"frame", bold}}})
	s.print("one", "two")
	s.close()
	got, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("one\ntwo\n", string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}
