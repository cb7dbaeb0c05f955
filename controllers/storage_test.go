// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/test/document"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// disksRegion has servers with three disks: sda boots. Commissioning scripts found that the disks of two are to be RAIDs.
const disksRegion = `
users: [{name: admin, admin: true, keys: ["admin:token:secret"]}]
domains: [{name: maas.sim, default: true}]
subnets: [{cidr: 10.77.0.0/24, gateway: 10.77.0.1, dhcp: true, dynamic_ranges: [{start: 10.77.0.200, end: 10.77.0.254}]}]
images: [{name: ubuntu/jammy}]
machines:
  - {prefix: server-, count: 8, cores: 8, memory: 16384, disks: [100, 400, 60], disk_tags: [[sata], [nvme], [ssd, sata]]}
  - name: mirror
    cores: 8
    memory: 16384
    disks: [100, 400, 60]
    tags: [mirror]
    storage_extra: MIRROR
  - name: stripe
    cores: 8
    memory: 16384
    disks: [100, 400, 60]
    tags: [stripe]
    storage_extra:
      layout:
        sda: {type: disk, ptable: gpt, partitions: [{name: efi, size: 512M, bootable: true, fs: fat32}, {name: root, size: 90G, fs: ext4}]}
        md0: {type: raid, level: 0, members: [sdb, sdc], fs: xfs}
      mounts: {/: {device: root}, /boot/efi: {device: efi}, /srv: {device: md0}}
`

// shaped is a spec of bare metal with a storage layout.
func shaped(layout infrav1.StorageLayout, options map[string]infrav1.StorageOption, root *infrav1.DiskSelector) infrav1.MaasMachineSpec {
	return infrav1.MaasMachineSpec{Storage: &infrav1.MachineStorage{Layout: layout, Options: options, RootDisk: root}}
}

type storageOptions = map[string]infrav1.StorageOption

// withMirror is disksRegion with what the script of the document writes.
func withMirror(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "storage.json")
	document.Open(t, "../docs/storage.md", "MAAS_STORAGE_CONFIG_FILE="+file).Run(t, "mirror")
	layout, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var line bytes.Buffer
	if err := json.Compact(&line, layout); err != nil {
		t.Fatal(err)
	}
	return strings.Replace(disksRegion, "MIRROR", line.String(), 1)
}

// onServer is a spec for the server with a tag.
func onServer(tag string, spec infrav1.MaasMachineSpec) infrav1.MaasMachineSpec {
	spec.Tags = []string{tag}
	return spec
}

// shapes are storage layouts by name.
var shapes = map[string]infrav1.MaasMachineSpec{
	"default":      {},
	"flat":         shaped("flat", storageOptions{"boot_size": "1G", "root_size": "50%"}, nil),
	"flat-on-nvme": shaped("flat", nil, &infrav1.DiskSelector{Tags: []string{"nvme"}}),
	"lvm":          shaped("lvm", storageOptions{"vg_name": "system", "lv_name": "root", "lv_size": "40G"}, nil),
	"lvm-on-large": shaped("lvm", nil, &infrav1.DiskSelector{MinSize: 300}),
	"bcache":       shaped("bcache", storageOptions{"cache_mode": "writeback", "cache_size": "20G"}, nil),
	"bcache-whole": shaped("bcache", storageOptions{"cache_no_part": "true"}, nil),
	"raid-mirror":  onServer("mirror", shaped("custom", nil, nil)),
	"raid-stripe":  onServer("stripe", shaped("custom", nil, nil)),
	"blank":        withSpec(shaped("blank", nil, nil), func(s *infrav1.MaasMachineSpec) { s.DeployInMemory = true }),
}

var updateStorage = flag.Bool("update-storage", false, "write what machines hold to testdata/storage")

