// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func with(images ...lxdhost.Image) lxdhost.Reading {
	return lxdhost.Reading{Capacity: lxdhost.Capacity{Architecture: "x86_64"}, Images: images, At: noon}
}

func anImage(fingerprint string, aliases ...string) lxdhost.Image {
	return lxdhost.Image{Fingerprint: fingerprint, Aliases: aliases, Architecture: "x86_64"}
}

func hostKey(name string) client.ObjectKey { return client.ObjectKey{Namespace: "ns", Name: name} }

// What a host gets: an image that it needs, that it lacks, and that hosts of the same owner agree on.
func TestWhichImageAHostGets(t *testing.T) {
	wants := imageHost{reading: with(), wanted: []string{"u"}}
	has := imageHost{reading: with(anImage("1", "u"))}
	other := func(change func(*imageHost)) imageHost {
		h := has
		change(&h)
		return h
	}
	for name, test := range map[string]struct {
		host     imageHost
		others   map[client.ObjectKey]imageHost
		from     string
		disputed bool
	}{
		"one that another has":                   {wants, map[client.ObjectKey]imageHost{hostKey("b"): has}, "b", false},
		"from the first of several":              {wants, map[client.ObjectKey]imageHost{hostKey("c"): has, hostKey("b"): has}, "b", false},
		"from one with less to do":               {wants, map[client.ObjectKey]imageHost{hostKey("c"): has, hostKey("b"): other(func(h *imageHost) { h.sends = 1 })}, "c", false},
		"not from one that sends many":           {wants, map[client.ObjectKey]imageHost{hostKey("b"): other(func(h *imageHost) { h.sends = maxSending })}, "", false},
		"not from one that is busy":              {wants, map[client.ObjectKey]imageHost{hostKey("b"): other(func(h *imageHost) { h.busy = true })}, "", false},
		"not from another namespace":             {wants, map[client.ObjectKey]imageHost{{Namespace: "other", Name: "b"}: has}, "", false},
		"not from another MAAS":                  {wants, map[client.ObjectKey]imageHost{hostKey("b"): other(func(h *imageHost) { h.maas = "theirs" })}, "", false},
		"from one that is for everybody":         {imageHost{reading: with(), wanted: []string{"u"}, open: []string{"x"}}, map[client.ObjectKey]imageHost{hostKey("b"): other(func(h *imageHost) { h.open = []string{"*"} })}, "b", false},
		"not from one for fewer":                 {imageHost{reading: with(), wanted: []string{"u"}, open: []string{"x", "y"}}, map[client.ObjectKey]imageHost{hostKey("b"): other(func(h *imageHost) { h.open = []string{"x"} })}, "", false},
		"not for everybody from one that is not": {imageHost{reading: with(), wanted: []string{"u"}, open: []string{"*"}}, map[client.ObjectKey]imageHost{hostKey("b"): has}, "", false},
		"not one for other processors": {wants, map[client.ObjectKey]imageHost{hostKey("b"): other(func(h *imageHost) {
			h.reading.Architecture, h.reading.Images = "aarch64", []lxdhost.Image{{Fingerprint: "1", Aliases: []string{"u"}, Architecture: "aarch64"}}
		})}, "", false},
		"not from one that is silent":      {wants, map[client.ObjectKey]imageHost{hostKey("b"): other(func(h *imageHost) { h.seen = noon.Add(-imageRetry - 1) })}, "", false},
		"none that nobody has":             {wants, map[client.ObjectKey]imageHost{hostKey("b"): {reading: with(anImage("1", "v"))}}, "", false},
		"none that nobody needs":           {imageHost{reading: with()}, map[client.ObjectKey]imageHost{hostKey("b"): has}, "", false},
		"none that it has":                 {imageHost{reading: with(anImage("1", "u")), wanted: []string{"u"}}, map[client.ObjectKey]imageHost{hostKey("b"): has}, "", false},
		"none under a name that it has":    {imageHost{reading: with(anImage("2", "u")), wanted: []string{"u"}}, map[client.ObjectKey]imageHost{hostKey("b"): has}, "", false},
		"none while it takes no VMs":       {imageHost{reading: with(), wanted: []string{"u"}, cordoned: true}, map[client.ObjectKey]imageHost{hostKey("b"): has}, "", false},
		"none while one is under way":      {imageHost{reading: with(), wanted: []string{"u"}, transfers: transfers{busy: true}}, map[client.ObjectKey]imageHost{hostKey("b"): has}, "", false},
		"none soon after a failure":        {imageHost{reading: with(), wanted: []string{"u"}, transfers: transfers{again: noon.Add(1)}}, map[client.ObjectKey]imageHost{hostKey("b"): has}, "", false},
		"none before it was read again":    {imageHost{reading: with(), wanted: []string{"u"}, transfers: transfers{changed: noon.Add(1)}}, map[client.ObjectKey]imageHost{hostKey("b"): has}, "", false},
		"none where others have different": {wants, map[client.ObjectKey]imageHost{hostKey("b"): has, hostKey("c"): {reading: with(anImage("2", "u"))}}, "", true},
	} {
		i := &images{hosts: map[client.ObjectKey]*imageHost{}}
		for key, host := range test.others {
			if host.seen.IsZero() {
				host.seen = noon
			}
			i.hosts[key] = &host
		}
		before := test.host
		before.unneeded, before.seen = map[string]time.Time{}, noon
		i.hosts[hostKey("a")] = &before
		now := test.host
		now.seen = noon
		for _, again := range []bool{false, true} {
			if disputed := i.note(hostKey("a"), now, noon); (len(disputed) > 0) != (test.disputed && !again) {
				t.Errorf("%s: disputed are %v", name, disputed)
			}
		}
		got := i.next(hostKey("a"), noon)
		if (got == nil) != (test.from == "") || (got != nil && (*got != transfer{hostKey("a"), hostKey(test.from), "u", "1"})) {
			t.Errorf("%s: %+v, want it from %q", name, got, test.from)
		}
	}
}

