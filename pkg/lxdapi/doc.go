// SPDX-License-Identifier: Apache-2.0

// Package lxdapi is how this project calls LXD, of any version from 5.0 on.
//
// What is read comes through LXD's own client (Reader). What changes something goes through Client.Change and nothing
// else: calls that LXD did at once in one version are operations in another, and LXD's client takes an operation that
// began for one that is done. Whether there is an operation is decided by what LXD returned, never by the call.
//
// An operation is waited for. What it came to is read from the operation itself: the response to the wait has another
// form in each version, and may be that of a proxy. An operation that LXD has forgotten proves nothing.
//
// What LXD took away, renamed or added between its versions is in Uses, by API extension; Traits are those of one LXD.
package lxdapi