// What MAAS makes of each shape, in each version, and that nothing of it is left.
func TestStorageShapes(t *testing.T) {
	t.Parallel()
	region := withMirror(t)
	for _, version := range simulator.Versions {
		t.Run(version.Series(), func(t *testing.T) {
			t.Parallel()
			w, cluster := clusterWorld(t, func(w *world) { w.region, w.version = region, version.String() })
			before := w.maas.State()
			machines := map[string]*infrav1.MaasMachine{}
			for name, spec := range shapes {
				if spec.DeployInMemory && !version.AtLeast(3, 5, 0) {
					continue // MAAS has no such deployment.
				}
				if spec.Storage == nil || spec.Storage.Layout != "custom" {
					spec.NotTags = []string{"mirror", "stripe"}
				}
				machines[name] = w.newMachine(name, false, spec)
			}
			for name, m := range machines {
				w.deployed(m)
				w.golden(m, name)
			}
			for _, m := range machines {
				w.beginDeletion(m)
			}
			for _, m := range machines {
				id := m.Spec.SystemID
				w.goes(m)
				m.Spec.SystemID = id
				w.golden(m, "default")
			}
			w.deleteCluster(cluster)
			w.unchanged(before)
		})
	}
}

// golden compares what a machine's disks hold with a file.
func (w *world) golden(m *infrav1.MaasMachine, name string) {
	w.t.Helper()
	path := filepath.Join("testdata", "storage", name+".txt")
	got := strings.Join(w.storageOf(m.Spec.SystemID), "\n") + "\n"
	if *updateStorage {
		w.must(os.WriteFile(path, []byte(got), 0o600))
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		w.t.Errorf("%s: storage of %s (-want +got):\n%s", name, m.Spec.SystemID, diff)
	}
}

func (w *world) storageOf(systemID string) []string {
	m, _ := w.maas.Machine(systemID)
	return m.Storage
}

// Machines that can't have the layout are passed over, and nothing is set on them. When none is left, the condition has
// their disks.
func TestStorageThatNoMachineCanHave(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spec infrav1.MaasMachineSpec
		want []string
	}{
		"no such disk": {
			shaped("flat", nil, &infrav1.DiskSelector{Tags: []string{"nvme"}, MinSize: 500}),
			[]string{"metal-a", "sda lacks the tag nvme", "sdb has 400 GB", "metal-b", "sda has the tag"},
		},
		"no such serial number": {shaped("lvm", nil, &infrav1.DiskSelector{Serial: "gone"}), []string{"sda has the serial number"}},
		"no cache":              {shaped("bcache", nil, nil), []string{"none beside its boot disk sda has the tag ssd"}},
		"MAAS refuses it":       {shaped("lvm", storageOptions{"lv_size": "1G"}, nil), []string{"refused by MAAS", "too small"}},
		"nothing is configured": {shaped("custom", nil, nil), []string{"refused by MAAS", "No custom storage layout"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(w *world) {
				w.region = strings.Replace(region, "disks: [100]}", "disks: [100, 400], disk_tags: [[sata], [nvme]]}", 1)
			})
			cluster := w.provisionedCluster()
			before := w.maas.State()
			m := w.newMachine("m", false, tc.spec)
			w.refused(m, infrav1.MachineDeployedCondition, infrav1.StorageImpossibleReason)
			message := conditions.GetMessage(m, infrav1.MachineDeployedCondition)
			for _, word := range tc.want[:min(len(tc.want), 4)] {
				if !strings.Contains(message, word) {
					t.Errorf("%q, want %q in it", message, word)
				}
			}
			if n := w.acquiredMachines(); n != 0 {
				t.Errorf("%d machines were acquired", n)
			}
			w.unchanged(before)
			w.delete(m)
			w.deleteCluster(cluster)
			w.unchanged(before)
		})
	}
}

// A machine of choice gets its layout before it is claimed, or is not claimed.
func TestStorageOfAMachineOfChoice(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t, func(w *world) { w.region = withMirror(t) })
	before := w.maas.State()
	servers := w.maas.Machines()
	choose := func(spec infrav1.MaasMachineSpec, at int) infrav1.MaasMachineSpec {
		spec.SystemID = servers[at].SystemID
		return spec
	}
	good := w.newMachine("good", false, choose(shapes["lvm"], 0))
	bad := w.newMachine("bad", false, choose(shaped("flat", nil, &infrav1.DiskSelector{MinSize: 5000}), 1))
	w.deployed(good)
	w.golden(good, "lvm")
	w.refused(bad, infrav1.MachineDeployedCondition, infrav1.StorageImpossibleReason)
	if message := conditions.GetMessage(bad, infrav1.MachineDeployedCondition); !strings.Contains(message, "sdb has 400 GB") {
		t.Errorf("%q, want the disks in it", message)
	}
	w.delete(good)
	w.delete(bad)
	w.deleteCluster(cluster)
	w.unchanged(before)
}

