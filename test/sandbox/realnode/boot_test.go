// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// description is a MAAS of two machines, which takes no time.
const description = `
users: [{name: admin, admin: true, keys: ["consumer:token:secret"]}]
domains: [{name: maas.sim, default: true}]
subnets:
- {cidr: 10.77.0.0/24, gateway: 10.77.0.1, dns_servers: [10.77.0.2]}
- {cidr: 10.78.0.0/24, name: storage, fabric: storage}
images: [{name: ubuntu/jammy}, {name: u-2204-k8s-1.36, uploaded: true}]
machines:
- {name: m1, cores: 2, memory: 4096, disks: [20, 10], nics: [{name: eth0}, {name: eth1, subnet: storage}]}
- {name: m2, cores: 2, memory: 4096, disks: [20], nics: [{name: eth0}, {name: eth1}]}
`

// region is MAAS, with a DNS name that leads to no machine.
type region struct {
	*simulator.Simulator
	t     *testing.T
	calls int
}

func newRegion(t *testing.T) *region {
	t.Helper()
	described, err := simulator.LoadRegion(strings.NewReader(description))
	if err != nil {
		t.Fatal(err)
	}
	maas, err := simulator.New(described, simulator.Options{TimeScale: 1000, Logger: testr.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(maas.Close)
	return &region{Simulator: maas, t: t}
}

func (r *region) Lookup(host string) []netip.Addr {
	if host == "other.maas.sim" {
		return []netip.Addr{netip.MustParseAddr("10.77.0.6")}
	}
	return r.Simulator.Lookup(host)
}

// named returns the machine of a name.
func (r *region) named(name string) simulator.MachineSnapshot {
	r.t.Helper()
	machines := r.Machines()
	at := slices.IndexFunc(machines, func(m simulator.MachineSnapshot) bool { return m.Hostname == name })
	if at < 0 {
		r.t.Fatalf("there is no machine %s", name)
	}
	return machines[at]
}

// do is an operation of MAAS, with "key", "value" pairs; it returns the object that it responds with.
func (r *region) do(path string, pairs ...string) map[string]any {
	r.t.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	r.calls++
	request := httptest.NewRequestWithContext(r.t.Context(), http.MethodPost, "/MAAS/api/2.0/"+path, strings.NewReader(form.Encode()))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Authorization", fmt.Sprintf(`OAuth oauth_version="1.0", oauth_signature_method="PLAINTEXT", oauth_consumer_key="consumer", `+
		`oauth_token="token", oauth_signature="%%26secret", oauth_nonce="%d", oauth_timestamp="%d"`, r.calls, time.Now().Unix()))
	response := httptest.NewRecorder()
	r.Handler().ServeHTTP(response, request)
	var object map[string]any
	if err := json.Unmarshal(response.Body.Bytes(), &object); err != nil || response.Code != http.StatusOK {
		r.t.Fatalf("%s: %d %s", path, response.Code, response.Body)
	}
	return object
}

// nics are the ids of a machine's interfaces, by name.
func (r *region) nics(machine map[string]any) map[string]string {
	all := map[string]string{}
	for _, nic := range machine["interface_set"].([]any) {
		nic := nic.(map[string]any)
		all[nic["name"].(string)] = fmt.Sprint(nic["id"])
	}
	return all
}

// A machine boots what MAAS wrote to its disk, asks MAAS for its data, and has the interfaces that MAAS configured. It
// keeps its disk while its power is off, and loses it when it is released, but not what is on a disk that MAAS does not
// list, until that is erased. The settings of this machine's kernel stay as they are.
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
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	bin, err := filepath.Abs("../../../bin")
	if err != nil {
		t.Fatal(err)
	}
	maas := newRegion(t)
	nodes, err := Start(ctx, maas, Options{
		Logger: testr.New(t), Bin: bin, Gateway: netip.MustParsePrefix("10.77.0.1/24"), MAAS: maasAddress, Handler: maas.Handler(),
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
		if left := cgroups(t, containerOf(maas.named("m1").SystemID)); len(left) > 0 {
			t.Errorf("control groups are left: %q", left)
		}
	}()
	if _, err := os.Stat(stale); err == nil {
		t.Errorf("%s is there after Start", stale)
	}
	id := maas.named("m1").SystemID
	b := &booted{region: maas, ctx: ctx, nodes: nodes, id: id, name: containerOf(id)}
	eventually := b.eventually
	if err := maas.HideDisk(id, "sdb"); err != nil {
		t.Fatal(err)
	}
	nics := maas.nics(maas.do("machines/?op=allocate", "system_id", id))
	maas.do("nodes/"+id+"/interfaces/?op=create_bridge", "name", "br7", "parents", nics["eth0"], "bridge_fd", "4")
	b.deploy()
	eventually("cloud-init runs the user data", "cat /root/boots", id)
	eventually("cloud-init has it from MAAS", "cloud-init query v1.cloud_name; cloud-init query v1.local_hostname", "maas\nm1")
	eventually("cloud-init is content", "cloud-init status | head -n 1", "status: done")
	address, second := addressOn(maas.named("m1"), "br7"), addressOn(maas.named("m1"), "eth1")
	eventually("MAAS's address is on the bridge", "ip -oneline -4 address show dev br7 | awk '{print $4}'", address)
	eventually("the second card has its own", "ip -oneline -4 address show dev eth1 | awk '{print $4}'", second)
	eventually("the card is the bridge's port", "basename $(readlink /sys/class/net/eth0/master)", "br7")
	eventually("the bridge has what MAAS set", "cat /sys/class/net/br7/bridge/forward_delay /sys/class/net/br7/bridge/stp_state | tr '\\n' ' '", "400 0")
	eventually("the way out is MAAS's", "ip route show default | awk '{print $3, $5}'", "10.77.0.1 br7")
	eventually("the machine has other names from MAAS", "awk 'NR == 1 {print $1}' /root/address", "10.77.0.6")
	eventually("its own name leads to no address of an interface", "getent ahostsv4 $(hostname) | awk 'NR == 1 {print $1}'", "127.0.1.1")
	eventually("kubelet's settings are there", "cat /proc/sys/vm/overcommit_memory /proc/sys/kernel/panic | tr '\\n' ' '", "1 10")
	b.checkBond()
	maas.do("machines/"+id+"/?op=power_off", "stop_mode", "hard")
	for pause(ctx) {
		if state, _, err := nodes.containers.GetInstanceState(b.name); err == nil && state.Status == "Stopped" {
			break
		}
	}
	maas.do("machines/" + id + "/?op=power_on")
	eventually("the disk stays", "cat /root/boots", id)
	eventually("the network is there again", "ip -oneline -4 address show dev br7 | awk '{print $4}'", address)
	b.checkDataDisk()
}

