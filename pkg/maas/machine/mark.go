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
func (s *Service) CanMark(machine *maas.Machine) bool { return !s.others.has(machine) }

// Mark annotates a machine in MAAS, so that people see that it is ours. MAAS lets only the user who acquired the
// machine annotate it (api/nodes.py: set_workload_annotations). If that was another user, because the API key or, after
// a move, the management cluster changed, the annotations stay as they are: that is no error, and not tried again.
func (s *Service) Mark(ctx context.Context, permit maas.Permit, id ownership.Identity, machine *maas.Machine) error {
	_, err := s.inventory.Change(machine.SystemID, func(client *maas.Client) (*maas.Machine, error) {
		if !machine.Device {
			return client.SetWorkloadAnnotations(ctx, permit, machine.SystemID, id.Annotations)
		}
		device, err := client.AnnotateDevice(ctx, permit, machine.SystemID, id.Annotations)
		return device.AsMachine(), err
	})
	if err == nil {
		return nil
	}
	what := fmt.Errorf("annotating machine %s: %w", machine.SystemID, err)
	if !errors.Is(err, maas.Conflict) {
		return what
	}
	now, err := s.inventory.Read(ctx, machine.SystemID)
	if err != nil {
		return errors.Join(what, err)
	}
	user, err := s.inventory.Client().WhoAmI(ctx)
	if err != nil {
		return errors.Join(what, err)
	}
	if now.Owner == "" || now.Owner != machine.Owner || now.Owner == user.Username {
		return what // Released since the last poll, or ours: MAAS refused for another reason.
	}
	s.others.remember(now)
	return nil
}

// others are the machines that other users of MAAS acquired for us, with the user by system id. They are forgotten with
// the process.
type others struct {
	mu    sync.Mutex
	users map[string]string
}

func (o *others) remember(machine *maas.Machine) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.users == nil {
		o.users = map[string]string{}
	}
	o.users[machine.SystemID] = machine.Owner
}

// has reports whether another user has the machine, and forgets a machine that this user no longer has.
func (o *others) has(machine *maas.Machine) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	user, known := o.users[machine.SystemID]
	if known && user != machine.Owner {
		delete(o.users, machine.SystemID)
	}
	return known && user == machine.Owner
}
