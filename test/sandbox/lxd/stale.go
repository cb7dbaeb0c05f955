// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

const (
	dirPrefix = "lxd-"
	lockName  = "lock"
)

// lock marks a daemon's directory as in use for as long as this process lives.
func lock(base string) (*os.File, error) {
	// No other process sees the file before it is locked.
	fresh := filepath.Join(base, lockName+".new")
	file, err := os.OpenFile(filepath.Clean(fresh), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the directory of LXD: %w", err)
	}
	err = errors.Join(syscall.Flock(int(file.Fd()), syscall.LOCK_EX), os.Rename(fresh, filepath.Join(base, lockName)))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking the directory of LXD: %w", err), file.Close())
	}
	return file, nil
}

// removeStale removes the directories of daemons whose program was killed: all else of them is gone. What can't be
// removed is left for the next time.
func removeStale() {
	locks, err := filepath.Glob(filepath.Join(parent, dirPrefix+"*", lockName))
	if err != nil {
		return
	}
	for _, name := range locks {
		file, err := os.Open(filepath.Clean(name))
		if err != nil {
			continue
		}
		if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(filepath.Dir(name))
		}
		_ = file.Close()
	}
}
