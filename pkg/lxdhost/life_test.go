// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canonical/lxd/shared/api"
	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

// The numbers of calls in the documentation are these.
const (
	callsOfConnect       = 2
	callsOfReading       = 9 // with two pools
	callsOfList          = 1
	callsOfClone         = 3
	callsOfCloneAgain    = 2
	callsOfADisk         = 2
	callsOfAddingDisks   = 1
	callsOfSwitching     = 2
	callsOfDeleteStopped = 2
	callsOfDeleteRunning = 3
	callsOfNothingToDo   = 1
)

// counted runs something that must work, in so many calls. Those for operations do not count, as LXD decides what is one,
// nor does the question for the client's rights, which only newer ones are asked.
func (b *bed) counted(what string, want int, do func() error) {
	b.t.Helper()
	var err error
	calls := b.between.during(func() { err = do() })
	if err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
	calls = slices.DeleteFunc(calls, func(call string) bool {
		return strings.HasPrefix(call, "GET /1.0/operations/") || call == "GET /1.0/auth/identities/current"
	})
	if made := slices.DeleteFunc(slices.Clone(calls), isNoPost); len(made) > 1 {
		want += callsOfClone * (len(made) - 1) // LXD failed to unpack the image.
	}
	if len(calls) != want {
		b.t.Errorf("%s took %d calls, want %d:\n%s", what, len(calls), want, strings.Join(calls, "\n"))
	}
}

func isNoPost(call string) bool { return call != "POST /1.0/instances" }

func TestTheLifeOfAVM(t *testing.T) {
	b := newBed(t)
	b.counted("Connect", callsOfConnect, func() error {
		h, err := connect(t.Context(), b.options, newCircuit())
		if h != nil {
			h.Close()
		}
		return err
	})
	s := spec("vm")
	seen := b.seen()
	for _, calls := range []int{callsOfClone, callsOfCloneAgain} {
		b.counted("Clone", calls, func() error { return b.host.Clone(t.Context(), s, seen) })
	}
	b.counted("Find", callsOfNothingToDo, func() error { return b.host.Find(t.Context(), "vm", ours) })
	for _, calls := range []int{callsOfSwitching, callsOfNothingToDo} {
		b.counted("Start", calls, func() error { return b.host.Start(t.Context(), "vm", ours, time.Time{}) })
	}
	want := VM{Name: "vm", Marks: ours, State: StateRunning}
	b.counted("List", callsOfList, func() error {
		vms, err := b.host.List(t.Context())
		if diff := cmp.Diff([]VM{want}, vms); diff != "" {
			t.Errorf("List (-want +got):\n%s", diff)
		}
		return err
	})
	for _, calls := range []int{callsOfSwitching, callsOfNothingToDo} {
		b.counted("Stop", calls, func() error { return b.host.Stop(t.Context(), "vm", ours, time.Time{}) })
	}
	if vm := b.instance("vm"); vm.StatusCode != api.Stopped {
		t.Errorf("it is %s", vm.Status)
	}
	for _, calls := range []int{callsOfDeleteStopped, callsOfNothingToDo} {
		b.counted("Delete", calls, func() error { return b.host.Delete(t.Context(), "vm", ours, time.Time{}) })
	}
	wantKind(t, b.host.Start(t.Context(), "vm", ours, time.Time{}), KindNotFound)
	wantKind(t, b.host.Stop(t.Context(), "vm", ours, time.Time{}), KindNotFound)

	b.create(s)
	b.must(b.host.Start(t.Context(), "vm", ours, time.Time{}))
	b.counted("Delete of a running VM", callsOfDeleteRunning, func() error { return b.host.Delete(t.Context(), "vm", ours, time.Time{}) })
	if vm := b.instance("vm"); vm != nil {
		t.Errorf("it is still there: %+v", vm)
	}
}

