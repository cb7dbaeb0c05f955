// SPDX-License-Identifier: Apache-2.0

// Package lxdnode prepares one node's LXD as a VM host, through its unix socket and nothing else.
//
// Every step checks before it writes, can be interrupted anywhere, and can be repeated: an existing object is found by
// reading it, never by the error of a create call, because those errors differ between kinds of objects and versions of
// LXD. An existing object that was not made here is checked and used, or reported; it is not changed, shrunk or
// deleted.
//
//   - Storage pool: another driver is an error, and so is a new pool that is larger than the free space on the node's
//     disk. An existing pool keeps its size, whatever the settings ask for. LXD never finishes a pool that it was
//     making when it died: the error explains how to remove it, and it is made again then.
//   - Network bridge: a bridge of the host or of LXD is used as it is. LXD makes a missing one only if the settings ask
//     for it, without DHCP and DNS, because MAAS serves machines itself.
//   - Interfaces: a MAC address by which MAAS would confuse this node with others is an error.
//   - Project and profile: made with their own profiles, and an empty profile maas. Existing ones are used as they are,
//     except a project that shares the default project's profiles, and a profile with disks.
//   - core.https_address: set if it is unset. An address that covers the wanted one stays. Another one is replaced only
//     if it was set here, which user.capmaas.https-address records; an operator's is an error.
//   - Trust: the client's certificate is added over the socket, restricted to the project. LXD 6 has no trust password,
//     and no version needs a token here.
//
// A member of an LXD cluster is refused: MAAS would find all members through each of them.
package lxdnode
