// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Nothing of a line is lost, however narrow the terminal is.
func TestWideLinesGoOnInTheNextOne(t *testing.T) {
	l := line{{"machine  ", plain}, {"Running", green}, {"  a long\nmessage", dim}}
	for name, tt := range map[string]struct {
		width int
		color bool
		want  []string
	}{
		"all":            {80, false, []string{"machine  Running  a long message"}},
		"words":          {24, false, []string{"machine  Running", "    a long message"}},
		"pieces":         {12, false, []string{"machine", "    Running", "    a long", "    message"}},
		"less than that": {0, false, []string{"machine", "    Runn", "    ing", "    a", "    long", "    mess", "    age"}},
		"colors":         {24, true, []string{"machine  \x1b[32mRunning\x1b[0m", "    \x1b[2ma long message\x1b[0m"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, l.render(tt.width, tt.color)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The columns that a machine always has fit on 80: what it waits for goes on below.
func TestTheTableFitsOn80Columns(t *testing.T) {
	all := frame("Cluster demo", time.Minute, []row{{
		name: "demo-md-0-7f5k9-msllb-fw5kg", role: "control plane", host: "VM on metal-a1", phase: phaseDeploying, address: "10.77.0.10", zone: "zone-a", message: "wait",
	}})
	lines := all[len(all)-1].render(80, false)
	if len(lines) != 2 || !strings.Contains(lines[0], "0:00") || !strings.Contains(lines[1], "10.77.0.10") || !strings.Contains(lines[1], "wait") {
		t.Errorf("the lines are %q", lines)
	}
}

func TestTableAlignsColumns(t *testing.T) {
	var got []string
	for _, l := range table([]line{{{"A", plain}, {"B", plain}, {"", plain}}, {{"long", plain}, {"x", plain}, {"message", plain}}}) {
		got = append(got, l.render(80, false)...)
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
