// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/vmhosts"
)

// # Nodes of host clusters
//
// The condition `capmaas.io/LXDHostReady` of a Node [shows how far it
// is](troubleshooting.md#a-node-does-not-become-a-vm-host) with becoming a host. Other reasons than these mean what
// they mean [everywhere](#everywhere): correct `lxdConfig.credentialsRef`; its key needs [the
// right](security.md#the-least-key) for `registration`. `Retiring` and `Retired`: [when a host
// goes](host-clusters.md#when-a-host-goes).
const (
	// reasonPreparing: it has begun.
	//   - You: wait.
	reasonPreparing = "Preparing"

	// reasonRegistered: it is a VM host.
	//   - You: nothing.
	reasonRegistered = "Registered"

	// reasonPrepared: LXD is ready, and MAAS has no VM hosts: the manager makes an LXDHost.
	//   - You: `kubectl get lxdhosts --all-namespaces` in the management cluster: [MAAS without VM
	//     hosts](host-clusters.md#maas-without-vm-hosts).
	reasonPrepared = "Prepared"

	// reasonResourcesUnknown: it is registered, but MAAS does not know its cores and memory yet.
	//   - You: wait; refresh the VM host in MAAS.
	reasonResourcesUnknown = "ResourcesUnknown"

	// reasonAddressUnknown: the Node has no InternalIP.
	//   - You: see [the Node does not come](troubleshooting.md#the-node-does-not-come).
	reasonAddressUnknown = "AddressUnknown"

	// reasonZoneUnknown: the Node has no provider ID that names its machine, whose zone it gets.
	//   - You: see [the Node does not come](troubleshooting.md#the-node-does-not-come).
	reasonZoneUnknown = "ZoneUnknown"

	// reasonLXDNotInstalled: LXD has no socket on the node.
	//   - You: [install it](host-clusters.md#lxd-on-the-nodes), or start it.
	reasonLXDNotInstalled = "LXDNotInstalled"

	// reasonLXDNotReady: LXD does not respond, or its pool, bridge or project is wrong, or another certificate has the
	// name of the node's; the message says which.
	//   - You: on the node: `sudo capmaasctl check lxd`; what the message says of a certificate.
	reasonLXDNotReady = "LXDNotReady"

	// reasonHostUnreachable: MAAS can't reach LXD at the node's address, port 8443. `'parent'`: a VM on the host, in
	// any project, has a network card of type `p2p`, which MAAS can't read.
	//   - You: check for a firewall, or another `core.https_address`. An occasional "not found" is repeated.
	reasonHostUnreachable = "HostUnreachable"

	// reasonAmbiguous: MAAS has several VM hosts that could be this node.
	//   - You: remove the wrong ones in MAAS.
	reasonAmbiguous = "Ambiguous"

	// reasonVMHostNameTaken: MAAS has a VM host of this Node's name or address on another machine, with a certificate
	// that is not this node's: a Node of another cluster, or a person's. Nothing is changed in MAAS.
	//   - You: let Node names be unique among the clusters of one MAAS, or rename that VM host (`maas admin vm-host
	//     update ID name=NAME`). If it is this node's after all, set its `power_address` there; if its host is gone for
	//     good, delete it: its VMs leave MAAS with it.
	reasonVMHostNameTaken = "VMHostNameTaken"

	// reasonVMsWouldRestart: MAAS does not have this node as a VM host, and LXD has VMs in the project; the message says
	// how many. Nothing is registered: MAAS would restart them all.
	//   - You: see [VMs that MAAS does not know](host-clusters.md#vms-that-maas-does-not-know).
	reasonVMsWouldRestart = "VMsWouldRestart"

	// reasonMACNotUnique: other nodes or interfaces have the MAC of an interface, too; nothing is registered or changed
	// in MAAS.
	//   - You: see [the network plugin](host-clusters.md#the-network-plugin).
	reasonMACNotUnique = "MACNotUnique"

	// reasonWrongMachine: MAAS has the VM host on another machine than the provider ID names: it once saw the same MAC
	// on both.
	//   - You: release neither machine, and see [the network plugin](host-clusters.md#the-network-plugin).
	reasonWrongMachine = "WrongMachine"

	// reasonFailed: anything else.
	//   - You: see the message, and the log.
	reasonFailed = "Failed"
)

