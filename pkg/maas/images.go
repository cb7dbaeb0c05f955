// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"path"
	"slices"
	"strings"
)

// Image is an image in MAAS for one architecture (a boot resource).
type Image struct {
	// Name is osystem/series, or the bare name of an uploaded image.
	Name string `json:"name"`
	// Architecture is amd64/generic, amd64/ga-22.04 and so on.
	Architecture string `json:"architecture"`
	// Subarches are the kernels of an Ubuntu image, separated by commas: generic,hwe-22.04,ga-22.04.
	Subarches string `json:"subarches"`
}

// ListImages returns the images (GET boot-resources/).
func (c *Client) ListImages(ctx context.Context) ([]Image, error) {
	return list[Image](ctx, c, "boot-resources/")
}

// Processor returns the main part of the architecture: amd64.
func (i Image) Processor() string {
	processor, _, _ := strings.Cut(i.Architecture, "/")
	return processor
}

// Answers reports whether MAAS may take the image for a name in distro_series: osystem/series, custom/NAME, the bare
// series or name, or Ubuntu's version (22.04).
func (i Image) Answers(name string) bool {
	series := path.Base(name)
	return path.Base(i.Name) == series || slices.Contains(strings.Split(i.Subarches, ","), "ga-"+series)
}
