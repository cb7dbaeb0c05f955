// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"time"

	"github.com/canonical/lxd/shared/api"
)

// Delete stops and deletes a VM that carries the marks, with its disks. One that is missing is no error.
//
// sendBefore is when it is too late to begin; the zero time is no limit. A later VM may have the same name and marks,
// so what is changed is the VM that LXD showed first, by the id that LXD gave it.
//
// LXD ignores If-Match when it stops and deletes. So a running VM becomes ephemeral first, if it is still as it was
// read: LXD deletes that one when it stops, and no other that has its name by then. It calls GET /1.0/instances/NAME;
// for a running VM PATCH instances/NAME, PUT instances/NAME/state and GET operations/ID/wait; for a stopped one DELETE
// instances/NAME and GET operations/ID/wait. With further disks, these are proven, the VM is stopped, and they are
// detached and deleted, before.
//
// The error is an *Error: KindConflict, KindVolume, KindTooLate, or one of the connection or of LXD. For a VM that is
// changed meanwhile it is one of LXD's. Error.Sent says whether what LXD was asked for may come late.
func (h *Host) Delete(ctx context.Context, name string, marks Marks, sendBefore time.Time) error {
	return h.in(ctx, "delete", "deleting the VM "+name, func(s *session) error {
		s.turn.begin = sendBefore
		if err := s.delete(name, marks); KindOf(err) != KindNotFound {
			return err
		}
		return nil
	})
}

// delete returns KindNotFound when the VM is gone, whoever deleted it.
func (s *session) delete(name string, marks Marks) error {
	found, etag, err := s.prove(name, marks)
	if err == nil && len(volumesOf(found.Config)) > 0 {
		found, etag, err = s.deleteVolumes(found, marks)
	}
	if err != nil {
		return err
	}
	deleted := sent(s.remove(found, etag))
	if deleted == nil || KindOf(deleted) == KindUnfinished {
		return deleted
	}
	_, _, err = s.prove(name, marks)
	if KindOf(err) == KindNotFound || (isOther(err) && !mayFollow(deleted)) {
		return err
	}
	return deleted
}

// deleteVolumes stops a VM that was proven, deletes its further disks, and returns it as it is then. Nothing is changed
// if one of them is not ours.
func (s *session) deleteVolumes(found *api.Instance, marks Marks) (now *api.Instance, etag string, err error) {
	for _, v := range volumesOf(found.Config) {
		if _, err := s.proveVolume(v, marks); err != nil {
			return nil, "", err
		}
	}
	if !isStopped(found) {
		if err := s.switchVM(found.Name, marks, "stop", isStopped); err != nil {
			return nil, "", err
		}
	}
	if err := s.removeVolumes(found.Name, marks); err != nil {
		return nil, "", err
	}
	return s.prove(found.Name, marks)
}

// remove deletes a VM that was proven when it had the ETag.
func (s *session) remove(found *api.Instance, etag string) error {
	if isStopped(found) {
		return s.client.Delete(s.client.Path("instances", found.Name))
	}
	if !found.Ephemeral {
		err := s.client.Patch(s.client.Path("instances", found.Name), map[string]any{"ephemeral": true}, etag)
		if err != nil {
			return err
		}
	}
	stop := api.InstanceStatePut{Action: "stop", Force: true, Timeout: -1}
	return s.client.Put(s.client.Path("instances", found.Name, "state"), stop, "")
}
