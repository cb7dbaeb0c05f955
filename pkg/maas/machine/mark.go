// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
)

// CanMark reports whether MAAS lets us annotate the machine, as far as is known.
func (s *Service) CanMark(machine *maas.Machine) bool { return !s.others.holds(machine) }

// Mark makes our ownership readable to people in MAAS, which lets only the user annotate a machine who acquired it (api/nodes.py:
// set_workload_annotations). Where that was another one, because the API key is now of another user, or the objects were moved to a
// management cluster with a key of another user, the annotations stay as they are: that is no error, and not tried again.
func (s *Service) Mark(ctx context.Context, permit maas.Permit, id ownership.Identity, machine *maas.Machine) error {
	marked, err := s.inventory.Client().SetWorkloadAnnotations(ctx, permit, machine.SystemID, id.Annotations)
	if err == nil {
		s.inventory.Wrote(marked)
		return nil
	}
	what := fmt.Errorf("annotating machine %s: %w", machine.SystemID, err)
	if !errors.Is(err, maas.Conflict) {
		return what
	}
	now, err := s.inventory.Client().GetMachine(ctx, machine.SystemID)
	if err != nil {
		s.inventory.Distrust(machine.SystemID)
		return errors.Join(what, err)
	}
	s.inventory.Wrote(now)
	user, err := s.inventory.Client().WhoAmI(ctx)
	if err != nil {
		return errors.Join(what, err)
	}
	if now.Owner == "" || now.Owner != machine.Owner || now.Owner == user.Username {
		return what // It was released, and perhaps taken, since our last look; or it is ours, and MAAS refused for another reason.
	}
	s.others.note(now)
	return nil
}

// others are the machines that other users of MAAS acquired for us, by system id, with the user. They are forgotten with the process.
type others struct {
	mu    sync.Mutex
	users map[string]string
}

func (o *others) note(machine *maas.Machine) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.users == nil {
		o.users = map[string]string{}
	}
	o.users[machine.SystemID] = machine.Owner
}

// holds forgets a machine that the other user does not have any more.
func (o *others) holds(machine *maas.Machine) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	user, known := o.users[machine.SystemID]
	if known && user != machine.Owner {
		delete(o.users, machine.SystemID)
	}
	return known && user == machine.Owner
}
