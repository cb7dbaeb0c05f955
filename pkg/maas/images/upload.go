// SPDX-License-Identifier: Apache-2.0

package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// maxFailures is how many tries in a row may fail.
const maxFailures = 5

// Upload is what is to become an image.
type Upload struct {
	maas.CreateImageParams
	// Replace allows other content of the image to be dropped, and Restart begins an unfinished upload anew.
	Replace, Restart bool
}

// Result is how an upload ended.
type Result struct {
	Image maas.Image
	// Already: MAAS had all of the file.
	Already bool
	// Resumed is how much of it MAAS had.
	Resumed int64
	// Syncing: other region controllers of MAAS still copy it.
	Syncing bool
}

// Ensure makes MAAS have the file as an image, and sends only what MAAS lacks. sent is called with how many bytes MAAS
// has. Errors are of this package's types, or those of MAAS.
func (s *Service) Ensure(
	ctx context.Context, permit maas.Permit, file io.ReaderAt, u Upload, sent func(int64),
) (Result, error) {
	region, err := s.region(ctx)
	if err != nil {
		return Result{}, err
	}
	u.Name = BareName(u.Name)
	detail, err := s.begin(ctx, permit, region, u)
	if err != nil {
		return Result{}, err
	}
	result := Result{Image: detail.Image}
	t := &transfer{Service: s, permit: permit, region: region, u: u, image: detail.ID}
	if err := t.read(ctx, detail); err != nil {
		return result, err
	}
	result.Already, result.Resumed = t.offset == u.Size, t.offset
	sent(t.offset)
	if err := t.send(ctx, file, sent); err != nil {
		return result, err
	}
	result.Syncing = t.awaitCopies(ctx)
	return result, nil
}

// begin returns the image that the file goes to, which is made if there is none.
func (s *Service) begin(ctx context.Context, permit maas.Permit, region region, u Upload) (maas.ImageDetail, error) {
	all, err := s.client.ListImages(ctx)
	if err != nil {
		return maas.ImageDetail{}, fmt.Errorf("listing MAAS's images: %w", err)
	}
	var same *maas.Image
	var others []maas.Image
	for i, image := range all {
		isNamed := image.Name == u.Name
		switch {
		case image.Type != maas.ImageUploaded:
		case isNamed && image.Architecture == u.Architecture:
			same = &all[i]
		case isNamed && region.unique && image.Processor() != (maas.Image{Architecture: u.Architecture}).Processor():
			return maas.ImageDetail{}, namesake(u.Name, image.Architecture, region.version)
		default:
			others = append(others, image)
		}
	}
	if same != nil {
		return s.resume(ctx, permit, region, u, *same, others)
	}
	return s.create(ctx, permit, region, u, others)
}

// resume returns an existing image with the file, or gives it the file.
func (s *Service) resume(
	ctx context.Context, permit maas.Permit, region region, u Upload, image maas.Image, others []maas.Image,
) (maas.ImageDetail, error) {
	detail, err := s.client.GetImage(ctx, image.ID)
	if err != nil {
		return detail, fmt.Errorf("reading image %s: %w", image.Name, err)
	}
	there, found := fileOf(detail)
	switch {
	case !found:
	case there.SHA256 == u.SHA256 && (there.Complete || !u.Restart):
		return detail, nil
	case there.SHA256 == u.SHA256: // An unfinished upload: MAAS forgets only with the image what it has of the file.
		if err := s.client.DeleteImage(ctx, permit, image.ID); err != nil {
			return detail, fmt.Errorf("deleting the unfinished image %s: %w", image.Name, err)
		}
	case !u.Replace:
		return detail, otherContent(u.Name, image.Architecture, detail)
	}
	return s.create(ctx, permit, region, u, others)
}

func (s *Service) create(
	ctx context.Context, permit maas.Permit, region region, u Upload, others []maas.Image,
) (maas.ImageDetail, error) {
	if region.sharedFiles {
		for _, image := range others {
			detail, err := s.client.GetImage(ctx, image.ID)
			if err != nil {
				return detail, fmt.Errorf("reading image %s: %w", image.Name, err)
			}
			if there, found := fileOf(detail); found && there.SHA256 == u.SHA256 {
				return detail, sharedFile(image, region.version)
			}
		}
	}
	detail, err := s.client.CreateImage(ctx, permit, u.CreateImageParams)
	if err != nil {
		return detail, fmt.Errorf("creating image %s: %w", u.Name, err)
	}
	return detail, nil
}