// A host that gets an image gets no other meanwhile, and its sender serves few at a time.
func TestTransfersAreFew(t *testing.T) {
	i := &images{}
	for _, name := range []string{"a", "b", "c", "d"} {
		now := imageHost{reading: with(), wanted: []string{"u"}, seen: noon}
		if name == "a" {
			now.reading = with(anImage("1", "u"))
		}
		i.note(hostKey(name), now, noon)
	}
	first, second := i.next(hostKey("b"), noon), i.next(hostKey("c"), noon)
	if first == nil || second == nil || i.next(hostKey("d"), noon) != nil || i.next(hostKey("b"), noon) != nil {
		t.Errorf("%+v, %+v, and more than %d", first, second, maxSending)
	}
	i.ended(first, noon.Add(time.Second), io.ErrUnexpectedEOF)
	if i.next(hostKey("d"), noon) == nil {
		t.Error("nothing begins after one has ended")
	}
	i.hosts[hostKey("b")].reading.At = noon.Add(time.Minute)
	if i.ended(second, noon, nil); i.next(hostKey("b"), noon.Add(imageRetry)) != nil {
		t.Error("it begins anew too early")
	}
	i.hosts[hostKey("a")].seen = noon.Add(imageRetry)
	if i.next(hostKey("b"), noon.Add(imageRetry+time.Second)) == nil {
		t.Error("it does not begin anew")
	}
}

// What one host did not give is asked of another one next.
func TestAnImageIsTriedFromAnotherHost(t *testing.T) {
	i := &images{}
	for _, name := range []string{"a", "b", "c"} {
		now := imageHost{reading: with(anImage("1", "u")), seen: noon}
		if name == "c" {
			now.reading, now.wanted = with(), []string{"u"}
		}
		i.note(hostKey(name), now, noon)
	}
	for n, from := range []string{"a", "b", "a"} {
		at := noon.Add(time.Duration(n) * time.Minute)
		i.hosts[hostKey("c")].again, i.hosts[hostKey("c")].changed = at, noon
		next := i.next(hostKey("c"), at)
		if next == nil || next.from != hostKey(from) {
			t.Fatalf("attempt %d is %+v, want it from %s", n, next, from)
		}
		i.ended(next, at, io.ErrUnexpectedEOF)
	}
}

// An image goes when we brought it, and nobody has needed it for long.
func TestWhichImageGoes(t *testing.T) {
	options := lxdhost.Options{Project: "maas", ServerCertificate: newCertificate(t)}
	mark := options.Mark("us")
	brought := func(fingerprint, alias string, aliases ...string) lxdhost.Image {
		image := anImage(fingerprint, aliases...)
		image.Brought = mark.Of(fingerprint, alias)
		return image
	}
	used := brought("1", "u", "u")
	used.Users = []string{"vm"}
	for name, test := range map[string]struct {
		images []lxdhost.Image
		wanted []string
		goes   bool
	}{
		"that nobody needs":              {[]lxdhost.Image{brought("1", "u", "u")}, nil, true},
		"whose name another has":         {[]lxdhost.Image{brought("1", "u"), anImage("2", "u")}, []string{"u"}, true},
		"without a name, for nobody":     {[]lxdhost.Image{brought("1", "u")}, nil, true},
		"that gets its name":             {[]lxdhost.Image{brought("1", "u")}, []string{"u"}, false},
		"that somebody needs":            {[]lxdhost.Image{brought("1", "u", "u")}, []string{"u"}, false},
		"that a VM was made from":        {[]lxdhost.Image{used}, nil, false},
		"with another name":              {[]lxdhost.Image{brought("1", "u", "u", "mine")}, nil, false},
		"of a person":                    {[]lxdhost.Image{anImage("1", "u")}, nil, false},
		"with the mark of another image": {[]lxdhost.Image{{Fingerprint: "1", Aliases: []string{"u"}, Brought: mark.Of("2", "u")}}, nil, false},
		"that others brought":            {[]lxdhost.Image{{Fingerprint: "1", Aliases: []string{"u"}, Brought: options.Mark("them").Of("1", "u")}}, nil, false},
	} {
		i := &images{}
		now := imageHost{reading: with(test.images...), wanted: test.wanted, mark: mark, seen: noon}
		i.note(hostKey("a"), now, noon)
		if got := i.next(hostKey("a"), noon); got != nil {
			t.Errorf("one %s goes at once: %+v", name, got)
		}
		i.note(hostKey("a"), now, noon)
		if got := i.next(hostKey("a"), noon.Add(imageKept)); (got != nil) != test.goes || (got != nil && *got != transfer{to: hostKey("a"), alias: "u", fingerprint: "1"}) {
			t.Errorf("one %s: %+v", name, got)
		}
	}
	i := &images{}
	now := imageHost{reading: with(brought("1", "u", "u")), mark: mark, seen: noon}
	i.note(hostKey("a"), now, noon)
	i.next(hostKey("a"), noon)
	needed := now
	needed.wanted = []string{"u"}
	i.note(hostKey("a"), needed, noon)
	i.next(hostKey("a"), noon)
	i.note(hostKey("a"), now, noon)
	if got := i.next(hostKey("a"), noon.Add(imageKept)); got != nil {
		t.Errorf("it goes although somebody needed it meanwhile: %+v", got)
	}
}

