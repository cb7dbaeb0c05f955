// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// fileKinds are what MAAS calls the types of files that may be uploaded.
var fileKinds = map[string]string{
	"tgz": "root-tgz", "tbz": "root-tbz", "txz": "root-txz", "ddtgz": "root-dd", "ddtar": "root-dd.tar", "ddraw": "root-dd.raw",
	"ddtbz": "root-dd.tar.bz2", "ddtxz": "root-dd.tar.xz", "ddbz2": "root-dd.bz2", "ddgz": "root-dd.gz", "ddxz": "root-dd.xz",
}

// osystems are those that MAAS knows (OperatingSystemRegistry in provisioningserver/drivers/osystem), and linuxes those
// that an image may be based on.
var (
	osystems = []string{
		"ubuntu", "ubuntu-core", "bootloader", "centos", "rhel", "custom", "windows", "suse", "caringo", "esxi", "ol",
	}
	linuxes  = []string{"ubuntu", "centos", "rhel", "ol"}
	releases = []string{"xenial", "bionic", "focal", "jammy", "noble", "plucky", "questing", "resolute"}
	centOS   = regexp.MustCompile(`^centos\d\d?$`)
)

// uploadedName is what MAAS names an uploaded file of a kind.
func (s *Simulator) uploadedName(kind string) string {
	if compressed, ok := strings.CutPrefix(kind, "root-t"); ok && s.version.AtLeast(3, 5, 0) {
		return "root.t" + compressed
	}
	return kind
}

// usableArchitectures are those that a synced image can commission (get_usable_architectures in
// maasserver/models/bootresource.py).
func (s *Simulator) usableArchitectures() []string {
	var out []string
	for _, im := range s.db.images {
		if arch := im.arch() + "/generic"; !im.uploaded && strings.HasPrefix(im.name, "ubuntu/") && !slices.Contains(out, arch) {
			out = append(out, arch)
		}
	}
	slices.Sort(out)
	return out
}

// imageForm are the checked parameters of a new image.
type imageForm struct {
	name, baseImage, architecture, kind, sha256 string
	size                                        int64
}

// createImage is BootResourcesHandler.create (maasserver/api/boot_resources.py) without content, which 3.8 no longer
// takes: it makes a set with an empty file, and drops the files of the other sets.
func (rq *request) createImage() (any, error) {
	if err := rq.mayEditImages(); err != nil {
		return nil, err
	}
	f, err := rq.checkImageForm()
	if err != nil {
		return nil, err
	}
	var namesake *imageFile
	for _, im := range rq.db.images {
		for _, set := range im.sets {
			for _, file := range set.files {
				if file.sha256 == f.sha256 {
					namesake = file
				}
			}
		}
	}
	if namesake != nil && namesake.size != f.size {
		return nil, badRequest("File already exists with sha256 that is of different size.")
	}
	im := rq.uploadedImage(f.name, f.architecture)
	if im == nil {
		im = &image{id: rq.db.next("image"), name: f.name, architecture: f.architecture, uploaded: true}
		rq.db.images = append(rq.db.images, im)
	}
	im.title = rq.data.get("title")
	im.baseImage = orDefault(im.baseImage, f.baseImage)
	set := &imageSet{version: im.nextVersion(rq.time.clock.Now().UTC().Format("20060102")), label: "uploaded"}
	file := &imageFile{
		id: rq.db.next("image file"), set: set, name: rq.uploadedName(f.kind), kind: f.kind, sha256: f.sha256, size: f.size,
		stored: &storedFile{},
	}
	if namesake != nil && (!rq.version.AtLeast(3, 5, 0) || rq.version.AtLeast(3, 8, 0)) {
		file.stored = namesake.stored
		file.everyoneHasSynced = namesake.everyoneHasSynced && !rq.version.AtLeast(3, 8, 0)
	}
	set.files = []*imageFile{file}
	if !rq.data.checkbox("keep_old", false) {
		for _, old := range im.sets {
			old.files = nil
		}
	}
	im.sets = append(im.sets, set)
	return created(rq.renderWithSets(im)), nil
}

// nextVersion is get_next_version_name in maasserver/models/bootresource.py.
func (im *image) nextVersion(today string) string {
	found, last := false, 0
	for _, set := range im.sets {
		if rest, ok := strings.CutPrefix(set.version, today); ok {
			found = true
			if n, err := strconv.Atoi(strings.TrimPrefix(rest, ".")); err == nil {
				last = max(last, n)
			}
		}
	}
	if !found {
		return today
	}
	return fmt.Sprintf("%s.%d", today, last+1)
}

func (s *Simulator) uploadedImage(name, architecture string) *image {
	for _, im := range s.db.images {
		if im.uploaded && im.name == name && im.architecture == architecture {
			return im
		}
	}
	return nil
}

