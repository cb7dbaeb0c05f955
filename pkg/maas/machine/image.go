// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

const (
	// imagesMaxAge is how long an image that MAAS listed is taken to be there.
	imagesMaxAge = 10 * time.Minute
	// imageRetry is how often MAAS is asked for one that it lacks.
	imageRetry = 20 * time.Second
)

// ImageError is returned when MAAS can't deploy an image.
type ImageError struct {
	// Image and Architecture that are wanted. Architecture is empty if any will do.
	Image, Architecture string
	// Others are the architectures that MAAS has the image for, and There what it has instead, if it has none of the
	// name.
	Others, There []string
	// Incomplete: MAAS has the image, and not all of its files. It would deploy it in vain.
	Incomplete bool
	// Misnamed: MAAS has it as custom/NAME, and can't deploy it: see maas.Image.IsMisnamed.
	Misnamed bool
}

// Error names the field, what MAAS has, and the remedy.
func (e *ImageError) Error() string { return "spec.image: " + e.Found() + ": " + e.Remedy() }

// Found says what MAAS has.
func (e *ImageError) Found() string {
	switch {
	case e.Incomplete:
		return fmt.Sprintf("MAAS has image %s, but not all of its files", e.Image)
	case e.Misnamed:
		return fmt.Sprintf("MAAS has image %s with custom/ in its name, and can't deploy it", e.Image)
	case len(e.Others) > 0:
		return fmt.Sprintf("MAAS has image %s for %s, not for %s", e.Image, strings.Join(e.Others, " and "), e.Architecture)
	}
	return e.missing().Found()
}

// Remedy says what to do about it.
func (e *ImageError) Remedy() string {
	switch {
	case e.Incomplete:
		return "wait until its import or upload is complete, or upload it again"
	case e.Misnamed:
		return "delete it in MAAS, and upload it under its name without custom/"
	case len(e.Others) > 0:
		return "import or upload it, or change spec.architecture"
	}
	return e.missing().Remedy()
}

func (e *ImageError) missing() *MissingError {
	return &MissingError{Kind: missingImage, Name: e.Image, Others: e.There}
}

// CheckImage returns an ImageError if MAAS lists no image of that name (for distro_series) for the architecture (amd64,
// or amd64/generic; empty: any). A user to whom MAAS does not show it learns it from the deployment.
func (s *Service) CheckImage(ctx context.Context, image, architecture string) error {
	wanted, _, _ := strings.Cut(architecture, "/")
	var missing *ImageError
	for _, age := range []time.Duration{imagesMaxAge, imageRetry} {
		images, err := s.inventory.Images(ctx, age)
		if errors.Is(err, maas.Forbidden) || errors.Is(err, maas.NotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("listing MAAS's images: %w", err)
		}
		if missing = Lacks(images, image, wanted); missing != nil {
			continue
		}
		if missing, err = s.lacksFiles(ctx, images, image, wanted, age); err != nil || missing == nil {
			return err
		}
	}
	return missing
}

// lacksFiles returns an ImageError if MAAS has no image of that name with all of its files, or nil.
func (s *Service) lacksFiles(
	ctx context.Context, images []maas.Image, name, wanted string, age time.Duration,
) (*ImageError, error) {
	for _, image := range images {
		if !image.Answers(name) || (wanted != "" && image.Processor() != wanted) {
			continue
		}
		detail, err := s.inventory.Image(ctx, image.ID, age)
		switch {
		case errors.Is(err, maas.Forbidden), errors.Is(err, maas.NotFound):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("reading image %s: %w", name, err)
		case detail.Deployable():
			return nil, nil
		}
	}
	return &ImageError{Image: name, Architecture: wanted, Incomplete: true}, nil
}

// Processors returns the processors (amd64 and so on) that MAAS has an image for; none if it does not say.
func (s *Service) Processors(ctx context.Context, name string) ([]string, error) {
	images, err := s.inventory.Images(ctx, imagesMaxAge)
	if errors.Is(err, maas.Forbidden) || errors.Is(err, maas.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing MAAS's images: %w", err)
	}
	var processors []string
	for _, image := range images {
		if image.Answers(name) && !slices.Contains(processors, image.Processor()) {
			processors = append(processors, image.Processor())
		}
	}
	return processors, nil
}

// Lacks returns what is wrong with an image, or nil if it is among MAAS's images. wanted is amd64 and so on; empty:
// any.
func Lacks(images []maas.Image, name, wanted string) *ImageError {
	missing := &ImageError{Image: name, Architecture: wanted}
	for _, image := range images {
		if image.IsMisnamed() {
			missing.Misnamed = missing.Misnamed || path.Base(image.Name) == path.Base(name)
			continue
		}
		if !image.Answers(name) {
			missing.There = append(missing.There, image.DeployName())
			continue
		}
		if wanted == "" || image.Processor() == wanted {
			return nil
		}
		missing.Others = append(missing.Others, image.Processor())
	}
	slices.Sort(missing.Others)
	slices.Sort(missing.There)
	missing.Misnamed = missing.Misnamed && len(missing.Others) == 0
	missing.Others, missing.There = slices.Compact(missing.Others), slices.Compact(missing.There)
	return missing
}
