// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

// ignore is for who does not want to know how far a transfer is.
func ignore(int64) {}

func section(content string) *io.SectionReader {
	return io.NewSectionReader(strings.NewReader(content), 0, int64(len(content)))
}

func (b *bed) anImage(content string) *ImageFile {
	b.t.Helper()
	image, err := NewImageFile(b.t.Context(), section(string(b.aDisk(content))), nil, architecture, ignore)
	b.must(err)
	return image
}

// aTarball is one with files, as it is or compressed by gzip.
func (b *bed) aTarball(compressed bool, files ...[2]string) *io.SectionReader {
	b.t.Helper()
	var content bytes.Buffer
	var to io.WriteCloser = nopCloser{&content}
	if compressed {
		to = gzip.NewWriter(&content)
	}
	w := tar.NewWriter(to)
	for _, file := range files {
		b.must(w.WriteHeader(&tar.Header{Name: file[0], Mode: 0o644, Size: int64(len(file[1]))}))
		_, err := io.WriteString(w, file[1])
		b.must(err)
	}
	b.must(errors.Join(w.Close(), to.Close()))
	return section(content.String())
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

var aMetadata = [2]string{"metadata.yaml", "architecture: " + architecture + "\ncreation_date: 1\n"}

// elsewhereToo is a second project of the LXD, with other keys: it fetches an image from an address, as any host would.
func (b *bed) elsewhereToo() (*Host, Options) {
	b.t.Helper()
	keys := newKeys(b.t)
	node, err := lxdnode.Connect(b.t.Context(), b.daemon.Socket())
	b.must(err)
	_, err = node.Trust(b.t.Context(), "elsewhere", elsewhere, keys.Certificate)
	b.must(err)
	there := b.direct
	there.Project, there.ClientCertificate, there.ClientKey = elsewhere, keys.Certificate, keys.Key
	return b.connect(there), there
}

func (b *bed) imageOf(h *Host, fingerprint string) *Image {
	b.t.Helper()
	seen, err := h.read(b.t.Context())
	b.must(err)
	for i := range seen.Images {
		if seen.Images[i].Fingerprint == fingerprint {
			return &seen.Images[i]
		}
	}
	return nil
}

func TestAnImageIsCopied(t *testing.T) {
	b := newBed(t)
	fingerprint := b.upload("a/b", "a")
	other, _ := b.elsewhereToo()
	image := ImageCopy{Alias: "a/b", Fingerprint: fingerprint, From: b.direct}
	for range 2 { // Again, and it is no error.
		b.must(other.CopyImage(t.Context(), image, b.host))
	}
	seen, err := other.read(t.Context())
	b.must(err)
	if got := seen.Image("a/b"); got.Fingerprint != fingerprint || got.Brought != "" {
		t.Errorf("the images are %+v", seen.Images)
	}
	s := cloned("vm", fingerprint)
	b.must(other.Clone(t.Context(), s, seen))
	if got := b.imageOf(other, fingerprint); len(got.Users) != 1 || got.Users[0] != "vm" {
		t.Errorf("the image is used by %v", got.Users)
	}
	b.must(other.Delete(t.Context(), "vm", ours, time.Time{}))
	image = ImageCopy{Alias: "c", Fingerprint: strings.Repeat("ab", 32), From: b.direct}
	wantKind(t, other.CopyImage(t.Context(), image, b.host), KindNotFound)
}

// One LXD reads it from the other, whose certificate it checks.
func TestAnImageIsCopiedFromAnotherLXD(t *testing.T) {
	a, b := newBed(t), anotherBed(t)
	fingerprint := a.upload("a/b", "a")
	from := a.direct
	from.Address = lxdtest.Forward(t, a.daemon, address)
	lxdtest.Open(t, b.daemon, from.Address)
	image := ImageCopy{Alias: "a/b", Fingerprint: fingerprint, From: from}
	image.From.ServerCertificate = b.direct.ServerCertificate
	if err := b.host.CopyImage(t.Context(), image, a.host); err == nil {
		t.Error("it was read from a server with another certificate")
	}
	image.From = from
	b.must(b.host.CopyImage(t.Context(), image, a.host))
	seen := b.reading()
	if got := seen.Image("a/b"); got.Fingerprint != fingerprint || got.DiskBytes != imageBytes {
		t.Errorf("the images are %+v", seen.Images)
	}
	b.must(b.host.Clone(t.Context(), cloned("vm", fingerprint), seen))
}

// Only an image that this management cluster brought to this host is removed, when nothing uses it.
func TestAnImageThatWasBroughtIsRemoved(t *testing.T) {
	b := newBed(t)
	other, there := b.elsewhereToo()
	mark := there.Mark("us")
	bring := func(alias, content string) (string, error) {
		fingerprint := b.upload(alias, content)
		return fingerprint, other.CopyImage(t.Context(), ImageCopy{
			Alias: alias, Fingerprint: fingerprint, From: b.direct, Brought: mark.Of(fingerprint, alias),
		}, b.host)
	}
	brought, err := bring("brought", "brought")
	b.must(err)
	if alias, is := mark.Alias(b.imageOf(other, brought)); !is || alias != "brought" {
		t.Errorf("it was brought under %q: %v: %+v", alias, is, b.imageOf(other, brought))
	}
	for name, stranger := range map[string]Mark{"another": there.Mark("them"), "a nameless": there.Mark(""), "another host's": b.direct.Mark("us")} {
		if wantKind(t, other.RemoveBrought(t.Context(), brought, stranger), KindConflict); b.imageOf(other, brought) == nil {
			t.Fatalf("%s mark removed it", name)
		}
	}
	seen, err := other.read(t.Context())
	b.must(err)
	b.must(other.Clone(t.Context(), cloned("vm", brought), seen))
	wantKind(t, other.RemoveBrought(t.Context(), brought, mark), KindConflict)
	b.must(other.Delete(t.Context(), "vm", ours, time.Time{}))
	paused := *other // A person may have uploaded it meanwhile.
	paused.sendWithin = time.Nanosecond
	if wantKind(t, paused.RemoveBrought(t.Context(), brought, mark), KindTooLate); b.imageOf(other, brought) == nil {
		t.Fatal("it was removed on what was seen too long ago")
	}
	for range 2 {
		b.must(other.RemoveBrought(t.Context(), brought, mark))
	}
	if b.imageOf(other, brought) != nil {
		t.Error("it is still there")
	}

	// What a person has, or takes for a person's, stays.
	for name, take := range map[string]func(fingerprint, alias string) error{
		"uploaded": func(_, alias string) error { return other.Upload(t.Context(), alias, b.anImage(alias), ignore) },
		"copied": func(fingerprint, alias string) error {
			return other.CopyImage(t.Context(), ImageCopy{Alias: alias, Fingerprint: fingerprint, From: b.direct, Keep: true}, b.host)
		},
		"named": func(fingerprint, _ string) error {
			return other.CopyImage(t.Context(), ImageCopy{Alias: "mine", Fingerprint: fingerprint, From: b.direct, Brought: mark.Of(fingerprint, "mine")}, b.host)
		},
	} {
		fingerprint, err := bring(name, name)
		b.must(err)
		b.must(take(fingerprint, name))
		if wantKind(t, other.RemoveBrought(t.Context(), fingerprint, mark), KindConflict); b.imageOf(other, fingerprint) == nil {
			t.Errorf("one that a person %s is gone", name)
		}
	}

	// The name of a person's image is not taken away, and what is theirs gets no mark.
	b.must(other.Upload(t.Context(), "theirs", b.anImage("theirs"), ignore))
	_, err = bring("theirs", "other")
	wantKind(t, err, KindConflict)
	_, err = bring("second", "theirs")
	b.must(err)
	if got := b.imageOf(other, b.anImage("theirs").Fingerprint); got.Brought != "" || len(got.Aliases) != 2 {
		t.Errorf("a person's image is %+v", got)
	}
}

func TestImages(t *testing.T) {
	b := newBed(t)
	first, second := b.upload("a/b", "first"), b.upload("c", "second")
	if first == second {
		t.Fatal("two images have one fingerprint")
	}
	if again := b.upload("d", "first"); again != first {
		t.Errorf("the same again is %s, want %s", again, first)
	}
	if moved := b.upload("c", "third"); moved == second || b.names()[moved] != "c" {
		t.Errorf("the images are %v, want c to be %s", b.names(), moved)
	}
	if got := b.names(); got[first] != "a/b d" || got[second] != "" || len(got) != 3 {
		t.Errorf("the images are %v", got)
	}
}

// names are the aliases of the images, joined by a space, by fingerprint.
func (b *bed) names() map[string]string {
	b.t.Helper()
	all := map[string]string{}
	for _, image := range b.reading().Images {
		all[image.Fingerprint] = strings.Join(image.Aliases, " ")
	}
	return all
}

// An upload that ends before its end adds nothing, and is repeated. So does a file that changed after it was read.
func TestAnUploadThatBreaksOffAddsNothing(t *testing.T) {
	b := newBed(t)
	isUpload := func(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Path == "/1.0/images" }
	change, _ := atNth(isUpload, 1, false, func(_ http.Handler, _ http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, 1<<10)
		cut()
	})
	b.between.set(change)
	wantKind(t, b.host.Upload(t.Context(), "tiny", b.anImage("a"), ignore), KindUnreachable)
	b.between.set(nil)
	changed := b.anImage("a")
	changed.Fingerprint = strings.Repeat("ab", 32)
	if err := b.host.Upload(t.Context(), "tiny", changed, ignore); err == nil {
		t.Error("a file that changed became an image")
	}
	if got := b.names(); len(got) > 0 {
		t.Errorf("there are the images %v", got)
	}
	b.upload("tiny", "a")
}

