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
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/planner"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// everyHost stands for all direct hosts of the namespace.
const everyHost = "*"

func (o *options) addHostsFlag(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.image.hosts, "lxd-host", nil,
		"LXDHosts instead of MAAS, each as NAME or NAMESPACE/NAME; \"*\" is every direct host of the namespace.")
}

// completeHosts checks --lxd-host, with which some other flags have no meaning.
func (o *options) completeHosts(flags *pflag.FlagSet, others ...string) {
	for _, name := range o.image.hosts {
		if parts := strings.Split(name, "/"); len(parts) > 2 || slices.Contains(parts, "") {
			o.wrong("--lxd-host: %q is neither NAME nor NAMESPACE/NAME, nor %s", name, everyHost)
		}
	}
	for _, name := range others {
		if flags.Changed(name) {
			o.wrong("--%s is for MAAS: an LXDHost needs none", name)
		}
	}
}

// imageHost is an LXDHost, and how its LXD is reached.
type imageHost struct {
	planner.ImageHost
	options lxdhost.Options
	server  *lxdhost.Host
}

// readImageHosts reads the LXDs of --lxd-host.
func readImageHosts(ctx context.Context, o options) ([]*imageHost, error) {
	objects, err := o.imageHosts(ctx)
	if err != nil {
		return nil, err
	}
	scopes := &scope.Factory{Client: o.cluster}
	var hosts []*imageHost
	for i := range objects {
		host := &imageHost{ImageHost: planner.ImageHost{Key: client.ObjectKeyFromObject(&objects[i])}}
		host.options, host.Problem = scopes.LXDServer(ctx, &objects[i], 0)
		if host.Problem == nil {
			host.server, host.Problem = scopes.LXD.Host(ctx, host.options)
		}
		if host.Problem == nil {
			host.Reading, host.Problem = scopes.LXD.Read(ctx, host.options, 0)
		}
		hosts = append(hosts, host)
	}
	return hosts, nil
}

// imageHosts returns the LXDHosts that --lxd-host names.
func (o *options) imageHosts(ctx context.Context) ([]infrav1.LXDHost, error) {
	var objects []infrav1.LXDHost
	for _, name := range o.image.hosts {
		if name == everyHost {
			all := &infrav1.LXDHostList{}
			if err := o.cluster.List(ctx, all, client.InNamespace(o.namespace)); err != nil {
				return nil, err
			}
			objects = append(objects, slices.DeleteFunc(all.Items,
				func(h infrav1.LXDHost) bool { return h.Spec.CredentialsRef == nil })...)
			continue
		}
		key := client.ObjectKey{Namespace: o.namespace, Name: name}
		if namespace, rest, is := strings.Cut(name, "/"); is {
			key = client.ObjectKey{Namespace: namespace, Name: rest}
		}
		h := &lxdHosts{o.cluster, key}
		object, err := h.read(ctx)
		if err != nil {
			return nil, err
		}
		objects = append(objects, *object)
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("namespace %s has no direct LXDHost, which has spec.credentialsRef", o.namespace)
	}
	return objects, nil
}

// uploadToHosts sends an image to one host, unless one has it, from which the others copy it.
func uploadToHosts(ctx context.Context, o options, s surroundings) int {
	hosts, err := readImageHosts(ctx, o)
	if err != nil {
		return s.end(err)
	}
	image, end, err := o.openHostImage(ctx, s)
	if err != nil {
		err = fmt.Errorf("reading %s: %w; nothing was sent", o.object, err)
		return s.endWith(err.Error(), explainHostImage(err))
	}
	defer end()
	code := exitOK
	var source *imageHost
	for _, host := range inOrder(hosts, image.Fingerprint) {
		err := o.giveImage(ctx, s, image, host, source)
		if err != nil {
			code = s.endWith(fmt.Sprintf("LXDHost %s: %v", host.Key, err), explainHostImage(err))
			continue
		}
		if source == nil {
			source = host
		}
	}
	return code
}

// inOrder puts those first that have the image.
func inOrder(hosts []*imageHost, fingerprint string) []*imageHost {
	return append(list.Where(hosts, func(h *imageHost) bool { return h.has(fingerprint) }),
		list.Where(hosts, func(h *imageHost) bool { return !h.has(fingerprint) })...)
}

func (h *imageHost) has(fingerprint string) bool {
	return slices.ContainsFunc(h.Reading.Images, func(i lxdhost.Image) bool { return i.Fingerprint == fingerprint })
}

