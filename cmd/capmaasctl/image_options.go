// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
)

// imageOptions are those of the commands of images.
type imageOptions struct {
	name, title, architecture, base, fileType string
	replace, restart                          bool
	cluster                                   string
}

// fileTypes are what MAAS calls the types of files, by the end of a file's name; the first that fits counts.
var fileTypes = [][2]string{
	{".tar.gz", "tgz"}, {".tgz", "tgz"}, {".tar.bz2", "tbz"}, {".tbz", "tbz"}, {".tar.xz", "txz"}, {".txz", "txz"},
	{".gz", "ddgz"}, {".bz2", "ddbz2"}, {".xz", "ddxz"}, {".raw", "ddraw"}, {".img", "ddraw"},
}

// otherFileTypes are those that no name tells: tar files of an image of a disk.
var otherFileTypes = []string{"ddtgz", "ddtbz", "ddtxz", "ddtar"}

func (o *options) addImageFlags(fs *pflag.FlagSet, c command) {
	o.addMAASFlags(fs)
	switch c.name {
	case "image upload":
		fs.StringVar(&o.image.name, "name", "", "Name of the image, as spec.image has it: custom/NAME, or an operating system of MAAS and a release.")
		fs.StringVar(&o.image.architecture, "architecture", "amd64", "Architecture of the machines that it is for.")
		fs.StringVar(&o.image.title, "title", "", "Title that MAAS's web interface shows.")
		fs.StringVar(&o.image.base, "base-image", "", "What it is built on, such as ubuntu/noble. Default: what MAAS commissions machines with.")
		fs.StringVar(&o.image.fileType, "file-type", "",
			"tgz, tbz, txz: a root file system; ddgz, ddbz2, ddxz, ddraw, ddtgz, ddtbz, ddtxz, ddtar: a disk. Default: by the file's name.")
		fs.BoolVar(&o.image.replace, "replace", false, "Let MAAS drop the file that it has under this name. It does so at once.")
		fs.BoolVar(&o.image.restart, "restart", false, "Begin an unfinished upload of this file anew.")
		return
	case "image check":
		fs.StringVar(&o.image.architecture, "architecture", "", "Architecture of the machines, such as arm64. Default: any.")
		fs.StringVar(&o.image.cluster, "cluster", "", "NAME or NAMESPACE/NAME of a cluster, whose images are checked instead.")
		o.addClusterFlags(fs, "a cluster that has none")
	}
	o.addCommonFlags(fs)
}

// completeImage sets o.maas, o.object and o.subject.
func (o *options) completeImage(c command, flags *pflag.FlagSet, s surroundings) []string {
	problems := o.completeMAAS(flags.Changed("maas-api-key"), s)
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	o.object = flags.Arg(0)
	if o.timeout <= 0 {
		wrong("--timeout: %s is no time to do anything in", o.timeout)
	}
	if outputs[o.output] == nil {
		wrong("--output: %q is neither text nor json", o.output)
	}
	switch {
	case c.name == "image upload":
		return append(problems, o.completeUpload()...)
	case c.name != "image check":
		return problems
	case (o.object == "") == (o.image.cluster == ""):
		wrong("give the NAME of an image, or --cluster")
	case o.image.cluster != "" && o.image.architecture != "":
		wrong("--architecture is for NAME: those of a cluster are known")
	case o.image.cluster != "":
		problems = append(problems, o.completeCluster(s)...)
		o.subject = types.NamespacedName{Namespace: o.namespace, Name: o.image.cluster}
		if namespace, name, both := strings.Cut(o.image.cluster, "/"); both {
			o.subject = types.NamespacedName{Namespace: namespace, Name: name}
		}
		if o.subject.Name == "" || (o.subject.Namespace == "" && len(problems) == 0) || strings.Contains(o.subject.Name, "/") {
			wrong("--cluster: %q is neither NAME nor NAMESPACE/NAME", o.image.cluster)
		}
	}
	return problems
}

// completeUpload sets the type of the file, and makes the architecture MAAS's.
func (o *options) completeUpload() []string {
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
		wrong("--architecture: it is empty")
	}
	var known []string
	for _, pair := range fileTypes {
		known = append(known, pair[1])
		if o.image.fileType == "" && strings.HasSuffix(filepath.Base(o.object), pair[0]) {
			o.image.fileType = pair[1]
		}
	}
	switch {
	case o.image.fileType == "" && o.object != "":
		wrong("--file-type is missing: the name of the file does not tell it")
	case o.image.fileType != "" && !slices.Contains(append(known, otherFileTypes...), o.image.fileType):
		wrong("--file-type: MAAS knows no %q", o.image.fileType)
	}
	return problems
}
