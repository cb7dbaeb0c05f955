// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// Data is what infrav1.RecordAnnotation holds, as JSON. Only what must survive a lost status is in it.
type Data struct {
	// Pending are the calls of which it is not known what became of them; one for each operation, the last.
	Pending []Pending `json:"pending,omitempty"`
	// Phase is what the machine is in now; nil where nothing is measured.
	Phase *Phase `json:"phase,omitempty"`
	// Hosts are the VM hosts that the VM is on, or may be on because MAAS did not say what became of a compose, as lxd.Composer.HostRef
	// writes them.
	Hosts []string `json:"hosts,omitempty"`
	// Cleanup is what was found out about a VM that is deleted, or that an earlier try made.
	Cleanup *Cleanup `json:"cleanup,omitempty"`
	// Release is the last try to release the machine. The status shows it.
	Release *infrav1.MachineReleaseStatus `json:"release,omitempty"`
}

// Pending is a call that was recorded and is not known to be over.
type Pending struct {
	Op Op          `json:"op"`
	At metav1.Time `json:"at"`
}

// Phase is a stretch of a machine's life, and when it was first seen in it.
type Phase struct {
	Name  string      `json:"name"`
	Since metav1.Time `json:"since"`
}

// Cleanup is how far it is known that a VM is gone from its host.
type Cleanup struct {
	// UnreachableSince is when the host could first not be looked at, and Tries how often since.
	UnreachableSince *metav1.Time `json:"unreachableSince,omitempty"`
	Tries            int          `json:"tries,omitempty"`
	// CameBack is how often the VM was found again, DeletedAt when it was deleted again.
	CameBack  int          `json:"cameBack,omitempty"`
	DeletedAt *metav1.Time `json:"deletedAt,omitempty"`
	// Namesakes means that VMs of this name may have been made on several hosts.
	Namesakes bool `json:"namesakes,omitempty"`
}

// Of returns what is recorded on an object. It returns an error if somebody has edited the record so that it can't be read: nothing is done
// then, for what is pending is not known.
func Of(object client.Object) (Data, error) {
	var data Data
	text := object.GetAnnotations()[infrav1.RecordAnnotation]
	if text == "" {
		return data, nil
	}
	if err := json.Unmarshal([]byte(text), &data); err != nil {
		return Data{}, fmt.Errorf("reading the annotation %s: %w; restore it, or remove it if MAAS has nothing of this object that is not recorded in its spec",
			infrav1.RecordAnnotation, err)
	}
	return data, nil
}

// text is what the annotation is to hold; "" for nothing.
func (d *Data) text() string {
	text, _ := json.Marshal(d) // It has nothing that could not be written.
	if string(text) == "{}" {
		return ""
	}
	return string(text)
}

// MayAcquire reports whether a call is pending that may give the object a machine, a VM or an address.
func (d *Data) MayAcquire() bool {
	return slices.ContainsFunc(d.Pending, func(p Pending) bool { return p.Op.acquires() })
}

// Acquired forgets the pending calls that acquire something: what became of them is known.
func (d *Data) Acquired() {
	d.Pending = slices.DeleteFunc(slices.Clone(d.Pending), func(p Pending) bool { return p.Op.acquires() })
}

// Enter returns for how long the object has been in a phase, and records when it enters one. "" is no phase.
func (d *Data) Enter(phase string, now time.Time) time.Duration {
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
func (d *Data) In(phases ...string) bool {
	return d.Phase != nil && slices.Contains(phases, d.Phase.Name)
}

// CleanupSoFar returns what was found out so far.
func (d *Data) CleanupSoFar() Cleanup {
	if d.Cleanup == nil {
		return Cleanup{}
	}
	return *d.Cleanup
}

// AddHost records that the VM may be on a host.
func (d *Data) AddHost(host string) {
	if !slices.Contains(d.Hosts, host) {
		d.Hosts = append(slices.Clone(d.Hosts), host)
	}
}

// DropHost records that the VM is not on a host.
func (d *Data) DropHost(host string) {
	d.Hosts = slices.DeleteFunc(slices.Clone(d.Hosts), func(other string) bool { return other == host })
}

// asStored is a time as it is read back.
func asStored(t time.Time) metav1.Time { return metav1.NewTime(t).Rfc3339Copy() }
