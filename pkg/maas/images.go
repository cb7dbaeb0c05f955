// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"cmp"
	"context"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// ImageUploaded is the type of images that people upload; others are synced.
const ImageUploaded = "Uploaded"

// CustomImage is what people and deployments write before the name of an uploaded image that has no operating system in
// its name. MAAS 3.7 and older drop it.
const CustomImage = "custom/"

// Image is an image in MAAS for one architecture (a boot resource).
type Image struct {
	ID int `json:"id"`
	// Type is Synced or Uploaded.
	Type string `json:"type"`
	// Name is osystem/series, or the bare name of an uploaded image: see IsMisnamed.
	Name string `json:"name"`
	// Architecture is amd64/generic, amd64/ga-22.04 and so on.
	Architecture string `json:"architecture"`
	// Subarches are the kernels of an Ubuntu image, separated by commas: generic,hwe-22.04,ga-22.04.
	Subarches string `json:"subarches"`
	Title     string `json:"title"`
	// BaseImage is what an uploaded image is built on. MAAS returns it from 3.5 on.
	BaseImage string `json:"base_image"`
}

// ImageDetail is an image with its files.
type ImageDetail struct {
	Image
	// Sets are its versions, by 20261124, 20261124.1 and so on.
	Sets map[string]ImageSet `json:"sets"`
}

// ImageSet is a version of an image. An uploaded image has one file for each; a set that was replaced has none.
type ImageSet struct {
	Size     int64                `json:"size"`
	Complete bool                 `json:"complete"`
	Files    map[string]ImageFile `json:"files"`
}

// ImageFile is a file of an image.
type ImageFile struct {
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
	// Complete: all region controllers have all of it.
	Complete bool `json:"complete"`
	// Progress is what Received reads.
	Progress float64 `json:"progress"`
	// UploadURI is where pieces of an incomplete file of an uploaded image go.
	UploadURI string `json:"upload_uri"`
}

// ListImages returns the images (GET boot-resources/).
func (c *Client) ListImages(ctx context.Context) ([]Image, error) {
	return askAll[Image](ctx, c, "boot-resources/")
}

// GetImage returns an image with its files (GET boot-resources/{id}/).
func (c *Client) GetImage(ctx context.Context, id int) (ImageDetail, error) {
	return ask[ImageDetail](ctx, c, on("boot-resources/{id}/", id).get())
}

// CreateImageParams are the parameters of a new image.
type CreateImageParams struct {
	// Name is custom/NAME, NAME, or an operating system that MAAS knows and a series.
	Name, Title string
	// Architecture is amd64/generic; MAAS must have synced an Ubuntu for it.
	Architecture string
	// BaseImage is ubuntu/noble; empty: what machines are commissioned with. It stays when the image gets another file.
	BaseImage string
	// FileType is tgz, ddgz and so on; empty: tgz.
	FileType string
	SHA256   string // in hexadecimal digits
	Size     int64
}

// CreateImage makes an image without content, or gives an image of this name and architecture another file in the place
// of those that it has (POST boot-resources/, for administrators). Invalid names the wrong parameter, except for a
// sha256 that MAAS has with another size.
func (c *Client) CreateImage(ctx context.Context, permit Permit, p CreateImageParams) (ImageDetail, error) {
	params := formOf("name", p.Name, "architecture", p.Architecture, "filetype", cmp.Or(p.FileType, "tgz"),
		"sha256", p.SHA256, "size", strconv.FormatInt(p.Size, 10), "title", p.Title, "base_image", p.BaseImage)
	return ask[ImageDetail](ctx, c, on("boot-resources/").post(permit, "", params).slowly())
}

// UploadImagePiece appends a piece to a file (PUT boot-resources/{id}/upload/{file}/, for administrators). MAAS does
// not ask where it belongs: if the response is lost, read how much is there before it is sent again. Invalid: the file
// is complete, would be longer than it was said to be, or does not have its sha256, and the piece was not appended; or
// the disk is full. With the last piece, MAAS reads the whole file once more.
func (c *Client) UploadImagePiece(ctx context.Context, permit Permit, imageID, fileID int, piece []byte) error {
	upload := on("boot-resources/{id}/upload/{file}/", imageID, fileID).put(permit, nil).slowly()
	upload.content = piece
	return c.do(ctx, upload, nil)
}

// DeleteImage deletes an image with its files (DELETE boot-resources/{id}/, for administrators). MAAS has no 404 for an
// image that is gone: the error is Unavailable.
func (c *Client) DeleteImage(ctx context.Context, permit Permit, id int) error {
	return c.do(ctx, on("boot-resources/{id}/", id).remove(permit).slowly(), nil)
}

// CountRegionControllers returns how many region controllers MAAS has, for administrators (GET regioncontrollers/).
func (c *Client) CountRegionControllers(ctx context.Context) (int, error) {
	controllers, err := askAll[regionController](ctx, c, "regioncontrollers/")
	return len(controllers), err
}

type regionController struct {
	SystemID string `json:"system_id"`
}

// ID returns the file's id, which the path for its pieces ends with. It is 0 if MAAS takes none.
func (f ImageFile) ID() int {
	id, err := strconv.Atoi(path.Base(strings.TrimSuffix(f.UploadURI, "/")))
	if err != nil || id < 0 {
		return 0
	}
	return id
}

// Received returns how many bytes MAAS has of a file. inverted: MAAS 3.4 and older have size/received as progress.
// Newer ones have the percentage of what all region controllers, of which there are as many, are to have.
func (f ImageFile) Received(inverted bool, controllers int) int64 {
	var there float64
	switch {
	case f.Complete:
		return f.Size
	case inverted && f.Progress > 0:
		there = float64(f.Size) / f.Progress
	case !inverted:
		there = f.Progress / 100 * float64(f.Size) * float64(max(controllers, 1))
	}
	return int64(math.Round(min(max(there, 0), float64(max(f.Size, 0)))))
}

// Newest returns the newest set that has files, and false if none has.
func (d ImageDetail) Newest() (newest ImageSet, found bool) {
	var last [2]int
	for version, set := range d.Sets {
		day, revision, _ := strings.Cut(version, ".")
		// What is no number counts as 0: MAAS makes the names.
		a, _ := strconv.Atoi(day)
		b, _ := strconv.Atoi(revision)
		if at := [2]int{a, b}; len(set.Files) > 0 && (!found || slices.Compare(at[:], last[:]) > 0) {
			newest, last, found = set, at, true
		}
	}
	return newest, found
}

// Deployable reports whether MAAS has all files of one of the sets: it deploys the newest of these.
func (d ImageDetail) Deployable() bool {
	sets := slices.Collect(maps.Values(d.Sets))
	return slices.ContainsFunc(sets, func(set ImageSet) bool { return set.Complete && len(set.Files) > 0 })
}

// DeployName returns what a deployment calls the image: custom/NAME where MAAS has the bare name.
func (i Image) DeployName() string {
	if strings.Contains(i.Name, "/") {
		return i.Name
	}
	return CustomImage + i.Name
}

// IsMisnamed reports whether MAAS does not find the image when it deploys a machine: 3.8 and newer keep a name that was
// uploaded as custom/NAME, and search for NAME (get_resource_for in maasserver/models/bootresource.py).
func (i Image) IsMisnamed() bool {
	return i.Type == ImageUploaded && strings.HasPrefix(i.Name, CustomImage)
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
	return !i.IsMisnamed() &&
		(path.Base(i.Name) == series || slices.Contains(strings.Split(i.Subarches, ","), "ga-"+series))
}
