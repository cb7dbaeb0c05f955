// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// Calls is what is recorded of objects of all kinds.
type Calls struct {
	// Pending are the calls whose outcome is not known; at most one for each operation, the latest.
	Pending []Pending `json:"pending,omitempty"`

	Unknown `json:"-"`
}

// MachineData is what is recorded of a MaasMachine. As the others it holds only what must survive a lost status, and is
// the content of infrav1.RecordAnnotation, as JSON.
type MachineData struct {
	Calls
	// Deployed is the machine that MAAS deploys, or has deployed, because this object asked for it; "" if there is
	// none.
	Deployed string `json:"deployed,omitempty"`
	// DeployedSince is when that was last asked for, or the VM made; nil: by an earlier version. FormerBoot is the boot
	// id that the Node of the machine's name had then; "" if there was none, or it is not known.
	DeployedSince *metav1.Time `json:"deployedSince,omitempty"`
	FormerBoot    string       `json:"formerBoot,omitempty"`
	// Phase is the machine's current phase; nil while no phase is timed.
	Phase *Phase `json:"phase,omitempty"`
	// GivenBack is when bare metal that could not be deployed was given back, to be acquired again after a pause; nil
	// if there is none.
	GivenBack *metav1.Time `json:"givenBack,omitempty"`
	// Unused are machines that the object has acquired, does not use, and gives back.
	Unused []string `json:"unused,omitempty"`
	// Hosts are the VM hosts that have the VM, or may have it because the outcome of a compose is unknown, in the form
	// of lxd.HostRef.
	Hosts []string `json:"hosts,omitempty"`
	// Registers means that MAAS may have a device for the VM, whatever is known of hosts.
	Registers bool `json:"registers,omitempty"`
	// Runs is the host of a VM that is a device in MAAS, and that is started on no other host; in the form of Hosts.
	Runs string `json:"runs,omitempty"`
	// Addresses are the MAC addresses of the VM that MAAS composed, sorted: they prove that it is ours when MAAS does
	// not have it any more.
	Addresses []string `json:"addresses,omitempty"`
	// Cleanup is the progress of removing a VM that is being deleted, or that an earlier try made.
	Cleanup *Cleanup `json:"cleanup,omitempty"`
	// Release is the last attempt to release the machine. The status shows it.
	Release *infrav1.MachineReleaseStatus `json:"release,omitempty"`
	// Storage is the storage layout that was set, or may have been, and is to be restored when the machine has no owner;
	// nil if there is none.
	Storage *StorageLayout `json:"storage,omitempty"`
	// Quarantine is what became of the quarantine of the bare-metal machine, which failed. If people lift it, it is not
	// put into quarantine again.
	Quarantine QuarantineState `json:"quarantine,omitempty"`
	// Tests are those that were asked for, of spec.checks; nil if there are none.
	Tests *Tests `json:"tests,omitempty"`
	// Excluded is the machine that got a tag in MAAS, or may have, which keeps it from being allocated until all that
	// is recorded here is undone; "" if there is none.
	Excluded string `json:"excluded,omitempty"`
	// Lost is the machine that was kept for this object and that another user got, for people; "" if there is none.
	Lost string `json:"lost,omitempty"`
}

// HostOf returns the host that has the VM: where it runs; else, of those that may have it, the one of the name, or the
// last. "": none is recorded, or its name alone (id 0).
func (d *MachineData) HostOf(name string) string {
	last := ""
	for _, ref := range d.Hosts {
		if last = ref; strings.HasSuffix(ref, "/"+name) {
			break
		}
	}
	if ref := cmp.Or(d.Runs, last); !strings.HasPrefix(ref, "0/") {
		return ref
	}
	return ""
}

// ClusterData is what is recorded of a MaasCluster.
type ClusterData struct {
	Calls
	// Kept are machines that wait for the next Machine of their owner.
	Kept KeptMachines `json:"kept,omitempty"`
	// Published means that MAAS has a DNS record for the endpoint, or may have one.
	Published bool `json:"published,omitempty"`
}

