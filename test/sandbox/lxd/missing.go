// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// ErrMissing is returned where real daemons can't run.
var ErrMissing = errors.New("real LXD daemons can't run here")

const install = "apt-get install -y --no-install-recommends lxd btrfs-progs dnsmasq-base nftables iproute2 qemu-system-x86 qemu-utils genisoimage"

// Missing returns nil, or an error that names what this machine lacks to run real daemons, with the command to install
// it.
func Missing() error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("%w: they need Linux", ErrMissing)
	}
	if os.Getuid() != 0 {
		return fmt.Errorf("%w: they need root", ErrMissing)
	}
	qemu := map[string]string{"amd64": "qemu-system-x86_64", "arm64": "qemu-system-aarch64"}[runtime.GOARCH]
	var lacking []string
	for _, name := range []string{program(), "mkfs.btrfs", "dnsmasq", "nft", "ip", "unshare", "nsenter", "qemu-img", "genisoimage", qemu} {
		path, err := exec.LookPath(name)
		if err == nil {
			path, err = filepath.EvalSymlinks(path)
		}
		// The snap's LXD is one daemon of the machine, with a directory that can't be chosen.
		if err != nil || filepath.Base(path) == "snap" {
			lacking = append(lacking, name)
		}
	}
	if lacking != nil {
		return fmt.Errorf("%w without %s: %s", ErrMissing, strings.Join(lacking, ", "), install)
	}
	return tryNamespaces()
}

// tryNamespaces finds out whether we may make namespaces, which root in a container may not.
func tryNamespaces() error {
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Limit)
	defer cancel()
	try := exec.CommandContext(ctx, "unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "mount", "-t", "sysfs", "sysfs", "/sys")
	if out, err := try.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: making namespaces: %w: %s", ErrMissing, err, out)
	}
	return nil
}
