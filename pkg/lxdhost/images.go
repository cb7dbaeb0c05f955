// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/canonical/lxd/shared"
	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
)

// imageTimeout bounds the transfer of an image.
const imageTimeout = time.Hour

// keyBrought is the property of an image that has the mark of one that was brought.
const keyBrought = "capmaas.brought"

// keyDisk is the property of an image that has the size of its disk, in bytes.
const keyDisk = "capmaas.disk"

// keySecureBoot is the property by which an image says that it is not signed: LXD copies it to the VM, and reads it
// when that is started.
const keySecureBoot = "requirements.secureboot"

// keyBaseImage has the fingerprint of the image that an instance was made from.
const keyBaseImage = "volatile.base_image"

// Image is an image of virtual machines that the project has.
type Image struct {
	// Fingerprint is the SHA-256 of what was uploaded, in lower-case hex.
	Fingerprint string
	// Aliases are its names, sorted.
	Aliases []string
	// Architecture is in Linux's words: x86_64.
	Architecture string
	// Bytes is the size of what was uploaded, DiskBytes that of the disk in it; 0 if LXD does not have it.
	Bytes, DiskBytes int64
	// Brought is the mark of an image that was brought; see Mark.
	Brought string
	// Unsigned: LXD starts no VM of it with secure boot.
	Unsigned bool
	// Users are the project's instances that were made from it, by name.
	Users []string
}

// images returns those of the project: GET /1.0/images. instances are all of the project.
func (s *session) images(instances []api.Instance) ([]Image, error) {
	all, err := s.client.GetImages()
	if err != nil {
		return nil, err
	}
	users := baseImages(instances)
	var images []Image
	for i := range all {
		if all[i].Type != string(api.InstanceTypeVM) {
			continue
		}
		image := describeImage(&all[i])
		image.Users = users[image.Fingerprint]
		images = append(images, image)
	}
	return images, nil
}

func describeImage(found *api.Image) Image {
	disk, _ := strconv.ParseInt(found.Properties[keyDisk], 10, 64)
	aliases := list.Each(found.Aliases, func(alias api.ImageAlias) string { return alias.Name })
	slices.Sort(aliases)
	return Image{
		Fingerprint: found.Fingerprint, Aliases: aliases, Architecture: found.Architecture, Bytes: found.Size,
		DiskBytes: disk, Brought: found.Properties[keyBrought], Unsigned: shared.IsFalse(found.Properties[keySecureBoot]),
	}
}

// baseImages returns the names of the instances that were made from each image, sorted.
func baseImages(instances []api.Instance) map[string][]string {
	all := map[string][]string{}
	for i := range instances {
		if base := instances[i].Config[keyBaseImage]; base != "" {
			all[base] = append(all[base], instances[i].Name)
		}
	}
	for _, names := range all {
		slices.Sort(names)
	}
	return all
}

// Image returns the image of a name; the zero value if the host had none when it was read.
func (r *Reading) Image(alias string) Image {
	return list.First(r.Images, func(i Image) bool { return slices.Contains(i.Aliases, alias) })
}

// inImages is in with the time to transfer an image.
func (h *Host) inImages(ctx context.Context, doing string, do func(*session) error) error {
	patient := *h
	// A late transfer adds an image that has its fingerprint.
	patient.timeout, patient.sendWithin = imageTimeout, imageTimeout
	return patient.in(ctx, "image", doing, func(s *session) error {
		if err := s.turn.asks(); err != nil {
			return err
		}
		return do(s)
	})
}

// Upload adds an image to the project under an alias, which it takes from the image that has it, if any. LXD takes an
// image in one request (POST /1.0/images), and has no other way: one that breaks off is sent again from its beginning.
// An image that the project has (GET /1.0/images/FINGERPRINT) is only named, and is kept from then on, whoever brought
// it. sent is called with how many bytes were.
//
// KindInvalid: LXD does not take it for an image of virtual machines.
func (h *Host) Upload(ctx context.Context, alias string, image *ImageFile, sent func(int64)) error {
	return h.inImages(ctx, "uploading the image "+alias, func(s *session) error {
		err := s.keep(image.Fingerprint)
		if isNotFound(err) {
			err = s.upload(image, sent)
		}
		if err != nil {
			return err
		}
		return s.name(image.Fingerprint, alias, true)
	})
}

