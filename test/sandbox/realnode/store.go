// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"path/filepath"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
)

// addStore gives machines what the snap store would have.
func (n *Nodes) addStore() error {
	if n.options.Initializer == "" {
		return nil
	}
	shims := filepath.Join(n.work, "shims")
	if err := lxd.WriteShims(shims); err != nil {
		return err
	}
	n.store = map[string]map[string]string{
		"packages": {"type": "disk", "source": filepath.Join(n.options.Bin, "node", "lxd"), "path": lxdDir + "/packages", "readonly": "true"},
		"shims":    {"type": "disk", "source": shims, "path": lxdDir + "/shims", "readonly": "true"},
		// LXD listens there. Its number is the kernel's choice.
		"vsock": {"type": "unix-char", "source": "/dev/vsock", "path": "/dev/vsock"},
	}
	return nil
}
