// SPDX-License-Identifier: Apache-2.0

// reasons makes what users read about reasons, docs/reasons.md and the words of capmaasctl, of the comments in
// api/v1beta1/reasons.go.
package main

import (
	"fmt"
	"go/format"
	"os"
	"path/filepath"
)

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "reasons:", err)
		os.Exit(1)
	}
}

// run writes the files of the repository in root.
func run(root string) error {
	blocks, err := read(filepath.Join(root, "api", "v1beta1"))
	if err != nil {
		return err
	}
	nodes, err := read(filepath.Join(root, "cmd", "lxd-initializer"))
	if err != nil {
		return err
	}
	source, err := format.Source(table(blocks))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "internal", "reasons", "zz_generated.reasons.go"), source, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, "docs", "reasons.md"), page(blocks, nodes), 0o644)
}
