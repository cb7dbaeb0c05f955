// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	lxdclient "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"
	"github.com/go-logr/logr"
	"sigs.k8s.io/yaml"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/process"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	// vmInterval is how often an LXD is asked for VMs that MAAS neither switches nor observes.
	vmInterval = 500 * time.Millisecond
	// deployed is MAAS's status of a machine that has an operating system.
	deployed = "Deployed"
)

// The manager's marks in the configuration of a VM, and what LXD keeps there.
const (
	ownerMark        = "user.capmaas.owner"
	instanceID       = "volatile.uuid"
	userDataKey      = "cloud-init.user-data"
	networkConfigKey = "cloud-init.network-config"
	baseImage        = "volatile.base_image"
	cloudInitID      = "volatile.cloud-init.instance-id"
)

// seedDir is where cloud-init's datasource NoCloud looks, besides on LXD's disk; noCloud is what has it look there.
const (
	seedDir = "/var/lib/cloud/seed/nocloud/"
	noCloud = "/etc/cloud/cloud.cfg.d/99-lxd.cfg"
)

// machines are MAAS's, and the VMs with our marks on LXDs for which MAAS has a device alone. Such a VM is a machine that
// is deployed, with the device's system id, from its first start on until LXD has it no more: VMHost is its LXD. What
// cloud-init is told is LXD's, the addresses among it.
type machines struct {
	*simulator.Simulator
	logger logr.Logger
	end    context.CancelFunc
	done   sync.WaitGroup

	telling sync.Mutex // changes are told one after the other

	mutex       sync.Mutex
	given       map[string]*lxd.Daemon // by AddLXD
	watched     map[*lxd.Daemon]bool
	vms         map[string]*directVM // by system id
	subscribers map[int]func(simulator.MachineSnapshot, simulator.Change)
	next        int
}

type directVM struct {
	simulator.MachineSnapshot
	on *lxd.Daemon
	// id is another one when a VM of the same name was made anew.
	id string
	// seed is what LXD has for cloud-init, by the paths of files.
	seed map[string][]byte
}

func newMachines(maas *simulator.Simulator, logger logr.Logger) *machines {
	return &machines{
		Simulator: maas, logger: logger, end: func() {}, given: map[string]*lxd.Daemon{},
		watched: map[*lxd.Daemon]bool{}, vms: map[string]*directVM{},
		subscribers: map[int]func(simulator.MachineSnapshot, simulator.Change){},
	}
}

// Machines are all that MAAS has, and the VMs that run on LXDs without MAAS or did so since they were made.
func (s *Sandbox) Machines() []simulator.MachineSnapshot { return s.all.Machines() }

// Machine is one of Machines.
func (s *Sandbox) Machine(systemID string) (simulator.MachineSnapshot, bool) {
	return s.all.Machine(systemID)
}

// Subscribe is the simulator's for Machines.
func (s *Sandbox) Subscribe(fn func(simulator.MachineSnapshot, simulator.Change)) (cancel func()) {
	return s.all.Subscribe(fn)
}

// Calls are those to MAAS.
func (s *Sandbox) Calls() simulator.CallStats { return s.MAAS.Calls() }

// AddLXD gives operating systems to the VMs on an LXD that belongs to no machine of MAAS.
func (s *Sandbox) AddLXD(name string, daemon *lxd.Daemon) {
	s.all.mutex.Lock()
	defer s.all.mutex.Unlock()
	s.all.given[name] = daemon
}

// Machine is the simulator's, or such a VM.
func (m *machines) Machine(systemID string) (simulator.MachineSnapshot, bool) {
	if machine, ok := m.Simulator.Machine(systemID); ok {
		return machine, true
	}
	vm := m.vm(systemID)
	if vm == nil {
		return simulator.MachineSnapshot{}, false
	}
	return vm.MachineSnapshot, true
}

// Machines are the simulator's, and such VMs.
func (m *machines) Machines() []simulator.MachineSnapshot {
	all := m.Simulator.Machines()
	for _, vm := range m.sorted() {
		all = append(all, vm.MachineSnapshot)
	}
	return all
}

// InstalledFiles are the simulator's, or what LXD has for the cloud-init of such a VM.
func (m *machines) InstalledFiles(systemID, metadataURL string) (map[string][]byte, error) {
	if vm := m.vm(systemID); vm != nil {
		return vm.seed, nil
	}
	return m.Simulator.InstalledFiles(systemID, metadataURL)
}

