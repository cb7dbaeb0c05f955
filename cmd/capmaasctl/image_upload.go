// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/images"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
)

// imageOptions are those of the commands of images.
type imageOptions struct {
	name, title, architecture, base, fileType string
	replace, restart                          bool
	cluster, metadata                         string
	hosts                                     []string // --lxd-host
}

// fileTypes are what MAAS calls the types of files, by the end of a file's name; the first that fits counts.
var fileTypes = [][2]string{
	{".tar.gz", "tgz"}, {".tgz", "tgz"}, {".tar.bz2", "tbz"}, {".tbz", "tbz"}, {".tar.xz", "txz"}, {".txz", "txz"},
	{".gz", "ddgz"}, {".bz2", "ddbz2"}, {".xz", "ddxz"}, {".raw", "ddraw"}, {".img", "ddraw"},
}

// knownFileTypes are all types. No file name shows the last four: tar files of an image of a disk.
var knownFileTypes = []string{"tgz", "tbz", "txz", "ddgz", "ddbz2", "ddxz", "ddraw", "ddtgz", "ddtbz", "ddtxz", "ddtar"}

func uploadImageCommand() command {
	return command{
		use: "upload FILE", short: "Upload a file to MAAS or LXDHosts as an image, also what was interrupted",
		long: `It sends the file in pieces, and shows how far it is. Interrupted, it goes on there when it is
run again. A file that MAAS has is not sent.
It is for ` + rights.ImageUpload.Users("") + `.
With --lxd-host it goes to one LXDHost, as a whole, and the others copy it from there. FILE is a
disk in the format qcow2, or an image of LXD.`,
		example: `image upload ubuntu-2404-efi-kube-v1.35.0.tar.gz --name=custom/u-2404-k8s-1.35.0 --base-image=ubuntu/noble
image upload ubuntu-2404-kube-v1.35.0.qcow2 --name=custom/u-2404-k8s-1.35.0 --lxd-host="*"`,
		page:      "image-upload.md",
		needsMAAS: true, inNamespace: true, hasTimeout: true,
		byDefault: func(o *options) { o.image.architecture, o.timeout = "amd64", 0 },
		flags: func(o *options, fs *pflag.FlagSet) {
			fs.StringVar(&o.image.name, "name", "", "Name of the image, as spec.image has it: custom/NAME, or an operating "+
				"system of MAAS and a release.")
			o.addArchitectureFlag(fs)
			o.addHostsFlag(fs)
			fs.StringVar(&o.image.metadata, "lxd-metadata", "",
				"The other file of an image of LXD in two files: the tarball with its metadata. FILE is the disk.")
			fs.StringVar(&o.image.title, "title", "", "Title that MAAS's web interface shows.")
			fs.StringVar(&o.image.base, "base-image", "", "What it is built on, such as ubuntu/noble. Default: what MAAS "+
				"commissions machines with.")
			fs.StringVar(&o.image.fileType, "file-type", "", "tgz, tbz, txz: a root file system; ddgz, ddbz2, ddxz, ddraw, "+
				"ddtgz, ddtbz, ddtxz, ddtar: a disk. Default: by the file's name.")
			fs.BoolVar(&o.image.replace, "replace", false, "Let MAAS drop the file that it has under this name, or an LXDHost "+
				"give the name to this image. It does so at once.")
			fs.BoolVar(&o.image.restart, "restart", false, "Begin an unfinished upload of this file anew.")
		},
		complete: (*options).completeUpload,
		act: func(ctx context.Context, o options, s surroundings) int {
			if len(o.image.hosts) > 0 {
				return uploadToHosts(ctx, o, s)
			}
			return uploadImage(ctx, o, s)
		},
	}
}

func (o *options) addArchitectureFlag(fs *pflag.FlagSet) {
	fs.StringVar(&o.image.architecture, "architecture", o.image.architecture,
		"Architecture of the machines, such as amd64 or arm64.")
}

// completeUpload sets the type of the file, and makes the architecture MAAS's.
func (o *options) completeUpload(flags *pflag.FlagSet) {
	o.object = flags.Arg(0)
	switch parts := strings.Split(o.image.name, "/"); {
	case o.image.name == "":
		o.wrong("--name is missing: the name of the image, such as custom/u-2404-k8s-1.35.0")
	case len(parts) > 2 || slices.Contains(parts, "") || strings.ContainsAny(o.image.name, " \t\n"):
		o.wrong("--name: %q is neither NAME nor SYSTEM/RELEASE", o.image.name)
	}
	if o.image.architecture != "" && !strings.Contains(o.image.architecture, "/") {
		o.image.architecture += "/generic"
	}
	if o.image.architecture == "" {
		o.wrong("--architecture: it is empty: give one such as amd64")
	}
	if len(o.image.hosts) > 0 {
		o.completeHosts(flags, "title", "base-image", "file-type", "restart")
		return
	}
	if o.image.metadata != "" {
		o.wrong("--lxd-metadata is for LXDHosts: add --lxd-host")
	}
	for _, pair := range fileTypes {
		if o.image.fileType == "" && strings.HasSuffix(filepath.Base(o.object), pair[0]) {
			o.image.fileType = pair[1]
		}
	}
	switch _, err := os.Stat(o.object); {
	case o.object == "":
	case err != nil:
		o.wrong("%s: %v", o.object, errors.Unwrap(err))
	case o.image.fileType == "":
		o.wrong("--file-type is missing: the name %s does not tell it", filepath.Base(o.object))
	}
	if o.image.fileType != "" && !slices.Contains(knownFileTypes, o.image.fileType) {
		o.wrong("--file-type: MAAS knows no %q, but %s", o.image.fileType, strings.Join(knownFileTypes, ", "))
	}
}

