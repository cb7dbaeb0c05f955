// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

// Spec is a VM to be made.
type Spec struct {
	// Name is the VM's hostname, too.
	Name  string
	Marks Marks
	// MAC is a unicast address that no instance of the project has; see DeriveMAC.
	MAC net.HardwareAddr
	// Cores and MemoryMiB are above 0.
	Cores     int
	MemoryMiB int64
	// Root is the disk that the VM boots from when there is nothing to boot from the network.
	Root Disk
	// Boot is what is on it, for Clone; nil: nothing.
	Boot *Boot
	// Disks are further disks.
	Disks []Disk
	// Bridge of the host, managed by LXD or not, that the VM boots from.
	Bridge string
	// Profiles of the project, applied in this order, before everything else. None: not even LXD's profile default.
	Profiles []string
	// Devices in LXD's form, by name, in addition to the VM's own: root, eth0, disk1, disk2 and so on.
	Devices map[string]map[string]string
	// Overcommit is how much of the host may be promised.
	Overcommit Overcommit
	// SendBefore is when it is too late to begin with a new VM: nobody may expect it any more. The zero time is no
	// limit.
	SendBefore time.Time
}

// Disk is an empty disk in a storage pool. Bytes is above 0.
type Disk struct {
	Pool  string
	Bytes int64
}

// Overcommit has ratios of what may be promised to what there is. 0 stands for 1.
type Overcommit struct {
	Cores, Memory, Disk float64
}

// Create makes a VM without an operating system, stopped, as MAAS composes one: it boots with UEFI, without secure
// boot, and from the network first. Further disks are added to it afterwards.
//
// A VM of the name with the same marks is left as it is, but for missing further disks. Before a new one is made,
// Create checks that the bridge, the pools and room are there, and that no instance of the project has the MAC address.
//
// It calls GET /1.0/instances; for a new VM GET networks/BRIDGE, projects/P/state, each storage-pools/POOL/resources
// and, unless it was read lately, resources, then POST instances and GET operations/ID/wait; for n further disks n
// times GET instances/NAME and POST storage-pools/POOL/volumes/custom, and PATCH instances/NAME.
//
// The error is an *Error: KindInvalid, KindConflict, KindBridge, KindPool, KindMACInUse, KindNoRoom, KindTooLate, or
// one of the connection or of LXD. After KindUnreachable and KindUnfinished the VM may appear later; Create finds it
// then.
func (h *Host) Create(ctx context.Context, spec Spec) error {
	return h.make(ctx, spec, spec.validate, func(s *session) (devices, error) { return s.findOrCreate(spec) })
}

// make makes a VM in two steps: itself, and its further disks.
func (h *Host) make(
	ctx context.Context, spec Spec, validate func() error, itself func(*session) (devices, error),
) error {
	doing := "creating the VM " + spec.Name
	if err := validate(); err != nil {
		return h.fail(doing, err)
	}
	s, end, err := h.session(ctx, "create")
	if err != nil {
		return h.fail(doing, err)
	}
	defer end()
	devices, err := itself(s)
	if err != nil {
		return h.fail(doing, err)
	}
	if err := s.addDisks(devices, spec); err != nil {
		failed := classify(err)
		// The VM is there.
		return h.fail(doing, &Error{Kind: failed.Kind, Problem: failed.Problem, Sent: true, cause: failed.cause})
	}
	return nil
}

// devices are those of an instance, by name.
type devices map[string]map[string]string

// findOrCreate returns the devices that the VM has.
func (s *session) findOrCreate(spec Spec) (devices, error) {
	if err := s.turn.asks(); err != nil {
		return nil, err
	}
	if !spec.SendBefore.IsZero() {
		s.turn.before = spec.SendBefore
	}
	instances, err := s.client.GetInstances(api.InstanceTypeAny)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(instances, func(each api.Instance) bool { return each.Name == spec.Name }); i >= 0 {
		return instances[i].Devices, checkMarks(&instances[i], spec.Marks)
	}
	bridge, err := s.checkHost(spec, instances)
	if err != nil {
		return nil, err
	}
	has, err := s.create(spec, bridge)
	return has, sent(err)
}

// cloneTries is how often LXD is asked for a VM from an image, if it fails and the VM is not there. LXD 5.0 fails now
// and then when it is busy: it does not wait for what qemu-img says of the image.
const cloneTries = 3

// create sends the request that makes the VM, again if LXD failed to unpack its image.
func (s *session) create(spec Spec, bridge *api.Network) (has devices, err error) {
	tries := 1
	if spec.Boot != nil {
		tries = cloneTries
	}
	for range tries {
		has, err = s.createOnce(spec.request(bridge))
		if !guard.Is[*errOperation](err) {
			break
		}
	}
	return has, err
}