// Between the layout and the allocation a machine is nobody's. When another user is faster, the machine is theirs as it is, and
// another one is taken.
func TestAnotherUserTakesTheMachineThatGotALayout(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, func(w *world) { w.region = withMirror(t) })
	taken := make(chan string, 1)
	w.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
		if call.Op == "set_storage_layout" && at == simulator.After && len(taken) == 0 {
			id := systemIDIn(call.Path)
			taken <- id
			w.allocateAs("somebody", id)
		}
		return nil
	})
	m := w.deployedMachine("m", false, shapes["lvm"])
	id := <-taken
	if m.Spec.SystemID == id {
		t.Fatalf("the machine %s is another user's", id)
	}
	w.delete(m)
	if theirs, _ := w.maas.Machine(id); theirs.Status != "Allocated" || theirs.AgentName != "somebody" || !slices.ContainsFunc(theirs.Storage, isLVM) {
		t.Errorf("another user's machine is now %+v", theirs)
	}
}

// Another manager leaves the machine alone from before it gets the layout on: it would have deployed it so, and given it back so.
func TestAnotherManagerDoesNotGetTheMachineThatGetsALayout(t *testing.T) {
	t.Parallel()
	for name, wanted := range map[string]infrav1.MaasMachineSpec{"as it is": {}, "with a layout": shapes["lvm"]} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := clusterWorld(t, func(w *world) { w.region = oneServer })
			before := w.storageOf(w.maas.Machines()[0].SystemID)
			other := newWorld(t, func(other *world) { other.maas, other.maasURL = w.maas, w.maasURL })
			other.provisioned(other.newCluster())
			var shaping atomic.Bool
			asked, one := make(chan struct{}), sync.Once{}
			w.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
				switch {
				case at == simulator.After && call.Op == "set_storage_layout":
					shaping.Store(true)
					<-asked
				case at == simulator.After && call.Op == "allocate" && shaping.Load():
					one.Do(func() { close(asked) })
				}
				return nil
			})
			m := w.newMachine("m", false, shapes["lvm"])
			w.await("it sets the layout", m, func(context.Context) bool { return shaping.Load() })
			waits := other.newMachine("waits", false, wanted)
			other.refused(waits, infrav1.MachineDeployedCondition, infrav1.NoMachineAvailableReason)
			w.deployed(m)
			if server := w.maas.Machines()[0]; slices.Contains(server.Tags, quarantine.ExcludeTag) {
				t.Errorf("the machine is excluded still: %v", server.Tags)
			}
			w.delete(m)
			other.poke(waits)
			other.deployed(waits)
			other.delete(waits)
			if got := w.storageOf(w.maas.Machines()[0].SystemID); !slices.Equal(got, before) {
				t.Errorf("the machine has %v, want %v", got, before)
			}
		})
	}
}

// A note stays when its MaasMachine is gone: who wants the machine is told what to delete.
func TestTheNoteOfAMaasMachineThatIsGoneIsNamed(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, func(w *world) { w.region = oneServer })
	permit, note := maas.Unrecorded("a test"), maas.Tag{
		Name: quarantine.ExcludeTag + "-" + w.maas.Machines()[0].SystemID, Comment: quarantine.Note{By: "gone", Until: time.Now().Add(time.Hour)}.String(),
	}
	w.must(w.maasClient().CreateTag(t.Context(), permit, note))
	m := w.newMachine("m", false, shapes["lvm"])
	w.refusedWith(m, infrav1.NoMachineAvailableReason, "1 Ready machine(s)", note.Name)
	w.must(w.maasClient().DeleteTag(t.Context(), permit, note.Name))
	w.poke(m)
	w.deployed(m)
}

// A machine that could not be held is not lost to the manager.
func TestAMachineWhoseNoteIsLostIsTakenAllTheSame(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, func(w *world) { w.region = oneServer })
	w.fault(simulator.Fault{Method: http.MethodPost, Endpoint: "tags/", DropBefore: true, First: 1})
	w.deployedMachine("m", false, shapes["lvm"])
}

