// SPDX-License-Identifier: Apache-2.0

package objectmetrics

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
)

// WatchFailures counts the lists and watches that fill the manager's cache, and failed. Who reads the cache gets no
// error, but what was last seen.
type WatchFailures struct{ *prometheus.CounterVec }

// NewWatchFailures makes the metric.
func NewWatchFailures() WatchFailures {
	return WatchFailures{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "capmaas_watch_failures_total",
		Help: "Lists and watches of Kubernetes objects that failed, by kind. Until one succeeds, the manager works " +
			"with what it saw of the kind last.",
	}, []string{"kind"})}
}

// Handle counts the failure of a list or a watch, and logs it. A watch that ends in time, or begins anew, is none.
func (f WatchFailures) Handle(ctx context.Context, r *toolscache.Reflector, err error) {
	toolscache.DefaultWatchErrorHandler(ctx, r, err)
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) {
		return
	}
	kind := r.TypeDescription() // That of Go, such as *v1beta1.MaasMachine.
	f.WithLabelValues(kind[strings.LastIndex(kind, ".")+1:]).Inc()
}