// uploadImage uploads to MAAS. A person sees how far it is.
func uploadImage(ctx context.Context, o options, s surroundings) int {
	file, size, err := openImage(o.object)
	if err != nil {
		return s.end(err)
	}
	defer file.Close()
	shown := newMeter(s.err, "reading", size)
	digest, size, err := images.Digest(ctx, file, shown.at)
	shown.done()
	if err != nil {
		return s.end(fmt.Errorf("reading %s: %w; nothing was sent", o.object, err))
	}
	shown = newMeter(s.err, "uploading", size)
	result, err := images.NewService(o.region).Ensure(ctx,
		maas.Unrecorded("a person runs it, and can run it again: it finds out what MAAS has"), file, images.Upload{
			CreateImageParams: maas.CreateImageParams{
				Name: o.image.name, Title: o.image.title, Architecture: o.image.architecture, BaseImage: o.image.base,
				FileType: o.image.fileType, SHA256: digest, Size: size,
			},
			Replace: o.image.replace, Restart: o.image.restart,
		}, shown.at)
	shown.done()
	if err != nil {
		return s.endWith(explainImage(err))
	}
	s.say("image/"+result.Image.DeployName(), result.Already,
		fmt.Sprintf("uploaded (%s, %s, sha256 %s)", o.image.architecture, bytesOf(size), digest))
	if result.Resumed > 0 && !result.Already {
		fmt.Fprintf(s.err, "MAAS had %s of it already.\n", bytesOf(result.Resumed))
	}
	if result.Syncing {
		fmt.Fprintln(s.err, "MAAS's other region controllers still copy it: machines can be deployed with it when "+
			"`capmaasctl image check` says so.")
	}
	return exitOK
}

func openImage(name string) (*os.File, int64, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is no regular file: name the image's file", name)
	case info.Size() == 0:
		err = fmt.Errorf("%s is empty: name the image's file", name)
	default:
		return file, info.Size(), nil
	}
	return nil, 0, errors.Join(err, file.Close())
}

// explainImage returns the meaning of an error of pkg/maas/images, and the remedy.
func explainImage(err error) (found, remedy string) {
	var wrong *images.Error
	var lacking *machine.ImageError
	var answer *maas.Error
	switch {
	case errors.As(err, &wrong):
		return err.Error(), wrong.Remedy
	case errors.As(err, &lacking):
		return lacking.Found(), lacking.Remedy() + "; `capmaasctl image list` shows what MAAS has"
	case maas.InvalidField(err, "architecture"):
		return maas.Message(err), "MAAS takes the architectures for which it has synced an Ubuntu"
	case errors.As(err, &answer) && answer.Kind == maas.Invalid:
		return "MAAS refuses it: " + answer.Message, ""
	}
	return inFlagsOfMAAS.Explain(err)
}

// bytesOf shows a size.
func bytesOf(n int64) string {
	for _, unit := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= unit.size {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(unit.size), unit.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// meter shows how far something is: in one line of a terminal, or in a line for each tenth.
type meter struct {
	to       io.Writer
	what     string
	whole    int64
	terminal bool
	step     int64 // in percent
	last     int64
	any      bool
}

func newMeter(to io.Writer, what string, whole int64) *meter {
	p := &meter{to: to, what: what, whole: whole, step: 10, last: -1}
	if file, ok := to.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		p.terminal, p.step = true, 1
	}
	return p
}

func (p *meter) at(n int64) {
	percent := 100 * n / max(p.whole, 1)
	if percent/p.step == p.last {
		return
	}
	p.last, p.any = percent/p.step, true
	if p.terminal {
		fmt.Fprintf(p.to, "\r%s: %s of %s (%d %%)   ", p.what, bytesOf(n), bytesOf(p.whole), percent)
		return
	}
	fmt.Fprintf(p.to, "%s: %s of %s (%d %%)\n", p.what, bytesOf(n), bytesOf(p.whole), percent)
}

// done ends the line.
func (p *meter) done() {
	if p.terminal && p.any {
		fmt.Fprintln(p.to)
	}
}
