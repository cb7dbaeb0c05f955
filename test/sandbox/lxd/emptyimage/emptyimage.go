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

// New returns an image with such a disk.
func New(ctx context.Context, text string) (*lxdhost.ImageFile, error) {
	disk, err := Disk(ctx, text)
	if err != nil {
		return nil, err
	}
	return Of(ctx, bytes.NewReader(disk), int64(len(disk)))
}

// Of returns an image with a disk in the format qcow2, for this computer.
func Of(ctx context.Context, disk io.ReaderAt, size int64) (*lxdhost.ImageFile, error) {
	architecture := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	return lxdhost.NewImageFile(ctx, io.NewSectionReader(disk, 0, size), nil, architecture, func(int64) {})
}

// Disk returns a disk in the format qcow2 that is empty, but for a text that distinguishes it from others: what boots
// from it waits for nothing.
func Disk(ctx context.Context, text string) (disk []byte, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("making an image: %w", err)
		}
	}()
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	raw, converted := filepath.Join(dir, "raw"), filepath.Join(dir, "qcow2")
	if err := os.WriteFile(raw, []byte(text), 0o600); err != nil {
		return nil, err
	}
	if err := os.Truncate(raw, diskBytes); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, converted).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.ReadFile(converted)
}
