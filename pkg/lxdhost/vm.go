// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"slices"
	"strings"

	"github.com/canonical/lxd/shared/api"
)

// Keys of the marks in the configuration of a VM and of its further disks' volumes.
const (
	keyOwner      = "user.capmaas.owner"
	keyMachine    = "user.capmaas.machine"
	keyManagement = "user.capmaas.management"
)

// Keys that LXD has for itself.
const (
	// keyID has the id that LXD gives each VM when it is made.
	keyID = "volatile.uuid"
	// keyFirstStart says what is due at the first start.
	keyFirstStart = "volatile.apply_template"
	// keyLastPower says whether it ran when it was last started or stopped.
	keyLastPower = "volatile.last_state.power"
)

// Names of the devices of each VM.
const (
	rootDevice = "root"
	nicDevice  = "eth0"
)

// Marks say whose a VM is. Owner and Machine prove it.
type Marks struct {
	// Owner is the owner id of the cluster.
	Owner string
	// Machine identifies the machine in the cluster.
	Machine string
	// Management identifies the management cluster that made the VM. It proves nothing: clusters move.
	Management string
}

// Prove reports whether these are marks, and of the same machine of the same owner as others.
func (m Marks) Prove(others Marks) bool {
	return m.valid() && m.Owner == others.Owner && m.Machine == others.Machine
}

func (m Marks) valid() bool { return m.Owner != "" && m.Machine != "" }

// config returns the marks as LXD keeps them.
func (m Marks) config() map[string]string {
	config := map[string]string{keyOwner: m.Owner, keyMachine: m.Machine}
	if m.Management != "" {
		config[keyManagement] = m.Management
	}
	return config
}

// marksOf reads marks from an object's own configuration: a profile's are not its.
func marksOf(config map[string]string) Marks {
	return Marks{Owner: config[keyOwner], Machine: config[keyMachine], Management: config[keyManagement]}
}

// State is a VM's, in LXD's words; there are others.
type State string

// States of a VM.
const (
	StateRunning State = "Running"
	StateStopped State = "Stopped"
)

// VM is a virtual machine of ours.
type VM struct {
	Name  string
	Marks Marks
	State State
}

// List returns the VMs of the project that carry marks, whoever's they are, by name: GET /1.0/instances. The error is
// an *Error.
func (h *Host) List(ctx context.Context) (vms []VM, err error) {
	err = h.in(ctx, "read", "listing VMs", func(s *session) error {
		instances, err := s.client.GetInstances(api.InstanceTypeVM)
		if err != nil {
			return err
		}
		vms = marked(instances)
		return s.seesAll()
	})
	return vms, err
}

// names returns the names of all instances of the project, also of those that LXD can't describe.
func (h *Host) names(ctx context.Context) (names []string, err error) {
	err = h.in(ctx, "read", "listing the names of instances", func(s *session) error {
		names, err = s.client.GetInstanceNames(api.InstanceTypeAny)
		if err != nil {
			return err
		}
		return s.seesAll()
	})
	return names, err
}

// marked returns the VMs that carry marks, by name.
func marked(instances []api.Instance) []VM {
	var vms []VM
	for i := range instances {
		if isVM := instances[i].Type == string(api.InstanceTypeVM); isVM && marksOf(instances[i].Config).valid() {
			marks := marksOf(instances[i].Config)
			vms = append(vms, VM{Name: instances[i].Name, Marks: marks, State: State(instances[i].Status)})
		}
	}
	slices.SortFunc(vms, func(a, b VM) int { return strings.Compare(a.Name, b.Name) })
	return vms
}

// prove returns a VM that carries the marks, with its ETag: GET /1.0/instances/NAME. For a while it may be changed
// then. It is the VM that this session has seen first: another one is KindConflict.
func (s *session) prove(name string, marks Marks) (found *api.Instance, etag string, err error) {
	if name == "" || !marks.valid() {
		return nil, "", problem(KindInvalid, "a name and marks are needed: an owner and a machine")
	}
	if err := s.turn.asks(); err != nil {
		return nil, "", err
	}
	found, etag, err = s.client.GetInstance(name)
	if isNotFound(err) {
		if err := s.seesAll(); err != nil {
			return nil, "", err
		}
		return nil, "", problem(KindNotFound, "there is no VM %s in the project %s", name, s.project)
	}
	if err != nil {
		return nil, "", err
	}
	if err := checkMarks(found, marks); err != nil {
		return found, etag, err
	}
	return found, etag, s.checkID(found)
}

// checkID reports whether a VM is the one that this session has seen first.
func (s *session) checkID(found *api.Instance) error {
	id := found.Config[keyID]
	if s.vm == nil {
		s.vm = &id
	}
	if *s.vm != id {
		return problem(KindConflict, "there is another VM %s by now, with the same marks: it has the id %q, and not %q",
			found.Name, id, *s.vm)
	}
	return nil
}

func checkMarks(found *api.Instance, marks Marks) error {
	if found.Type != string(api.InstanceTypeVM) {
		return problem(KindConflict, "%s is not a VM", found.Name)
	}
	if has := marksOf(found.Config); !has.Prove(marks) {
		return problem(KindConflict, "there is a VM %s, which is not ours: it is marked with owner %q and machine %q, not "+
			"%q and %q", found.Name, has.Owner, has.Machine, marks.Owner, marks.Machine)
	}
	return nil
}

// macs returns the MAC addresses of an instance's interfaces by device: those it was given, and those that LXD chose.
func macs(found *api.Instance) map[string]string {
	all := map[string]string{}
	for key, value := range found.Config {
		device, chosen := strings.CutPrefix(key, "volatile.")
		device, address := strings.CutSuffix(device, ".hwaddr")
		if chosen && address {
			all[device] = value
		}
	}
	for name, device := range found.ExpandedDevices {
		if device["type"] == "nic" && device["hwaddr"] != "" {
			all[name] = device["hwaddr"]
		}
	}
	return all
}

// Find returns nil if there is a VM of a name that carries the marks: GET /1.0/instances/NAME. The error is an *Error:
// KindNotFound, KindConflict if the name is another's, or one of the connection or of LXD.
func (h *Host) Find(ctx context.Context, name string, marks Marks) error {
	return h.in(ctx, "find", "searching for the VM "+name, func(s *session) error {
		_, _, err := s.prove(name, marks)
		return err
	})
}
