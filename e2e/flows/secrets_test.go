// SPDX-License-Identifier: Apache-2.0

package flows_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// checkSecrets wants the secret part of the MAAS key in no log and on no command line: those are what others on a node
// can read.
func checkSecrets(t *testing.T) {
	secret := box.MAASAPIKey[strings.LastIndexByte(box.MAASAPIKey, ':')+1:]
	if places := secretPlaces(t, box.LogDir, secret); len(places) > 0 {
		t.Errorf("the key's secret is in %v", places)
	}

	const planted = "planted-PjX4mCq8Zt"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "manager.log"), []byte("key="+planted+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), "sh", "-c", "read line", planted)
	stdin, err := child.StdinPipe() // It runs until this is closed.
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	places := secretPlaces(t, dir, planted)
	_ = stdin.Close()
	_ = child.Wait()
	if len(places) != 2 {
		t.Errorf("a secret in a log and on a command line is found in %v", places)
	}
}

// secretPlaces are the logs and the command lines of all processes that a text is in.
func secretPlaces(t *testing.T, logDir, text string) []string {
	t.Helper()
	var places []string
	look := func(path string) error {
		content, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(content), text) {
			places = append(places, path)
		}
		return err
	}
	files := 0
	err := filepath.WalkDir(logDir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		files++
		return look(path)
	})
	if err != nil || files == 0 {
		t.Fatalf("%d logs: %v", files, err)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(processes) == 0 {
		t.Fatalf("%d processes: %v", len(processes), err)
	}
	for _, process := range processes {
		_ = look(process) // It may have ended.
	}
	return places
}
