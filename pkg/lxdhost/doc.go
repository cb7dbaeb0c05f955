// SPDX-License-Identifier: Apache-2.0

// Package lxdhost makes, switches and deletes the virtual machines of one project on one LXD host, through LXD's HTTPS
// API, with a client certificate that may be restricted to the project.
//
// Each VM has marks, which the call that makes it sets, and they are read just before it is changed. A VM without
// marks, or with others, is never changed. LXD has few calls that change a VM only if it is as it was read: PATCH and
// PUT of itself. So a running VM is deleted by one of them; see Delete. With others, there is a moment in which another
// client could replace the VM by one of the same name.
//
// An operation of LXD proves nothing: its response may be lost, LXD forgets it after seconds, and one that failed names
// the VM, too. So after anything but a clear refusal the VM is looked up by its name. All methods can be interrupted
// anywhere and called again. LXD refuses to change a VM while it is still busy with an earlier change, with words only:
// that is KindOther, and over soon.
//
// LXD checks neither whether there is room, nor whether a MAC address is in use, nor, before the start, whether the
// bridge is there. Clone checks that, with what was read: callers let one Clone run on a host at a time.
package lxdhost
