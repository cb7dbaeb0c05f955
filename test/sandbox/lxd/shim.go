// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
)

// shims are programs that let virtual machines run where the kernel has no vsock and no KVM that boots them.
//
//go:embed shim/lxd-exec shim/modprobe
var shims embed.FS

// writeShims writes programs that LXD finds before the machine's own. /dev/kvm must exist for LXD to offer virtual
// machines: it checks for the file, and offers none without it.
func writeShims(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { // QEMU's user reads it too
		return fmt.Errorf("writing the programs of the node: %w", err)
	}
	for _, name := range []string{"lxd-exec", "modprobe"} {
		text, err := shims.ReadFile("shim/" + name)
		if err != nil {
			return fmt.Errorf("writing the programs of the node: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o755); err != nil { // it is run
			return fmt.Errorf("writing the programs of the node: %w", err)
		}
	}
	return nil
}
