// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// dataLink is the link through which a volume's files are reached: it is replaced in one step, so that a reader sees
// either all old files or all new ones. The real kubelet does the same, and programs that watch their files rely on it.
const dataLink = "..data"

// writeAtomically makes a directory hold exactly these files, if it does not yet.
func writeAtomically(dir string, files map[string][]byte) error {
	current := filepath.Join(dir, dataLink)
	if same(current, files) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(dir, "..")
	if err != nil {
		return err
	}
	for name, data := range files {
		file := filepath.Join(fresh, name)
		if !strings.HasPrefix(file, fresh+string(filepath.Separator)) {
			return fmt.Errorf("the path %s leaves the volume", name)
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return err
		}
	}
	old, _ := os.Readlink(current) // none the first time
	next := filepath.Join(dir, "..next")
	if err := os.Symlink(filepath.Base(fresh), next); err != nil {
		return err
	}
	if err := os.Rename(next, current); err != nil {
		return err
	}
	if old != "" {
		if err := os.RemoveAll(filepath.Join(dir, old)); err != nil {
			return err
		}
	}
	return link(dir, files)
}

// link shows the files of the current version in the volume itself, and removes links of files that are gone.
func link(dir string, files map[string][]byte) error {
	wanted := map[string]bool{}
	for name := range files {
		first, _, _ := strings.Cut(filepath.ToSlash(name), "/")
		wanted[first] = true
		err := os.Symlink(filepath.Join(dataLink, first), filepath.Join(dir, first))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), "..") && !wanted[entry.Name()] {
			if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// same reports whether a directory holds exactly these files.
func same(dir string, files map[string][]byte) bool {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	found := 0
	err = filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(filepath.Clean(file))
		if err != nil {
			return err
		}
		wanted, ok := files[filepath.ToSlash(name)]
		if !ok || !bytes.Equal(wanted, data) {
			return fs.ErrNotExist
		}
		found++
		return nil
	})
	return err == nil && found == len(files)
}
