// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

const (
	// hostTimeout bounds the reading of one host: placement waits for it.
	hostTimeout = 5 * time.Second
	// directRetry is when to ask a host again that did not respond.
	directRetry = 10 * time.Second
	// imagesMaxAge is how old the figures may be by which a host is refused that lacks an image: it may have come since.
	imagesMaxAge = 3 * time.Second
)

// DirectError is an error of an LXD host.
type DirectError struct {
	// Host is the LXDHost's name.
	Host  string
	cause error
}

// Error returns the problem.
func (e *DirectError) Error() string { return e.cause.Error() }

// Unwrap returns the error of package lxdhost.
func (e *DirectError) Unwrap() error { return e.cause }

// Is makes an error with an unknown outcome maas.Unavailable: what was asked for may still take effect.
func (e *DirectError) Is(target error) bool {
	failed, is := errors.AsType[*lxdhost.Error](e.cause)
	return target == maas.Unavailable && is && failed.MayFollow()
}

// sent reports whether LXD may have made something.
func (e *DirectError) sent() bool {
	failed, is := errors.AsType[*lxdhost.Error](e.cause)
	return is && failed.Sent
}

// list returns the hosts among the objects that may be for VMs of a spec. One that can't be read is not Reachable; nor
// is one that is not for the VMs: neither its Secrets nor its LXD is asked.
func (i *images) list(ctx context.Context, objects []HostObject, spec *VMSpec, maxAge time.Duration) []Host {
	hosts := make([]*Host, len(objects))
	var wait sync.WaitGroup
	for at := range objects {
		if objects[at].Direct {
			wait.Go(func() { hosts[at] = i.look(ctx, &objects[at], spec, maxAge) })
		}
	}
	wait.Wait()
	hosts = slices.DeleteFunc(hosts, func(host *Host) bool { return host == nil })
	return list.Each(hosts, func(host *Host) Host { return *host })
}

// look returns a host as far as VMs of a spec may be placed there; nil if it is none of this MAAS, as far as is known.
func (i *images) look(ctx context.Context, object *HostObject, spec *VMSpec, maxAge time.Duration) *Host {
	host := unread(object)
	if !host.isFor(spec) {
		if object.Unproven && !object.allows(spec) {
			return nil
		}
		return &host
	}
	ctx, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	host = unread(object.opened(ctx, spec.Namespace, secretsMaxAge))
	if !host.Object.Direct {
		return nil
	}
	if !host.isFor(spec) {
		return &host
	}
	reading, err := i.read(ctx, host.Object, maxAge)
	isForReport := maxAge > hostsMaxAge
	if err == nil && !isForReport && spec.Image != "" && reading.Image(spec.Image).Fingerprint == "" {
		reading, err = i.read(ctx, host.Object, i.imagesMaxAge)
	}
	if err == nil {
		fill(&host, reading)
	}
	return &host
}

// allows reports whether VMs of a spec are of a namespace that may use the host. Without a namespace, they are
// any user's.
func (o *HostObject) allows(spec *VMSpec) bool {
	return spec.Namespace == "" || o.Allows(spec.Namespace)
}

// isFor reports whether nothing that an LXDHost says keeps VMs of a spec off it.
func (h *Host) isFor(spec *VMSpec) bool {
	anybodys := *spec
	anybodys.Namespace = h.Object.Namespace
	hasProject := spec.Project == "" || h.Object.Server.Project == spec.Project
	return hasProject && h.Object.allows(spec) && isWanted(h, &anybodys)
}

func (i *images) read(ctx context.Context, object *HostObject, maxAge time.Duration) (lxdhost.Reading, error) {
	if object.Problem != nil {
		return lxdhost.Reading{}, object.Problem
	}
	return i.servers.Read(ctx, object.Server, maxAge)
}

// unread returns a host of which only its LXDHost is known.
func unread(object *HostObject) Host {
	return Host{Name: object.Name, Zone: object.Zone, Pool: object.ResourcePool, Tags: object.Tags, Object: object}
}

// fill adds what was read of a host.
func fill(host *Host, reading lxdhost.Reading) {
	object := host.Object
	host.Reachable, host.SeenAt, host.Architecture = true, reading.At, architecture(reading.Architecture)
	host.Largest = Resources{Cores: reading.Cores, Memory: int(reading.MemoryMiB), Disk: math.MaxInt32}
	most := reading.Most(object.Overcommit)
	host.Capacity = Resources{Cores: int(most.Cores), Memory: int(most.MemoryMiB)}
	host.Used = Resources{Cores: int(reading.Allocated.Cores), Memory: int(reading.Allocated.MemoryMiB)}
	for _, pool := range reading.Pools {
		taken := max(pool.UsedBytes, reading.Disk[pool.Name])
		host.StoragePools = append(host.StoragePools, StoragePool{
			Name: pool.Name, Default: pool.Name == object.StoragePool, Available: int((pool.TotalBytes - taken) / gigabyte),
		})
	}
	for _, image := range reading.Images {
		host.Images = append(host.Images, image.Aliases...)
		if image.Unsigned {
			host.Unsigned = append(host.Unsigned, image.Aliases...)
		}
	}
	host.Machine = &HostMachine{}
	for _, bridge := range reading.Bridges {
		iface := HostInterface{Name: bridge.Name, Bootable: true} // Nothing boots from it.
		if bridge.Name == object.Bridge && object.Subnet.IsValid() {
			iface.Subnets = append(iface.Subnets, object.Subnet.Masked())
		}
		host.Machine.Interfaces = append(host.Machine.Interfaces, iface)
	}
}

// architectures has MAAS's name of each processor, by Linux's.
var architectures = map[string]string{"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64el", "s390x": "s390x"}

