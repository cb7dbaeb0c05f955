// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"net/http"
	"strconv"
	"time"

	"github.com/canonical/lxd/shared/api"
)

// waitReserve is the part of a method's time that is left when LXD is asked to stop waiting for an operation.
const waitReserve = 2 * time.Second

// url returns the path of something in the project.
func (s *session) url(path ...string) *api.URL {
	return api.NewURL().Path(append([]string{"1.0"}, path...)...).Project(s.project)
}

// run sends a request that starts an operation, and waits until that is over. Only an api.StatusError and an
// *errOperation prove that it had no effect.
//
// LXD's own client would listen to events for it, and forget the result's code.
func (s *session) run(method string, target *api.URL, body any) error {
	return s.runIfMatch(method, target, body, "")
}

// runIfMatch is run, if the target still has the ETag. LXD ignores that but for PUT and PATCH of the instance itself.
func (s *session) runIfMatch(method string, target *api.URL, body any, etag string) error {
	started, _, err := s.client.RawQuery(method, target.String(), body, etag)
	if _, refused := api.StatusErrorMatch(err); refused {
		return err
	}
	if err != nil {
		return uncertain(err)
	}
	operation, err := started.MetadataAsOperation()
	if err != nil {
		return uncertain(err)
	}
	return s.wait(operation.ID)
}

// uncertain is the error of a request that LXD may have done, or may do later, whatever it answered: Unreachable,
// unless it was not sent.
func uncertain(err error) error {
	known := classify(err)
	if known.Kind == KindPin || known.unsent {
		return known
	}
	return problem(KindUnreachable, "%s", known.Problem)
}

// wait waits for an operation. LXD returns 200 whatever came of it, and 404 some seconds after its end.
func (s *session) wait(id string) error {
	patience := time.Second
	if deadline, ok := s.ctx.Deadline(); ok {
		patience = max(patience, time.Until(deadline)-waitReserve)
	}
	target := s.url("operations", id, "wait").WithQuery("timeout", strconv.Itoa(int(patience.Seconds())))
	response, _, err := s.client.RawQuery(http.MethodGet, target.String(), nil, "")
	if isNotFound(err) {
		return problem(KindUnreachable, "LXD has forgotten the operation %s", id)
	}
	if err != nil { // Whether this request was sent says nothing of the one that LXD has accepted.
		return problem(KindUnreachable, "%s", classify(err).Problem)
	}
	operation, err := response.MetadataAsOperation()
	switch {
	case err != nil:
		return uncertain(err)
	case !operation.StatusCode.IsFinal():
		return problem(KindUnfinished, "LXD accepted it, and the operation %s is still %s", id, operation.Status)
	case operation.StatusCode != api.Success || operation.Err != "":
		return &errOperation{operation.Status + ": " + operation.Err}
	}
	return nil
}
