// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capmaas/cluster-api-provider-maas/controllers/planner"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/images"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
)

// imageRow is an image for one architecture. The JSON names are part of the output's contract.
type imageRow struct {
	// Name is as spec.image has it.
	Name         string `json:"name"`
	Architecture string `json:"architecture"`
	Uploaded     bool   `json:"uploaded"`
	Title        string `json:"title,omitempty"`
	BaseImage    string `json:"baseImage,omitempty"`
	Size         int64  `json:"size"` // in bytes
	// Complete: MAAS has all of it, on all its region controllers.
	Complete bool `json:"complete"`
	// Machines are those that are deployed with it, of those that the user sees.
	Machines int `json:"machines"`
	// Problem is why no machine can be deployed with it, although MAAS has all of it, or why that is not known.
	Problem string `json:"problem,omitempty"`
}

// imageReport is the result of image list.
type imageReport struct {
	Command string     `json:"command"`
	OK      bool       `json:"ok"`
	Images  []imageRow `json:"images"`
	ending
}

func listImagesCommand() command {
	return command{
		use: "list", short: "List MAAS's images, and how many machines each is deployed on",
		long:    "It also says whether MAAS has all of each. Machines are those that the user of the API key may see.",
		example: "image list\nimage list -o yaml", page: "image-upload.md", needsMAAS: true, hasTimeout: true,
		find: listImages,
	}
}

func checkImageCommand() command {
	return command{
		use: "check [NAME]", short: "Check whether machines can be deployed with an image",
		long: `MAAS has to have it, all of it, and for their architecture. With --cluster it checks the images
that a cluster's new machines get, in that cluster's MAAS and on the LXDHosts of its VMs.
With --lxd-host it checks which of these LXDHosts have the image.
It changes nothing, and does not see into the image.`,
		example: `image check custom/u-2404-k8s-1.35.0 --architecture=arm64
image check custom/u-2404-k8s-1.35.0 --lxd-host="*" --namespace=default
image check --cluster=default/my-cluster`,
		page:      "image-upload.md",
		needsMAAS: true, inNamespace: true, hasTimeout: true,
		flags: func(o *options, fs *pflag.FlagSet) {
			o.addArchitectureFlag(fs)
			o.addHostsFlag(fs)
			fs.StringVar(&o.image.cluster, "cluster", "", "NAME or NAMESPACE/NAME of a Cluster, whose images are checked "+
				"instead.")
		},
		complete: (*options).completeImageCheck,
		find:     checkImages,
	}
}

func (o *options) completeImageCheck(flags *pflag.FlagSet) {
	o.object = flags.Arg(0)
	switch {
	case (o.object == "") == (o.image.cluster == ""):
		o.wrong("give the NAME of an image, or --cluster")
	case o.image.cluster != "" && len(o.image.hosts) > 0:
		o.wrong("--lxd-host is for NAME: the LXDHosts of a cluster are known")
	case len(o.image.hosts) > 0:
		o.completeHosts(flags, "architecture")
	case o.image.cluster != "" && o.image.architecture != "":
		o.wrong("--architecture is for NAME: those of a cluster are known")
	case o.image.cluster != "":
		o.nameIn("--cluster", o.image.cluster)
	}
}

func listImages(ctx context.Context, o options, _ surroundings) result {
	r := &imageReport{Command: "image list", Images: []imageRow{}}
	err := o.unconnected
	if err == nil {
		err = r.read(ctx, o.region)
	}
	if err != nil {
		r.Problem, r.Remedy = explainAll(err)
		r.Summary = "The images could not be listed."
		return r
	}
	incomplete := list.Where(r.Images, func(row imageRow) bool { return !row.Complete })
	r.Summary = fmt.Sprintf("%d image(s), %d of them incomplete.", len(r.Images), len(incomplete))
	return r
}