// giveImage gives a host the image, from another host if one has it.
func (o *options) giveImage(
	ctx context.Context, s surroundings, image *lxdhost.ImageFile, host, source *imageHost,
) error {
	if host.Problem != nil {
		return host.Problem
	}
	has := host.Reading.Image(o.image.name)
	switch {
	case image.Architecture != "" && image.Architecture != host.Reading.Architecture:
		return &lxdhost.FileError{
			Problem: fmt.Sprintf("it is of the architecture %s, and the image is for %s", host.Reading.Architecture,
				image.Architecture),
			Remedy: "give it an image for its architecture; --architecture says which one a disk is for",
		}
	case has.Fingerprint != "" && has.Fingerprint != image.Fingerprint && !o.image.replace:
		return &lxdhost.FileError{
			Problem: fmt.Sprintf("it has another image of the name %s, with the fingerprint %s", o.image.name, has.Fingerprint),
			Remedy: "give this one another name, for example with its version; with --replace it takes the name away, and new " +
				"VMs are made from this one at once",
		}
	}
	how, already := "uploaded to", has.Fingerprint == image.Fingerprint
	var err error
	switch {
	case source == nil || host.has(image.Fingerprint):
		shown := newMeter(s.err, "uploading to "+host.Key.Name, image.Bytes)
		err = host.server.Upload(ctx, o.image.name, image, shown.at)
		shown.done()
	default:
		how = "copied from LXDHost " + source.Key.Name + " to"
		err = host.server.CopyImage(ctx, lxdhost.ImageCopy{Alias: o.image.name, Fingerprint: image.Fingerprint,
			From: source.options, Keep: true}, source.server)
	}
	if err != nil {
		return err
	}
	s.say("image/"+o.image.name, already, fmt.Sprintf("%s LXDHost %s (%s, fingerprint %s)", how, host.Key.Name,
		bytesOf(image.Bytes), image.Fingerprint))
	return nil
}

// openHostImage reads FILE and --lxd-metadata.
func (o *options) openHostImage(ctx context.Context, s surroundings) (image *lxdhost.ImageFile, end func(), err error) {
	file, size, err := openImage(o.object)
	if err != nil {
		return nil, nil, err
	}
	var metadata *io.SectionReader
	end = func() { file.Close() }
	if o.image.metadata != "" {
		second, size, err := openImage(o.image.metadata)
		if err != nil {
			return nil, nil, errors.Join(err, file.Close())
		}
		metadata = io.NewSectionReader(second, 0, size)
		end = func() { file.Close(); second.Close() }
	}
	shown := newMeter(s.err, "reading", size)
	image, err = lxdhost.NewImageFile(
		ctx, io.NewSectionReader(file, 0, size), metadata, lxd.LinuxArchitecture(o.image.architecture), shown.at)
	shown.done()
	if err != nil {
		end()
		return nil, nil, err
	}
	return image, end, nil
}

// explainHostImage returns the remedy for an error of an LXDHost.
func explainHostImage(err error) string {
	var wrong *lxdhost.FileError
	switch {
	case errors.As(err, &wrong):
		return wrong.Remedy
	case guard.Is[*scope.CredentialsError](err):
		return "the LXDHost's conditions say what is wrong with its credentials"
	case errors.Is(err, context.Canceled):
		return "run the same command again: LXD takes an image whole, so what it did not get to the end is sent from the " +
			"beginning"
	}
	switch lxdhost.KindOf(err) {
	case lxdhost.KindUnreachable:
		return "run the same command again when LXD can be reached from here, and from the other hosts: what a host has is " +
			"not sent again"
	case lxdhost.KindInvalid:
		return "give a disk in the format qcow2, or an image of LXD for virtual machines"
	case lxdhost.KindOther:
		return "LXD says what is wrong; if a copy failed, make sure that this LXD reaches the other one's spec.address; " +
			"its disk must have room"
	}
	return "the LXDHost's conditions say what is wrong"
}

// checkHostImages checks whether hosts have one image.
func checkHostImages(ctx context.Context, o options) (found checks) {
	hosts, err := readImageHosts(ctx, o)
	if err != nil {
		found.failed("LXDHosts", "give LXDHosts of the management cluster", "%v", err)
		return found
	}
	found.onHosts(o.object, 0, list.Each(hosts, func(h *imageHost) planner.ImageHost { return h.ImageHost }))
	return found
}

// onHosts adds a line for each host, and one for what can't be seen. diskGB is the size of root disks, 0 if there are
// none.
func (c *checks) onHosts(name string, diskGB int, hosts []planner.ImageHost) {
	first := ""
	for i := range hosts {
		host := &hosts[i]
		subject, is := name+" on LXDHost "+host.Key.String(), host.Reading.Image(name)
		if first == "" {
			first = is.Fingerprint
		}
		switch {
		case host.Problem != nil:
			c.failed(subject, explainHostImage(host.Problem), "%v", host.Problem)
		case is.Fingerprint == "":
			c.failed(subject, "`capmaasctl image upload FILE --name="+name+" --lxd-host=...` brings it there; from hosts of "+
				"the same namespace the manager does so itself, when a template needs it", "it is missing")
		case is.Fingerprint != first:
			c.failed(subject, "upload one of them to all with --replace", "it is another one, %s, than %s", is.Fingerprint,
				first)
		case is.Architecture != host.Reading.Architecture:
			c.failed(subject, "upload one for this architecture, under another name", "it is for %s, and the host is %s",
				is.Architecture, host.Reading.Architecture)
		case is.DiskBytes > int64(diskGB)*1e9 && diskGB > 0:
			c.failed(subject, "give the template a larger disk", "its disk of %s is larger than the root disk of %d GB",
				bytesOf(is.DiskBytes), diskGB)
		default:
			c.ok(subject, "%s, for %s%s; %d VM(s) were made from it", bytesOf(is.Bytes), is.Architecture, diskOf(is),
				len(is.Users))
		}
	}
	if first != "" {
		c.add(stateUnknown, name+" inside", "",
			"cloud-init and the images that kubeadm pulls can't be seen from outside: look into a VM that was made from it")
	}
}

func diskOf(image lxdhost.Image) string {
	if image.DiskBytes == 0 {
		return ", with a disk whose size LXD was not told"
	}
	return ", with a disk of " + bytesOf(image.DiskBytes)
}
