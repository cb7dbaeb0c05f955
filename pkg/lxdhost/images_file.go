// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"archive/tar"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"path"
	"strconv"

	"github.com/canonical/lxd/shared/api"
	"go.yaml.in/yaml/v3"
)

const (
	metadataFile = "metadata.yaml"
	// diskFile is the disk of an image of virtual machines, in the format qcow2.
	diskFile = "rootfs.img"
	// maxMetadata bounds metadata.yaml.
	maxMetadata = 1 << 20
)

// ImageFile is an image that is to be uploaded: LXD's own, in one file or in two, or one that is made of a disk.
type ImageFile struct {
	// Fingerprint is LXD's name for it, the SHA-256 of its content in lower-case hex.
	Fingerprint string
	// Bytes is how many are sent.
	Bytes int64
	// Architecture is in Linux's words, x86_64 for example; "" if only LXD can read it.
	Architecture string
	// DiskBytes is the size of the disk for the VM; 0 if only LXD can read it.
	DiskBytes int64

	content     []*io.SectionReader
	boundary    [][]byte // what is sent before each part of the content, and behind the last one; none: one file
	contentType string
}

// FileError is what is wrong with a file that is to be an image.
type FileError struct{ Problem, Remedy string }

// Error returns the problem.
func (e *FileError) Error() string { return e.Problem }

// NewImageFile returns the image in a file, and reads all of it for its fingerprint: a disk in the format qcow2, which
// becomes an image for an architecture in Linux's words, or LXD's tarball. With a second file it is LXD's other form:
// the disk, and the tarball of its metadata. seen is called with how many bytes were read. The error is a *FileError,
// or one of reading.
func NewImageFile(
	ctx context.Context, file, metadata *io.SectionReader, architecture string, seen func(int64),
) (*ImageFile, error) {
	image, err := open(file, metadata, architecture)
	if err != nil {
		return nil, err
	}
	return image, image.sum(ctx, seen)
}

func open(file, metadata *io.SectionReader, architecture string) (*ImageFile, error) {
	head := make([]byte, 512)
	n, err := file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	isDisk := bytes.HasPrefix(head[:n], qcow2Magic)
	switch {
	case isDisk && metadata != nil:
		return splitImage(file, metadata)
	case isDisk:
		return diskImage(file, architecture)
	case metadata != nil:
		return nil, &FileError{"beside the metadata, an image has a disk in the format qcow2, and this is none",
			convertRemedy}
	case isTarball(head[:n]):
		return unifiedImage(file)
	}
	return nil, &FileError{"it is neither a disk in the format qcow2 nor an image of LXD", convertRemedy}
}

const (
	convertRemedy = "make one of a disk with `qemu-img convert -O qcow2 FILE NEW.qcow2`"
	bothRemedy    = "make one of both with `qemu-img convert -O qcow2 FILE NEW.qcow2`"
	againRemedy   = "make or fetch it anew"
)

// isTarball knows what LXD unpacks.
func isTarball(head []byte) bool {
	for _, magic := range []string{gzipMagic, bzip2Magic, "\xfd7zXZ\x00", "\x28\xb5\x2f\xfd", "hsqs"} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return true
		}
	}
	return len(head) >= 262 && string(head[257:262]) == "ustar"
}

const (
	gzipMagic  = "\x1f\x8b"
	bzip2Magic = "BZh"
)

// diskImage makes LXD's tarball of a disk. The same disk makes the same image.
func diskImage(disk *io.SectionReader, architecture string) (*ImageFile, error) {
	size, err := checkDisk(disk)
	if err != nil {
		return nil, err
	}
	image, err := tarball(disk, architecture, size)
	if err != nil {
		return nil, fmt.Errorf("making an image: %w", err)
	}
	return image, nil
}

// tarball is diskImage for a disk of so many bytes, whatever it contains.
func tarball(disk *io.SectionReader, architecture string, size int64) (*ImageFile, error) {
	metadata := fmt.Sprintf("architecture: %s\ncreation_date: 1\nproperties:\n  %s: %q\n", architecture, keyDisk,
		strconv.FormatInt(size, 10))
	var head bytes.Buffer
	w := tar.NewWriter(&head)
	err := w.WriteHeader(&tar.Header{Name: metadataFile, Mode: 0o644, Size: int64(len(metadata))})
	if err == nil {
		_, err = io.WriteString(w, metadata)
	}
	if err == nil {
		err = w.WriteHeader(&tar.Header{Name: diskFile, Mode: 0o644, Size: disk.Size()})
	}
	if err != nil {
		return nil, err
	}
	const block = 512
	padding := make([]byte, (block-disk.Size()%block)%block+2*block) // Two empty blocks are the end.
	section := func(b []byte) *io.SectionReader { return io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b))) }
	return newImageFile("application/octet-stream", nil, section(head.Bytes()), disk, section(padding)).about(architecture,
		size), nil
}

// unifiedImage is LXD's tarball of metadata and disk. What is compressed so that only LXD can read it is not looked
// into.
func unifiedImage(file *io.SectionReader) (*ImageFile, error) {
	metadata, hasDisk, err := readTarball(file, true)
	if err != nil {
		return nil, err
	}
	image := newImageFile("application/octet-stream", nil, file)
	switch {
	case metadata == nil:
		return image, nil
	case !hasDisk:
		return nil, &FileError{"it is not an image of virtual machines: it has no " + diskFile,
			"take the image for virtual machines, which LXD calls disk-kvm"}
	}
	size, _ := strconv.ParseInt(metadata.Properties[keyDisk], 10, 64)
	return image.about(metadata.Architecture, size), nil
}

