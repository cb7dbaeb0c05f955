// SPDX-License-Identifier: Apache-2.0

package directhost

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
)

// imageBytes is the size of the disk in images: VMs have at least that.
const imageBytes = 32 << 20

// AddImage gives the project an image of a name. Its disk is empty: what boots from it waits for nothing.
func (h *Host) AddImage(ctx context.Context, alias string) error {
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return fmt.Errorf("making an image: %w", err)
	}
	defer os.RemoveAll(dir)
	raw := filepath.Join(dir, "disk")
	if err := os.WriteFile(raw, []byte(alias), 0o600); err != nil {
		return fmt.Errorf("making an image: %w", err)
	}
	if err := os.Truncate(raw, imageBytes); err != nil {
		return fmt.Errorf("making an image: %w", err)
	}
	if out, err := exec.CommandContext(ctx, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, raw+".qcow2").CombinedOutput(); err != nil {
		return fmt.Errorf("making an image: %w: %s", err, out)
	}
	return h.UploadDisk(ctx, alias, raw+".qcow2")
}

// UploadDisk gives the project an image of a name whose disk is in a file, in the format qcow2.
func (h *Host) UploadDisk(ctx context.Context, alias, file string) error {
	disk, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("making an image: %w", err)
	}
	defer disk.Close()
	info, err := disk.Stat()
	if err != nil {
		return fmt.Errorf("making an image: %w", err)
	}
	architecture := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	ignore := func(int64) {}
	image, err := lxdhost.NewImageFile(ctx, io.NewSectionReader(disk, 0, info.Size()), nil, architecture, ignore)
	if err != nil {
		return err
	}
	options := h.Options()
	options.Address, options.Dial, options.ServerCertificate = listen, h.Daemon.Dial, []byte(h.own)
	client, err := lxdhost.Connect(ctx, options)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Upload(ctx, alias, image, ignore)
}

// Options are how the host is reached with the keys that it trusts.
func (h *Host) Options() lxdhost.Options {
	return lxdhost.Options{
		Address: h.Address, ServerCertificate: []byte(h.certificate), Project: h.project,
		ClientCertificate: h.Keys.Certificate, ClientKey: h.Keys.Key,
	}
}
