// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"time"

	"github.com/canonical/lxd/shared/api"
)

// Start starts a VM that carries the marks. One that runs is not changed: GET /1.0/instances/NAME, PUT
// instances/NAME/state, GET operations/ID/wait. The error is an *Error: KindNotFound, KindConflict, KindTooLate, or one
// of the connection or of LXD. sendBefore and Error.Sent are as for Delete: LXD takes no condition for it, and a late
// one starts the next VM of the name.
func (h *Host) Start(ctx context.Context, name string, marks Marks, sendBefore time.Time) error {
	return h.power(ctx, "start", "starting the VM ", name, marks, isRunning, sendBefore)
}

// Stop cuts the power of a VM that carries the marks, with the same calls and errors as Start. One that is stopped is
// not changed.
func (h *Host) Stop(ctx context.Context, name string, marks Marks, sendBefore time.Time) error {
	return h.power(ctx, "stop", "stopping the VM ", name, marks, isStopped, sendBefore)
}

func isRunning(vm *api.Instance) bool {
	return vm.StatusCode == api.Running || vm.StatusCode == api.Started || vm.StatusCode == api.Ready
}

func isStopped(vm *api.Instance) bool { return vm.StatusCode == api.Stopped }

func (h *Host) power(
	ctx context.Context, action, doing, name string, marks Marks, is func(*api.Instance) bool, sendBefore time.Time,
) error {
	return h.in(ctx, action, doing+name, func(s *session) error {
		s.turn.begin = sendBefore
		found, _, err := s.prove(name, marks)
		if err == nil && !is(found) {
			err = s.switchVM(name, marks, action, is)
		}
		return err
	})
}

// switchVM changes the power of a VM that has just been proven. "Already running" is an error without a code, and the
// response may be lost: what counts is how the VM is afterwards.
func (s *session) switchVM(name string, marks Marks, action string, is func(*api.Instance) bool) error {
	put := api.InstanceStatePut{Action: action, Force: action == "stop", Timeout: -1}
	changed := sent(s.client.Put(s.client.Path("instances", name, "state"), put, ""))
	if changed == nil {
		return nil
	}
	found, _, err := s.prove(name, marks)
	switch {
	case err == nil && is(found):
		return nil
	case isOther(err) && !mayFollow(changed):
		return err
	}
	return changed
}