// splitImage is LXD's form in two files.
func splitImage(disk, file *io.SectionReader) (*ImageFile, error) {
	size, err := checkDisk(disk)
	if err != nil {
		return nil, err
	}
	metadata, _, err := readTarball(file, false)
	if err != nil {
		return nil, err
	}
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	if err := w.SetBoundary("capmaas-image"); err != nil {
		return nil, err
	}
	var boundary [][]byte
	for _, part := range [][2]string{{"metadata", "metadata.tar"}, {diskFile, "disk.qcow2"}} {
		if _, err := w.CreateFormFile(part[0], part[1]); err != nil {
			return nil, err
		}
		boundary = append(boundary, bytes.Clone(form.Bytes()))
		form.Reset()
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	boundary = append(boundary, form.Bytes())
	image := newImageFile(w.FormDataContentType(), boundary, file, disk)
	if metadata == nil {
		return image.about("", size), nil
	}
	return image.about(metadata.Architecture, size), nil
}

func newImageFile(contentType string, boundary [][]byte, content ...*io.SectionReader) *ImageFile {
	f := &ImageFile{contentType: contentType, boundary: boundary, content: content}
	for _, part := range content {
		f.Bytes += part.Size()
	}
	for _, between := range boundary {
		f.Bytes += int64(len(between))
	}
	return f
}

func (f *ImageFile) about(architecture string, disk int64) *ImageFile {
	f.Architecture, f.DiskBytes = architecture, disk
	return f
}

// readTarball returns what metadata.yaml says, and whether there is a disk; nil for a compression that only LXD reads.
func readTarball(file *io.SectionReader, withDisk bool) (metadata *api.ImageMetadata, hasDisk bool, err error) {
	plain, err := decompress(io.NewSectionReader(file, 0, file.Size()))
	if err != nil || plain == nil {
		return nil, false, err
	}
	for entries := tar.NewReader(plain); metadata == nil || (withDisk && !hasDisk); {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, false, &FileError{"it is not a tarball that can be read: " + err.Error(), againRemedy}
		}
		switch path.Clean(entry.Name) {
		case diskFile:
			hasDisk = true
		case metadataFile:
			metadata = &api.ImageMetadata{}
			if err := yaml.NewDecoder(io.LimitReader(entries, maxMetadata)).Decode(metadata); err != nil {
				return nil, false, &FileError{"its " + metadataFile + " can't be read: " + err.Error(), againRemedy}
			}
		}
	}
	if metadata == nil {
		return nil, false, &FileError{"it is not an image of LXD: it has no " + metadataFile, convertRemedy}
	}
	return metadata, hasDisk, nil
}

// decompress returns nil for what only LXD can.
func decompress(file *io.SectionReader) (io.Reader, error) {
	head := make([]byte, 512)
	n, err := file.ReadAt(head, 0)
	switch head = head[:n]; {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case bytes.HasPrefix(head, []byte(gzipMagic)):
		plain, err := gzip.NewReader(file)
		if err != nil {
			return nil, &FileError{"it is not a tarball that can be read: " + err.Error(), againRemedy}
		}
		return plain, nil
	case bytes.HasPrefix(head, []byte(bzip2Magic)):
		return bzip2.NewReader(file), nil
	case isTarball(head) && len(head) >= 262 && string(head[257:262]) == "ustar":
		return file, nil
	case isTarball(head):
		return nil, nil
	}
	return nil, &FileError{"it is not a tarball", "give the tarball that has " + metadataFile}
}

func (f *ImageFile) sum(ctx context.Context, seen func(int64)) error {
	sum := sha256.New()
	total := &counted{ctx: ctx, seen: seen}
	for _, part := range f.content {
		total.from = io.NewSectionReader(part, 0, part.Size())
		if _, err := io.Copy(sum, total); err != nil {
			return err
		}
	}
	f.Fingerprint = hex.EncodeToString(sum.Sum(nil))
	return nil
}

// body returns what is sent.
func (f *ImageFile) body(sent func(int64)) (body io.Reader, contentType string) {
	var all []io.Reader
	for i, part := range f.content {
		if f.boundary != nil {
			all = append(all, bytes.NewReader(f.boundary[i]))
		}
		all = append(all, io.NewSectionReader(part, 0, part.Size()))
	}
	if f.boundary != nil {
		all = append(all, bytes.NewReader(f.boundary[len(f.content)]))
	}
	return &counted{ctx: context.Background(), from: io.MultiReader(all...), seen: sent}, f.contentType
}

// counted reports how many bytes were read, until the context ends.
type counted struct {
	ctx  context.Context
	from io.Reader
	n    int64
	seen func(int64)
}

func (c *counted) Read(into []byte) (int, error) {
	if err := context.Cause(c.ctx); err != nil {
		return 0, err
	}
	n, err := c.from.Read(into)
	if c.n += int64(n); n > 0 {
		c.seen(c.n)
	}
	return n, err
}
