// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
)

const (
	// imageRetry is how long a host gets no image after a transfer failed.
	imageRetry = 5 * time.Minute
	// imageKept is how long an image that was brought is kept when no object needs it: the next template may.
	imageKept = time.Hour
	// maxSending is how many hosts read images from one at a time.
	maxSending = 2
	// imagesPlanned is how many transfers may wait for their start.
	imagesPlanned = 64
)

// images brings images to the hosts that people added before VMs are placed there, and removes those that it brought
// when no object needs them. What it knows of a host is what was read of it last.
type images struct {
	jobs chan func(context.Context)

	mu    sync.Mutex
	hosts map[client.ObjectKey]*imageHost
}

// imageHost is a host, as it was seen last.
type imageHost struct {
	maas     string   // the Secret with the credentials of its MAAS, or "" for the manager's
	open     []string // the namespaces beside its own whose VMs it may have
	options  lxdhost.Options
	reading  lxdhost.Reading
	seen     time.Time
	wanted   []string // names of images
	cordoned bool
	mark     lxdhost.Mark
	// disputed are names of images that hosts have different ones of.
	disputed []string
	transfers
}

// transfers is what became of those of a host, whatever is read of it.
type transfers struct {
	busy bool // a transfer is under way
	// sends is how many hosts read an image from this one.
	sends int
	// changed is when a transfer ended: what was read before does not count. again is when the next one may begin.
	changed, again time.Time
	// failed has when the last transfer from another host failed: any other is tried first.
	failed map[client.ObjectKey]time.Time
	// unneeded has since when no object needs an image that was brought, by fingerprint.
	unneeded map[string]time.Time
}

// transfer is what is to be done for a host: an image comes from another host, or goes.
type transfer struct {
	to, from           client.ObjectKey // from is empty for one that goes
	alias, fingerprint string
}

// NeedLeaderElection makes only the leader bring images.
func (*images) NeedLeaderElection() bool { return true }

// Start does what is planned until the context ends.
func (i *images) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case job := <-i.jobs:
			running.Go(func() { job(ctx) })
		}
	}
}

// tendImages takes note of what was read of a host, and starts what is to be done for it.
func (r *Reconciler) tendImages(
	ctx context.Context, host *infrav1.LXDHost, options lxdhost.Options, reading lxdhost.Reading,
) error {
	wanted, err := r.wantedImages(ctx, host)
	if err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(host)
	now := time.Now()
	disputed := r.images.note(key, imageHost{
		maas: ptr.Deref(host.Spec.MAASCredentialsRef, infrav1.LocalObjectReference{}).Name,
		open: host.Spec.AllowedNamespaces, options: options, reading: reading, seen: now, wanted: wanted,
		cordoned: host.Spec.Cordoned(), mark: r.markOf(options, key),
	}, now)
	for _, alias := range disputed {
		r.Warn(host, "ImageDisputed", "BringImage",
			"the LXDHosts of this namespace have different images of the name %s, and none is brought here: upload one of "+
				"them to all, with `capmaasctl image upload --lxd-host`", alias)
	}
	if next := r.images.next(key, now); next != nil {
		about := host.DeepCopy()
		select {
		case r.images.jobs <- func(ctx context.Context) { r.transfer(ctx, about, next) }:
		default: // Later.
			r.images.ended(next, now, nil)
		}
	}
	return nil
}

// markOf returns the mark of what this manager brings to a host. A project may be that of several LXDHosts, and of
// several managers.
func (r *Reconciler) markOf(options lxdhost.Options, key client.ObjectKey) lxdhost.Mark {
	if r.Scopes.ManagementID == "" {
		return lxdhost.Mark{}
	}
	return options.Mark(r.Scopes.ManagementID + "/" + key.String())
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=maasmachines;maasmachinetemplates,verbs=list;watch

// wantedImages returns the images of VMs that may be placed on a host: those of MaasMachines and templates of its
// namespaces.
func (r *Reconciler) wantedImages(ctx context.Context, host *infrav1.LXDHost) ([]string, error) {
	machines, templates := &infrav1.MaasMachineList{}, &infrav1.MaasMachineTemplateList{}
	for _, list := range []client.ObjectList{machines, templates} {
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing MaasMachines and their templates: %w", err)
		}
	}
	var wanted []string
	add := func(namespace string, spec *infrav1.MaasMachineSpec) {
		if spec.IsLXD() && host.Spec.Allows(host.Namespace, namespace) {
			wanted = append(wanted, spec.Image)
		}
	}
	for i := range machines.Items {
		add(machines.Items[i].Namespace, &machines.Items[i].Spec)
	}
	for i := range templates.Items {
		add(templates.Items[i].Namespace, &templates.Items[i].Spec.Template.Spec)
	}
	slices.Sort(wanted)
	return slices.Compact(wanted), nil
}

