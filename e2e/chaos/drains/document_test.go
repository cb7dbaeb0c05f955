// SPDX-License-Identifier: Apache-2.0

package drains_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/capmaas/cluster-api-provider-maas/test/document"
)

// maintenance opens the document about hosts, for one host.
func maintenance(t *testing.T, host string) *document.Shell {
	t.Helper()
	shell := document.Open(t, "../../../docs/maintenance.md", "KUBECONFIG="+box.KubeconfigPath)
	shell.Rename("lxd-a", host)
	shell.Write(t, "ssh", []byte("#!/bin/sh\necho \"$@\" > \"$HOME/rebooted\"\n"), 0o700) // The operator's part.
	return shell
}

// beginDrain begins to empty a host with the document's command, which ends when it is empty.
func beginDrain(t *testing.T, shell *document.Shell) (end func()) {
	t.Helper()
	shell.Run(t, "enable")
	command := shell.Command(t.Context(), t, "drain")
	drained := make(chan error, 1)
	go func() {
		out, err := command.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		drained <- err
	}()
	return func() {
		t.Helper()
		if err := <-drained; err != nil {
			t.Error(err)
		}
	}
}

// maintain runs the document's other commands for a host that is empty, the last of which return it into service.
func maintain(t *testing.T, shell *document.Shell, host string) {
	t.Helper()
	for _, step := range []string{"kubectl", "why", "reboot", "refresh", "left"} {
		shell.Run(t, step)
		if step != "reboot" {
			continue
		}
		if did, err := os.ReadFile(filepath.Join(shell.Home, "rebooted")); string(did) != host+" sudo reboot\n" {
			t.Errorf("rebooted: %q, %v", did, err)
		}
	}
}