// HostData is what is recorded of an LXDHost.
type HostData struct {
	Calls
	// Left are VMs that may be left there: it could not be asked when their MaasMachines were deleted.
	Left LeftVMs `json:"left,omitempty"`
}

// RemediationData is what is recorded of a MaasRemediation.
type RemediationData struct {
	Calls
	// Remediation is how far it is. The status shows it.
	Remediation *infrav1.RemediationProgress `json:"remediation,omitempty"`
}

// StorageLayout is a storage layout that was set on a bare-metal machine.
type StorageLayout struct {
	SystemID string `json:"systemID"`
	// Partitions are the ids that MAAS gave the partitions, sorted: it gives others when a layout is set again.
	Partitions []int `json:"partitions,omitempty"`
	// Former are those that the machine had before the call, until its outcome is known.
	Former []int `json:"former,omitempty"`

	Unknown `json:"-"`
}

// WasSet reports whether a machine with these partitions has got the layout, also if the response to the call was lost.
func (l *StorageLayout) WasSet(partitions []int) bool {
	switch {
	case l == nil:
		return false
	case len(l.Former) > 0:
		return !slices.Equal(l.Former, partitions)
	}
	return len(l.Partitions) > 0 && slices.Equal(l.Partitions, partitions)
}

// IsOn reports whether a machine with these partitions may still have the layout. If the call that set it was lost, its
// partitions are not known.
func (l *StorageLayout) IsOn(partitions []int) bool {
	return len(l.Partitions) == 0 || slices.Equal(l.Partitions, partitions)
}

// Tests are tests of a machine that MAAS was asked for. What became of them is MAAS's to say: its results are in a set
// with a higher id than After.
type Tests struct {
	SystemID string      `json:"systemID"`
	Since    metav1.Time `json:"since"`
	// After is the highest id of the sets of results that MAAS had of the machine before.
	After int `json:"after,omitempty"`
	// Over means that the machine passed them.
	Over bool `json:"over,omitempty"`
	// Vain is how often it was tested before, to no result.
	Vain int `json:"vain,omitempty"`
	// Failed is what it did instead, in one line that follows its name; "" if it did not, or it is not known yet. Untested
	// is the same if that says nothing of its hardware: MAAS could not begin.
	Failed   string `json:"failed,omitempty"`
	Untested string `json:"untested,omitempty"`

	Unknown `json:"-"`
}

// HasFailed reports whether the machine failed them.
func (t *Tests) HasFailed() bool { return t != nil && t.Failed != "" }

// WhyNot returns why the machine is never deployed for the object, in one line that follows its name, or "".
func (t *Tests) WhyNot() string {
	if t == nil {
		return ""
	}
	return cmp.Or(t.Failed, t.Untested)
}

// UnderWay reports whether it is not known what became of the tests.
func (t *Tests) UnderWay() bool { return t != nil && !t.Over && t.WhyNot() == "" }

// TestAnew ends what tests say of a machine that others may have had since, with the highest id of its sets of results.
// What may still begin them is not forgotten, nor what keeps the machine from being deployed.
func (d *MachineData) TestAnew(set int) {
	switch t := d.Tests; {
	case t.WhyNot() != "":
	case t != nil && d.IsPending(Test):
		d.Tests = &Tests{SystemID: t.SystemID, Since: t.Since, After: max(t.After, set), Unknown: t.Unknown}
	default:
		d.Tests = nil
	}
}

// TestsOf returns the tests that were asked for of a machine, or nil.
func (d *MachineData) TestsOf(systemID string) *Tests {
	if d.Tests == nil || d.Tests.SystemID != systemID {
		return nil
	}
	return d.Tests
}

// QuarantineState is what became of the quarantine of a machine that failed; "" if nothing is known of one.
type QuarantineState string

