// SPDX-License-Identifier: Apache-2.0

// Package images finds images in MAAS, and uploads files as images.
package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
)

// Service uploads images to one MAAS.
type Service struct {
	client *maas.Client
	// poll is how often MAAS is asked what it has of a file, settle how long it may take for a piece whose response was
	// lost, sync how long other region controllers may take for a copy, and pause how long to wait before another try.
	poll, settle, sync, pause time.Duration
	pieceSize                 int64
	// retryAfter is maas.RetryAfter, except in tests.
	retryAfter func(error) time.Duration
}

// NewService returns a service.
func NewService(client *maas.Client) *Service {
	// MAAS's own client sends pieces of 4 MiB.
	return &Service{
		client: client, poll: 2 * time.Second, settle: 3 * time.Minute, sync: time.Minute, pause: 5 * time.Second,
		pieceSize:  4 << 20,
		retryAfter: maas.RetryAfter,
	}
}

// Digest reads everything, and returns its sha256 and its length. read is called with the bytes so far.
func Digest(ctx context.Context, from io.Reader, read func(int64)) (digest string, size int64, err error) {
	sum := sha256.New()
	buffer := make([]byte, 1<<20)
	for ctx.Err() == nil {
		n, err := from.Read(buffer)
		_, _ = sum.Write(buffer[:n]) // never fails
		size += int64(n)
		read(size)
		if err == io.EOF {
			return hex.EncodeToString(sum.Sum(nil)), size, nil
		}
		if err != nil {
			return "", size, err
		}
	}
	return "", size, ctx.Err()
}

// region is what the versions of MAAS differ in.
type region struct {
	version maas.Version
	// onDisk: each region controller has files of its own. Then progress counts all of them, and is not inverted: see
	// maas.ImageFile.Received.
	onDisk bool
	// sharedFiles: images with the same content share the file, and an upload to one appends to that of the other.
	sharedFiles bool
	// unique: only one image may have a name, whatever its architecture (LP#2138312).
	unique bool
}

func (s *Service) region(ctx context.Context) (region, error) {
	version, err := s.client.Version(ctx)
	if err != nil {
		return region{}, fmt.Errorf("reading the version of MAAS: %w", err)
	}
	onDisk, of37 := version.AtLeast(3, 5, 0), version.AtLeast(3, 7, 0)
	return region{
		version: version, onDisk: onDisk, sharedFiles: version.AtLeast(3, 8, 0),
		unique: !version.AtLeast(3, 6, 3) || of37 && !version.AtLeast(3, 7, 1),
	}, nil
}

// BareName drops custom/ from a name.
func BareName(name string) string { return strings.TrimPrefix(name, maas.CustomImage) }

// Check returns nil if MAAS can deploy an image, as spec.image names it, on machines of an architecture (amd64; empty:
// any). Errors are a *machine.ImageError, an *Error, or those of MAAS.
func (s *Service) Check(ctx context.Context, name, architecture string) error {
	region, err := s.region(ctx)
	if err != nil {
		return err
	}
	all, err := s.client.ListImages(ctx)
	if err != nil {
		return fmt.Errorf("listing MAAS's images: %w", err)
	}
	if lacks := machine.Lacks(all, name, architecture); lacks != nil {
		return lacks
	}
	wanted := slices.DeleteFunc(all, func(image maas.Image) bool { return !image.Answers(name) })
	if other := namesakeOf(wanted); region.unique && other != "" {
		return namesake(name, other, region.version)
	}
	var incomplete error
	for _, image := range wanted {
		if architecture != "" && image.Processor() != architecture {
			continue
		}
		detail, err := s.client.GetImage(ctx, image.ID)
		if err != nil {
			return fmt.Errorf("reading image %s: %w", name, err)
		}
		if detail.Deployable() {
			return nil
		}
		incomplete = &Error{Problem: fmt.Sprintf("MAAS has only a part of image %s for %s", name, image.Architecture),
			Remedy: finishRemedy} // It would begin a deployment, which fails.
	}
	return incomplete
}

// namesakeOf returns the second architecture of an image without an operating system in its name, or "".
func namesakeOf(same []maas.Image) string {
	first := ""
	for _, image := range same {
		switch {
		case image.Type != maas.ImageUploaded || strings.Contains(image.Name, "/"):
		case first == "":
			first = image.Processor()
		case image.Processor() != first:
			return image.Processor()
		}
	}
	return ""
}
