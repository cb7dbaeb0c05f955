// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"sync"
	"time"

	"github.com/canonical/lxd/shared/api"
)

// coarseFor is how long it counts that the client does not have its rights by groups. LXD does not change that of a
// certificate that it trusts.
const coarseFor = 10 * time.Minute

// view is what is known of what LXD shows to the client.
type view struct {
	mu     sync.Mutex
	coarse time.Time // until when it counts that the client sees all of its project
}

// seesAll returns an error unless LXD shows the client each instance of the project. Only then is an instance gone that
// it did not show before.
func (s *session) seesAll() error {
	s.view.mu.Lock()
	coarse := time.Now().Before(s.view.coarse)
	s.view.mu.Unlock()
	if coarse {
		return nil
	}
	server, _, err := s.client.In("").GetServer()
	if err != nil {
		return err
	}
	return s.sees(server)
}

// sees is seesAll for a server as it has just described itself.
func (s *session) sees(server *api.Server) error {
	fine, err := s.client.IsFineGrained(server)
	if err != nil {
		return err
	}
	if !fine {
		s.view.mu.Lock()
		defer s.view.mu.Unlock()
		s.view.coarse = time.Now().Add(coarseFor)
		return nil
	}
	sees, err := s.client.SeesInstances()
	if err == nil && !sees {
		err = problem(KindNotTrusted, "LXD does not say that the client may view all instances of the project %s, and one "+
			"that it may not view looks as if it did not exist: give its group can_view_instances, or operator, on the project "+
			"(lxc auth group permission add GROUP project %s operator; LXD 5.21.4, 6.3, or newer)", s.project, s.project)
	}
	return err
}
