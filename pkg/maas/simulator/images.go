// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"strconv"
	"strings"
)

func (s *Simulator) renderImage(im *image) object {
	_, series := im.release()
	out := object{
		"id": im.id, "type": "Synced", "name": im.name, "architecture": im.architecture,
		"subarches": "generic", "resource_uri": fmt.Sprintf("%sboot-resources/%d/", apiRoot, im.id),
	}
	if s.version.atLeast(4) {
		out["last_deployed"] = nil
		if !im.lastDeployed.IsZero() {
			out["last_deployed"] = httpTime(im.lastDeployed)
		}
	}
	if im.uploaded {
		out["type"] = "Uploaded"
		return out
	}
	kernel := orDefault(seriesKernel[series], series)
	out["subarches"] = "generic,hwe-" + kernel + ",ga-" + kernel
	out["platform"], out["supported_platforms"] = "generic", "generic"
	return out
}

func (rq *request) listImages() (any, error) {
	kind := strings.ToLower(rq.query.get("type"))
	if kind != "" && kind != "synced" && kind != "uploaded" {
		return nil, badRequest("'%s' is not a valid boot resource type. Available types: ['synced', 'uploaded']", kind)
	}
	out := []any{}
	for _, im := range rq.db.images {
		if kind == "" || (kind == "uploaded") == im.uploaded {
			out = append(out, rq.renderImage(im))
		}
	}
	return out, nil
}

func (rq *request) readImage() (any, error) {
	id, err := strconv.Atoi(rq.vars[0])
	for _, im := range rq.db.images {
		if err == nil && im.id == id {
			out := rq.renderImage(im)
			out["sets"] = object{"20261101": object{
				"version": "20261101", "label": "stable", "size": 0, "complete": true, "progress": 100.0, "files": object{},
			}}
			return out, nil
		}
	}
	return nil, notFound("BootResource")
}

func (rq *request) isImporting() (any, error) { return false, nil }

func (rq *request) importImages() (any, error) {
	if err := rq.requireAdmin(); err != nil {
		return nil, err
	}
	return textReply("Import of boot resources started"), nil
}
