// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/canonical/lxd/shared/api"
)

// imageTimeout bounds the transfer of an image.
const imageTimeout = time.Hour

// Image is an image of virtual machines that the project has.
type Image struct {
	// Fingerprint is the SHA-256 of what was uploaded, in lower-case hex.
	Fingerprint string
	// Aliases are its names, sorted.
	Aliases []string
	// Architecture is in Linux's words: x86_64.
	Architecture string
	// Bytes is the size of what was uploaded.
	Bytes int64
}

// images returns those of the project: GET /1.0/images.
func (s *session) images() ([]Image, error) {
	all, err := s.client.GetImages()
	if err != nil {
		return nil, err
	}
	var images []Image
	for _, one := range all {
		if one.Type != string(api.InstanceTypeVM) {
			continue
		}
		image := Image{Fingerprint: one.Fingerprint, Architecture: one.Architecture, Bytes: one.Size}
		for _, alias := range one.Aliases {
			image.Aliases = append(image.Aliases, alias.Name)
		}
		slices.Sort(image.Aliases)
		images = append(images, image)
	}
	return images, nil
}

// Image returns the image of a name; the zero value if the host had none when it was read.
func (r *Reading) Image(alias string) Image {
	at := slices.IndexFunc(r.Images, func(i Image) bool { return slices.Contains(i.Aliases, alias) })
	if at < 0 {
		return Image{}
	}
	return r.Images[at]
}

// withImages is a session that has the time to transfer an image.
func (h *Host) withImages(ctx context.Context) (s *session, end func(), err error) {
	patient := *h
	patient.timeout, patient.sendWithin = imageTimeout, imageTimeout // A late transfer adds an image that has its fingerprint.
	s, end, err = patient.session(ctx, "image")
	if err != nil {
		return nil, nil, err
	}
	if err := s.turn.asks(); err != nil {
		end()
		return nil, nil, err
	}
	return s, end, nil
}

// Upload adds an image to the project: LXD's unified tarball, as Tarball makes one. LXD takes it in one request (POST
// /1.0/images), and has no other way. What was uploaded before is only named. An alias that another image has moves to this
// one. The fingerprint is that of what was read here.
func (h *Host) Upload(ctx context.Context, alias string, image io.Reader) (fingerprint string, err error) {
	doing := "uploading the image " + alias
	s, end, err := h.withImages(ctx)
	if err != nil {
		return "", h.fail(doing, err)
	}
	defer end()
	sum := sha256.New()
	added := s.run(http.MethodPost, s.url("images"), io.TeeReader(image, sum))
	fingerprint = hex.EncodeToString(sum.Sum(nil))
	if err := s.nameAfter(added, fingerprint, alias); err != nil {
		return "", h.fail(doing, err)
	}
	return fingerprint, nil
}

// Tarball makes an image of a disk in the format qcow2, of a size in bytes, for an architecture in Linux's words. The same disk
// makes the same image. Reading it fails if the disk is shorter.
func Tarball(architecture string, disk io.Reader, size int64) (io.Reader, error) {
	metadata := fmt.Sprintf("architecture: %s\ncreation_date: 1\n", architecture)
	var head bytes.Buffer
	w := tar.NewWriter(&head)
	err := w.WriteHeader(&tar.Header{Name: "metadata.yaml", Mode: 0o644, Size: int64(len(metadata))})
	if err == nil {
		_, err = io.WriteString(w, metadata)
	}
	if err == nil {
		err = w.WriteHeader(&tar.Header{Name: "rootfs.img", Mode: 0o644, Size: size})
	}
	if err != nil {
		return nil, fmt.Errorf("making an image: %w", err)
	}
	const block = 512
	padding := make([]byte, (block-size%block)%block+2*block) // Two empty blocks are the end.
	return io.MultiReader(&head, &exactly{disk, size}, bytes.NewReader(padding)), nil
}

// exactly reads so many bytes.
type exactly struct {
	io.Reader
	left int64
}

func (e *exactly) Read(into []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.Reader.Read(into[:min(int64(len(into)), e.left)])
	e.left -= int64(n)
	if err == io.EOF && e.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// nameAfter gives an alias to an image that was added. If that failed, what counts is whether the image is there.
func (s *session) nameAfter(added error, fingerprint, alias string) error {
	if added != nil {
		if _, _, missing := s.client.GetImage(fingerprint); missing != nil {
			return added
		}
	}
	return s.name(fingerprint, alias)
}

// name gives an alias to an image: POST /1.0/images/aliases, or PUT if another image has it.
func (s *session) name(fingerprint, alias string) error {
	made := s.client.CreateImageAlias(api.ImageAliasesPost{ImageAliasesEntry: api.ImageAliasesEntry{
		Name: alias, Type: string(api.InstanceTypeVM), Target: fingerprint,
	}})
	if made == nil {
		return nil
	}
	has, etag, err := s.client.GetImageAlias(alias)
	switch {
	case err != nil:
		return made
	case has.Target == fingerprint:
		return nil
	}
	return s.client.UpdateImageAlias(alias, api.ImageAliasesEntryPut{Target: fingerprint}, etag)
}

// CopyImage gets an image from another host, which this host must reach at the address in from: the other one gives out a
// secret for it (POST /1.0/images/FINGERPRINT/secret there), and this one reads the image with it (POST /1.0/images, and GET
// operations/ID/wait). What has been copied before is not copied again.
func (h *Host) CopyImage(ctx context.Context, alias, fingerprint string, other *Host, from Options) error {
	doing := "copying the image " + alias
	source, end, err := other.withImages(ctx)
	if err != nil {
		return other.fail(doing, err)
	}
	defer end()
	given, err := source.client.CreateImageSecret(fingerprint)
	if err != nil {
		return other.fail(doing, err)
	}
	secret, _ := given.Get().Metadata["secret"].(string)
	s, end, err := h.withImages(ctx)
	if err != nil {
		return h.fail(doing, err)
	}
	defer end()
	wanted := api.ImagesPost{Source: &api.ImagesPostSource{
		ImageSource: api.ImageSource{
			Protocol: "lxd", Server: "https://" + from.Address, Certificate: string(from.ServerCertificate), ImageType: string(api.InstanceTypeVM),
		},
		Type: "image", Mode: "pull", Fingerprint: fingerprint, Secret: secret, Project: from.Project,
	}}
	if err := s.nameAfter(s.run(http.MethodPost, s.url("images"), wanted), fingerprint, alias); err != nil {
		return h.fail(doing, err)
	}
	return nil
}

// RemoveImage deletes an image, with its aliases (DELETE /1.0/images/FINGERPRINT). VMs that were made from it stay. One that
// is missing is no error.
func (h *Host) RemoveImage(ctx context.Context, fingerprint string) error {
	s, end, err := h.withImages(ctx)
	if err == nil {
		defer end()
		err = s.run(http.MethodDelete, s.url("images", fingerprint), nil)
	}
	if err != nil && !isNotFound(err) {
		return h.fail("removing the image "+fingerprint, err)
	}
	return nil
}
