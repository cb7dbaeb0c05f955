// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
)

// seedDevice is the device on which cloud-init finds what the VM's configuration has for it.
const seedDevice = "cloud-init"

// Keys of a VM's configuration that LXD writes to that device as they are, for cloud-init or whatever else reads a disk
// of the kind NoCloud.
const (
	KeyUserData      = "cloud-init.user-data"
	KeyNetworkConfig = "cloud-init.network-config"
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
	// Root is the disk that the VM boots from.
	Root Disk
	// Image is what is on it: the whole fingerprint of an image of virtual machines that the project has.
	Image string
	// Disks are further, empty disks.
	Disks []Disk
	// SecureBoot has the firmware boot only what is signed.
	SecureBoot bool
	// Bridge of the host, managed by LXD or not, that the VM is attached to.
	Bridge string
	// Profiles of the project, applied in this order, before everything else. None: not even LXD's profile default.
	Profiles []string
	// Config in LXD's form, in addition to the VM's own; what is empty is left out.
	Config map[string]string
	// Devices in LXD's form, by name, in addition to the VM's own: root, eth0, disk1, disk2 and so on.
	Devices map[string]map[string]string
	// Overcommit is how much of the host may be promised.
	Overcommit Overcommit
	// SendBefore is when it is too late to change anything: no caller may expect the VM any more. The zero time is no
	// limit.
	SendBefore time.Time
}

// Disk is a disk in a storage pool. Bytes is above 0.
type Disk struct {
	Pool  string
	Bytes int64
}

// Overcommit has ratios of what may be promised to what there is. 0 stands for 1.
type Overcommit struct {
	Cores, Memory, Disk float64
}

// Clone makes a VM from Spec.Image, stopped: it boots with UEFI from its root disk, which is as large as wanted.
// Further disks are added to it afterwards.
//
// A VM of the name with the same marks is left as it is, but for missing further disks; it has to be made as is wanted
// now. Before a new one is made, Clone checks that the bridge, the pools and room are there, and that no instance of
// the project has the MAC address, by what was read of the host; see Connections.Read.
//
// It calls GET /1.0/instances/NAME, and GET operations if it is there; for a new VM GET /1.0 and POST instances, and if
// LXD fails GET instances/NAME, and the same again; for n further disks n times GET instances/NAME and POST
// storage-pools/POOL/volumes/custom, and PATCH instances/NAME. It waits for each change: see lxdapi.
//
// The error is an *Error: KindInvalid, KindConflict, KindVolume, KindOutdated, KindBridge, KindPool, KindMACInUse,
// KindNoRoom, KindTooLate, or one of the connection or of LXD. KindOther is also for an image that the project lacks,
// or that is larger than the root disk. After KindUnreachable and KindUnfinished the VM may appear later. Clone finds
// it then, and after KindTooLate it goes on, with another SendBefore. While LXD is at work on the VM, it waits.
func (h *Host) Clone(ctx context.Context, spec Spec, seen Reading) error {
	return h.in(ctx, "create", "creating the VM "+spec.Name, func(s *session) error {
		if err := spec.validate(); err != nil {
			return err
		}
		s.turn.end = spec.SendBefore
		devices, err := s.findOrClone(spec, seen)
		if err != nil {
			return err
		}
		if err := s.addDisks(devices, spec); err != nil {
			failed := classify(err)
			// The VM is there.
			return &Error{Kind: failed.Kind, Problem: failed.Problem, Sent: true, cause: failed.cause}
		}
		return nil
	})
}

// devices are those of an instance, by name.
type devices map[string]map[string]string

// findOrClone returns the devices that the VM has.
func (s *session) findOrClone(spec Spec, seen Reading) (devices, error) {
	bridge, err := seen.bridge(spec.Bridge)
	if err != nil {
		return nil, err
	}
	request := spec.request(bridge)
	has, err := s.made(request)
	if err == nil || KindOf(err) != KindNotFound {
		return has, err
	}
	if err := seen.check(spec); err != nil {
		return nil, err
	}
	has, err = s.create(request)
	return has, sent(err)
}

// cloneTries is how often LXD is asked for a VM from an image, if it fails and the VM is not there. LXD 5.0 fails now
// and then when it is busy: it does not wait for what qemu-img says of the image.
const cloneTries = 3