// note takes note of a host, and returns the names of images that are disputed since now.
func (i *images) note(key client.ObjectKey, now imageHost, at time.Time) (disputed []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.hosts == nil {
		i.hosts = map[client.ObjectKey]*imageHost{}
	}
	for other, host := range i.hosts {
		if !host.busy && host.sends == 0 && at.Sub(host.seen) > imageKept {
			delete(i.hosts, other)
		}
	}
	before := i.hosts[key]
	if before == nil {
		before = &imageHost{transfers: transfers{failed: map[client.ObjectKey]time.Time{}}}
	}
	now.transfers = before.transfers
	i.hosts[key] = &now
	for _, alias := range now.wanted {
		if fingerprints, _ := i.offers(key, alias, at); len(fingerprints) > 1 && now.reading.Image(alias).Fingerprint == "" {
			now.disputed = append(now.disputed, alias)
		}
	}
	return slices.DeleteFunc(slices.Clone(now.disputed),
		func(alias string) bool { return slices.Contains(before.disputed, alias) })
}

// next returns what is to be done for a host, which is busy from then on until ended; nil if nothing is.
func (i *images) next(key client.ObjectKey, at time.Time) *transfer {
	i.mu.Lock()
	defer i.mu.Unlock()
	host := i.hosts[key]
	if host.busy || at.Before(host.again) || host.reading.At.Before(host.changed) {
		return nil
	}
	next := i.missing(key, host, at)
	if next == nil {
		next = host.superfluous(key, at)
	}
	if next != nil {
		if host.busy = true; next.from != (client.ObjectKey{}) {
			i.hosts[next.from].sends++
		}
	}
	return next
}

// missing returns an image that a host lacks, and that another one has.
func (i *images) missing(key client.ObjectKey, host *imageHost, at time.Time) *transfer {
	if host.cordoned {
		return nil
	}
	for _, alias := range host.wanted {
		if host.reading.Image(alias).Fingerprint != "" {
			continue
		}
		fingerprints, from := i.offers(key, alias, at)
		if len(fingerprints) == 1 && len(from) > 0 {
			return &transfer{to: key, from: from[0], alias: alias, fingerprint: fingerprints[0]}
		}
	}
	return nil
}

