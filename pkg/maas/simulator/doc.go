// SPDX-License-Identifier: Apache-2.0

// Package simulator is a stateful MAAS region in one process: the part of MAAS's REST API 2.0 that a provider and an
// operator use, with MAAS's own refusals, its slow and asynchronous parts, and its surprises.
//
// A region is described in YAML (LoadRegion), runs in its own, scalable time (Options.TimeScale) and is reached over
// HTTP (Simulator.Handler): /MAAS/api/2.0/ is what MAAS offers, /control/ is a tester's hand: faults to inject, state
// to look at, machines to switch off, VM hosts to break.
//
// Where the simulator and a real MAAS differ, the simulator is wrong. The conformance suite in the package's
// subdirectory tells the two apart.
//
// VM hosts of the description are simulated. One that is registered with any other address is a real LXD: the simulator
// connects to it (Options.Dial) with the certificate and key that it was registered with, as MAAS does.
//
// How it is laid out: server.go takes a request through authentication, faults and hooks to a handler of the one table
// in routes.go; each family of endpoints has its own file (machines_*.go, vmhosts.go, compose.go, interfaces.go, ...)
// and its objects are written as MAAS writes them in render_*.go; form.go is the only reader of request bodies and
// errors.go the only writer of refusals; status.go has the table of the machine's state machine and lifecycle.go walks
// it; scheduler.go lets time pass; hypervisor.go is what executes on a VM host, and hypervisor_lxd*.go drive
// a real one.
package simulator