// Subscribe is the simulator's, and also for such VMs. These may have made several transitions in one.
func (m *machines) Subscribe(fn func(simulator.MachineSnapshot, simulator.Change)) (cancel func()) {
	fromMAAS := m.Simulator.Subscribe(fn)
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.next++
	id := m.next
	m.subscribers[id] = fn
	return func() {
		fromMAAS()
		m.mutex.Lock()
		defer m.mutex.Unlock()
		delete(m.subscribers, id)
	}
}

func (m *machines) vm(systemID string) *directVM {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.vms[systemID]
}

func (m *machines) sorted() []*directVM {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return slices.SortedFunc(maps.Values(m.vms), func(a, b *directVM) int { return strings.Compare(a.SystemID, b.SystemID) })
}

// follow looks at the LXDs that machines have, and at those that were added, until stop.
func (m *machines) follow(ctx context.Context, ofMachines func() map[string]*lxd.Daemon) {
	ctx, m.end = context.WithCancel(context.WithoutCancel(ctx))
	m.done.Go(func() {
		for process.Pause(ctx, vmInterval) {
			now := ofMachines()
			m.mutex.Lock()
			maps.Copy(now, m.given)
			for name, daemon := range now {
				if !m.watched[daemon] {
					m.watched[daemon] = true
					m.done.Go(func() { m.watch(ctx, name, daemon) })
				}
			}
			m.mutex.Unlock()
		}
	})
}

func (m *machines) stop() {
	m.end()
	m.done.Wait()
}

// watch looks at an LXD until that is removed. While nothing is known of its VMs they stay as they are.
func (m *machines) watch(ctx context.Context, name string, daemon *lxd.Daemon) {
	var server lxdclient.InstanceServer
	for process.Pause(ctx, vmInterval) {
		if daemon.Removed() {
			m.see(daemon, nil)
			return
		}
		if len(m.Devices())+len(m.sorted()) == 0 {
			continue
		}
		if !daemon.On() {
			m.see(daemon, m.withoutPower(daemon))
			continue
		}
		var err error
		if server == nil {
			server, err = lxd.Connect(ctx, daemon.Socket())
		}
		var instances []api.Instance
		if err == nil {
			instances, err = server.GetInstancesAllProjects(api.InstanceTypeVM)
		}
		if err == nil {
			m.see(daemon, m.among(name, daemon, instances, func(i *api.Instance) (string, error) { return imageOf(server, i) }))
		}
	}
}

func (m *machines) withoutPower(daemon *lxd.Daemon) (vms []*directVM) {
	for _, vm := range m.sorted() {
		if vm.on == daemon {
			off := *vm
			off.Running = false
			vms = append(vms, &off)
		}
	}
	return vms
}

// imageOf names the image that an instance was made from; "" if LXD has none of its fingerprint with a name now.
func imageOf(server lxdclient.InstanceServer, i *api.Instance) (string, error) {
	image, _, err := server.UseProject(i.Project).GetImage(i.Config[baseImage])
	if api.StatusErrorCheck(err, http.StatusNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading its image: %w", err)
	}
	if len(image.Aliases) == 0 {
		return "", nil
	}
	return image.Aliases[0].Name, nil
}

// among returns the VMs with our marks that MAAS has, or had, a device for. The image of one is asked for until it is known.
func (m *machines) among(
	name string, daemon *lxd.Daemon, instances []api.Instance, imageOf func(*api.Instance) (string, error),
) (vms []*directVM) {
	devices, before := m.Devices(), m.sorted()
	for n := range instances {
		i := &instances[n]
		if i.Config[ownerMark] == "" {
			continue
		}
		vm := &directVM{on: daemon, id: i.Config[instanceID]}
		at := slices.IndexFunc(devices, func(d simulator.MachineSnapshot) bool { return d.Hostname == i.Name })
		known := slices.IndexFunc(before, func(b *directVM) bool { return b.id == vm.id })
		switch {
		case at >= 0:
			vm.MachineSnapshot = devices[at]
		case known >= 0: // MAAS has forgotten it.
			vm.MachineSnapshot = before[known].MachineSnapshot
		default:
			continue
		}
		if known >= 0 {
			vm.Image = before[known].Image
		}
		err := vm.boots(i)
		if err == nil && vm.Image == "" {
			vm.Image, err = imageOf(i)
		}
		if err != nil {
			m.logger.Error(err, "A VM does not boot", "vm", i.Name, "lxd", name)
			continue
		}
		vm.VMHost = name
		vms = append(vms, vm)
	}
	return vms
}

