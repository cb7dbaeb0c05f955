// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

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

// otherFileTypes are those that no name tells: tar files of an image of a disk.
var otherFileTypes = []string{"ddtgz", "ddtbz", "ddtxz", "ddtar"}

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
		needsMAAS: true, inNamespace: true,
		byDefault: func(o *options) { o.image.architecture = "amd64" },
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
			fs.StringVar(&o.image.fileType, "file-type", "",
				"tgz, tbz, txz: a root file system; ddgz, ddbz2, ddxz, ddraw, ddtgz, ddtbz, ddtxz, ddtar: a disk. Default: by "+
					"the file's name.")
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
func (o *options) completeUpload(flags *pflag.FlagSet, _ surroundings) []string {
	o.object = flags.Arg(0)
	var problems []string
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	switch parts := strings.Split(o.image.name, "/"); {
	case o.image.name == "":
		wrong("--name is missing: the name of the image, such as custom/u-2404-k8s-1.35.0")
	case len(parts) > 2 || slices.Contains(parts, "") || strings.ContainsAny(o.image.name, " \t\n"):
		wrong("--name: %q is neither NAME nor SYSTEM/RELEASE", o.image.name)
	}
	if o.image.architecture != "" && !strings.Contains(o.image.architecture, "/") {
		o.image.architecture += "/generic"
	}
	if o.image.architecture == "" {
		wrong("--architecture: it is empty: give one such as amd64")
	}
	if len(o.image.hosts) > 0 {
		return append(problems, o.completeHosts(flags, "title", "base-image", "file-type", "restart")...)
	}
	if o.image.metadata != "" {
		wrong("--lxd-metadata is for LXDHosts: add --lxd-host")
	}
	var known []string
	for _, pair := range fileTypes {
		known = append(known, pair[1])
		if o.image.fileType == "" && strings.HasSuffix(filepath.Base(o.object), pair[0]) {
			o.image.fileType = pair[1]
		}
	}
	known = append(known, otherFileTypes...)
	switch _, err := os.Stat(o.object); {
	case o.object == "":
	case err != nil:
		wrong("%s: %v", o.object, errors.Unwrap(err))
	case o.image.fileType == "":
		wrong("--file-type is missing: the name %s does not tell it", filepath.Base(o.object))
	}
	if o.image.fileType != "" && !slices.Contains(known, o.image.fileType) {
		wrong("--file-type: MAAS knows no %q, but %s", o.image.fileType, strings.Join(slices.Compact(known), ", "))
	}
	return problems
}