const (
	// Quarantined means that MAAS has put it into quarantine.
	Quarantined QuarantineState = "done"
	// QuarantineRefused means that the API key may not quarantine machines. This process leaves the machine alone as
	// long as it runs.
	QuarantineRefused QuarantineState = "refused"
)

// Pending is a recorded call whose outcome is not known.
type Pending struct {
	Op Op          `json:"op"`
	At metav1.Time `json:"at"`
	// Ended means that MAAS does not try any more to switch power for it, see Calls.Ended.
	Ended bool `json:"ended,omitempty"`
	idle  bool // see Calls.Idle

	Unknown `json:"-"`
}

// Phase is a phase of a machine's life, and when the machine was first seen in it.
type Phase struct {
	Name  string      `json:"name"`
	Since metav1.Time `json:"since"`

	Unknown `json:"-"`
}

// Cleanup is the progress of removing a VM from its host.
type Cleanup struct {
	// UnreachableSince is when the host first could not be refreshed, and Tries the number of attempts since.
	UnreachableSince *metav1.Time `json:"unreachableSince,omitempty"`
	Tries            int          `json:"tries,omitempty"`
	// CameBack is how often the VM was found again, DeletedAt when it was last deleted again.
	CameBack  int          `json:"cameBack,omitempty"`
	DeletedAt *metav1.Time `json:"deletedAt,omitempty"`
	// Namesakes means that VMs of this name may have been made on several hosts.
	Namesakes bool `json:"namesakes,omitempty"`
	// Remains means that the VM may be left on a host whose LXDHost can't remember it.
	Remains bool `json:"remains,omitempty"`

	Unknown `json:"-"`
}

// OfMachine returns what is recorded of a MaasMachine. It returns an error if an edit has made the record unreadable:
// nothing may be done then, because the pending calls are not known.
func OfMachine(m *infrav1.MaasMachine) (MachineData, error) { return of[MachineData](m) }

// OfCluster returns what is recorded of a MaasCluster, as OfMachine does.
func OfCluster(c *infrav1.MaasCluster) (ClusterData, error) { return of[ClusterData](c) }

// OfHost returns what is recorded of an LXDHost, as OfMachine does.
func OfHost(h *infrav1.LXDHost) (HostData, error) { return of[HostData](h) }

// OfRemediation returns what is recorded of a MaasRemediation, as OfMachine does.
func OfRemediation(r *infrav1.MaasRemediation) (RemediationData, error) {
	return of[RemediationData](r)
}

func of[D any](object client.Object) (data D, err error) {
	err = read(textOf(object), &data)
	return data, err
}

func textOf(object client.Object) string { return object.GetAnnotations()[infrav1.RecordAnnotation] }

// MayAcquire reports whether a call is pending that may give the object a machine, a VM or an address.
func (c *Calls) MayAcquire() bool {
	return slices.ContainsFunc(c.Pending, func(p Pending) bool { return p.Op.acquires() || p.Op == LateClaim })
}

// Reclaim records that of a pending TakeOver only the claim may still take effect, see LateClaim.
func (c *Calls) Reclaim() { c.late(TakeOver) }

// late makes a pending call the LateClaim. It takes effect no sooner than an earlier one, whose place it takes.
func (c *Calls) late(op Op) {
	if at := slices.IndexFunc(c.Pending, func(p Pending) bool { return p.Op == op }); at >= 0 {
		late := c.Pending[at]
		late.Op = LateClaim
		c.Pending = append(without(without(c.Pending, op), LateClaim), late)
	}
}

// MayChangeHost reports whether a call is pending that may start, stop or delete a VM on its host.
func (c *Calls) MayChangeHost() bool {
	return slices.ContainsFunc(c.Pending, func(p Pending) bool { return p.Op.isOnHost() })
}

// HostsSettled removes the pending calls that start, stop or delete a VM on its host, whose time is over.
func (c *Calls) HostsSettled() {
	c.Pending = slices.DeleteFunc(slices.Clone(c.Pending), func(p Pending) bool { return p.Op.isOnHost() })
}

