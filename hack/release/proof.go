// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	// checksumsFile is what `sha256sum --check` reads.
	checksumsFile = "SHA256SUMS"
	// bundleSuffix is that of a signature with all that verifies it.
	bundleSuffix = ".sigstore.json"
)

func sha256Of(name string) (string, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// writeChecksums writes the checksums of all files in a directory.
func writeChecksums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, entry := range entries {
		sum, err := sha256Of(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s  %s\n", sum, entry.Name())
	}
	return os.WriteFile(filepath.Join(dir, checksumsFile), []byte(lines.String()), 0o644)
}

// writeSBOM writes, as CycloneDX, what modules a program was linked from: it reads the program itself.
func (r *release) writeSBOM(ctx context.Context, binary, name string) error {
	to := filepath.Join(r.assets, name+".cdx.json")
	return command(ctx, r.sbomTool, "bin", "-json", "-noserial", "-version", r.version, "-output", to, binary)
}

// writeImageSBOMs writes those of the programs in the images, which have nothing else but CA roots.
func (r *release) writeImageSBOMs(ctx context.Context) error {
	for _, name := range imagePrograms {
		for _, arch := range r.archs {
			binary := filepath.Join(r.imageContext, arch, name, name)
			if err := r.writeSBOM(ctx, binary, fmt.Sprintf("%s_linux_%s", name, arch)); err != nil {
				return err
			}
		}
	}
	return nil
}

// signer is cosign and its settings.
type signer struct{ program, key, config string }

// sign signs the checksums, and with them all files, and what is in the registry.
func (s signer) sign(ctx context.Context, checksums string, pushed artifacts) error {
	if s.program == "" {
		return nil
	}
	if err := s.cosign(ctx, "sign-blob", "--bundle", checksums+bundleSuffix, checksums); err != nil {
		return err
	}
	for _, artifact := range pushed.all() {
		if err := s.cosign(ctx, "sign", artifact.String()); err != nil {
			return err
		}
	}
	return nil
}

func (s signer) cosign(ctx context.Context, verb string, arguments ...string) error {
	options := []string{verb, "--yes"}
	if s.key != "" {
		options = append(options, "--key", s.key)
	}
	if s.config != "" {
		options = append(options, "--signing-config", s.config)
	}
	return command(ctx, s.program, append(options, arguments...)...)
}

// command runs a program, which says itself what went wrong.
func command(ctx context.Context, program string, arguments ...string) error {
	command := exec.CommandContext(ctx, program, arguments...)
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", filepath.Base(program), arguments[0], err)
	}
	return nil
}
