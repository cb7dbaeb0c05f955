// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// befall lets a fault happen to a call to LXD, as MAAS lets it happen to one to MAAS.
func befall(fault *simulator.Fault, lxd http.Handler, w http.ResponseWriter, r *http.Request) {
	if fault == nil {
		lxd.ServeHTTP(w, r)
		return
	}
	if err := pauseFor(r.Context(), fault); err != nil || fault.DropBefore {
		panic(http.ErrAbortHandler)
	}
	if fault.Status != 0 && !fault.Late {
		refuse(w, fault)
		return
	}
	answer := httptest.NewRecorder()
	lxd.ServeHTTP(answer, r.WithContext(context.WithoutCancel(r.Context())))
	body := answer.Body.Bytes()
	switch {
	case fault.DropAfter:
		panic(http.ErrAbortHandler)
	case fault.Late:
		w.WriteHeader(fault.Status)
		_, _ = w.Write([]byte(fault.Body))
		return
	case fault.Garbage:
		body = []byte("}{")
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	if fault.Truncate {
		_, _ = w.Write(body[:len(body)/2])
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body)
}

func pauseFor(ctx context.Context, fault *simulator.Fault) error {
	if fault.Delay == 0 {
		return nil
	}
	return pause(ctx, time.Duration(fault.Delay))
}

// refuse responds in LXD's form.
func refuse(w http.ResponseWriter, fault *simulator.Fault) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(fault.Status)
	_ = json.NewEncoder(w).Encode(api.ResponseRaw{Type: api.ErrorResponse, Code: fault.Status, Error: fault.Body})
}