// What an earlier try holds is kept: a lost response costs neither the layout nor the machine.
func TestALayoutIsKeptWhenAnswersAreLost(t *testing.T) {
	t.Parallel()
	const times = 2
	for phase, sets := range map[simulator.Phase]int{simulator.Before: times + 1, simulator.After: 1} {
		t.Run(fmt.Sprint(phase), func(t *testing.T) {
			t.Parallel()
			w, cluster := clusterWorld(t, func(w *world) { w.region = withMirror(t) })
			before := w.maas.State()
			var mu sync.Mutex
			lost, changed := map[string]int{}, map[string]bool{}
			w.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
				mu.Lock()
				defer mu.Unlock()
				if call.Op == "set_storage_layout" || call.Op == "restore_storage_configuration" {
					changed[systemIDIn(call.Path)] = true
				}
				name := fmt.Sprint(call.Method, call.Endpoint, call.Op, len(changed)) // Before the layout, it is an allocate that only picks.
				inTry := strings.Contains(call.Endpoint, "tags/") || call.Op == "set_storage_layout" || call.Op == "allocate"
				if call.Method == http.MethodGet || !inTry || at != phase || lost[name] == times {
					return nil
				}
				lost[name]++
				return errLost
			})
			m := w.deployedMachine("m", false, shapes["lvm"])
			w.maas.SetHook(nil)
			if !changed[m.Spec.SystemID] || len(changed) != 1 || w.acquiredMachines() != 1 {
				t.Errorf("it has %s, and the layouts of %v were changed:\n%s", m.Spec.SystemID, changed, w.machines())
			}
			got := map[string]int{"set_storage_layout": 0, "restore_storage_configuration": 0, "release": 0}
			for op := range got {
				got[op] = w.count(op)
			}
			want := map[string]int{"set_storage_layout": sets, "restore_storage_configuration": 0, "release": 0}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			w.golden(m, "lvm")
			w.delete(m)
			w.deleteCluster(cluster)
			w.unchanged(before)
		})
	}
}

func isLVM(line string) bool { return strings.Contains(line, "LVM volume") }

// systemIDIn returns the system id in the path machines/{id}/.
func systemIDIn(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	return parts[len(parts)-1]
}

// A machine that got its layout and was not allocated is as before when the object goes.
func TestALayoutIsRestoredWithoutAMachine(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t, func(w *world) { w.region = withMirror(t) })
	before := w.maas.State()
	w.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
		if call.Op == "allocate" && at == simulator.Before && slices.ContainsFunc(w.maas.Machines(), func(m simulator.MachineSnapshot) bool {
			return slices.ContainsFunc(m.Storage, isLVM)
		}) {
			return errors.New("lost")
		}
		return nil
	})
	m := w.newMachine("m", false, shapes["lvm"])
	w.await("a machine has its layout", m, func(context.Context) bool {
		return slices.ContainsFunc(w.maas.Machines(), func(m simulator.MachineSnapshot) bool { return slices.ContainsFunc(m.Storage, isLVM) })
	})
	w.delete(m)
	w.maas.SetHook(nil)
	w.deleteCluster(cluster)
	w.unchanged(before)
}

// A MaasMachine that set a layout and did not get that machine, and then takes one that was kept, restores the layout of the first.
func TestALayoutIsRestoredBeforeAServerThatWasKeptIsTaken(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t, func(w *world) { w.region = withMirror(t) })
	before := w.maas.State()
	md := w.deployment("md", 2)
	first := w.deployedMachine("first", false, withKeep(shapes["lvm"]), of(md))
	id := first.Spec.SystemID
	shaped := func() bool {
		return slices.ContainsFunc(w.maas.Machines(), func(m simulator.MachineSnapshot) bool {
			return m.SystemID != id && slices.ContainsFunc(m.Storage, isLVM)
		})
	}
	w.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
		if call.Op == "allocate" && at == simulator.Before && shaped() {
			return errLost
		}
		return nil
	})
	second := w.newMachine("second", false, withKeep(shapes["lvm"]), of(md))
	w.await("a machine has its layout", second, func(context.Context) bool { return shaped() })
	w.delete(first)
	// Still refused while it is shaped: the one that second is asking for at this moment is not to be had either.
	w.deployed(second)
	w.maas.SetHook(nil)
	if second.Spec.SystemID != id {
		t.Errorf("it has %s, want %s", second.Spec.SystemID, id)
	}
	if shaped() {
		t.Errorf("a machine that nobody has is not as before:\n%s", w.machines())
	}
	w.scale(md, 0)
	w.delete(second)
	w.deleteCluster(cluster)
	w.unchanged(before)
}

