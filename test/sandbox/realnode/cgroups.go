// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// cgroupRoot has all hierarchies of control groups.
const cgroupRoot = "/sys/fs/cgroup"

// removeCgroups removes the control groups of machines' containers in which no process is: LXC, which removes them
// otherwise, ends together with the program whose machines they were.
func removeCgroups(root string) error {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // Others remove theirs meanwhile.
			return nil
		}
		if err != nil || !entry.IsDir() || !ofMachine(entry.Name()) {
			return err
		}
		if err := removeCgroup(path); err != nil {
			return err
		}
		return fs.SkipDir
	})
	if err != nil {
		return fmt.Errorf("removing the control groups of machines: %w", err)
	}
	return nil
}

// ofMachine reports whether LXC names a control group so for a machine's container, or while it moves processes.
func ofMachine(cgroup string) bool {
	if cgroup == "lxc.pivot" {
		return true
	}
	kind, container, _ := strings.Cut(strings.TrimPrefix(cgroup, "lxc."), ".")
	return slices.Contains([]string{"payload", "monitor"}, kind) && (strings.HasPrefix(container, prepared) || strings.HasPrefix(container, nodePrefix))
}

// removeCgroup removes a control group with all below it, unless a process is in one of them.
func removeCgroup(top string) error {
	var all []string
	busy := false
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return ignoreGone(err)
		}
		all = append(all, path)
		processes, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		busy = busy || len(processes) > 0
		return ignoreGone(err)
	})
	if err != nil || busy {
		return err
	}
	for _, dir := range slices.Backward(all) {
		if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.EBUSY) {
			return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
		}
	}
	return nil
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return nil
	}
	return err
}
