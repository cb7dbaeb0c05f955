// SPDX-License-Identifier: Apache-2.0

//go:build unix

package lxdnode

import "golang.org/x/sys/unix"

// freeBytes returns how much a user may still write to the file system of a path.
func freeBytes(path string) (uint64, error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(path, &disk); err != nil {
		return 0, err
	}
	return disk.Bavail * uint64(disk.Bsize), nil
}