// booted is a machine that a test has deployed.
type booted struct {
	*region
	ctx      context.Context
	nodes    *Nodes
	id, name string
}

func (b *booted) deploy() {
	b.t.Helper()
	b.do("machines/"+b.id+"/?op=deploy", "distro_series", "u-2204-k8s-1.36", "user_data", base64.StdEncoding.EncodeToString([]byte(userData)))
}

// eventually waits until a script on the machine says what is wanted.
func (b *booted) eventually(what, script, want string) {
	b.t.Helper()
	said := ""
	for pause(b.ctx) {
		out, err := b.nodes.containers.run(b.ctx, b.name, script)
		if err == nil && strings.TrimSpace(string(out)) == want {
			return
		}
		said = string(out)
		if err != nil {
			said = err.Error()
		}
	}
	b.t.Fatalf("%s: %s", what, said)
}

// again releases the machine, which loses its system, and deploys it again.
func (b *booted) again(pairs ...string) {
	b.t.Helper()
	b.do("machines/"+b.id+"/?op=release", pairs...)
	for pause(b.ctx) {
		_, _, err := b.nodes.containers.GetInstanceState(b.name)
		if m := b.named("m1"); err != nil && m.Status == "Ready" {
			break
		}
	}
	b.do("machines/?op=allocate", "system_id", b.id)
	b.deploy()
}

// checkDataDisk checks what happens to a disk that MAAS does not list.
func (b *booted) checkDataDisk() {
	b.t.Helper()
	b.eventually("there is a disk for data", "echo kept >/srv/sdb/data; cat /srv/sdb/data", "kept")
	b.again()
	b.eventually("the disk for data stays", "cat /srv/sdb/data", "kept")
	b.again("erase", "true", "quick_erase", "true")
	b.eventually("the disk for data is erased", "ls /srv/sdb | grep --count data || true", "0")
}

// addressOn is the only address that MAAS gave an interface.
func addressOn(m simulator.MachineSnapshot, name string) string {
	for _, nic := range m.Interfaces {
		if nic.Name == name && len(nic.Addresses) == 1 {
			return nic.Addresses[0].String()
		}
	}
	return "none"
}

// userData counts boots, and asks for a name.
const userData = "## template: jinja\n#cloud-config\nruncmd:\n- echo '{{ ds.meta_data[\"instance-id\"] }}' >>/root/boots\n- getent ahostsv4 other >/root/address\n"

// checkBond has netplan on a machine read what MAAS gives another one with a bond and a VLAN on it. That machine boots
// where the kernel has both, and is refused elsewhere.
func (b *booted) checkBond() {
	b.t.Helper()
	other := b.named("m2").SystemID
	nics := b.nics(b.do("machines/?op=allocate", "system_id", other))
	bond := b.do("nodes/"+other+"/interfaces/?op=create_bond", "name", "bond0", "parents", nics["eth0"], "parents", nics["eth1"], "bond_mode", "active-backup")
	fabric := fmt.Sprint(bond["vlan"].(map[string]any)["fabric_id"])
	tagged := b.do("fabrics/"+fabric+"/vlans/", "vid", "7")
	b.do("nodes/"+other+"/interfaces/?op=create_vlan", "vlan", fmt.Sprint(tagged["id"]), "parent", fmt.Sprint(bond["id"]))
	left, err := b.InstalledFiles(other, b.nodes.metadataURL())
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.nodes.containers.run(b.ctx, b.name, "mkdir -p /root/other/etc/netplan"); err != nil {
		b.t.Fatal(err)
	}
	if err := b.nodes.containers.write(b.name, "/root/other/etc/netplan/50.yaml", left["/etc/cloud/cloud.cfg.d/50-curtin-networking.cfg"]); err != nil {
		b.t.Fatal(err)
	}
	said, err := b.nodes.containers.run(b.ctx, b.name, "netplan generate --root-dir /root/other; cat /root/other/run/systemd/network/*")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, line := range []string{"Mode=active-backup", "Kind=bond", "MIIMonitorSec=100ms", "Bond=bond0", "Kind=vlan", "Id=7", "VLAN=bond0.7"} {
		if !strings.Contains(string(said), line) {
			b.t.Errorf("netplan makes no %s of MAAS's configuration: %s", line, said)
		}
	}
	err = b.nodes.checkKernel(b.ctx, b.named("m2"))
	if err != nil && !errors.Is(err, errKernel) {
		b.t.Errorf("a bond and a VLAN: %v", err)
	}
	b.t.Logf("a machine with a bond and a VLAN boots here: %t", err == nil)
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
func cgroups(t *testing.T, name string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(cgroupRoot, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && ofMachine(entry.Name()) && strings.HasSuffix(entry.Name(), name) {
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