// architecture returns MAAS's name of an architecture, from Linux's.
func architecture(linux string) string {
	if name, known := architectures[linux]; known {
		return name + "/generic"
	}
	return ""
}

// LinuxArchitecture returns Linux's name of an architecture, x86_64 for example, from MAAS's; what has none stays as it
// is.
func LinuxArchitecture(name string) string {
	processor, _, _ := strings.Cut(name, "/")
	for linux, maas := range architectures {
		if maas == processor {
			return linux
		}
	}
	return processor
}

// upToDate returns the host as it was chosen, if it may still have the VM, with the key pair that it has now, after the
// call was recorded: an earlier one that no host is known to use is not trusted for long.
func (i *images) upToDate(ctx context.Context, host Host, spec *VMSpec) (*HostObject, error) {
	now, err := i.object(ctx, HostRef(host))
	if err != nil {
		return nil, notLooked(err)
	}
	if now == nil {
		return nil, &NotAllowedError{"its LXDHost is gone"}
	}
	object := *host.Object
	object.Unschedulable, object.Server, object.Problem = now.Unschedulable, now.Server, now.Problem
	object.Allows, object.AllowedDevices = now.Allows, now.AllowedDevices
	host.Object = &object
	return &object, mayStill(&host, spec)
}

// toInstance returns the VM in LXD's terms.
func toInstance(object *HostObject, spec VMSpec) lxdhost.Spec {
	wanted := lxdhost.Spec{
		Name: spec.Hostname, Marks: spec.Marks, MAC: spec.mac(0), Bridge: object.bridgeOf(spec.cards()[0]),
		Cores: spec.Cores, MemoryMiB: int64(spec.Memory), Root: object.toDisk(Disk{spec.Disk, spec.StoragePool}),
		Disks: list.Each(spec.MoreDisks, object.toDisk), Overcommit: object.Overcommit, SecureBoot: spec.SecureBoot,
		Config: map[string]string{lxdhost.KeyUserData: userDataText(spec.UserData)}, Devices: map[string]map[string]string{},
	}
	maps.Copy(wanted.Devices, spec.Hardware)
	if spec.Profile != "" {
		wanted.Profiles = []string{spec.Profile}
	}
	for i, device := range spec.cards()[1:] {
		wanted.Devices[device.Name] = map[string]string{
			"type": "nic", "nictype": "bridged", "parent": object.bridgeOf(device), "name": device.Name,
			"hwaddr": spec.mac(i + 1).String(),
		}
	}
	return wanted
}

func (o *HostObject) toDisk(disk Disk) lxdhost.Disk {
	return lxdhost.Disk{Pool: cmp.Or(disk.Pool, o.StoragePool), Bytes: int64(disk.Size) * gigabyte}
}

// bridgeOf returns the bridge of a network device; one that names a subnet is on the LXDHost's bridge.
func (o *HostObject) bridgeOf(device Device) string {
	if device.Bridge != "" {
		return device.Bridge
	}
	return o.Bridge
}

// mac returns the MAC address of the VM's i-th network card.
func (s *VMSpec) mac(i int) net.HardwareAddr {
	name := s.Hostname
	if i > 0 {
		name += "/" + s.Devices[i].Name
	}
	return lxdhost.DeriveMAC(s.Marks.Owner, name)
}

// lost reports whether a host can't be reached, or not with what is known of it.
func lost(err error) bool {
	switch lxdhost.KindOf(err) {
	case lxdhost.KindUnreachable, lxdhost.KindPin, lxdhost.KindNotTrusted, lxdhost.KindProject, lxdhost.KindInvalid:
		return true
	}
	return false
}

// lists reports whether the host lists an instance of the name since a time. One that is listed may be another's.
func (i *images) lists(ctx context.Context, object *HostObject, name string, since time.Time) (bool, error) {
	if object.Problem != nil {
		return false, object.Problem
	}
	err := i.refresher.await(ctx, object.serverKey(), since, func(ctx context.Context) error {
		_, err := i.servers.Names(ctx, object.Server, 0)
		return err
	})
	if err != nil {
		return false, err
	}
	names, err := i.servers.Names(ctx, object.Server, time.Since(since))
	return slices.Contains(names, name), err
}

// notFound returns what an error of LXD says of a VM.
func notFound(object *HostObject, err error) Presence {
	switch lxdhost.KindOf(err) {
	case lxdhost.KindNotFound, lxdhost.KindConflict: // Another's VM has the name.
		return Presence{State: Gone, Host: object.Name}
	}
	return Presence{State: Unreachable, Host: object.Name, After: directRetry, Why: err}
}

// object returns the LXDHost of a reference, as its Secrets are now; nil if it is gone. One that can't be used for this
// MAAS now may have the VM all the same.
func (i *images) object(ctx context.Context, ref string) (*HostObject, error) {
	objects, err := i.objects.HostObjects(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing LXDHosts: %w", err)
	}
	for at := range objects {
		o := &objects[at]
		if DirectRef(o.Namespace, o.Name) != ref {
			continue
		}
		o = o.opened(ctx, "", 0)
		if !o.Direct && o.Problem == nil {
			o.Problem = &FormerHostError{VMHost: o.Name, LXDHost: o.Namespace + "/" + o.Name}
		}
		return o, nil
	}
	return nil, nil
}

var errNoPermit = errors.New("the call would change a VM and has no permit; it was not sent")

func (i *images) server(ctx context.Context, object *HostObject) (*lxdhost.Host, error) {
	if object.Problem != nil {
		return nil, object.Problem
	}
	return i.servers.Host(ctx, object.Server)
}
