// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// Entry is one thing that is recorded, for people.
type Entry struct {
	// Field is that of the record, by its name in JSON.
	Field string `json:"field"`
	// Op is the call whose outcome is not known; "" if it is something else.
	Op Op `json:"op,omitempty"`
	// Words say what it means, without the time.
	Words string `json:"words"`
	// Since is when it was recorded, or began; nil if that is not recorded.
	Since *metav1.Time `json:"since,omitempty"`
}

// words are what MAAS, or LXD, is asked for by an operation.
var words = map[Op]string{
	Allocate:   "allocate a machine",
	Claim:      "allocate the VM that was made",
	Compose:    "make the VM on its host",
	Reserve:    "reserve the virtual IP of the API endpoint",
	TakeOver:   "release the machine that was kept, and allocate it",
	LateClaim:  "allocate the machine that was kept (an earlier call that may come late)",
	Unreserve:  "free an address that was reserved for the API endpoint",
	Publish:    "write the DNS record of the API endpoint",
	StartVM:    "start the VM on its host",
	StopVM:     "stop the VM on its host",
	DeleteVM:   "delete the VM on its host",
	Storage:    "set the storage layout of the machine",
	Link:       "give an interface of the machine its subnet and address",
	Bridge:     "make the bridge of the machine",
	Arrange:    "arrange the interfaces of the machine",
	Deploy:     "deploy the machine",
	Annotate:   "annotate the machine as ours",
	PowerOff:   "switch the machine off",
	PowerOn:    "switch the machine on",
	Abort:      "abort what MAAS does with the machine",
	Rescue:     "end the rescue mode of the machine",
	Release:    "release the machine",
	Test:       "test the hardware of the machine",
	MarkBroken: "mark the machine broken that failed its hardware tests",
	Quarantine: "put the machine into quarantine",
	Exclude:    "keep the machine from being allocated",
}

// Words say what is asked for by the operation.
func (o Op) Words() string {
	if text, known := words[o]; known {
		return text
	}
	return fmt.Sprintf("do what a later version calls %q", string(o))
}

// entries collects what is recorded.
type entries []Entry

// when adds what is recorded if it is.
func (e *entries) when(is bool, field, format string, args ...any) {
	if is {
		e.add(field, nil, format, args...)
	}
}

func (e *entries) add(field string, since *metav1.Time, format string, args ...any) {
	*e = append(*e, Entry{Field: field, Since: since, Words: fmt.Sprintf(format, args...)})
}

// EntriesOf returns all that is recorded of an object: first the calls whose outcome is not known. The error is that of
// OfMachine.
func EntriesOf(object client.Object) ([]Entry, error) {
	var data interface{ entries() entries }
	switch object.(type) {
	case *infrav1.MaasMachine:
		data = &MachineData{}
	case *infrav1.MaasCluster:
		data = &ClusterData{}
	case *infrav1.LXDHost:
		data = &HostData{}
	case *infrav1.MaasRemediation:
		data = &RemediationData{}
	default:
		return nil, nil
	}
	err := read(textOf(object), data)
	return data.entries(), err
}

func (c *Calls) entries() (found entries) {
	for _, p := range c.Pending {
		found = append(found, Entry{Field: "pending", Op: p.Op, Since: &p.At, Words: "asked to " + p.Op.Words() +
			"; the outcome is not known"})
	}
	found.when(c.Unknown != "", "unknown", "a later version has recorded more: %s", string(c.Unknown))
	return found
}

func (d *MachineData) entries() entries {
	found := d.Calls.entries()
	found.when(d.Deployed != "", "deployed", "machine %s is deployed for this object", d.Deployed)
	if d.DeployedSince != nil {
		found.add("deployedSince", d.DeployedSince, "the deployment began; an older Node is of the machine's former life")
	}
	found.when(d.FormerBoot != "", "formerBoot", "the Node of the machine's former life had the boot id %s", d.FormerBoot)
	if d.Phase != nil {
		found.add("phase", &d.Phase.Since, "in the phase %s", strings.ReplaceAll(d.Phase.Name, "-", " "))
	}
	if d.GivenBack != nil {
		found.add("givenBack", d.GivenBack, "the machine could not be deployed and was given back; another one is acquired "+
			"after a pause")
	}
	found.when(len(d.Unused) > 0, "unused", "these machines were acquired, are not used, and are being given back: %s",
		strings.Join(d.Unused, ", "))
	found.when(len(d.Hosts) > 0, "hosts", "these hosts have the VM, or may have it: %s", strings.Join(d.Hosts, ", "))
	found.when(d.Registers, "registers", "MAAS has a device for the VM, or may have one")
	found.when(d.Runs != "", "runs", "the VM runs on %s, and is started on no other host", d.Runs)
	found.when(len(d.Addresses) > 0, "addresses",
		"the VM that MAAS composed has the MAC addresses %s, which prove that it is ours", strings.Join(d.Addresses, ", "))
	d.leaving(&found)
	d.marked(&found)
	return found
}

