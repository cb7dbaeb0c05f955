// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
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
	// Others are the architectures that MAAS has the image for.
	Others []string
}

func (e *ImageError) Error() string {
	if len(e.Others) > 0 {
		return fmt.Sprintf("MAAS has image %s for %s, not for %s: import or upload it", e.Image, strings.Join(e.Others, " and "), e.Architecture)
	}
	return fmt.Sprintf("MAAS has no image %s: import or upload it, or correct the name", e.Image)
}

// CheckImage returns an ImageError if MAAS lists no image of that name (for distro_series) for the architecture (amd64,
// or amd64/generic; empty: any). A user whom MAAS does not tell learns it from the deployment.
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
		if missing = Lacks(images, image, wanted); missing == nil {
			return nil
		}
	}
	return missing
}

// Lacks returns what is wrong with an image, or nil if it is among MAAS's images. wanted is amd64 and so on; empty: any.
func Lacks(images []maas.Image, name, wanted string) *ImageError {
	missing := &ImageError{Image: name, Architecture: wanted}
	for _, image := range images {
		if !image.Answers(name) {
			continue
		}
		if wanted == "" || image.Processor() == wanted {
			return nil
		}
		missing.Others = append(missing.Others, image.Processor())
	}
	slices.Sort(missing.Others)
	missing.Others = slices.Compact(missing.Others)
	return missing
}