// boots takes over what an instance's configuration makes of its VM.
func (vm *directVM) boots(i *api.Instance) (err error) {
	vm.Status, vm.Running = deployed, i.StatusCode == api.Running || i.StatusCode == api.Ready
	vm.UserData = []byte(i.Config[userDataKey])
	vm.seed = map[string][]byte{
		noCloud:               []byte("datasource_list: [ NoCloud ]\n"),
		seedDir + "user-data": vm.UserData, seedDir + "network-config": []byte(i.Config[networkConfigKey]),
		seedDir + "meta-data": fmt.Appendf(nil, "instance-id: %s\nlocal-hostname: %s\n", cmp.Or(i.Config[cloudInitID], i.Name), i.Name),
	}
	if vm.Cores, err = strconv.Atoi(i.Config["limits.cpu"]); err != nil {
		return fmt.Errorf("reading its cores: %w", err)
	}
	memory, err := strconv.Atoi(i.Config["limits.memory"])
	if err != nil {
		return fmt.Errorf("reading its memory: %w", err)
	}
	vm.Memory = memory >> 20
	vm.Interfaces, err = configured(i)
	vm.Addresses = nil
	for _, nic := range vm.Interfaces {
		for _, prefix := range nic.Addresses {
			vm.Addresses = append(vm.Addresses, prefix.Addr())
		}
	}
	return err
}

// netplan is cloud-init's network configuration, as far as it gives cards addresses.
type netplan struct {
	Ethernets map[string]struct {
		Match     struct{ MACAddress string }
		Addresses []netip.Prefix
	}
}

// configured returns the network cards as cloud-init configures them: those that it finds by their MAC addresses.
func configured(i *api.Instance) (nics []simulator.InterfaceSnapshot, err error) {
	plan := netplan{}
	if err := yaml.Unmarshal([]byte(i.Config[networkConfigKey]), &plan); err != nil {
		return nil, fmt.Errorf("reading its network configuration: %w", err)
	}
	has := map[string]bool{}
	for name, device := range i.ExpandedDevices {
		has[strings.ToLower(device["hwaddr"])] = true
		has[strings.ToLower(i.Config["volatile."+name+".hwaddr"])] = true
	}
	for _, name := range slices.Sorted(maps.Keys(plan.Ethernets)) {
		card := plan.Ethernets[name]
		if mac := strings.ToLower(card.Match.MACAddress); mac != "" && has[mac] {
			nics = append(nics, simulator.InterfaceSnapshot{Name: name, Kind: "physical", MAC: mac, Addresses: card.Addresses})
		}
	}
	return nics, nil
}

// see takes over what an LXD shows, and tells of what is different.
func (m *machines) see(daemon *lxd.Daemon, now []*directVM) {
	m.telling.Lock()
	defer m.telling.Unlock()
	for _, vm := range m.sorted() {
		stays := slices.ContainsFunc(now, func(n *directVM) bool { return n.SystemID == vm.SystemID && n.id == vm.id })
		if vm.on == daemon && !stays {
			m.tell(nil, vm, simulator.Change{Kind: simulator.ChangeDeleted})
		}
	}
	for _, vm := range now {
		before := m.vm(vm.SystemID)
		switch {
		case before == nil && vm.Running:
			m.tell(vm, vm, simulator.Change{Kind: simulator.ChangeCreated})
		case before == nil || before.on != daemon: // It has never run, or runs elsewhere.
		case before.Running != vm.Running:
			m.tell(vm, vm, simulator.Change{Kind: simulator.ChangePower, From: power(before.Running), To: power(vm.Running)})
		default:
			m.keep(vm)
		}
	}
}

func power(on bool) string { return map[bool]string{true: "on", false: "off"}[on] }

func (m *machines) keep(vm *directVM) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.vms[vm.SystemID] = vm
}

// tell changes a VM, where nil is its end, and tells the subscribers of it.
func (m *machines) tell(to, about *directVM, change simulator.Change) {
	m.mutex.Lock()
	if to == nil {
		delete(m.vms, about.SystemID)
	} else {
		m.vms[about.SystemID] = to
	}
	subscribers := slices.Collect(maps.Values(m.subscribers))
	m.mutex.Unlock()
	m.logger.Info("A VM changed", "vm", about.Hostname, "lxd", about.VMHost, "change", change.Kind, "running", about.Running)
	for _, fn := range subscribers {
		fn(about.MachineSnapshot, change)
	}
}
