// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
)

// region is a MAAS of one machine.
type region struct {
	mutex   sync.Mutex
	machine simulator.MachineSnapshot
	changed func(simulator.MachineSnapshot, simulator.Change)
}

func (r *region) Machine(id string) (simulator.MachineSnapshot, bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.machine, id == r.machine.SystemID
}

func (r *region) Machines() []simulator.MachineSnapshot {
	m, _ := r.Machine("")
	return []simulator.MachineSnapshot{m}
}

func (r *region) Subscribe(changed func(simulator.MachineSnapshot, simulator.Change)) (cancel func()) {
	r.changed = changed
	return func() {}
}

func (r *region) Lookup(host string) []netip.Addr {
	if host == "other.maas.sim" {
		return []netip.Addr{netip.MustParseAddr("10.77.0.6")}
	}
	return nil
}

func (r *region) change(what func(*simulator.MachineSnapshot)) {
	r.mutex.Lock()
	what(&r.machine)
	m := r.machine
	r.mutex.Unlock()
	r.changed(m, simulator.Change{})
}

// A machine boots what MAAS wrote to its disk, keeps it while its power is off, and loses it when it is released, but not
// what is on a disk that MAAS does not list, until that is erased. The settings of this machine's kernel stay as they are.
func TestLifeOfAMachine(t *testing.T) {
	if os.Getenv("CAPMAAS_REAL_NODES") != "1" {
		t.Skip("CAPMAAS_REAL_NODES is not 1 (`make real` sets it, and builds what real nodes need)")
	}
	tunables := func() (values []string) {
		for name := range kubeletTunables {
			value, err := os.ReadFile(filepath.Join("/proc/sys", name))
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, name+" = "+strings.TrimSpace(string(value)))
		}
		slices.Sort(values)
		return values
	}
	before := tunables()
	// A program that was killed left one like this.
	stale := filepath.Join(filepath.Dir(hierarchy(t)), "lxc.payload.node-stale", "system.slice")
	if err := os.MkdirAll(stale, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	bin, err := filepath.Abs("../../../bin")
	if err != nil {
		t.Fatal(err)
	}
	maas := &region{machine: machine}
	maas.machine.Unlisted = []string{"sdb"}
	maas.machine.UserData = []byte("## template: jinja\n#cloud-config\nruncmd:\n- echo '{{ ds.meta_data.instance_id }}' >>/root/boots\n- getent ahostsv4 other >/root/address\n")
	nodes, err := Start(ctx, maas, Options{
		Logger: testr.New(t), Bin: bin, Gateway: netip.MustParsePrefix("10.77.0.1/24"), DNS: dnsAddress,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := nodes.Stop(); err != nil {
			t.Error(err)
		}
		if after := tunables(); !slices.Equal(before, after) {
			t.Errorf("the kernel's settings were %v, and are %v", before, after)
		}
		if left := cgroups(t); len(left) > 0 {
			t.Errorf("control groups are left: %q", left)
		}
	}()
	if _, err := os.Stat(stale); err == nil {
		t.Errorf("%s is there after Start", stale)
	}
	name := containerOf(machine.SystemID)
	eventually := func(what, script, want string) {
		t.Helper()
		said := ""
		for pause(ctx) {
			out, err := nodes.containers.run(ctx, name, script)
			if err == nil && strings.TrimSpace(string(out)) == want {
				return
			}
			said = string(out)
			if err != nil {
				said = err.Error()
			}
		}
		t.Fatalf("%s: %s", what, said)
	}
	maas.change(func(m *simulator.MachineSnapshot) { m.Running = true })
	eventually("cloud-init runs the user data", "cat /root/boots", machine.SystemID)
	eventually("the machine has other names from MAAS", "awk 'NR == 1 {print $1}' /root/address", "10.77.0.6")
	eventually("its own name leads to no address of an interface", "getent ahostsv4 $(hostname) | awk 'NR == 1 {print $1}'", "127.0.1.1")
	eventually("kubelet's settings are there", "cat /proc/sys/vm/overcommit_memory /proc/sys/kernel/panic | tr '\\n' ' '", "1 10")
	maas.change(func(m *simulator.MachineSnapshot) { m.Running = false })
	for pause(ctx) {
		if state, _, err := nodes.containers.GetInstanceState(name); err == nil && state.Status == "Stopped" {
			break
		}
	}
	maas.change(func(m *simulator.MachineSnapshot) { m.Running = true })
	eventually("the disk stays", "cat /root/boots", machine.SystemID)
	eventually("there is a disk for data", "echo kept >/srv/sdb/data; cat /srv/sdb/data", "kept")
	userData := maas.machine.UserData
	again := func(erased string) {
		t.Helper()
		maas.change(func(m *simulator.MachineSnapshot) {
			m.Status, m.Running, m.UserData, m.Erased = "Ready", false, nil, erased
		})
		for pause(ctx) {
			if _, _, err := nodes.containers.GetInstanceState(name); err != nil {
				break
			}
		}
		for volumes := []string{""}; erased != "" && len(volumes) > 0 && pause(ctx); {
			if volumes, err = nodes.containers.GetStoragePoolVolumeNames(pool); err != nil {
				t.Fatal(err)
			}
			volumes = slices.DeleteFunc(volumes, func(name string) bool { return !strings.Contains(name, "custom") })
		}
		maas.change(func(m *simulator.MachineSnapshot) {
			m.Status, m.Running, m.UserData, m.Erased = "Deployed", true, userData, ""
		})
	}
	again("")
	eventually("the disk for data stays", "cat /srv/sdb/data", "kept")
	again("quick")
	eventually("the disk for data is erased", "ls /srv/sdb | grep --count data || true", "0")
}

// hierarchy is a file of the top of a hierarchy of control groups.
func hierarchy(t *testing.T) string {
	t.Helper()
	for _, pattern := range []string{cgroupRoot + "/cgroup.procs", cgroupRoot + "/*/cgroup.procs"} {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			return found[0]
		}
	}
	t.Fatal("there are no control groups")
	return ""
}

// cgroups are those that LXC made for the test's machine. Others may run at the same time.
func cgroups(t *testing.T) (all []string) {
	t.Helper()
	err := filepath.WalkDir(cgroupRoot, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && ofMachine(entry.Name()) && strings.HasSuffix(entry.Name(), containerOf(machine.SystemID)) {
			all = append(all, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Second):
		return true
	}
}
