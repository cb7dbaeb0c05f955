// SPDX-License-Identifier: Apache-2.0

package record

import (
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/internal/permit"
)

// Op is a call that must be recorded before it is sent: its effect may come after the response was lost, when nobody expects it any more.
type Op string

// Operations that acquire something which nothing in Kubernetes names until the response is stored.
const (
	Allocate Op = "allocate"
	Claim    Op = "claim"
	Compose  Op = "compose"
	Reserve  Op = "reserve"
)

// Operations that change a bare-metal machine. A late one could meet the machine when it is back in the pool, or another user's.
const (
	Link     Op = "link"
	Bridge   Op = "bridge"
	Deploy   Op = "deploy"
	Annotate Op = "annotate"
	PowerOff Op = "power-off"
	Abort    Op = "abort"
	Rescue   Op = "exit-rescue-mode"
	Release  Op = "release"
)

// acquires reports whether the operation may give the object something.
func (o Op) acquires() bool { return o == Allocate || o == Claim || o == Compose || o == Reserve }

// Repeatable is a call that needs no record: a late effect of it harms nothing, and doing it twice is doing it once.
type Repeatable string

const (
	// ChangeVM is any change of a composed VM: nobody else gets the VM, and its system id is never given again.
	ChangeVM Repeatable = "a VM's system id is never given again"
	// PublishEndpoint writes or deletes the DNS record or the reserved address of an endpoint. Their names are the cluster's alone; the
	// reconciler looks at them again and puts them right.
	PublishEndpoint Repeatable = "the endpoint's name is the cluster's alone"
	// CloseVMHost tags a VM host or makes MAAS forget it. Ids of VM hosts are never given again, and the tag stays until the host goes.
	CloseVMHost Repeatable = "a VM host's id is never given again"
)

// Permit allows the call, at any time.
func (r Repeatable) Permit() maas.Permit { return permit.AnyTime() }
