// SPDX-License-Identifier: Apache-2.0

// Package conformance pins the responses of a MAAS region's REST API 2.0, case by case, over HTTP alone.
//
// The cases run in `go test` against the simulator of the package above, once per MAAS version that it simulates. With
// MAAS_CONFORMANCE_URL (such as http://host:5240/MAAS) and MAAS_CONFORMANCE_KEY (an administrator's API key) set, the
// same cases run against that MAAS instead, and the simulator is not used: if the two differ, the simulator is wrong.
//
// A case finds what it needs by listing (a Ready machine, a VM host with room, a subnet with free addresses, an image)
// and skips, with the reason, if that MAAS lacks it. Objects that it makes are named capmaas-conf-…, and are removed
// when the case ends, however it ends. It never releases or deletes a machine that it did not allocate, compose or
// create. Where there are no VM hosts, cases use Ready bare metal instead of VMs. Machines that they borrow from the
// region are given back as they were found: with their links, name, zone and pool; storage that a case changed becomes
// the region's default. A machine that is not as it was is named, and the case fails.
//
// At the end the suite prints how many cases ran and passed, and how many were skipped for which reason. What the
// version, VM hosts and the variables below explain is no failure; cases that lack something of the region are (a VLAN,
// an image, a Ready machine), unless MAAS_CONFORMANCE_LACKING says that so many may.
//
// Cases of VM hosts that cannot be reached register 127.0.0.2:1: nothing may listen there on MAAS's rack controllers.
// Cases that leave a VM behind on its host, as MAAS does, refresh the host and delete the machine that MAAS makes of
// the VM.
//
// Further variables, all optional:
//
//	MAAS_CONFORMANCE_USER_KEY     an API key of a user without administrator rights (cases of refused rights); cases of
//	                              entitlements take the user out of its groups, and put it back
//	MAAS_CONFORMANCE_LXD_ADDRESS  an LXD host that MAAS can reach, does not know yet and trusts MAAS (cases of
//	                              registering a VM host); it is registered and removed again
//	MAAS_CONFORMANCE_LXD_PASSWORD its trust password
//	MAAS_CONFORMANCE_LACKING      how many cases may be skipped because the region lacks something (default 0)
//	MAAS_CONFORMANCE_DEADLINE     how long to wait for a machine's state to change (default 15m)
package conformance