// IsPending reports whether the outcome of a call is not known.
func (c *Calls) IsPending(op Op) bool {
	return slices.ContainsFunc(c.Pending, func(p Pending) bool { return p.Op == op })
}

// Done removes a pending call whose outcome is known by now.
func (c *Calls) Done(op Op) { c.Pending = without(c.Pending, op) }

// Ended records that MAAS has said that it does not try any more to switch power for a pending call.
func (c *Calls) Ended(op Op) { c.mark(op, func(p *Pending) { p.Ended = true }) }

// Idle notes that MAAS shows, for now, that it does not switch power for a pending call. If it shows that still when
// the settle time is over, it never will. It is not stored: MAAS may begin after this look.
func (c *Calls) Idle(op Op) { c.mark(op, func(p *Pending) { p.idle = true }) }

func (c *Calls) mark(op Op, as func(*Pending)) {
	c.Pending = slices.Clone(c.Pending)
	for i := range c.Pending {
		if c.Pending[i].Op == op {
			as(&c.Pending[i])
		}
	}
}

// MachineGone removes the pending calls on the object's machine, which MAAS has proven not to have any more: it gives
// no id twice, so they hit nothing. What may give the object another machine stays, and what would hit the next VM of
// its name on a host.
func (c *Calls) MachineGone() {
	c.Pending = slices.DeleteFunc(slices.Clone(c.Pending), func(p Pending) bool {
		return p.Op == Claim || (!p.Op.acquires() && p.Op != LateClaim && !p.Op.isOnHost())
	})
}

// Acquired removes the pending calls that acquire something: their outcome is known. Of two claims only one has
// acquired the machine, and nothing says which: the later one stays, as a LateClaim.
func (c *Calls) Acquired() {
	if c.IsPending(LateClaim) {
		c.late(Claim)
	}
	c.Pending = slices.DeleteFunc(slices.Clone(c.Pending), func(p Pending) bool { return p.Op.acquires() })
}

// Enter returns how long the object has been in a phase, and records when it enters one. "" is no phase.
func (d *MachineData) Enter(phase string, now time.Time) time.Duration {
	if phase == "" {
		d.Phase = nil
		return 0
	}
	if d.In(phase) {
		return now.Sub(d.Phase.Since.Time)
	}
	d.Phase = &Phase{Name: phase, Since: asStored(now)}
	return 0
}

// In reports whether the object is in one of these phases.
func (d *MachineData) In(phases ...string) bool {
	return d.Phase != nil && slices.Contains(phases, d.Phase.Name)
}

// CleanupSoFar returns the progress of the cleanup.
func (d *MachineData) CleanupSoFar() Cleanup { return ptr.Deref(d.Cleanup, Cleanup{}) }

// maxHosts bounds on how many hosts a VM may be made: the record must stay smaller than Kubernetes' limit. A host is
// one of them until it says that it has not the VM.
const maxHosts = 32

// MayAddHost reports whether the VM may be made on a host.
func (d *MachineData) MayAddHost(host string) bool {
	return len(d.Hosts) < maxHosts || slices.Contains(d.Hosts, host)
}

// AddHost records that a host may have the VM.
func (d *MachineData) AddHost(host string) {
	if !slices.Contains(d.Hosts, host) {
		d.Hosts = append(slices.Clone(d.Hosts), host)
	}
}

// DropHost records that a host does not have the VM.
func (d *MachineData) DropHost(host string) {
	d.Hosts = slices.DeleteFunc(slices.Clone(d.Hosts), func(other string) bool { return other == host })
}

// asStored returns a time as it is read back from JSON.
func asStored(t time.Time) metav1.Time { return metav1.NewTime(t).Rfc3339Copy() }

// StorageOn returns the layout that was set on a machine, or nil.
func (d *MachineData) StorageOn(systemID string) *StorageLayout {
	if d.Storage == nil || d.Storage.SystemID != systemID {
		return nil
	}
	return d.Storage
}
