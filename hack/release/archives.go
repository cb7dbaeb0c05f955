// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	program      = "capmaasctl"
	allPlatforms = "linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64"
	licenseFile  = "LICENSE"
)

// platform is an operating system and a processor, as Go names them.
type platform struct{ os, arch string }

func parsePlatforms(list string) (platforms []platform, err error) {
	for name := range strings.FieldsSeq(list) {
		system, arch, found := strings.Cut(name, "/")
		if !found {
			return nil, fmt.Errorf("the platform %q is not of the form OS/ARCH", name)
		}
		platforms = append(platforms, platform{system, arch})
	}
	return platforms, nil
}

// executable is the program's file on the platform.
func (p platform) executable() string {
	if p.os == "windows" {
		return program + ".exe"
	}
	return program
}

// archive is what the archive for the platform is called.
func (p platform) archive(version string) string {
	extension := "tar.gz"
	if p.os == "windows" {
		extension = "zip"
	}
	return fmt.Sprintf("%s_%s_%s_%s.%s", program, strings.TrimPrefix(version, "v"), p.os, p.arch, extension)
}

// packed is a file of an archive.
type packed struct {
	name    string
	content []byte
	mode    int64
}

// writeArchives builds capmaasctl for each platform, and writes an archive and an SBOM of it. It returns the archives' paths.
func (r *release) writeArchives(ctx context.Context) (map[platform]string, error) {
	dir, err := os.MkdirTemp("", "capmaas-release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	license, err := os.ReadFile(licenseFile)
	if err != nil {
		return nil, err
	}
	archives := map[platform]string{}
	for _, p := range r.platforms {
		built := filepath.Join(dir, p.os, p.arch, p.executable())
		if err := r.build(ctx, p, built); err != nil {
			return nil, err
		}
		content, err := os.ReadFile(built)
		if err != nil {
			return nil, err
		}
		archives[p] = filepath.Join(r.assets, p.archive(r.version))
		write := writeTar
		if p.os == "windows" {
			write = writeZip
		}
		if err := write(archives[p], []packed{{p.executable(), content, 0o755}, {licenseFile, license, 0o644}}, r.made); err != nil {
			return nil, err
		}
		if err := r.writeSBOM(ctx, built, fmt.Sprintf("%s_%s_%s", program, p.os, p.arch)); err != nil {
			return nil, err
		}
	}
	return archives, nil
}

func (r *release) build(ctx context.Context, p platform, to string) error {
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags="+r.ldflags, "-o", to, "./cmd/"+program)
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch)
	command.Stderr = os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("building %s for %s/%s: %w", program, p.os, p.arch, err)
	}
	return nil
}

// writeTar writes a tar.gz whose bytes depend on its files and the time given, on nothing else.
func writeTar(to string, files []packed, made time.Time) error {
	return create(to, func(w io.Writer) error {
		compressed := gzip.NewWriter(w)
		archive := tar.NewWriter(compressed)
		for _, f := range files {
			header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: made}
			if err := archive.WriteHeader(header); err != nil {
				return err
			}
			if _, err := archive.Write(f.content); err != nil {
				return err
			}
		}
		return errors.Join(archive.Close(), compressed.Close())
	})
}

// writeZip is writeTar for Windows.
func writeZip(to string, files []packed, made time.Time) error {
	return create(to, func(w io.Writer) error {
		archive := zip.NewWriter(w)
		for _, f := range files {
			header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: made.UTC()}
			header.SetMode(os.FileMode(f.mode)) //nolint:gosec // the bits of a mode
			file, err := archive.CreateHeader(header)
			if err != nil {
				return err
			}
			if _, err := file.Write(f.content); err != nil {
				return err
			}
		}
		return archive.Close()
	})
}

// create writes a file.
func create(name string, write func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}