// create sends the request that makes the VM, again if LXD failed to unpack its image.
func (s *session) create(request order) (has devices, err error) {
	for range cloneTries {
		has, err = s.createOnce(request)
		if refused, is := errors.AsType[*lxdapi.Error](err); !is || !refused.Refused || refused.Operation == "" {
			break
		}
	}
	return has, err
}

// bootable returns the call with what this LXD takes for how the VM boots. LXD is asked each time: it may have been
// upgraded since, or just now.
func (s *session) bootable(request order) (api.InstancesPost, error) {
	server, _, err := s.client.GetServer()
	if err != nil {
		return request.InstancesPost, err
	}
	request.Config = maps.Clone(request.Config)
	lxdapi.TraitsOf(server).SetBoot(request.Config, request.secureBoot)
	return request.InstancesPost, nil
}

// createOnce sends the request that makes the VM. If that did not succeed, what counts is whether the VM is there.
func (s *session) createOnce(request order) (devices, error) {
	wanted, err := s.bootable(request)
	if err != nil {
		return nil, unsent(err)
	}
	changed := s.client.Post(s.client.Path("instances"), wanted)
	if changed == nil {
		return request.Devices, nil
	}
	if KindOf(changed) == KindUnfinished || classify(changed).unsent {
		return nil, changed
	}
	has, err := s.made(request)
	switch {
	case err == nil:
		return has, nil
	case slices.Contains([]Kind{KindConflict, KindOutdated, KindUnfinished}, KindOf(err)):
		return nil, err
	}
	if refused, is := errors.AsType[*lxdapi.Error](changed); is && refused.Status == http.StatusBadRequest {
		known := classify(changed)
		known.Kind = KindInvalid
		return nil, known
	}
	return nil, changed
}

// made returns the devices of a VM that carries the marks. LXD shows it from the beginning, and it is gone if its
// creation fails in the end: KindUnfinished if that was under way, which has been waited for then.
func (s *session) made(request order) (devices, error) {
	found, _, err := s.prove(request.Name, marksOf(request.Config))
	if err != nil {
		return nil, err
	}
	operations, err := s.client.GetOperations()
	if err != nil {
		return nil, sent(uncertain(err))
	}
	if busy := list.Find(operations, func(o api.Operation) bool { return s.isAtWork(o, found.Name) }); busy != nil {
		_ = s.client.Wait(busy.ID) // Whatever comes of it, LXD shows it.
		return nil, sent(problem(KindUnfinished, "LXD was still at work on the VM %s", found.Name))
	}
	if !isFinished(found) { // It may be by now, or gone.
		if found, _, err = s.prove(request.Name, marksOf(request.Config)); err != nil {
			return nil, err
		}
	}
	if !isFinished(found) {
		return nil, sent(problem(KindOutdated, "there is a VM %s of ours, which LXD began to make and did not finish",
			found.Name))
	}
	if !isMadeOf(found, request) {
		return nil, sent(problem(KindOutdated, "there is a VM %s of ours, which was made for an earlier call", found.Name))
	}
	return found.Devices, nil
}

// isFinished reports whether LXD has made a VM, which it is not at work on: if LXD dies, a VM stays whose disk is not
// written. LXD notes what is due at the first start as the last thing that it does (CreateInstanceFromImage in
// lxd/storage/backend_lxd.go), and forgets that at the first start.
func isFinished(found *api.Instance) bool {
	return found.Config[keyFirstStart] != "" || found.Config[keyLastPower] != ""
}

// isMadeOf reports whether a VM has all that is asked for: an earlier call may have been for another address.
func isMadeOf(found *api.Instance, request order) bool {
	config, all := maps.Clone(found.Config), maps.Clone(found.Devices)
	maps.Copy(config, request.Config)
	maps.Copy(all, request.Devices)
	config[keyBaseImage] = request.Source.Fingerprint
	return maps.Equal(config, found.Config) && maps.EqualFunc(all, found.Devices, maps.Equal) &&
		slices.Equal(found.Profiles, request.Profiles) && lxdapi.BootsSecurely(found.Config) == request.secureBoot
}