// createOnce sends the request that makes the VM. If that did not succeed, what counts is whether the VM is there.
func (s *session) createOnce(request api.InstancesPost) (devices, error) {
	changed := s.run(http.MethodPost, s.url("instances"), request)
	if changed == nil {
		return request.Devices, nil
	}
	if unfinished(changed) || classify(changed).unsent {
		return nil, changed
	}
	has, err := s.made(request.Name, marksOf(request.Config))
	switch {
	case err == nil:
		return has, nil
	case KindOf(err) == KindConflict, KindOf(err) == KindUnfinished:
		return nil, err
	case api.StatusErrorCheck(changed, http.StatusBadRequest):
		known := classify(changed)
		known.Kind = KindInvalid
		return nil, known
	}
	return nil, changed
}

// made returns the devices of a VM that carries the marks. LXD shows it from the beginning, and it is gone if its
// creation fails in the end: KindUnfinished as long as that is under way.
func (s *session) made(name string, marks Marks) (devices, error) {
	found, _, err := s.prove(name, marks)
	if err != nil {
		return nil, err
	}
	operations, err := s.client.GetOperations()
	if err != nil {
		return nil, sent(uncertain(err))
	}
	path := s.url("instances", name).URL.Path
	isOfIt := func(o api.Operation) bool {
		return !o.StatusCode.IsFinal() && slices.Contains(o.Resources["instances"], path)
	}
	if slices.ContainsFunc(operations, isOfIt) {
		return nil, sent(problem(KindUnfinished, "LXD is still at work on the VM %s", name))
	}
	return found.Devices, nil
}

// validate checks what LXD would not, or not at once.
func (s Spec) validate() error {
	switch {
	case s.Name == "":
		return problem(KindInvalid, "a name is needed")
	case !s.Marks.valid():
		return problem(KindInvalid, "marks are needed: an owner and a machine")
	case len(s.MAC) != 6 || s.MAC[0]&1 != 0:
		return problem(KindInvalid, "%q is no MAC address of one interface", s.MAC)
	case s.Cores <= 0 || s.MemoryMiB <= 0:
		return problem(KindInvalid, "cores and memory must be above 0")
	case s.Bridge == "":
		return problem(KindInvalid, "a bridge is needed")
	case s.Overcommit.Cores < 0 || s.Overcommit.Memory < 0 || s.Overcommit.Disk < 0:
		return problem(KindInvalid, "overcommit must not be below 0")
	}
	for _, disk := range s.allDisks() {
		if disk.Pool == "" || disk.Bytes <= 0 {
			return problem(KindInvalid, "each disk needs a storage pool, and a size above 0")
		}
	}
	own := s.devices(&api.Network{})
	for i := range s.Disks {
		own[diskDevice(i)] = nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.Devices)) {
		if _, taken := own[name]; taken {
			return problem(KindInvalid, "the device %s is the VM's own", name)
		}
	}
	return nil
}

func (s Spec) allDisks() []Disk { return append([]Disk{s.Root}, s.Disks...) }

// request returns the call that makes the VM. Names of volumes are in it before these are made, so that Delete finds
// them wherever Create was interrupted.
func (s Spec) request(bridge *api.Network) api.InstancesPost {
	config := s.Marks.config()
	config["limits.cpu"] = strconv.Itoa(s.Cores)
	config["limits.memory"] = strconv.FormatInt(s.MemoryMiB<<20, 10)
	config["security.secureboot"] = "false"
	if volumes := s.volumes(); len(volumes) > 0 {
		config[keyVolumes] = formatVolumes(volumes)
	}
	devices := maps.Clone(s.Devices)
	if devices == nil {
		devices = map[string]map[string]string{}
	}
	maps.Copy(devices, s.devices(bridge))
	request := api.InstancesPost{
		Name: s.Name, Type: api.InstanceTypeVM, Source: api.InstanceSource{Type: api.SourceTypeNone},
		InstancePut: api.InstancePut{
			Profiles: append([]string{}, s.Profiles...), // LXD takes null for its profile default
			Config:   config, Devices: devices,
		},
	}
	if s.Boot != nil {
		s.Boot.addTo(&request)
	}
	return request
}

// devices returns the VM's own. A project may allow only networks that LXD manages, which it knows by the key network.
func (s Spec) devices(bridge *api.Network) map[string]map[string]string {
	nic := map[string]string{"type": "nic", "name": nicDevice, "hwaddr": s.MAC.String(), "boot.priority": "1"}
	if bridge.Managed {
		nic["network"] = bridge.Name
	} else {
		nic["nictype"], nic["parent"] = "bridged", bridge.Name
	}
	root := map[string]string{
		"type": "disk", "path": "/", "pool": s.Root.Pool, "size": strconv.FormatInt(s.Root.Bytes, 10), "boot.priority": "0",
	}
	own := map[string]map[string]string{rootDevice: root, nicDevice: nic}
	if s.Boot != nil {
		root["boot.priority"], nic["boot.priority"] = "1", "0"
		own[seedDevice] = map[string]string{"type": "disk", "source": "cloud-init:config"}
	}
	return own
}