// What the host has is not sent again, and the one who uploads sees how far it is.
func TestAnImageIsSentOnce(t *testing.T) {
	b := newBed(t)
	image := b.anImage("a")
	uploads := func() (n int) {
		for _, call := range b.between.during(func() { b.must(b.host.Upload(t.Context(), "a", image, func(sent int64) { n = int(sent) })) }) {
			if call == "POST /1.0/images" {
				return n
			}
		}
		return 0
	}
	if first, again := uploads(), uploads(); int64(first) != image.Bytes || again != 0 {
		t.Errorf("%d bytes were sent, then %d; want %d, then none", first, again, image.Bytes)
	}
	if got := b.imageOf(b.host, image.Fingerprint); got.DiskBytes != imageBytes || got.Bytes != image.Bytes {
		t.Errorf("it is %+v", got)
	}
}

// LXD's own images are uploaded as they are.
func TestImagesOfLXD(t *testing.T) {
	b := newBed(t)
	disk := string(b.aDisk("a"))
	rootfs := [2]string{"rootfs.img", disk}
	for name, files := range map[string][2]*io.SectionReader{
		"split": {section(disk), b.aTarball(false, aMetadata)}, "split-gz": {section(disk), b.aTarball(true, aMetadata)},
		"unified": {b.aTarball(false, aMetadata, rootfs)}, "unified-gz": {b.aTarball(true, rootfs, aMetadata)},
		"unified-xz": {b.xz(b.aTarball(false, aMetadata, rootfs))},
	} {
		image, err := NewImageFile(t.Context(), files[0], files[1], "", ignore)
		b.must(err)
		b.must(b.host.Upload(t.Context(), name, image, ignore))
		seen := b.reading()
		if got := seen.Image(name); got.Fingerprint != image.Fingerprint || got.Architecture != architecture {
			t.Errorf("%s is %+v, want the fingerprint %s", name, got, image.Fingerprint)
		}
		if known := name != "unified-xz"; (image.Architecture == architecture) != known {
			t.Errorf("%s: the architecture is %q", name, image.Architecture)
		}
		b.must(b.host.Clone(t.Context(), cloned(name, image.Fingerprint), seen))
		b.must(b.host.Delete(t.Context(), name, ours, time.Time{}))
	}
	container, err := NewImageFile(t.Context(), b.xz(b.aTarball(false, aMetadata, [2]string{"rootfs/a", "a"})), nil, "", ignore)
	b.must(err)
	wantKind(t, b.host.Upload(t.Context(), "container", container, ignore), KindInvalid)
	if all, err := b.server.GetImages(); err != nil || len(all) != 5 {
		t.Errorf("there are %d images (%v), want no container's", len(all), err)
	}
}