// isAtWork reports whether an operation is under way on an instance. LXD names that by its URL, from 5.0.3 on with the
// project, unless that is the default one; 6.8 has the URL in the metadata only.
func (s *session) isAtWork(o api.Operation, name string) bool {
	if o.StatusCode.IsFinal() {
		return false
	}
	ofMetadata, _ := o.Metadata["entity_url"].(string)
	return slices.ContainsFunc(append([]string{ofMetadata}, o.Resources["instances"]...), func(text string) bool {
		named, err := url.Parse(text)
		return err == nil && named.Path == s.client.Path("instances", name).URL.Path &&
			cmp.Or(named.Query().Get("project"), s.project) == s.project
	})
}

// validate checks what LXD would not, or not at once.
func (s Spec) validate() error {
	// LXD takes a part of a fingerprint for the first image that begins with it.
	sum, err := hex.DecodeString(s.Image)
	switch {
	case err != nil || len(sum) != sha256.Size:
		return problem(KindInvalid, "%q is not a whole fingerprint of an image", s.Image)
	case !lxdapi.IsInstanceName(s.Name):
		return problem(KindInvalid, "LXD takes no VM of the name %q: it must have 1 to 63 letters, digits and dashes, begin "+
			"and end with a letter or digit, and be no number", s.Name)
	case !s.Marks.valid():
		return problem(KindInvalid, "marks are needed: an owner and a machine")
	case len(s.MAC) != 6 || s.MAC[0]&1 != 0:
		return problem(KindInvalid, "%q is not the MAC address of one interface", s.MAC)
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
	own := s.devices(Bridge{})
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

// order is the call that makes a VM, without LXD's key for how it boots, which is another one in another LXD.
type order struct {
	api.InstancesPost

	secureBoot bool
}

// request returns the call that makes the VM. Names of volumes are in it before these are made, so that Delete finds
// them wherever Clone was interrupted.
func (s Spec) request(bridge Bridge) order {
	config := s.Marks.config()
	maps.Copy(config, s.Config)
	maps.DeleteFunc(config, func(_, value string) bool { return value == "" })
	config["limits.cpu"] = strconv.Itoa(s.Cores)
	config["limits.memory"] = strconv.FormatInt(s.MemoryMiB<<20, 10)
	if volumes := s.volumes(); len(volumes) > 0 {
		config[keyVolumes] = formatVolumes(volumes)
	}
	devices := maps.Clone(s.Devices)
	if devices == nil {
		devices = map[string]map[string]string{}
	}
	maps.Copy(devices, s.devices(bridge))
	return order{secureBoot: s.SecureBoot, InstancesPost: api.InstancesPost{
		Name: s.Name, Type: api.InstanceTypeVM,
		Source: api.InstanceSource{Type: api.SourceTypeImage, Fingerprint: s.Image},
		InstancePut: api.InstancePut{
			Profiles: append([]string{}, s.Profiles...), // LXD takes null for its profile default
			Config:   config, Devices: devices,
		},
	}}
}

// devices returns the VM's own. A project may allow only networks that LXD manages, which it knows by the key network.
func (s Spec) devices(bridge Bridge) map[string]map[string]string {
	nic := map[string]string{"type": "nic", "name": nicDevice, "hwaddr": s.MAC.String(), "boot.priority": "0"}
	if bridge.Managed {
		nic["network"] = bridge.Name
	} else {
		nic["nictype"], nic["parent"] = "bridged", bridge.Name
	}
	return map[string]map[string]string{
		rootDevice: {"type": "disk", "path": "/", "pool": s.Root.Pool, "size": strconv.FormatInt(s.Root.Bytes, 10),
			"boot.priority": "1"},
		nicDevice:  nic,
		seedDevice: {"type": "disk", "source": "cloud-init:config"},
	}
}

// DeriveMAC returns the MAC address of a VM: always the same for an owner and a name, so that a call that is repeated
// after its response was lost can't make a second machine in MAAS. It is a unicast address with the prefix from which
// LXD chooses its own, 00:16:3e, which no hardware has. Two of a thousand VMs share one with a probability of 3 %;
// Clone and MAAS refuse the second.
func DeriveMAC(owner, name string) net.HardwareAddr {
	hash := sha256.New()
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(owner))) // ("ab", "c") is not ("a", "bc")
	hash.Write(length[:])
	hash.Write([]byte(owner))
	hash.Write([]byte(name))
	sum := hash.Sum(nil)
	return net.HardwareAddr{0x00, 0x16, 0x3e, sum[0], sum[1], sum[2]}
}
