// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// between passes the calls of a user's manager to the LXD of an LXDHost to the killer of that manager.
func (s *switchboard) between(user, host string) lxdtest.Middleware {
	return func(lxd http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if s.lossOf(user).isAway(host) {
				panic(http.ErrAbortHandler)
			}
			call, ofLife := callToLXD(r)
			if !ofLife {
				lxd.ServeHTTP(w, r)
				return
			}
			call.User, call.Number, call.Path = user, s.number(), host
			if s.hook(call, simulator.Before) != nil {
				panic(http.ErrAbortHandler)
			}
			answer := httptest.NewRecorder()
			lxd.ServeHTTP(answer, r.WithContext(context.WithoutCancel(r.Context()))) // LXD goes on when its caller has died.
			if s.hook(call, simulator.After) != nil || s.lossOf(user).isAway(host) {
				panic(http.ErrAbortHandler)
			}
			maps.Copy(w.Header(), answer.Header())
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes()) // The manager may have died in another call.
		})
	}
}

// number returns one for the next call to LXD. Those of calls to MAAS are above 0.
func (s *switchboard) number() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.toLXD--
	return s.toLXD
}

// callToLXD returns a manager's call about one VM. Others come at any time, or are MAAS's.
func callToLXD(r *http.Request) (call simulator.Call, ofLife bool) {
	call, ours := directhost.CallOf(r)
	of, one, _ := strings.Cut(strings.TrimPrefix(call.Endpoint, directhost.CallPrefix), "/")
	return call, ours && (of == "instances" || of == "operations") && (one != "" || call.Method != http.MethodGet)
}

// Calls to LXD.
const (
	makeVM   = http.MethodPost + " " + directhost.CallPrefix + "instances"
	readVM   = http.MethodGet + " " + directhost.CallPrefix + "instances/{id}"
	switchVM = http.MethodPut + " " + directhost.CallPrefix + "instances/{id}/state"
	deleteVM = http.MethodPatch + " " + directhost.CallPrefix + "instances/{id}"  // LXD deletes it when it is stopped.
	removeVM = http.MethodDelete + " " + directhost.CallPrefix + "instances/{id}" // It is stopped.
)