func (b *bed) xz(file *io.SectionReader) *io.SectionReader {
	b.t.Helper()
	command := exec.CommandContext(b.t.Context(), "xz", "-0", "-c")
	command.Stdin = file
	out, err := command.Output()
	b.must(err)
	return section(string(out))
}

func TestFilesThatAreNoImages(t *testing.T) {
	lxdtest.Require(t) // and with it qemu-img
	b := &bed{t: t}
	disk := string(b.aDisk(strings.Repeat("a", 1<<20)))
	base := filepath.Join(t.TempDir(), "base.qcow2")
	for _, args := range [][]string{
		{"create", "-f", "qcow2", base, "1M"}, {"create", "-f", "qcow2", "-b", base, "-F", "qcow2", base + ".top"},
		{"create", "-f", "qcow2", "-o", "data_file=" + base + ".data", base + ".outside", "1M"},
	} {
		if out, err := exec.CommandContext(t.Context(), "qemu-img", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	read := func(path string) *io.SectionReader {
		content, err := os.ReadFile(path)
		b.must(err)
		return section(string(content))
	}
	for name, files := range map[string][2]*io.SectionReader{
		"a raw disk":             {section(strings.Repeat("\x00", 4096))},
		"nothing":                {section("")},
		"half a disk":            {section(disk[:len(disk)/2])},
		"a header":               {section(disk[:20])},
		"a disk on another one":  {read(base + ".top")},
		"a disk of two files":    {read(base + ".outside")},
		"a container":            {b.aTarball(true, aMetadata, [2]string{"rootfs/a", "a"})},
		"another tarball":        {b.aTarball(true, [2]string{"a", "a"})},
		"half a tarball":         {section("\x1f\x8b\x08\x00\x00\x00\x00\x00")},
		"bad metadata":           {b.aTarball(true, [2]string{"metadata.yaml", "\t-"}, [2]string{"rootfs.img", disk})},
		"a tarball and metadata": {b.aTarball(true, aMetadata), b.aTarball(true, aMetadata)},
		"a disk and no metadata": {section(disk), b.aTarball(true, [2]string{"a", "a"})},
		"a disk and no tarball":  {section(disk), section(disk)},
	} {
		_, err := NewImageFile(t.Context(), files[0], files[1], architecture, ignore)
		var wrong *FileError
		if !errors.As(err, &wrong) || wrong.Problem == "" || wrong.Remedy == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := NewImageFile(ctx, section(disk), nil, architecture, ignore); !errors.Is(err, context.Canceled) {
		t.Errorf("it is read although nobody waits: %v", err)
	}
}
