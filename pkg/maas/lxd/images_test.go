// SPDX-License-Identifier: Apache-2.0

package lxd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	tinyImage = "custom/tiny"
	// The most calls to LXD of each step, beside what is read of a host for all VMs there.
	callsToClone, callsToStart, callsToDelete, callsToFind = 3, 2, 3, 1
)

// imageHost is a MAAS, a real LXD with an image, and what makes VMs there. Calls to LXD are counted, and can be cut.
type imageHost struct {
	*images
	*registry
	server *directhost.Host
	object *HostObject

	mu     sync.Mutex
	counts bool
	asked  []string
	cut    func(r *http.Request) (before, after bool)
}

func newImageHost(t *testing.T) *imageHost {
	t.Helper()
	t.Parallel()
	b := &imageHost{registry: newRegistry(t), server: directhost.Start(t)}
	if err := b.server.AddImage(t.Context(), tinyImage); err != nil {
		t.Fatal(err)
	}
	b.object = &HostObject{
		Namespace: "ns", Name: "lxd-a", Direct: true, Allows: func(string) bool { return true }, Server: b.server.Behind(t, b.between).Options(),
		StoragePool: lxdnode.DefaultStoragePool, Bridge: directhost.Bridge, Subnet: netip.MustParsePrefix("10.77.0.11/24"), Zone: "default",
		Overcommit: lxdhost.Overcommit{Cores: 100, Memory: 100},
	}
	b.images = &images{
		objects: b, servers: &lxdhost.Connections{}, refresher: NewHostRefresher(), registrar: b.registry.registrar,
	}
	return b
}

// HostObjects lists the host, unless it is gone.
func (b *imageHost) HostObjects(context.Context) ([]HostObject, error) {
	if b.object == nil {
		return nil, nil
	}
	return []HostObject{*b.object}, nil
}

// between counts calls, and cuts those that are to be cut, before or after they have taken effect.
func (b *imageHost) between(lxd http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		if b.counts {
			b.asked = append(b.asked, r.Method+" "+r.URL.Path)
		}
		before, after := false, false
		if b.cut != nil {
			before, after = b.cut(r)
		}
		b.mu.Unlock()
		switch {
		case before:
			panic(http.ErrAbortHandler)
		case after:
			lxd.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		lxd.ServeHTTP(w, r)
	})
}

// counted wants so many calls to LXD while do runs.
func (b *imageHost) counted(what string, want int, do func() error) {
	b.t.Helper()
	b.set(func() { b.counts, b.asked = true, nil })
	err := do()
	b.set(func() { b.counts = false })
	isNoPost := func(call string) bool { return call != "POST /1.0/instances" }
	if made := slices.DeleteFunc(slices.Clone(b.asked), isNoPost); len(made) > 1 {
		want += callsToClone * (len(made) - 1) // LXD failed to unpack the image.
	}
	b.asked = slices.DeleteFunc(b.asked, func(call string) bool { return strings.HasPrefix(call, "GET /1.0/operations/") })
	if err != nil || len(b.asked) != want {
		b.t.Errorf("%s took %d calls to LXD, want %d: %q; error %v", what, len(b.asked), want, b.asked, err)
	}
}

func (b *imageHost) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func aClone() VMSpec {
	name := "cp-0-owner"
	return VMSpec{
		Hostname: name, Marks: lxdhost.Marks{Owner: "owner", Machine: name}, Namespace: "ns", Resources: Resources{Cores: 1, Memory: 256, Disk: 1},
		Image: tinyImage, UserData: "#cloud-config\n{}\n", AgentName: registeredMark, Annotations: map[string]string{"capmaas-owner": "owner"},
	}
}

func (b *imageHost) compose(spec VMSpec) (VM, error) {
	return b.Compose(b.t.Context(), aTest, unread(b.object), spec)
}

func (b *imageHost) composed(spec VMSpec) (vm VM) {
	b.t.Helper()
	b.eventually(func(context.Context) (err error) { vm, err = b.compose(spec); return err })
	return vm
}

// remove deletes VM and device, as often as that takes.
func (b *imageHost) remove(vm VM) {
	b.t.Helper()
	b.eventually(func(ctx context.Context) error { return b.Decompose(ctx, maas.UnrecordedVM("a test"), vm) })
	if found, err := b.Find(b.t.Context(), vm); err != nil || found.State != Gone {
		b.t.Fatalf("the VM is %+v: %v", found, err)
	}
	if err := b.Forget(b.t.Context(), aTest, b.only().AsMachine(), registeredMark); err != nil {
		b.t.Fatal(err)
	}
	if left, err := b.client.ListDevices(b.t.Context(), maas.DeviceFilter{}); err != nil || len(left)+len(b.server.VMs(b.t)) > 0 {
		b.t.Errorf("left are %v and %v: %v", left, b.server.VMs(b.t), err)
	}
}

// eventually repeats what LXD may be too busy for.
func (b *imageHost) eventually(do func(context.Context) error) {
	b.t.Helper()
	eventually.Succeeds(b.t, "LXD does it", do)
}

