// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/replay"
)

// heldAgainstTheModel has what the manager does in this test replayed at its end, when the manager has stopped: what a
// model does not allow fails the test.
func (w *world) heldAgainstTheModel() {
	w.t.Helper()
	c, err := client.NewWithWatch(apiConfig, client.Options{Scheme: scheme, Mapper: mapper})
	w.must(err)
	namespaces := []string{w.namespace}
	if w.second != "" {
		namespaces = append(namespaces, w.second)
	}
	run, err := replay.Follow(w.t.Context(), w.maas, c, replay.Options{
		Namespaces: namespaces, SettleTime: cmp.Or(w.settleTime, defaultSettleTime),
	})
	w.must(err)
	w.t.Cleanup(func() { run.Check(w.t, w.meddles) })
	// What the test changes itself, people do.
	w.client = interceptor.NewClient(c, interceptor.Funcs{
		Patch: func(
			ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption,
		) error {
			err := c.Patch(ctx, o, patch, options...)
			if m, is := o.(*infrav1.MaasMachine); is && err == nil {
				run.People(m)
			}
			return err
		},
		Update: func(
			ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption,
		) error {
			err := c.Update(ctx, o, options...)
			if m, is := o.(*infrav1.MaasMachine); is && err == nil {
				run.People(m)
			}
			return err
		},
	})
}

// ofPeople serves MAAS to the test: what people ask for has no user agent, and so is not taken for the manager's.
func (w *world) ofPeople() (endpoint string) {
	handler := w.maas.Handler()
	server := httptest.NewServer(http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
		r.Header.Del("User-Agent")
		handler.ServeHTTP(to, r)
	}))
	w.t.Cleanup(server.Close)
	return server.URL + "/MAAS"
}

const defaultSettleTime = 500 * time.Millisecond
