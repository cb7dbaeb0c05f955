// SPDX-License-Identifier: Apache-2.0

// Package program builds the programs of cmd/ for tests and the sandbox.
package program

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// built is the variable by which `make test` says that CAPMAAS_BIN has the programs of these sources.
const built = "CAPMAAS_BUILT"

// Build returns the path of a program of cmd/, as the sources below root are now. Other processes run the same file.
func Build(ctx context.Context, root, name string) (string, error) {
	if os.Getenv(built) != "" {
		return filepath.Join(os.Getenv("CAPMAAS_BIN"), name), nil
	}
	shared, err := filepath.Abs(filepath.Join(root, "bin", "sandbox", name))
	if err != nil {
		return "", fmt.Errorf("building %s: %w", name, err)
	}
	if err := build(ctx, root, name, shared); err != nil {
		return "", fmt.Errorf("building %s: %w", name, err)
	}
	return shared, nil
}

// build builds it at one place, one at a time. The go command finds out whether there is anything to do: otherwise each
// test would link it again.
func build(ctx context.Context, root, name, shared string) error {
	if err := os.MkdirAll(filepath.Dir(shared), 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Clean(shared+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("locking %s: %w", lock.Name(), err)
	}
	// Without debugging data, which takes half the time of linking.
	command := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", shared, "./cmd/"+name)
	command.Dir, command.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