func (b *imageHost) seen(vm VM) lxdhost.State {
	b.t.Helper()
	now, err := b.Observe(b.t.Context(), vm, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return now.State
}

func TestTheLifeOfAVMFromAnImage(t *testing.T) {
	b := newImageHost(t)
	b.remove(b.composed(aClone())) // LXD has unpacked the image now.
	if _, err := b.servers.Read(t.Context(), b.object.Server, 0); err != nil {
		t.Fatal(err)
	}
	var vm VM
	calls := b.calls(func() {
		b.counted("Compose", callsToClone, func() (err error) { vm, err = b.compose(aClone()); return err })
	})
	if calls != callsToRegister {
		t.Errorf("it took %d calls to MAAS, want %d", calls, callsToRegister)
	}
	device := b.only()
	if vm.SystemID != device.SystemID || vm.HostRef != "lxdhost:ns/lxd-a" || b.seen(vm) != lxdhost.StateStopped {
		t.Errorf("the VM is %+v (%s), the device %+v", vm, b.seen(vm), device)
	}
	b.counted("Start", callsToStart, func() error { return b.Start(t.Context(), maas.UnrecordedVM("a test"), vm) })
	// It was read last before it was started.
	if now, err := b.Observe(t.Context(), vm, time.Hour); err != nil || now.State != lxdhost.StateRunning {
		t.Errorf("the VM is %+v (%v)", now, err)
	}
	all, err := b.server.Instances()
	if err != nil {
		t.Fatal(err)
	}
	config := all[vm.Hostname].Config
	if !strings.Contains(config["cloud-init.network-config"], device.IPAddresses[0]+"/24") || config["cloud-init.user-data"] != aClone().UserData {
		t.Errorf("the VM is told %+v", config)
	}
	b.counted("Decompose", callsToDelete, func() error { return b.Decompose(t.Context(), maas.UnrecordedVM("a test"), vm) })
	b.counted("Find", callsToFind, func() error { _, err := b.Find(t.Context(), vm); return err })
	if b.seen(vm) != "" {
		t.Errorf("the VM is %s", b.seen(vm))
	}
	calls = b.calls(func() {
		if err := b.Forget(t.Context(), aTest, device.AsMachine(), registeredMark); err != nil {
			t.Error(err)
		}
	})
	if calls != callsToUnregister {
		t.Errorf("it took %d calls to MAAS, want %d", calls, callsToUnregister)
	}
}

// What a host lacks, and what MAAS has not registered, is said by a type, and nothing is made in LXD.
func TestNoVMIsMadeWithoutImageAndDevice(t *testing.T) {
	b := newImageHost(t)
	var noImage *NoImageError
	var notRegistered *NotRegisteredError
	spec := aClone()
	spec.Image = "custom/other"
	if _, err := b.compose(spec); !errors.As(err, &noImage) || noImage.Image != spec.Image || !NotComposed(err) {
		t.Errorf("without the image: %v", err)
	}
	if all, err := b.client.ListDevices(t.Context(), maas.DeviceFilter{}); err != nil || len(all) > 0 {
		t.Errorf("there are the devices %v: %v", all, err)
	}
	if _, err := b.sim.AddFault(simulator.Fault{Op: "link_subnet", First: 1, Status: http.StatusServiceUnavailable}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.compose(aClone()); !errors.As(err, &notRegistered) || !NotComposed(err) {
		t.Errorf("without an address: %v", err)
	}
	if vms := b.server.VMs(t); len(vms) > 0 {
		t.Errorf("there are the VMs %v", vms)
	}
	b.remove(b.composed(aClone()))
}

// A VM with our name and other marks is another's: it is not ours, not changed, and no reason to keep the device.
func TestAnothersVMStays(t *testing.T) {
	b := newImageHost(t)
	if err := b.server.Make(aClone().Hostname); err != nil {
		t.Fatal(err)
	}
	_, err := b.compose(aClone())
	if lxdhost.KindOf(err) != lxdhost.KindConflict {
		t.Errorf("the error is %v", err)
	}
	vm := VM{Hostname: aClone().Hostname, Marks: aClone().Marks, HostRef: HostRef(unread(b.object))}
	if err := b.Decompose(t.Context(), maas.UnrecordedVM("a test"), vm); err != nil {
		t.Error(err)
	}
	if found, err := b.Find(t.Context(), vm); err != nil || found.State != Gone || b.seen(vm) != "" {
		t.Errorf("the VM is %+v: %v", found, err)
	}
	if len(b.server.VMs(t)) != 1 {
		t.Error("another's VM is gone")
	}
}

// A host is read again before it is refused because it lacks an image, unless that was just done; not for reports.
func TestAnImageThatJustCameCounts(t *testing.T) {
	b := newImageHost(t)
	spec := aClone()
	spec.Image = "custom/later"
	has := func(maxAge time.Duration) bool {
		t.Helper()
		var hosts []Host
		b.eventually(func(ctx context.Context) error {
			hosts = b.list(ctx, []HostObject{*b.object}, &spec, maxAge)
			if len(hosts) != 1 || !hosts[0].Reachable {
				return fmt.Errorf("the hosts are %+v", hosts)
			}
			return nil
		})
		return slices.Contains(hosts[0].Images, spec.Image)
	}
	if has(hostsMaxAge) {
		t.Error("it has the image before it came")
	}
	if err := b.server.AddImage(t.Context(), spec.Image); err != nil {
		t.Fatal(err)
	}
	if has(time.Hour) {
		t.Error("it was read again for a report")
	}
	b.imagesMaxAge = time.Hour
	if has(hostsMaxAge) {
		t.Error("it was read again too soon")
	}
	b.imagesMaxAge = 0
	if !has(hostsMaxAge) {
		t.Error("it lacks the image")
	}
}

// One list of the host, which began after they were deleted, proves that VMs are gone. A VM that is there is asked for.
func TestOneListServesAllThatWereDeleted(t *testing.T) {
	b := newImageHost(t)
	vms := make([]VM, 4)
	for i := range vms {
		spec := aClone()
		spec.Hostname = fmt.Sprintf("cp-%d-owner", i)
		spec.Marks.Machine = spec.Hostname
		vms[i] = b.composed(spec)
	}
	for i := range vms {
		b.eventually(func(ctx context.Context) error { return b.Decompose(ctx, maas.UnrecordedVM("a test"), vms[i]) })
		vms[i].DeletedAt = time.Now()
	}
	find := func(vm VM, want State) {
		t.Helper()
		if found, err := b.Find(t.Context(), vm); err != nil || found.State != want {
			t.Errorf("VM %s is %+v: %v", vm.Hostname, found, err)
		}
	}
	b.counted("Find", 1, func() error {
		var all sync.WaitGroup
		for _, vm := range vms {
			all.Go(func() { find(vm, Gone) })
		}
		all.Wait()
		return nil
	})
	back := aClone()
	b.composed(back)
	b.counted("Find", 0, func() error { find(vms[0], Gone); return nil }) // That list is later than its deletion.
	vms[0].DeletedAt = time.Now()
	b.counted("Find", 1+callsToFind, func() error { find(vms[0], Present); return nil })
	b.set(func() { b.cut = func(*http.Request) (bool, bool) { return true, false } })
	vms[1].DeletedAt = time.Now()
	find(vms[1], Unreachable)
}

// Whether a VM is gone is unknown while its host does not respond, and for ever when its LXDHost is gone.
func TestAHostThatCannotBeAskedProvesNothing(t *testing.T) {
	b := newImageHost(t)
	vm := b.composed(aClone())
	b.set(func() { b.cut = func(*http.Request) (bool, bool) { return true, false } })
	if _, err := b.Observe(t.Context(), vm, 0); err == nil {
		t.Error("a host that does not respond shows the VM")
	}
	if found, err := b.Find(t.Context(), vm); err != nil || found.State != Unreachable || found.Never {
		t.Errorf("the VM is %+v: %v", found, err)
	}
	if err := b.Decompose(t.Context(), maas.UnrecordedVM("a test"), vm); err == nil {
		t.Error("the VM is deleted on a host that does not respond")
	}
	b.set(func() { b.cut = nil })
	spare := vm
	spare.Elsewhere = DirectRef("ns", "gone") // Through another LXDHost, which is gone, this may be the VM that runs.
	if found, err := b.Find(t.Context(), spare); err != nil || found.State != Unreachable || found.Never {
		t.Errorf("the VM of a machine that runs through another LXDHost is %+v: %v", found, err)
	}
	object := b.object
	for name, change := range map[string]func(*HostObject){
		"leads to another LXD": func(o *HostObject) { o.Problem = &OtherLXDError{Home: "aa/maas", There: "bb/maas"} },
		"leads nowhere":        func(o *HostObject) { o.Direct = false }, // A former VM host without credentialsRef.
	} {
		changed := *object
		change(&changed)
		b.object = &changed
		if found, err := b.Find(t.Context(), vm); err != nil || found.State != Unreachable || found.Never || found.Why == nil {
			t.Errorf("its LXDHost %s: the VM is %+v: %v", name, found, err)
		}
		if _, err := b.Observe(t.Context(), vm, time.Hour); err == nil {
			t.Errorf("its LXDHost %s, and shows the VM", name)
		}
	}
	b.object = nil
	var gone *GoneLXDHostError
	if err := b.Decompose(t.Context(), maas.UnrecordedVM("a test"), vm); !errors.As(err, &gone) {
		t.Errorf("without its LXDHost: %v", err)
	}
	if found, err := b.Find(t.Context(), vm); err != nil || found.State != Unreachable || !found.Never {
		t.Errorf("the VM is %+v: %v", found, err)
	}
	b.object = object
	b.remove(vm)
}
