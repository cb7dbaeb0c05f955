// SPDX-License-Identifier: Apache-2.0

// Package simulator is a stateful MAAS region in one process: the part of MAAS's REST API 2.0 that the provider and its
// tests use, with MAAS's own refusals, its slow and asynchronous parts, and its surprises.
//
// A region is described in YAML (LoadRegion), runs in its own, scalable time (Options.TimeScale) and is reached over
// HTTP (Simulator.Handler): /MAAS/api/2.0/ is MAAS's API, /control/ is for testers: they inject faults, read the state,
// switch machines off and break VM hosts.
//
// If the simulator and a real MAAS differ, the simulator is wrong. The conformance suite in the package's subdirectory
// finds differences.
//
// VM hosts of the description are simulated. A host that is registered with any other address is a real LXD: the
// simulator connects to it (Options.Dial) with the certificate and key of the registration, as MAAS does. So it does for
// machines with the lxd power driver, whose VMs MAAS did not compose. What such a VM asks MAAS when it boots is simulated.
//
// The layout: server.go takes a request through authentication, faults and hooks to a handler of the one table in
// routes.go; each family of endpoints has its own file (machines_*.go, vmhosts.go, compose.go, interfaces.go, ...), and
// render_*.go renders its objects as MAAS does; form.go is the only parser of request bodies and errors.go the only
// writer of refusals; status.go has the table of the machine's state machine and lifecycle.go runs it; scheduler.go
// keeps the time; hypervisor.go is what a VM host executes, and hypervisor_lxd*.go drive a real one.
package simulator