// leaving adds how far giving back or deleting is.
func (d *MachineData) leaving(found *entries) {
	if c := d.Cleanup; c != nil {
		text := "the VM is being removed from its host"
		if c.Tries > 0 {
			text += fmt.Sprintf("; the host did not respond to %d request(s)", c.Tries)
		}
		if c.CameBack > 0 {
			text += fmt.Sprintf("; the VM was found again %d time(s)", c.CameBack)
		}
		if c.Namesakes {
			text += "; several hosts may have a VM of this name"
		}
		if c.Remains {
			text += "; it may remain on a host that could not be asked"
		}
		found.add("cleanup", cmp.Or(c.UnreachableSince, c.DeletedAt), "%s", text)
	}
	if r := d.Release; r != nil {
		text := "the machine is being released"
		if r.Erase != "" {
			text += fmt.Sprintf(", its disks erased (%s)", r.Erase)
		}
		if r.Failures > 0 {
			text += fmt.Sprintf("; that failed %d time(s) in a row", r.Failures)
		}
		found.add("release", r.StartTime, "%s", text)
	}
}

// marked adds what is undone, or remembered, before others get the machine.
func (d *MachineData) marked(found *entries) {
	if d.Storage != nil {
		found.add("storage", nil, "machine %s has the storage layout of the spec, or may have; its own is restored before "+
			"others get it", d.Storage.SystemID)
	}
	switch d.Quarantine {
	case "":
	case Quarantined:
		found.add("quarantine", nil, "the machine failed, and MAAS has put it into quarantine")
	case QuarantineRefused:
		found.add("quarantine", nil, "the machine failed, and the API key may not put it into quarantine")
	default:
		found.add("quarantine", nil, "the machine failed; its quarantine is %s", d.Quarantine)
	}
	if t := d.Tests; t.WhyNot() != "" {
		found.add("tests", &t.Since, "machine %s %s, and is never deployed for this object", t.SystemID, t.WhyNot())
	} else if t != nil {
		found.add("tests", &t.Since, "machine %s was to be tested; MAAS has the results", t.SystemID)
	}
	found.when(d.Excluded != "", "excluded",
		"machine %s is kept from being allocated until what was changed on it is undone", d.Excluded)
	found.when(d.Lost != "", "lost", "machine %s was kept for this object, and another user of MAAS got it", d.Lost)
}

func (d *ClusterData) entries() entries {
	found := d.Calls.entries()
	found.when(d.Published, "published", "MAAS has a DNS record for the API endpoint, or may have one")
	for _, k := range d.Kept {
		text := fmt.Sprintf("machine %s (%s) is kept until %s for the next Machine of %s", k.Hostname, k.SystemID,
			k.Until.UTC().Format("2006-01-02 15:04:05Z"), k.For)
		switch {
		case k.GivenBack:
			text = fmt.Sprintf("machine %s (%s), which was kept for %s, is being given back", k.Hostname, k.SystemID, k.For)
		case k.TakenBy != "":
			text += ", which takes it"
		}
		if k.Reason != "" {
			text += fmt.Sprintf("; it waits: %s: %s", k.Reason, k.Message)
		}
		found.add("kept", &k.Since, "%s", text)
		if k.Giving != nil {
			for _, one := range k.Giving.entries() {
				one.Words = k.Hostname + ": " + one.Words
				found = append(found, one)
			}
		}
	}
	return found
}

func (d *HostData) entries() entries {
	found := d.Calls.entries()
	for _, vm := range d.Left {
		text := fmt.Sprintf("VM %s of MaasMachine %s/%s may be left on %s", vm.Hostname, vm.Namespace, vm.Machine, vm.Host)
		if vm.Spared != "" {
			text += "; it is not deleted: " + vm.Spared
		}
		found.add("left", &vm.Since, "%s", text)
	}
	return found
}

func (d *RemediationData) entries() entries {
	found := d.Calls.entries()
	if r := d.Remediation; r != nil {
		found.add("remediation", r.Since, "the remediation is at the step %s; power cycles so far: %d; requests to switch "+
			"the machine: %d", r.Step, r.PowerCycles, r.Requests)
	}
	return found
}