func (r *imageReport) read(ctx context.Context, client *maas.Client) error {
	all, err := client.ListImages(ctx)
	if err != nil {
		return err
	}
	machines, err := client.AllMachines(ctx) // Also those that can't be read, as far as they can.
	if err != nil {
		return err
	}
	r.OK = true
	users := map[string]int{}
	for _, m := range machines {
		processor, _, _ := strings.Cut(m.Architecture, "/")
		users[m.OSystem+"/"+m.DistroSeries+" "+processor]++
	}
	for _, image := range all {
		detail, err := client.GetImage(ctx, image.ID)
		if errors.Is(err, maas.NotFound) {
			continue // It was deleted meanwhile.
		}
		newest, _ := detail.Newest()
		row := imageRow{
			Name: image.DeployName(), Architecture: image.Architecture, Uploaded: image.Type == maas.ImageUploaded,
			Title:     image.Title,
			BaseImage: image.BaseImage, Size: newest.Size, Complete: detail.Deployable(),
			Machines: users[image.DeployName()+" "+image.Processor()],
		}
		switch {
		case err != nil:
			problem, remedy := explainAll(err)
			r.OK, row.Problem = false, strings.TrimSuffix(problem+": "+remedy, ": ")
		case image.IsMisnamed():
			misnamed := &machine.ImageError{Image: row.Name, Misnamed: true}
			row.Problem = misnamed.Found() + ": " + misnamed.Remedy()
		}
		r.Images = append(r.Images, row)
	}
	slices.SortStableFunc(r.Images, func(a, b imageRow) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

func (r *imageReport) good() bool { return r.OK }

func (r *imageReport) text(w io.Writer) error {
	err := table(w, "NAME,ARCHITECTURE,UPLOADED,SIZE,COMPLETE,MACHINES", r.Images, func(i imageRow) []any {
		return []any{i.Name, i.Architecture, i.Uploaded, bytesOf(i.Size), i.Complete, i.Machines}
	})
	for _, i := range list.Where(r.Images, func(i imageRow) bool { return i.Problem != "" }) {
		fmt.Fprintf(w, "%s: %s\n", i.Name, i.Problem)
	}
	return r.end(w, err)
}

// checkImages checks one image, or those of a cluster.
func checkImages(ctx context.Context, o options, _ surroundings) result {
	if len(o.image.hosts) > 0 {
		return newReport("image check", checkHostImages(ctx, o), false, false)
	}
	var found checks
	var err error
	switch {
	case o.unconnected != nil:
		found.refused("endpoint", o.unconnected)
	case o.image.cluster == "":
		found.image(ctx, images.NewService(o.region), planner.ImageUse{Image: o.object, Architecture: o.image.architecture,
			InMAAS: true})
	default:
		err = withPlanner(ctx, o, func(p *planner.Planner) error {
			uses, err := p.Images(ctx, o.subject)
			if err != nil {
				return err
			}
			for _, use := range uses {
				found.image(ctx, images.NewService(use.MAAS), use)
			}
			return nil
		})
	}
	if apierrors.IsNotFound(err) {
		found.failed("cluster", "give its name, and its namespace with --namespace", "%v", err)
	} else if err != nil {
		found.refused("cluster", err)
	}
	return newReport("image check", found, false, false)
}

// image adds a line for an image.
func (c *checks) image(ctx context.Context, service *images.Service, use planner.ImageUse) {
	if len(use.Hosts) > 0 {
		c.onHosts(use.Image, use.DiskGB, use.Hosts)
	}
	if !use.InMAAS {
		return
	}
	by := ""
	if use.Owner != "" {
		by = " (" + use.Owner + ")"
	}
	if err := service.Check(ctx, use.Image, use.Architecture); err != nil {
		found, remedy := explainImage(err)
		c.failed(use.Image, remedy, "%s%s", found, by)
		return
	}
	where := ""
	if use.Architecture != "" {
		where = " for " + use.Architecture
	}
	c.ok(use.Image, "MAAS has all of it%s%s", where, by)
}
