// SPDX-License-Identifier: Apache-2.0

// Package lxdnode prepares one node's LXD as a VM host, through its unix socket and nothing else.
//
// Every step looks before it writes and can be cut off anywhere and run again: what exists is found by asking for it,
// never by how a create call failed, because those answers differ between kinds of objects and versions of LXD. What
// is there already and was not made here is checked and used, or reported; it is not changed, shrunk or deleted.
//
//   - Storage pool: one of another driver is an error, and so is a new one that is larger than what is free on the node's disk. An
//     existing pool keeps its size, whatever the settings ask for. One that LXD was making when it died is never finished: the error
//     says how to remove it, and it is made again then.
//   - Network bridge: a bridge of the host or of LXD is used as it is. Only where it was asked for, a missing one is
//     made by LXD, without DHCP and DNS, because MAAS serves machines itself.
//   - Interfaces: a MAC address by which MAAS would mix this node up with others is an error.
//   - Project and profile: made with profiles of its own, and an empty profile maas. Existing ones are used as they are, but for a
//     project that shares the default project's profiles, and a profile with disks.
//   - core.https_address: set where it is unset. An address that serves the wanted one stays. Another one is replaced
//     only where it was set here (user.capmaas.https-address says so); an operator's is an error.
//   - Trust: the client's certificate is added over the socket, restricted to the project. LXD 6 has no trust password, and no
//     version needs a token here.
//
// A member of an LXD cluster is refused: MAAS would find all members through each of them.
package lxdnode
