// SPDX-License-Identifier: Apache-2.0

// Package reconciler has what the reconcilers of all kinds are made of.
package reconciler

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/objects"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// Base is what a reconciler reads, writes and measures with.
type Base struct {
	Client client.Client
	// APIReader asks the API server: for what is not cached, and before something is changed that a cache may not show.
	// The manager's is a presence.Reader.
	APIReader client.Reader
	Scopes    *scope.Factory
	Records   *record.Records
	Recorder  events.EventRecorder
	// Clock measures deadlines.
	Clock clock.PassiveClock
	// WatchFilter limits it to objects whose label cluster.x-k8s.io/watch-filter has this value, if not empty.
	WatchFilter string
}

// Ignores reports whether an object is another manager's, or was moved to another management cluster.
func (b *Base) Ignores(object client.Object) bool {
	return !objects.Watched(object, b.WatchFilter) || objects.MovedAway(object)
}

// Warn emits a warning event about an object.
func (b *Base) Warn(about client.Object, reason, action, format string, args ...any) {
	b.Recorder.Eventf(about, nil, corev1.EventTypeWarning, reason, action, format, args...)
}

// Tell emits an event about an object that needs no action.
func (b *Base) Tell(about client.Object, reason, action, format string, args ...any) {
	b.Recorder.Eventf(about, nil, corev1.EventTypeNormal, reason, action, format, args...)
}

// LookLasts is how long after the API server was asked for the state of a control plane one of its Machines may be
// deleted, or its machine switched off. A manager that was stopped meanwhile, and resumes when another one leads, must
// not take a second one. It is shorter than the others wait for the lease.
const LookLasts = 5 * time.Second

// LookBegins begins such a look; late reports whether that is too long ago by now.
func (b *Base) LookBegins() (late func() bool) {
	began := b.Clock.Now()
	return func() bool { return guard.Elapsed(began, b.Clock.Now()) > LookLasts }
}
