// SPDX-License-Identifier: Apache-2.0

package directhost

import (
	"context"
	"fmt"
	"os"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/emptyimage"
)

// AddImage gives the project an image of a name, whose disk is empty.
func (h *Host) AddImage(ctx context.Context, alias string) error {
	image, err := emptyimage.New(ctx, alias)
	if err != nil {
		return err
	}
	return h.upload(ctx, alias, image)
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
	image, err := emptyimage.Of(ctx, disk, info.Size())
	if err != nil {
		return err
	}
	return h.upload(ctx, alias, image)
}

func (h *Host) upload(ctx context.Context, alias string, image *lxdhost.ImageFile) error {
	options := h.Options()
	options.Address, options.Dial, options.ServerCertificate = listen, h.Daemon.Dial, []byte(h.own)
	client, err := new(lxdhost.Connections).Host(ctx, options)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Upload(ctx, alias, image, func(int64) {})
}

// Options are how the host is reached with the keys that it trusts.
func (h *Host) Options() lxdhost.Options {
	return lxdhost.Options{
		Address: h.Address, ServerCertificate: []byte(h.certificate), Project: h.project,
		ClientCertificate: h.Keys.Certificate, ClientKey: h.Keys.Key,
	}
}
