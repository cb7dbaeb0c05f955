// SPDX-License-Identifier: Apache-2.0

package record

import (
	"slices"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/internal/permit"
)

// Op is a call that must be recorded before it is sent: it may take effect after the response was lost, when nobody
// expects it any more.
type Op string

// Operations that acquire something. Until the response is stored, nothing in Kubernetes refers to it.
const (
	Allocate Op = "allocate"
	Claim    Op = "claim"
	Compose  Op = "compose"
	Reserve  Op = "reserve"
	// TakeOver releases a machine that was kept, and claims it.
	TakeOver Op = "take-over"
)

// LateClaim is what may be left of a TakeOver whose release has taken effect: its claim. The machine is claimed anew
// meanwhile; whether it was acquired says nothing of the late one, which would acquire it again once it is given back.
const LateClaim Op = "late-claim"

// Unreserve frees the virtual IP of a cluster, or an address that MAAS had reserved for the DNS record of its endpoint.
// A late one would free that of the cluster that has the address next: so none is sent while an earlier one may come.
const Unreserve Op = "unreserve"

// Publish writes the DNS record of an endpoint, whose name is the cluster's alone. It is sent again as soon as
// something else is wanted; while a late one may come, the record is not trusted, and the cluster does not go.
const Publish Op = "publish"

// Operations that start, stop or delete a VM on its host. LXD knows a VM by its name alone: a late one would hit the VM
// that has the name then, which has the same marks if it is of a later object of the same name.
const (
	StartVM  Op = "start-vm"
	StopVM   Op = "stop-vm"
	DeleteVM Op = "delete-vm"
)

// Operations that change a bare-metal machine. A late one could hit the machine when it is back in the pool, or another
// user's. PowerOff and PowerOn in a remediation are for VMs that MAAS switches, too: a late one would stop or restart a
// machine that runs.
const (
	Storage  Op = "storage"
	Link     Op = "link"
	Bridge   Op = "bridge"
	Arrange  Op = "interfaces"
	Deploy   Op = "deploy"
	Annotate Op = "annotate"
	PowerOff Op = "power-off"
	PowerOn  Op = "power-on"
	Abort    Op = "abort"
	Rescue   Op = "exit-rescue-mode"
	Release  Op = "release"
	// Test starts hardware tests. MAAS shows them before it switches the machine on, so what it shows does not end the
	// call, and nothing is deployed while a late one may restart the machine. MarkBroken is for a machine that failed
	// them, which MAAS does not release before.
	Test       Op = "test"
	MarkBroken Op = "mark-broken"

	Quarantine Op = "quarantine"
	Exclude    Op = "exclude"
)

// acquires reports whether the operation may give the object something.
func (o Op) acquires() bool {
	return o == Allocate || o == Claim || o == Compose || o == Reserve || o == TakeOver
}

// isOnHost reports whether a late call would hit the VM that has the name then.
func (o Op) isOnHost() bool { return o == StartVM || o == StopVM || o == DeleteVM }

// switches reports whether MAAS has a BMC do what is asked for, and responds when that is done. A deployment switches
// power after its response, while the machine is Deploying; a machine that is taken over is off.
func (o Op) switches() bool {
	return slices.Contains([]Op{PowerOff, PowerOn, Abort, Rescue, Release, Test}, o)
}

// Repeatable is a call that needs no record: it does no harm when it takes effect late or twice.
type Repeatable string

const (
	// ChangeVM is any change of a VM's machine in MAAS: no other user gets it, and MAAS does not reuse its system id. It
	// does not start, stop or delete the VM on its host: see Record.OnHost.
	ChangeVM Repeatable = "a VM's system id is never given again"
	// DropEndpoint deletes the DNS record of an endpoint. MAAS does not reuse its id. It frees no address: see Unreserve.
	DropEndpoint Repeatable = "the endpoint's name is the cluster's alone"
	// CloseVMHost tags a VM host or deletes it in MAAS. MAAS does not reuse ids of VM hosts, and the tag stays until
	// the host is deleted.
	CloseVMHost Repeatable = "a VM host's id is never given again"
	// TendQuarantines changes notes on quarantined machines, which are about tags that no machine has, and takes the
	// tag of a quarantine off machines when it is over, or when they were deployed; likewise for exclusions.
	TendQuarantines Repeatable = "a late one ends a quarantine or an exclusion early, at worst"
)

// Permit allows the call at any time.
func (r Repeatable) Permit() maas.Permit { return permit.AnyTime() }