// fileOf returns the file of the newest set, of which uploaded images have one.
func fileOf(detail maas.ImageDetail) (maas.ImageFile, bool) {
	set, _ := detail.Newest()
	for _, file := range set.Files {
		return file, len(set.Files) == 1
	}
	return maas.ImageFile{}, false
}

// transfer sends one file.
type transfer struct {
	*Service
	permit maas.Permit
	region region
	u      Upload
	image  int

	file        maas.ImageFile // as MAAS last returned it
	offset      int64          // what MAAS has
	controllers int
}

// read stores what MAAS says of the file.
func (t *transfer) read(ctx context.Context, detail maas.ImageDetail) error {
	file, found := fileOf(detail)
	if !found || file.SHA256 != t.u.SHA256 || !file.Complete && file.ID() == 0 {
		return otherContent(t.u.Name, t.u.Architecture, detail)
	}
	if t.region.onDisk && t.controllers == 0 && file.Progress > 0 {
		n, err := t.client.CountRegionControllers(ctx)
		if err != nil {
			return fmt.Errorf("counting MAAS's region controllers: %w", err)
		}
		t.controllers = n
	}
	t.file, t.offset = file, file.Received(!t.region.onDisk, t.controllers)
	return nil
}

// send sends what MAAS lacks.
func (t *transfer) send(ctx context.Context, file io.ReaderAt, sent func(int64)) error {
	buffer := make([]byte, t.pieceSize)
	failures := 0
	for t.offset < t.u.Size {
		piece := buffer[:min(t.pieceSize, t.u.Size-t.offset)]
		if n, err := file.ReadAt(piece, t.offset); n < len(piece) {
			return paused(t.offset, fmt.Errorf("reading the file: %w", err))
		}
		before := t.offset
		err := t.client.UploadImagePiece(ctx, t.permit, t.image, t.file.ID(), piece)
		switch {
		case err == nil:
			t.offset += int64(len(piece))
		case ctx.Err() != nil:
			return paused(t.offset, ctx.Err())
		default:
			if err := t.recover(ctx, err); err != nil {
				return err
			}
		}
		if failures++; t.offset > before {
			failures = 0
		}
		if failures == maxFailures {
			return paused(t.offset, err)
		}
		sent(t.offset)
	}
	return nil
}

// recover finds out what MAAS has after a piece failed. A nil error means that the upload can go on there.
func (t *transfer) recover(ctx context.Context, failed error) error {
	if !errors.Is(failed, maas.Unavailable) {
		detail, err := t.client.GetImage(ctx, t.image)
		if err == nil && t.read(ctx, detail) == nil && t.offset == t.u.Size {
			return nil // A piece whose response had been lost completed it.
		}
		if errors.Is(failed, maas.Invalid) {
			return &Error{Problem: fmt.Sprintf("MAAS refuses what follows byte %d: %v", t.offset, failed),
				Remedy: restartRemedy, Offset: t.offset, cause: failed} // What MAAS has is not the beginning of the file.
		}
		return paused(t.offset, failed)
	}
	if maas.HadNoEffect(failed) {
		return t.wait(ctx, cmp.Or(t.retryAfter(failed), t.pause))
	}
	before := t.offset
	for end := time.Now().Add(t.settle); ; {
		detail, err := t.client.GetImage(ctx, t.image)
		if err == nil {
			err = t.read(ctx, detail)
		}
		if err == nil && t.offset != before {
			return nil
		}
		if err != nil && !errors.Is(err, maas.Unavailable) && ctx.Err() == nil {
			return paused(t.offset, err)
		}
		if time.Now().After(end) {
			return nil // It did not arrive.
		}
		if err := t.wait(ctx, t.poll); err != nil {
			return err
		}
	}
}

func (t *transfer) wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return paused(t.offset, ctx.Err())
	}
}

// awaitCopies waits until all region controllers have the file, and reports whether some still lack it.
func (t *transfer) awaitCopies(ctx context.Context) (syncing bool) {
	for end := time.Now().Add(t.sync); !t.file.Complete; {
		detail, err := t.client.GetImage(ctx, t.image)
		if err == nil && t.read(ctx, detail) == nil && t.file.Complete {
			return false
		}
		if time.Now().After(end) || t.wait(ctx, t.poll) != nil {
			return true
		}
	}
	return false
}