func TestCapacity(t *testing.T) {
	b := newBed(t)
	b.must(b.all.CreateStoragePool(api.StoragePoolsPost{Name: "second", Driver: "dir"}))
	b.managedBridge("lxdbr9")
	b.create(spec("vm"))
	resources, err := b.all.GetServerResources()
	b.must(err)
	server, _, err := b.all.GetServer()
	b.must(err)
	var c Reading
	b.counted("read", callsOfReading, func() (err error) {
		c, err = b.host.read(t.Context())
		return err
	})
	if len(c.Pools) != 2 {
		t.Errorf("pools %+v", c.Pools)
	}
	c.Pools = slices.DeleteFunc(c.Pools, func(p Pool) bool { return p.Name != pool })
	if c.Cores != int(resources.CPU.Total) || c.MemoryMiB != int64(resources.Memory.Total>>20) {
		t.Errorf("the host has %+v", c)
	}
	if c.Version != server.Environment.ServerVersion {
		t.Errorf("the version is %s", c.Version)
	}
	if len(c.Pools) != 1 || c.Pools[0].Name != pool || c.Pools[0].Driver != "dir" || c.Pools[0].TotalBytes <= c.Pools[0].UsedBytes || c.Pools[0].UsedBytes <= 0 {
		t.Errorf("pools %+v", c.Pools)
	}
	slices.SortFunc(c.Bridges, func(a, b Bridge) int { return strings.Compare(a.Name, b.Name) })
	if diff := cmp.Diff([]Bridge{{Name: "br0"}, {Name: "lxdbr9", Managed: true}}, c.Bridges); diff != "" {
		t.Errorf("bridges (-want +got):\n%s", diff)
	}
	if want := (Amount{Cores: 1, MemoryMiB: 256, DiskBytes: 64<<20 + stateBytes}); c.Allocated != want {
		t.Errorf("allocated %+v, want %+v", c.Allocated, want)
	}
	if want := (Amount{NoLimit, NoLimit, NoLimit}); c.Limits != want {
		t.Errorf("limits %+v, want %+v", c.Limits, want)
	}

	b.setProject(map[string]string{"limits.cpu": "3", "limits.memory": "1GiB", "limits.disk": "1GiB"})
	c = b.reading()
	if want := (Amount{Cores: 3, MemoryMiB: 1024, DiskBytes: 1 << 30}); c.Limits != want {
		t.Errorf("limits %+v, want %+v", c.Limits, want)
	}
}

func (b *bed) managedBridge(name string) {
	b.t.Helper()
	b.must(b.all.CreateNetwork(api.NetworksPost{
		Name: name, Type: "bridge",
		NetworkPut: api.NetworkPut{Config: map[string]string{"ipv4.address": "none", "ipv6.address": "none"}},
	}))
}

// setProject adds to the project's configuration.
func (b *bed) setProject(config map[string]string) {
	b.t.Helper()
	found, etag, err := b.all.GetProject(project)
	b.must(err)
	put := found.Writable()
	for key, value := range config {
		put.Config[key] = value
	}
	b.must(b.all.UpdateProject(project, put, etag))
}

func TestCloneKeepsToTheProjectsLimits(t *testing.T) {
	b := newBed(t)
	b.setProject(map[string]string{"limits.cpu": "3", "limits.memory": "1GiB", "limits.disk": "1GiB"})
	b.create(spec("first"))
	const left = 1<<30 - 64<<20 - 2*stateBytes
	for name, change := range map[string]func(*Spec){
		"cores":  func(s *Spec) { s.Cores = 3 },
		"memory": func(s *Spec) { s.MemoryMiB = 800 },
		"disk":   func(s *Spec) { s.Root.Bytes = left + 1<<20 },
	} {
		s := spec("second")
		change(&s)
		wantKind(t, b.clone(b.host, s), KindNoRoom)
		if vm := b.instance("second"); vm != nil {
			t.Errorf("%s: it was made: %+v", name, vm)
		}
	}
	s := spec("second")
	s.Cores, s.MemoryMiB, s.Root.Bytes = 2, 768, left
	b.create(s)
}

// A restricted project allows only what LXD manages.
func TestARestrictedProjectAllowsAManagedBridge(t *testing.T) {
	b := newBed(t)
	b.managedBridge("lxdbr9")
	b.setProject(map[string]string{"restricted": "true"})
	s := spec("vm")
	wantKind(t, b.clone(b.host, s), KindBridge)
	s.Bridge = "lxdbr9"
	s.Disks = []Disk{{pool, 1 << 20}}
	if vm := b.create(s); macs(vm)[nicDevice] != s.MAC.String() {
		t.Errorf("it is %+v", vm)
	}
	b.must(b.host.Start(t.Context(), "vm", ours, time.Time{}))
	b.must(b.host.Delete(t.Context(), "vm", ours, time.Time{}))
}

