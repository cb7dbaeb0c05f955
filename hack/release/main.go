// SPDX-License-Identifier: Apache-2.0

// Command release makes what is published of a release, from images that are in a registry already: the chart, which names
// them by their digests and is pushed beside them, the clusterctl repository, archives of capmaasctl with a manifest for
// krew, SBOMs, checksums, signatures, and the release notes. `make release` calls it in the repository.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// assetsDir is the directory, in that of the release, of what people download. The release notes are beside it.
const (
	assetsDir = "assets"
	notesFile = "notes.md"
)

// release is one release, and how it is made.
type release struct {
	version string
	// registry is where the images are, for example ghcr.io/capmaas. The chart goes to REGISTRY/charts/capmaas.
	registry string
	// images are the references of the images, by the names of their programs.
	images map[string]string
	// imageContext is the directory that the images were built from, with their programs.
	imageContext string
	// assets is the directory of what people download.
	assets string
	// platforms are those of capmaasctl, and archs those of the images, as Go names them.
	platforms []platform
	archs     []string
	ldflags   string
	// made is when the release's commit was made. With it, the same commit makes the same files.
	made time.Time
	// sbomTool is the program cyclonedx-gomod.
	sbomTool string
	signer   signer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	r, out, err := parse(arguments)
	if err != nil {
		return err
	}
	if r.made, err = commitTime(ctx); err != nil {
		return err
	}
	// What an earlier run left would be published, too.
	if err := os.RemoveAll(r.assets); err != nil {
		return err
	}
	if err := os.MkdirAll(r.assets, 0o755); err != nil {
		return err
	}
	pushed, err := r.make(ctx)
	if err != nil {
		return err
	}
	text, err := r.notes(ctx, pushed)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, notesFile), []byte(text), 0o644)
}

// parse reads the command line.
func parse(arguments []string) (r *release, out string, err error) {
	r = &release{images: map[string]string{}}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&out, "out", "out/release", "directory that the release is written to")
	flags.StringVar(&r.version, "version", "", "version of the release, for example v0.1.0")
	flags.StringVar(&r.registry, "registry", "", "registry, with its path, that the images are in and the chart is pushed to")
	flags.StringVar(&r.imageContext, "image-context", "out/image", "directory that the images were built from")
	flags.StringVar(&r.ldflags, "ldflags", "", "flags of the linker for capmaasctl")
	flags.StringVar(&r.sbomTool, "cyclonedx-gomod", "bin/cyclonedx-gomod", "program that writes the SBOMs")
	flags.StringVar(&r.signer.program, "cosign", "", "program that signs (default: nothing is signed)")
	flags.StringVar(&r.signer.key, "cosign-key", "", "key that is signed with (default: keyless, with the identity of the workflow)")
	flags.StringVar(&r.signer.config, "cosign-signing-config", "", "file that says which of Sigstore's services take part (default: cosign's)")
	archs := flags.String("archs", "amd64 arm64", "processors of the images")
	platforms := flags.String("platforms", allPlatforms, "platforms of capmaasctl")
	for _, program := range imagePrograms {
		flags.Func("image-"+program, "reference of the image of "+program, func(reference string) error {
			r.images[program] = reference
			return nil
		})
	}
	if err := flags.Parse(arguments); err != nil {
		return nil, "", err
	}
	r.archs = strings.Fields(*archs)
	if r.platforms, err = parsePlatforms(*platforms); err != nil {
		return nil, "", err
	}
	if flags.NArg() > 0 || r.version == "" || r.registry == "" || len(r.images) != len(imagePrograms) {
		return nil, "", errors.New("--version, --registry and the images are needed, and no arguments")
	}
	r.assets, err = filepath.Abs(filepath.Join(out, assetsDir))
	return r, out, err
}

// make makes everything but the notes, and returns what is in the registry, by digest.
func (r *release) make(ctx context.Context) (pushed artifacts, err error) {
	client, err := newRegistryClient(r.registry)
	if err != nil {
		return pushed, err
	}
	if pushed.images, err = r.pin(client); err != nil {
		return pushed, err
	}
	if pushed.chart, err = r.publishChart(client, pushed.images); err != nil {
		return pushed, fmt.Errorf("making the chart: %w", err)
	}
	if err := r.writeRepository(ctx, pushed.images); err != nil {
		return pushed, fmt.Errorf("making the clusterctl repository: %w", err)
	}
	archives, err := r.writeArchives(ctx)
	if err != nil {
		return pushed, fmt.Errorf("making the archives of capmaasctl: %w", err)
	}
	if err := r.writeKrewManifest(archives); err != nil {
		return pushed, fmt.Errorf("making the manifest for krew: %w", err)
	}
	if err := r.writeImageSBOMs(ctx); err != nil {
		return pushed, fmt.Errorf("making the SBOMs of the images: %w", err)
	}
	if err := writeChecksums(r.assets); err != nil {
		return pushed, fmt.Errorf("making the checksums: %w", err)
	}
	if err := r.signer.sign(ctx, filepath.Join(r.assets, checksumsFile), pushed); err != nil {
		return pushed, fmt.Errorf("signing: %w", err)
	}
	return pushed, nil
}

// chartVersion is the version in Helm's form, which has no v.
func (r *release) chartVersion() string { return strings.TrimPrefix(r.version, "v") }