// keep makes an image one that stays, whoever brought it: GET /1.0/images/FINGERPRINT, and PUT if it was brought.
func (s *session) keep(fingerprint string) error {
	found, etag, err := s.client.GetImage(fingerprint)
	if err != nil || found.Properties[keyBrought] == "" {
		return err
	}
	kept := found.Writable()
	delete(kept.Properties, keyBrought)
	return s.client.Put(s.client.Path("images", fingerprint), kept, etag)
}

// upload sends an image that the project lacks.
func (s *session) upload(image *ImageFile, sent func(int64)) error {
	body, contentType := image.body(sent)
	header := http.Header{}
	header.Set("Content-Type", contentType)
	header.Set("X-LXD-fingerprint", image.Fingerprint) // LXD refuses anything else.
	added := s.client.Post(s.client.Path("images"), &lxdapi.Upload{Content: body, Bytes: image.Bytes, Header: header})
	found, _, err := s.client.GetImage(image.Fingerprint)
	if err != nil {
		return cmp.Or(added, err)
	}
	if found.Type != string(api.InstanceTypeVM) {
		return errors.Join(problem(KindInvalid, "LXD takes it for an image of the type %s", found.Type),
			s.client.Delete(s.client.Path("images", image.Fingerprint)))
	}
	return nil
}

// name gives an alias to an image: POST /1.0/images/aliases. If another image has it, it is taken from that one (PUT)
// or left there (KindConflict).
func (s *session) name(fingerprint, alias string, take bool) error {
	wanted := api.ImageAliasesEntry{Name: alias, Type: string(api.InstanceTypeVM), Target: fingerprint}
	made := s.client.Post(s.client.Path("images", "aliases"), api.ImageAliasesPost{ImageAliasesEntry: wanted})
	if made == nil {
		return nil
	}
	has, etag, err := s.client.GetImageAlias(alias)
	switch {
	case err != nil:
		return made
	case has.Target == fingerprint:
		return nil
	case !take:
		return problem(KindConflict, "the name is that of another image, %s", has.Target)
	}
	return s.client.Put(s.client.Path("images", "aliases", alias), api.ImageAliasesEntryPut{Target: fingerprint}, etag)
}

// ImageCopy is an image that a host has, and that another one gets.
type ImageCopy struct {
	Alias, Fingerprint string
	// From is where the host that gets it reaches the other one.
	From Options
	// Keep is for an image that a person wants there: it stays, and takes its alias from the image that has it.
	Keep bool
	// Brought is the mark of one that may be removed again.
	Brought string
}

// CopyImage gets an image from another host: the other one gives out a secret for it (POST
// /1.0/images/FINGERPRINT/secret there), and this one reads the image with it (POST /1.0/images, and GET
// operations/ID/wait), and checks its fingerprint. An image that the project has is only named. The error is
// KindConflict if another image has the name, unless Keep takes it away.
func (h *Host) CopyImage(ctx context.Context, image ImageCopy, other *Host) error {
	doing := "copying the image " + image.Alias
	return h.inImages(ctx, doing, func(s *session) (err error) {
		if image.Keep {
			err = s.keep(image.Fingerprint)
		} else {
			_, _, err = s.client.GetImage(image.Fingerprint)
		}
		if isNotFound(err) {
			var secret string
			if secret, err = other.secret(ctx, doing, image.Fingerprint); err == nil {
				err = s.copy(image, secret)
			}
		}
		if err != nil {
			return err
		}
		return s.name(image.Fingerprint, image.Alias, image.Keep)
	})
}