var reasonsOfHosts = map[vmhosts.Kind]string{
	vmhosts.Ambiguous: reasonAmbiguous, vmhosts.Taken: reasonVMHostNameTaken, vmhosts.Occupied: reasonVMsWouldRestart,
}

// problem is why a pass did not succeed, in the form that users see.
type problem struct {
	reason string
	// status of the condition: False, or Unknown if MAAS could not be asked.
	status  corev1.ConditionStatus
	message string // one line: the problem and, where it helps, the remedy
	// permanent: retrying soon is useless, because a person has to change something.
	permanent bool
	// retryAfter is MAAS's Retry-After.
	retryAfter time.Duration
	cause      error
}

func (p *problem) Error() string { return p.reason + ": " + p.message }
func (p *problem) Unwrap() error { return p.cause }

// problemOf makes a problem of any error of a step.
func problemOf(err error) *problem {
	if known, is := errors.AsType[*problem](err); is {
		return known
	}
	p := &problem{status: corev1.ConditionFalse, reason: reasonFailed, message: text.Lines(err), cause: err}
	api, isOfMAAS := errors.AsType[*maas.Error](err)
	ofHost, isOfHost := errors.AsType[*vmhosts.Error](err)
	switch {
	case guard.Is[*lxdnode.MACError](err):
		p.reason, p.permanent = reasonMACNotUnique, true
	case errors.Is(err, lxdnode.ErrNotInstalled):
		p.reason = reasonLXDNotInstalled
	case guard.Is[*lxdnode.Error](err):
		p.reason, p.permanent = reasonLXDNotReady, lxdnode.Permanent(err)
	case guard.Is[*maas.ConfigError](err):
		p.reason, p.status, p.permanent = infrav1.CredentialsInvalidReason, corev1.ConditionUnknown, true
	case isOfHost:
		p.reason, p.permanent = reasonsOfHosts[ofHost.Kind], true
	case isOfMAAS:
		p.ofMAAS(api)
	case apierrors.IsForbidden(err):
		p.permanent = true
	}
	return p
}

// ofMAAS sets the meaning of an error of MAAS. MAAS's message for a wrong key is not repeated: it may hold parts of the
// right one.
func (p *problem) ofMAAS(err *maas.Error) {
	p.retryAfter = err.RetryAfter
	switch err.Kind {
	case maas.Unauthorized:
		p.reason, p.status, p.permanent = infrav1.CredentialsInvalidReason, corev1.ConditionUnknown, true
		p.message = explained(err)
	case maas.Forbidden:
		p.reason, p.status, p.permanent = infrav1.CredentialsInvalidReason, corev1.ConditionUnknown, true
		p.message = "VM hosts are registered only by " + rights.Registration.Users("") + ": give the API key of one"
	case maas.Invalid:
		p.reason, p.permanent = infrav1.MAASRefusedReason, true
		p.message = "MAAS refuses the registration: " + err.Message
		for field, what := range map[string]string{"zone": "zone", "pool": "resource pool"} {
			if maas.InvalidField(err, field) {
				p.message = fmt.Sprintf("MAAS has no such %s: make it, or choose another", what)
			}
		}
	case maas.Untrusted:
		p.reason, p.status = infrav1.CertificateInvalidReason, corev1.ConditionUnknown
		p.message = explained(err)
	case maas.Unavailable, maas.Busy:
		p.reason, p.status = infrav1.MAASUnavailableReason, corev1.ConditionUnknown
		p.message = "MAAS can't be asked: " + err.Message
		if err.Op == "refresh" && err.Status == http.StatusServiceUnavailable {
			p.reason, p.status = reasonHostUnreachable, corev1.ConditionFalse
			p.message = "MAAS can't use LXD on this node: " + err.Message
		}
	}
}

// explained says what an error of MAAS means, and what helps.
func explained(err *maas.Error) string {
	found, remedy := maas.Explain(err)
	return found + ": " + remedy
}