// Another user gets the machine after its layout, and is giving it back: it goes to the next one as before.
func TestTheLayoutOfAMachineThatAnotherUserGivesBackIsRestored(t *testing.T) {
	t.Parallel()
	w, cluster := clusterWorld(t, func(w *world) { w.region = oneServer + "timings: {erase_quick: 300h}\n" })
	before, id := w.maas.State(), w.named("server")
	var taken atomic.Bool
	w.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
		if call.Op == "set_storage_layout" && at == simulator.After && !taken.Load() {
			w.allocateAs("somebody", id)
			w.maasCall(http.MethodPost, "machines/"+id+"/?op=release", url.Values{"erase": {"true"}, "quick_erase": {"true"}})
			taken.Store(true)
		}
		return nil
	})
	m := w.newMachine("m", false, shapes["lvm"])
	w.await("another user has it", m, func(context.Context) bool { return taken.Load() })
	w.beginDeletion(m)
	w.await("it waits, or is gone", m, func(ctx context.Context) bool {
		return w.isGone(ctx, m) || conditions.GetReason(m, infrav1.MachineDeployedCondition) == infrav1.ReleasingReason
	})
	if now := w.metal(id); now.Status != "Disk erasing" {
		t.Fatalf("the machine is %s", now.Status)
	}
	w.must(w.maas.SetTimeScale(1000 * timeScale))
	w.goes(m)
	w.deleteCluster(cluster)
	w.released(id)
	w.unchanged(before)
}

// A machine that another user gets before its layout is restored is theirs as it is.
func TestAReleasedMachineOfAnotherUserKeepsItsLayout(t *testing.T) {
	t.Parallel()
	w, _ := clusterWorld(t, func(w *world) { w.region = withMirror(t) })
	m := w.deployedMachine("m", false, shapes["lvm"])
	id := m.Spec.SystemID
	w.maas.SetHook(func(call simulator.Call, at simulator.Phase) error {
		if call.Op == "restore_storage_configuration" && at == simulator.Before {
			if now, _ := w.maas.Machine(id); now.Status == "Ready" {
				w.maasCall(http.MethodPost, "machines/?op=allocate", url.Values{"system_id": {id}, "agent_name": {"somebody"}})
			}
		}
		return nil
	})
	w.delete(m)
	if theirs, _ := w.maas.Machine(id); theirs.AgentName != "somebody" || !slices.ContainsFunc(theirs.Storage, isLVM) {
		t.Errorf("another user's machine is now %+v", theirs)
	}
}

// unfitRegion has a server whose one disk does not fit the layout that a commissioning script wrote.
const unfitRegion = `
users: [{name: admin, admin: true, keys: ["admin:token:secret"]}]
domains: [{name: maas.sim, default: true}]
subnets: [{cidr: 10.77.0.0/24, gateway: 10.77.0.1, dhcp: true, dynamic_ranges: [{start: 10.77.0.200, end: 10.77.0.254}]}]
images: [{name: ubuntu/jammy}]
machines:
  - name: a-unfit
    cores: 8
    memory: 16384
    disks: [100]
    storage_extra:
      layout:
        sda: {type: disk, ptable: gpt, partitions: [{name: root, size: 50G, fs: ext4}]}
        md0: {type: raid, level: 1, members: [sdb, sdc], fs: xfs}
      mounts: {/: {device: root}}
`

