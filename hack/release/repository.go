// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
)

// writeRepository writes the files that clusterctl reads of a release, with the images by their digests.
func (r *release) writeRepository(ctx context.Context, images map[string]pinned) error {
	dir, err := os.MkdirTemp("", "capmaas-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := command(ctx, "go", "run", "./hack/manifests", "--out", dir, "--version", r.version,
		"--image", images["manager"].String(), "--initializer-image", images["lxd-initializer"].String()); err != nil {
		return err
	}
	return os.CopyFS(r.assets, os.DirFS(filepath.Join(dir, "infrastructure-maas", r.version)))
}
