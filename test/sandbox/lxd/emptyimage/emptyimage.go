// SPDX-License-Identifier: Apache-2.0

// Package emptyimage makes images for virtual machines that boot nothing.
package emptyimage

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
)

// diskBytes is the size of the disk in images: VMs have at least that.
const diskBytes = 32 << 20

// New returns an image whose disk is empty, but for a text that distinguishes it from others: what boots from it waits
// for nothing.
func New(ctx context.Context, text string) (*lxdhost.ImageFile, error) {
	disk, err := makeDisk(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("making an image: %w", err)
	}
	file := io.NewSectionReader(bytes.NewReader(disk), 0, int64(len(disk)))
	architecture := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	return lxdhost.NewImageFile(ctx, file, nil, architecture, func(int64) {})
}

func makeDisk(ctx context.Context, text string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	raw, disk := filepath.Join(dir, "raw"), filepath.Join(dir, "qcow2")
	if err := os.WriteFile(raw, []byte(text), 0o600); err != nil {
		return nil, err
	}
	if err := os.Truncate(raw, diskBytes); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, disk).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.ReadFile(disk)
}