// unfit is a world with the server of unfitRegion, which is commissioned, and others.
func unfit(t *testing.T, others string) (w *world, systemID string) {
	t.Helper()
	w = newWorld(t, func(w *world) { w.region = unfitRegion + others })
	w.provisionedCluster()
	systemID = w.named("a-unfit")
	w.maasCall(http.MethodPost, "machines/"+systemID+"/?op=commission", nil)
	w.await("it is Ready, with nothing on its disk", w.cluster, func(context.Context) bool {
		m := w.metal(systemID)
		return m.Status == "Ready" && !slices.ContainsFunc(m.Storage, func(line string) bool { return strings.HasSuffix(line, "mounted at /") })
	})
	return w, systemID
}

// MAAS allocates a machine without a layout as any other. It is not for a template that sets none.
func TestAMachineWithoutALayoutIsLeftOut(t *testing.T) {
	t.Parallel()
	w, id := unfit(t, "  - {name: fit, cores: 8, memory: 16384, disks: [100]}\n")
	for _, name := range []string{"first", "second"} {
		m := w.newMachine(name, false, infrav1.MaasMachineSpec{})
		if name == "first" {
			w.deployed(m)
			if m.Spec.SystemID == id {
				t.Fatalf("the machine %s, which has no layout, was deployed", id)
			}
			continue
		}
		w.refused(m, infrav1.MachineDeployedCondition, infrav1.NoMachineAvailableReason)
		if message := conditions.GetMessage(m, infrav1.MachineDeployedCondition); !strings.Contains(message, "a-unfit") {
			t.Errorf("%q does not name the machine that was left out", message)
		}
	}
	shaped := w.deployedMachine("third", false, shapes["flat"])
	if shaped.Spec.SystemID != id {
		t.Errorf("a template with a layout got %s, want %s", shaped.Spec.SystemID, id)
	}
	if n := w.count("deploy"); n != 2 {
		t.Errorf("%d deployments, want 2", n)
	}
}

// It is allocated once at most, however often machines ask.
func TestAMachineWithoutALayoutIsNotTakenAgainAndAgain(t *testing.T) {
	t.Parallel()
	w, id := unfit(t, "")
	for _, name := range []string{"m-0", "m-1", "m-2", "m-3"} {
		w.refused(w.newMachine(name, false, infrav1.MaasMachineSpec{}), infrav1.MachineDeployedCondition, infrav1.NoMachineAvailableReason)
	}
	taken := 0
	for _, call := range w.maas.Calls().Log {
		if call.Op == "release" && call.SystemID == id {
			taken++
		}
	}
	if metal := w.metal(id); taken > 1 || metal.Status != "Ready" || metal.Owner != "" {
		t.Errorf("the machine was taken %d times, and is %s of %q", taken, metal.Status, metal.Owner)
	}
}

func TestAMachineOfChoiceWithoutALayoutIsNotTaken(t *testing.T) {
	t.Parallel()
	w, id := unfit(t, "")
	m := w.newMachine("m", false, infrav1.MaasMachineSpec{SystemID: id})
	w.refused(m, infrav1.MachineDeployedCondition, infrav1.MachineDoesNotFitReason)
	if n := w.count("allocate"); n != 0 {
		t.Errorf("%d machines were taken", n)
	}
}

// MAAS allocates DPUs, and goes on running what was deployed on them when they are released.
func TestADPUIsLeftOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) {
		w.region = strings.ReplaceAll(oneServer, "disks: [100]}", "disks: [100], dpu: true}")
		w.version = "3.8"
	})
	w.provisionedCluster()
	dpu := w.maas.Machines()[0].SystemID
	for name, reason := range map[string]string{"any": infrav1.NoMachineAvailableReason, "chosen": infrav1.MachineDoesNotFitReason} {
		spec := infrav1.MaasMachineSpec{}
		if name == "chosen" {
			spec.SystemID = dpu
		}
		m := w.newMachine(name, false, spec)
		w.refused(m, infrav1.MachineDeployedCondition, reason)
		if message := conditions.GetMessage(m, infrav1.MachineDeployedCondition); !strings.Contains(message, "DPU") {
			t.Errorf("%s: %q", name, message)
		}
	}
	w.await("it is given back", nil, func(context.Context) bool { return w.metal(dpu).Status == "Ready" })
	if n := w.count("deploy"); n != 0 {
		t.Errorf("%d deployments, want none", n)
	}
}