// secret returns what lets another host read an image.
func (h *Host) secret(ctx context.Context, doing, fingerprint string) (secret string, err error) {
	err = h.in(ctx, "image", doing, func(s *session) error {
		if err := s.turn.asks(); err != nil {
			return err
		}
		secret, err = s.client.ImageSecret(fingerprint)
		return err
	})
	return secret, err
}

// copy reads an image that the project lacks. If that did not succeed, what counts is whether the image is there.
func (s *session) copy(image ImageCopy, secret string) error {
	wanted := api.ImagesPost{Source: &api.ImagesPostSource{
		ImageSource: api.ImageSource{
			Protocol: "lxd", Server: "https://" + image.From.Address, Certificate: string(image.From.ServerCertificate),
			ImageType: string(api.InstanceTypeVM),
		},
		Type: "image", Mode: "pull", Fingerprint: image.Fingerprint, Secret: secret, Project: image.From.Project,
	}}
	if image.Brought != "" {
		wanted.Properties = map[string]string{keyBrought: image.Brought}
	}
	added := s.client.Post(s.client.Path("images"), wanted)
	if added != nil {
		if _, _, missing := s.client.GetImage(image.Fingerprint); missing != nil {
			return added
		}
	}
	return nil
}

// RemoveBrought deletes an image that carries the mark, that has no other name than the one it was brought under, and
// that no instance of the project was made from: GET /1.0/images/FINGERPRINT, GET /1.0/instances and DELETE
// /1.0/images/FINGERPRINT. Others are KindConflict. One that is missing is no error.
func (h *Host) RemoveBrought(ctx context.Context, fingerprint string, mark Mark) error {
	// A late removal would hit what a person has uploaded since.
	return h.in(ctx, "image", "removing the image "+fingerprint, func(s *session) error {
		if err := s.removeBrought(fingerprint, mark); !isNotFound(err) {
			return err
		}
		return nil
	})
}

func (s *session) removeBrought(fingerprint string, mark Mark) error {
	if err := s.turn.asks(); err != nil {
		return err
	}
	found, _, err := s.client.GetImage(fingerprint)
	if err != nil {
		return err
	}
	image := describeImage(found)
	if _, proven := mark.Alias(&image); !proven {
		return problem(KindConflict, "nothing proves that it was brought, and it is left alone")
	}
	instances, err := s.client.GetInstances(api.InstanceTypeAny)
	if err != nil {
		return err
	}
	if users := baseImages(instances)[fingerprint]; len(users) > 0 {
		return problem(KindConflict, "the instance %s was made from it", users[0])
	}
	return s.client.Delete(s.client.Path("images", fingerprint))
}

// Mark proves which images a management cluster has brought into a project of an LXD. It is of no worth anywhere else:
// LXD copies the properties of an image with it, and what a person copies is the person's.
type Mark struct {
	management, project string
	server              []byte
}

// Mark returns the mark of a management cluster, which must have an id; the zero value proves nothing.
func (o Options) Mark(management string) Mark {
	server, err := lxdnode.ParseCertificate(o.ServerCertificate)
	if management == "" || err != nil {
		return Mark{}
	}
	return Mark{management: management, project: o.Project, server: server.Raw}
}

// Of returns the mark of an image that is brought under an alias; "" if the mark proves nothing.
func (m Mark) Of(fingerprint, alias string) string {
	if m.management == "" {
		return ""
	}
	parts, _ := json.Marshal([]any{m.management, m.project, m.server, fingerprint, alias}) // They can be marshalled.
	return fmt.Sprintf("%x %s", sha256.Sum256(parts), alias)
}

// Alias returns the alias under which an image was brought; false if it was not, or if a person gave it another name,
// too.
func (m Mark) Alias(image *Image) (string, bool) {
	_, alias, _ := strings.Cut(image.Brought, " ")
	isOther := func(name string) bool { return name != alias }
	if image.Brought == "" || image.Brought != m.Of(image.Fingerprint, alias) ||
		slices.ContainsFunc(image.Aliases, isOther) {
		return "", false
	}
	return alias, true
}
