// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

func (s *Simulator) renderImage(im *image) object {
	_, series := im.release()
	_, subarch, _ := strings.Cut(im.architecture, "/")
	out := object{
		"id": im.id, "type": "Synced", "name": im.name, "architecture": im.architecture,
		"subarches": subarch, "resource_uri": fmt.Sprintf("%sboot-resources/%d/", apiRoot, im.id),
	}
	if s.version.AtLeast(3, 4, 0) {
		out["last_deployed"] = nil
		if !im.lastDeployed.IsZero() {
			out["last_deployed"] = httpTime(im.lastDeployed)
		}
	}
	if im.uploaded {
		out["type"], out["title"] = "Uploaded", im.title
		if s.version.AtLeast(3, 5, 0) && im.baseImage != "" {
			out["base_image"] = im.baseImage
		}
		return out
	}
	kernel := orDefault(seriesKernel[series], series)
	out["subarches"] = "generic,hwe-" + kernel + ",ga-" + kernel
	out["platform"], out["supported_platforms"] = "generic", "generic"
	return out
}

// renderSets are the sets of an image, which the list lacks.
func (s *Simulator) renderSets(im *image) object {
	out := object{}
	for _, set := range im.sets {
		files := object{}
		for _, file := range set.files {
			files[file.name] = s.renderFile(im, file)
		}
		rendered := object{
			"version": set.version, "label": set.label, "size": set.size(), "complete": set.complete(s.version), "files": files,
		}
		if !set.complete(s.version) {
			rendered["progress"] = set.progress(s.version)
		}
		out[set.version] = rendered
	}
	return out
}

func (s *Simulator) renderFile(im *image, file *imageFile) object {
	out := object{
		"filename": file.name, "filetype": file.kind, "sha256": file.sha256, "size": file.size, "complete": file.complete(s.version),
	}
	if s.version.AtLeast(3, 5, 0) {
		out["filename_on_disk"] = file.sha256[:min(7, len(file.sha256))]
	}
	if !file.complete(s.version) {
		out["progress"] = file.progress(s.version)
		if im.uploaded {
			out["upload_uri"] = fmt.Sprintf("%sboot-resources/%d/upload/%d/", apiRoot, im.id, file.id)
		}
	}
	return out
}

// there returns how many bytes of the file MAAS has.
func (f *imageFile) there(v maas.Version) int64 {
	switch {
	case f.everyoneHasSynced:
		return f.size
	case v.AtLeast(3, 8, 0):
		return f.synced
	}
	return int64(len(f.stored.content))
}

func (f *imageFile) complete(v maas.Version) bool { return f.there(v) == f.size }

// progress is a percentage. Until MAAS 3.4 it is the size divided by what is there of it (LargeFile.progress in
// maasserver/models/largefile.py).
func (f *imageFile) progress(v maas.Version) float64 {
	there := float64(f.there(v))
	switch {
	case there == 0:
		return 0
	case v.AtLeast(3, 5, 0):
		return 100 * there / float64(f.size)
	}
	return float64(f.size) / there
}

func (set *imageSet) size() (n int64) {
	for _, file := range set.files {
		n += file.size
	}
	return n
}

func (set *imageSet) complete(v maas.Version) bool {
	return len(set.files) > 0 && !slices.ContainsFunc(set.files, func(f *imageFile) bool { return !f.complete(v) })
}

func (set *imageSet) progress(v maas.Version) float64 {
	var there int64
	for _, file := range set.files {
		there += file.there(v)
	}
	if there == 0 {
		return 0
	}
	return 100 * float64(there) / float64(set.size())
}

// completeSet returns the newest complete set, which machines are deployed with, or nil.
func (im *image) completeSet(v maas.Version) *imageSet {
	for _, set := range slices.Backward(im.sets) {
		if set.complete(v) {
			return set
		}
	}
	return nil
}

func (rq *request) listImages() (any, error) {
	kind := orDefault(strings.ToLower(rq.query.get("type")), "all")
	types := []string{"synced", "uploaded"}
	if !rq.version.AtLeast(3, 5, 0) {
		types = []string{"synced", "generated", "uploaded"}
	}
	if kind != "all" && !slices.Contains(types, kind) {
		return nil, badRequest("'%s' is not a valid boot resource type. Available types: ['%s']", kind, strings.Join(types, "', '"))
	}
	sorted := slices.Clone(rq.db.images)
	slices.SortStableFunc(sorted, func(a, b *image) int {
		if a.uploaded != b.uploaded {
			return map[bool]int{false: -1, true: 1}[a.uploaded]
		}
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.architecture, b.architecture))
	})
	out := []any{}
	for _, im := range sorted {
		if kind == "all" || kind == "uploaded" && im.uploaded || kind == "synced" && !im.uploaded {
			out = append(out, rq.renderImage(im))
		}
	}
	return out, nil
}

// image returns the one of the path.
func (rq *request) image() (*image, error) {
	id, err := strconv.Atoi(rq.vars[0])
	for _, im := range rq.db.images {
		if err == nil && im.id == id {
			return im, nil
		}
	}
	return nil, notFound("BootResource")
}

func (rq *request) readImage() (any, error) {
	im, err := rq.image()
	if err != nil {
		return nil, err
	}
	return rq.renderWithSets(im), nil
}

func (rq *request) renderWithSets(im *image) object {
	out := rq.renderImage(im)
	out["sets"] = rq.renderSets(im)
	return out
}

// mayEditImages refuses who may not edit images.
func (rq *request) mayEditImages() error { return rq.check(editBootEntities, adminOnly()) }

// deleteImage deletes one. MAAS looks an unknown one up in a way whose error is its own.
func (rq *request) deleteImage() (any, error) {
	if err := rq.mayEditImages(); err != nil {
		return nil, err
	}
	im, err := rq.image()
	if err != nil {
		return nil, textError(500, "BootResource matching query does not exist.")
	}
	rq.db.images = slices.DeleteFunc(rq.db.images, func(other *image) bool { return other == im })
	return noContent{}, nil
}

// listRegionControllers lists the only one. Each of them has files of its own from MAAS 3.5 on.
func (rq *request) listRegionControllers() (any, error) {
	if !rq.may(rq.user, viewControllers) {
		return []any{}, nil
	}
	return []any{object{
		"system_id": "r9x2qa", "hostname": "maas", "node_type": 4, "node_type_name": "Region and rack controller",
		"resource_uri": apiRoot + "regioncontrollers/r9x2qa/",
	}}, nil
}