// offers returns which images of a name others have for a host, and the hosts that can send one now, the best first.
func (i *images) offers(
	key client.ObjectKey, alias string, at time.Time,
) (fingerprints []string, from []client.ObjectKey) {
	to := i.hosts[key]
	for other, host := range i.hosts {
		image := host.reading.Image(alias)
		mayGive := other != key && other.Namespace == key.Namespace && host.isTrustedBy(to)
		if !mayGive || image.Fingerprint == "" || image.Architecture != to.reading.Architecture ||
			at.Sub(host.seen) > imageRetry {
			continue
		}
		fingerprints = append(fingerprints, image.Fingerprint)
		if host.sends < maxSending && !host.busy {
			from = append(from, other)
		}
	}
	slices.Sort(fingerprints)
	slices.SortFunc(from, func(a, b client.ObjectKey) int {
		return cmp.Or(to.failed[a].Compare(to.failed[b]), cmp.Compare(i.hosts[a].sends, i.hosts[b].sends),
			cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(fingerprints), from
}

// isTrustedBy reports whether every namespace that is allowed on the other host is allowed on this one: the owner of
// this one decides what VMs are made from.
func (h *imageHost) isTrustedBy(other *imageHost) bool {
	has := func(namespace string) bool { return slices.Contains(h.open, namespace) }
	return h.maas == other.maas &&
		(has(infrav1.AllNamespaces) || !slices.ContainsFunc(other.open,
			func(namespace string) bool { return !has(namespace) }))
}

// superfluous returns an image that was brought, and that no object has needed for long.
func (h *imageHost) superfluous(key client.ObjectKey, at time.Time) *transfer {
	needed := map[string]time.Time{}
	var next *transfer
	for n := range h.reading.Images {
		image := &h.reading.Images[n]
		alias, brought := h.mark.Alias(image)
		if !brought || len(image.Users) > 0 || h.needs(alias, image) {
			continue
		}
		since, known := h.unneeded[image.Fingerprint]
		if !known {
			since = at
		}
		needed[image.Fingerprint] = since
		if next == nil && at.Sub(since) >= imageKept {
			next = &transfer{to: key, alias: alias, fingerprint: image.Fingerprint}
		}
	}
	h.unneeded = needed
	return next
}

// needs reports whether a VM may be made of an image that was brought. One that has no name yet is about to get it.
func (h *imageHost) needs(alias string, image *lxdhost.Image) bool {
	is := h.reading.Image(alias).Fingerprint
	return slices.Contains(h.wanted, alias) && (is == "" || is == image.Fingerprint)
}

// ended takes note of the end of a transfer.
func (i *images) ended(t *transfer, at time.Time, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	host := i.hosts[t.to]
	host.busy, host.changed = false, at
	if err != nil {
		host.again, host.failed[t.from] = at.Add(imageRetry), at
	}
	if from := i.hosts[t.from]; from != nil {
		from.sends--
	}
}

// transfer does what is planned, and says so in an event.
func (r *Reconciler) transfer(ctx context.Context, host *infrav1.LXDHost, t *transfer) {
	var err error
	defer func() { r.images.ended(t, time.Now(), err) }()
	log := ctrl.LoggerFrom(ctx).WithValues("lxdHost", t.to, "image", t.alias, "fingerprint", t.fingerprint)
	removes := t.from == client.ObjectKey{}
	if removes {
		err = r.removeImage(ctx, t)
	} else {
		err = r.bringImage(ctx, t)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		log.Error(err, "An image was not brought to a host, or not removed")
		r.Warn(host, "ImageNotTransferred", "BringImage", "image %s: %s", t.alias, report.Brief(err.Error()))
	case removes:
		log.Info("Removed an image that was brought, and that nothing needs")
		r.Tell(host, "ImageRemoved", "RemoveImage", "image %s was brought here, and nothing needs it any more", t.alias)
	default:
		log.Info("Brought an image to a host", "from", t.from)
		r.Tell(host, "ImageBrought", "BringImage", "image %s was copied from LXDHost %s", t.alias, t.from.Name)
	}
}

func (r *Reconciler) bringImage(ctx context.Context, t *transfer) error {
	options := r.images.optionsOf(t.from)
	to, mark, err := r.imageServer(ctx, t.to)
	if err != nil {
		return err
	}
	from, err := r.Scopes.LXD.Host(ctx, options)
	if err != nil {
		return err
	}
	return to.CopyImage(ctx, lxdhost.ImageCopy{
		Alias: t.alias, Fingerprint: t.fingerprint, From: options, Brought: mark.Of(t.fingerprint, t.alias),
	}, from)
}

func (r *Reconciler) removeImage(ctx context.Context, t *transfer) error {
	to, mark, err := r.imageServer(ctx, t.to)
	if err != nil {
		return err
	}
	return to.RemoveBrought(ctx, t.fingerprint, mark)
}

// imageServer returns the connection to a host, and the mark of what is brought there.
func (r *Reconciler) imageServer(ctx context.Context, key client.ObjectKey) (*lxdhost.Host, lxdhost.Mark, error) {
	options := r.images.optionsOf(key)
	server, err := r.Scopes.LXD.Host(ctx, options)
	return server, r.markOf(options, key), err
}

func (i *images) optionsOf(key client.ObjectKey) lxdhost.Options {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.hosts[key].options
}