// checkImageForm is BootResourceNoContentForm (maasserver/forms; BootResourceForm from 3.8 on).
func (rq *request) checkImageForm() (imageForm, error) {
	errs := formErrors{}
	f := imageForm{architecture: rq.data.get("architecture"), sha256: rq.data.get("sha256")}
	var err error
	if f.name, err = rq.cleanImageName(errs); err != nil {
		return f, err
	}
	for _, field := range []string{"architecture", "sha256", "size"} {
		if rq.data.get(field) == "" {
			errs.add(field, "This field is required.")
		}
	}
	if choices := rq.usableArchitectures(); f.architecture != "" && !slices.Contains(choices, f.architecture) {
		errs.add("architecture", "'%s' is not a valid architecture.  It should be one of: '%s'.", f.architecture, strings.Join(choices, "', '"))
	}
	kind := orDefault(rq.data.get("filetype"), "tgz")
	if f.kind = fileKinds[kind]; f.kind == "" {
		errs.add("filetype", "Select a valid choice. %s is not one of the available choices.", kind)
	}
	switch n := len(f.sha256); {
	case n > 0 && n < 64:
		errs.add("sha256", "Ensure this value has at least 64 characters (it has %d).", n)
	case n > 64:
		errs.add("sha256", "Ensure this value has at most 64 characters (it has %d).", n)
	}
	f.size = int64(rq.data.integer("size", 0, errs))
	f.baseImage = rq.cleanBaseImage(f, errs)
	return f, errs.err()
}

// cleanImageName is clean_name of the form. A second slash is more than MAAS can take.
func (rq *request) cleanImageName(errs formErrors) (string, error) {
	name := rq.data.get("name")
	if name == "" {
		errs.add("name", "This field is required.")
		return "", nil
	}
	if len(name) > 255 {
		errs.add("name", "Ensure this value has at most 255 characters (it has %d).", len(name))
		return "", nil
	}
	osystem, release, both := strings.Cut(name, "/")
	known := osystems
	if !rq.version.AtLeast(3, 5, 0) {
		known = osystems[:len(osystems)-1] // Oracle Linux came later.
	}
	switch {
	case strings.Contains(release, "/"):
		return "", textError(http.StatusInternalServerError, "too many values to unpack (expected 2)")
	case both && osystem == "custom" && !rq.version.AtLeast(3, 8, 0):
		name = release
	case both && !slices.Contains(known, osystem):
		errs.add("name", "Unsupport operating system %s, supported operating systems: ['%s']", osystem, strings.Join(known, "', '"))
		return "", nil
	}
	reserved := slices.Concat(known, releases)
	for _, release := range releases {
		reserved = append(reserved, "ubuntu/"+release)
	}
	if slices.Contains(reserved, name) || centOS.MatchString(name) {
		errs.add("name", "%s is a reserved name", name)
	}
	return name, nil
}

// cleanBaseImage is clean_base_image of the form: the wanted one, that of the image, or what machines are commissioned
// with.
func (rq *request) cleanBaseImage(f imageForm, errs formErrors) string {
	if osystem, _, both := strings.Cut(rq.data.get("name"), "/"); both && osystem != "custom" {
		return ""
	}
	wanted := rq.data.get("base_image")
	base := wanted
	if im := rq.uploadedImage(f.name, f.architecture); base == "" && im != nil {
		base = im.baseImage
	}
	osystem, release, both := strings.Cut(strings.ToLower(base), "/")
	switch {
	case (!both || strings.Contains(release, "/")) && wanted == "":
		return "ubuntu/" + rq.configText("commissioning_distro_series")
	case !both || strings.Contains(release, "/"):
		errs.add("base_image", "a base image must follow the format: <osystem>/<series>")
	case !slices.Contains(linuxes, osystem):
		errs.add("base_image", "custom images require a valid non-custom OS type base image")
	case osystem == "ubuntu" && !slices.Contains(releases, release):
		errs.add("base_image", "please select a valid base image OS and version")
	}
	return osystem + "/" + release
}

// uploadPiece is BootResourceFileUploadHandler.update: it appends to the file, wherever the piece belongs.
func (rq *request) uploadPiece() (any, error) {
	if err := rq.mayEditImages(); err != nil {
		return nil, err
	}
	im, err := rq.image()
	if err != nil {
		return nil, err
	}
	file := rq.imageFile(rq.vars[1])
	size := max(rq.http.ContentLength, 0)
	switch {
	case file == nil:
		return nil, notFound("BootResourceFile")
	case size == 0:
		return nil, badRequest("Missing data.")
	case !im.uploaded && rq.version.AtLeast(3, 5, 0):
		return nil, forbidden("Cannot upload to a resource of type: 0.")
	case !im.uploaded:
		return nil, forbidden("Cannot upload to a resource of type: 0. ")
	case file.complete(rq.version):
		return nil, badRequest("Cannot upload to a complete file.")
	case int64(len(file.stored.content))+size > file.size:
		if rq.version.AtLeast(3, 8, 0) { // append_chunk in maasservicelayer/utils/image_local_files.py deletes it.
			file.stored.content = nil
		}
		return nil, badRequest("Too much data received.")
	}
	file.stored.content = append(file.stored.content, rq.raw...)
	sum := sha256.Sum256(file.stored.content)
	if int64(len(file.stored.content)) == file.size && hex.EncodeToString(sum[:]) != file.sha256 {
		if !rq.version.AtLeast(3, 8, 0) { // Rolled back; from 3.8 on that is only what the database knows of it.
			file.stored.content = file.stored.content[:len(file.stored.content)-len(rq.raw)]
		}
		return nil, badRequest("Saved content does not match given SHA256 value.")
	}
	file.synced += size
	return textReply("OK"), nil
}

// imageFile returns a file of any image, or nil.
func (s *Simulator) imageFile(id string) *imageFile {
	for _, im := range s.db.images {
		for _, set := range im.sets {
			for _, file := range set.files {
				if strconv.Itoa(file.id) == id {
					return file
				}
			}
		}
	}
	return nil
}
