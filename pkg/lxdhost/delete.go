// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"net/http"
	"time"
)

// Delete stops and deletes a VM that carries the marks, with its disks. One that is missing is no error.
//
// sendBefore is when it is too late to begin; the zero time is no limit. A later VM may have the same name and marks,
// so what is changed is the VM that LXD showed first, by the id that LXD gave it.
//
// The marks are read before the VM is stopped and again before it is deleted: LXD ignores If-Match there. It calls GET
// /1.0/instances/NAME; for a running VM PUT instances/NAME/state and GET operations/ID/wait and instances/NAME; then
// DELETE instances/NAME and GET operations/ID/wait. Further disks are detached and deleted before the VM.
//
// The error is an *Error: KindConflict, KindTooLate, or one of the connection or of LXD. A VM that a person starts
// meanwhile is one of LXD's. Error.Sent says whether what LXD was asked for may come late.
func (h *Host) Delete(ctx context.Context, name string, marks Marks, sendBefore time.Time) error {
	doing := "deleting the VM " + name
	s, end, err := h.session(ctx, "delete")
	if err != nil {
		return h.fail(doing, err)
	}
	defer end()
	s.turn.begin = sendBefore
	if err := s.delete(name, marks); err != nil && KindOf(err) != KindNotFound {
		return h.fail(doing, err)
	}
	return nil
}

// delete returns KindNotFound when the VM is gone, whoever deleted it.
func (s *session) delete(name string, marks Marks) error {
	found, _, err := s.prove(name, marks)
	if err != nil {
		return err
	}
	again := false
	if !isStopped(found) {
		if err := s.switchVM(name, marks, "stop", isStopped); err != nil {
			return err
		}
		again = true
	}
	if len(volumesOf(found.Config)) > 0 {
		if err := s.removeVolumes(name, marks); err != nil {
			return err
		}
		again = true
	}
	if again {
		if _, _, err := s.prove(name, marks); err != nil {
			return err
		}
	}
	deleted := sent(s.run(http.MethodDelete, s.url("instances", name), nil))
	if deleted == nil || unfinished(deleted) {
		return deleted
	}
	_, _, err = s.prove(name, marks)
	if KindOf(err) == KindNotFound || (isOther(err) && !mayFollow(deleted)) {
		return err
	}
	return deleted
}