func TestWhatIsNotOursIsNotChanged(t *testing.T) {
	b := newBed(t)
	b.create(spec("ours"))
	b.must(b.server.CreateProfile(api.ProfilesPost{Name: "marked", ProfilePut: api.ProfilePut{Config: ours.config()}}))
	b.foreign(b.server, "theirs", theirs.config())
	b.foreign(b.server, "unmarked", nil)
	b.foreign(b.server, "half", map[string]string{keyOwner: ours.Owner})
	profiled, etag, err := b.server.GetInstance("unmarked")
	b.must(err)
	put := profiled.Writable()
	put.Profiles = []string{"marked"}
	operation, err := b.server.UpdateInstance("unmarked", put, etag)
	lxdtest.Finish(t, operation, err)
	operation, err = b.server.CreateInstance(api.InstancesPost{
		Name: "container", Type: api.InstanceTypeContainer, Source: api.InstanceSource{Type: api.SourceTypeNone},
		InstancePut: api.InstancePut{Profiles: []string{}, Config: ours.config(), Devices: map[string]map[string]string{"root": {"type": "disk", "path": "/", "pool": pool}}},
	})
	lxdtest.Finish(t, operation, err)
	before, err := b.server.GetInstances(api.InstanceTypeAny)
	b.must(err)

	for name, marks := range map[string]Marks{"ours": theirs, "theirs": ours, "unmarked": ours, "half": ours, "container": ours} {
		s := spec(name)
		s.Marks, s.MAC = marks, DeriveMAC("new", name)
		wantKind(t, b.clone(b.host, s), KindConflict)
		wantKind(t, b.host.Start(t.Context(), name, marks, time.Time{}), KindConflict)
		wantKind(t, b.host.Stop(t.Context(), name, marks, time.Time{}), KindConflict)
		wantKind(t, b.host.Delete(t.Context(), name, marks, time.Time{}), KindConflict)
		for _, none := range []Marks{{}, {Owner: ours.Owner}, {Machine: ours.Machine}} {
			wantKind(t, b.host.Start(t.Context(), name, none, time.Time{}), KindInvalid)
			wantKind(t, b.host.Stop(t.Context(), name, none, time.Time{}), KindInvalid)
			wantKind(t, b.host.Delete(t.Context(), name, none, time.Time{}), KindInvalid)
		}
	}
	wantKind(t, b.host.Delete(t.Context(), "", ours, time.Time{}), KindInvalid)
	after, err := b.server.GetInstances(api.InstanceTypeAny)
	b.must(err)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	vms, err := b.host.List(t.Context())
	if err != nil || len(vms) != 2 || vms[0].Name != "ours" || vms[1].Name != "theirs" {
		t.Errorf("List = %+v, %v", vms, err)
	}
	// The management cluster is none of the proof: a cluster moves.
	moved := ours
	moved.Management = "management2"
	b.must(b.host.Delete(t.Context(), "ours", moved, time.Time{}))
}

func TestFurtherDisks(t *testing.T) {
	b := newBed(t)
	s := spec("vm")
	s.Disks = []Disk{{pool, 2 << 20}, {pool, 3 << 20}}
	seen := b.seen()
	for _, calls := range []int{callsOfClone + 2*callsOfADisk + callsOfAddingDisks, callsOfCloneAgain} {
		b.counted("Clone", calls, func() error { return b.host.Clone(t.Context(), s, seen) })
	}
	b.checkDisks(s)
	instances, err := b.server.GetInstances(api.InstanceTypeAny)
	b.must(err)
	if got, want := allocatedDisk(instances)[pool], int64(64+2+3)<<20; got != want {
		t.Errorf("%d bytes are allocated, want %d", got, want)
	}
	b.must(b.host.Start(t.Context(), "vm", ours, time.Time{}))
	b.must(b.host.Delete(t.Context(), "vm", ours, time.Time{}))
	if left := b.volumes(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	b.must(b.server.CreateStoragePoolVolume(pool, api.StorageVolumesPost{
		Name: "vm-disk2", Type: customVolume, ContentType: "block",
		StorageVolumePut: api.StorageVolumePut{Config: map[string]string{"size": "1048576"}},
	}))
	wantKind(t, b.clone(b.host, s), KindVolume)
	b.must(b.host.Start(t.Context(), "vm", ours, time.Time{}))
	wantKind(t, b.host.Delete(t.Context(), "vm", ours, time.Time{}), KindVolume)
	if vm := b.instance("vm"); vm == nil || !isRunning(vm) {
		t.Errorf("the VM, which names the volume, is %+v", vm)
	}
	if left := b.volumes(); !slices.Equal(left, []string{"vm-disk1", "vm-disk2"}) {
		t.Errorf("another's volume was there, beside its own, and now: %v", left)
	}
}

// checkDisks wants the further disks of a VM.
func (b *bed) checkDisks(s Spec) {
	b.t.Helper()
	found := b.instance(s.Name)
	if found == nil {
		b.t.Fatalf("there is no VM %s", s.Name)
	}
	if len(found.ExpandedDevices) != 3+len(s.Disks) {
		b.t.Errorf("devices %v", found.ExpandedDevices)
	}
	var want []string
	for i, v := range s.volumes() {
		want = append(want, v.name)
		if device := found.ExpandedDevices[diskDevice(i)]; device["source"] != v.name || device["pool"] != v.Pool {
			b.t.Errorf("%s is %v", diskDevice(i), device)
		}
	}
	if got := b.volumes(); !slices.Equal(got, want) {
		b.t.Errorf("volumes %v, want %v", got, want)
	}
}