func newCertificate(t *testing.T) []byte {
	t.Helper()
	return lxdtest.NewIdentity(t).Certificate
}

// An image of one host comes to another one of the namespace when a template needs it, and goes when none does.
func TestAnImageComesAndGoes(t *testing.T) {
	t.Parallel()
	server := directhost.Start(t)
	lxdtest.Open(t, server.Daemon, server.Address)
	template := &infrav1.MaasMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "t"}}
	template.Spec.Template.Spec = infrav1.MaasMachineSpec{ProvisioningMode: infrav1.ProvisioningModeLXD, Image: "custom/u"}
	r := newImageReconciler(t, template)
	a, b := r.add(server, "a"), r.add(server.In("other"), "b")
	if err := server.AddImage(t.Context(), "custom/u"); err != nil {
		t.Fatal(err)
	}
	r.until(a, b, func(has bool) bool { return has })
	r.wantEvent("ImageBrought")
	if err := r.Client.Delete(t.Context(), template); err != nil {
		t.Fatal(err)
	}
	r.tend(b)
	r.images.mu.Lock()
	for fingerprint := range r.images.hosts[hostKey("b")].unneeded {
		r.images.hosts[hostKey("b")].unneeded[fingerprint] = noon.Add(-24 * 365 * time.Hour)
	}
	r.images.mu.Unlock()
	r.until(a, b, func(has bool) bool { return !has })
	r.wantEvent("ImageRemoved")
	r.tend(a)
	if reading := r.tend(a); reading.Image("custom/u").Fingerprint == "" {
		t.Error("the image that a person uploaded is gone, too")
	}
}

type imageReconciler struct {
	*Reconciler
	t        *testing.T
	recorder *events.FakeRecorder
	last     []string
}

func newImageReconciler(t *testing.T, objects ...client.Object) *imageReconciler {
	t.Helper()
	kubernetes := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(objects...).Build()
	r := &imageReconciler{t: t, recorder: events.NewFakeRecorder(100)}
	r.Reconciler = &Reconciler{Base: reconciler.Base{Client: kubernetes, Scopes: &scope.Factory{Client: kubernetes, ManagementID: "us"}, Recorder: r.recorder}}
	r.images.jobs = make(chan func(context.Context), imagesPlanned)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.images.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *imageReconciler) add(server *directhost.Host, name string) *infrav1.LXDHost {
	r.t.Helper()
	host, secret := server.Objects(hostKey(name), "default")
	for _, object := range []client.Object{host, secret} {
		if err := r.Client.Create(r.t.Context(), object); err != nil {
			r.t.Fatal(err)
		}
	}
	return host
}

// tend reads a host, and does what a reconcile does then.
func (r *imageReconciler) tend(host *infrav1.LXDHost) lxdhost.Reading {
	r.t.Helper()
	options, reading, err := r.read(r.t.Context(), host)
	if err == nil {
		err = r.tendImages(r.t.Context(), host, options, reading)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return reading
}

// until reconciles two hosts until the second has the image, or lacks it.
func (r *imageReconciler) until(a, b *infrav1.LXDHost, done func(has bool) bool) {
	r.t.Helper()
	eventually.True(r.t, "the second host has the image, or lacks it", func() bool {
		r.tend(a)
		reading := r.tend(b)
		return done(reading.Image("custom/u").Fingerprint != "")
	}, func() any { return r.events() })
}

func (r *imageReconciler) events() []string {
	for {
		select {
		case event := <-r.recorder.Events:
			r.last = append(r.last, event)
		default:
			return r.last
		}
	}
}

// wantEvent waits for an event: it comes after its effect.
func (r *imageReconciler) wantEvent(reason string) {
	r.t.Helper()
	eventually.True(r.t, "there is an event "+reason, func() bool {
		return slices.ContainsFunc(r.events(), func(event string) bool { return strings.Contains(event, reason) })
	}, func() any { return r.events() })
}
