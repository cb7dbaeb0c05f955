// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	lxdclient "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

// lxdRegion has one machine for a real LXD host to run on, and timings that are over as soon as time passes.
const lxdRegion = `
users: [{name: admin, admin: true, keys: ["adminkey:admintoken:adminsecret"]}]
zones: [{name: zone-a}, {name: zone-b}]
pools: [{name: capi}]
domains: [{name: maas.test}]
subnets: [{cidr: 10.0.2.0/24, gateway: 10.0.2.1, dhcp: true}]
images: [{name: ubuntu/jammy}]
machines: [{name: node, zone: zone-a, pool: capi, cores: 64, memory: 65536, disks: [200], status: deployed}]
timings: {compose: 0s, decompose: 0s, refresh: 0s, power_on: 1s, power_off: 1s, vm_host_sync: 30s, power_poll: 24h}
`

const lxdProject = "maas"

// lxdBed is a region with a real LXD behind its machine.
type lxdBed struct {
	*bed
	daemon  *lxd.Daemon
	server  lxdclient.InstanceServer // over the node's socket
	node    MachineSnapshot
	address string
	// certificate and key are trusted by LXD.
	certificate, key string
}

func newLXDBed(t *testing.T) *lxdBed {
	t.Helper()
	lxdtest.Require(t)
	b := &lxdBed{}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		return b.daemon.Dial(ctx, network, address)
	}
	b.bed = newBedWith(t, lxdRegion, Options{Seed: 1, Dial: dial, PatchedLXDDriver: true})
	b.node = b.named("node")
	own := b.node.Interfaces[0]
	b.daemon = lxdtest.Start(t, lxd.Options{Address: own.Addresses[0], MAC: own.MAC})
	b.address = netip.AddrPortFrom(own.Addresses[0].Addr(), 8443).String()
	b.connectTo()
	return b
}

func (b *lxdBed) configure(key, value string) {
	b.t.Helper()
	settings, etag, err := b.server.GetServer()
	if err != nil {
		b.t.Fatal(err)
	}
	put := settings.Writable()
	put.Config[key] = value
	if err := b.server.UpdateServer(put, etag); err != nil {
		b.t.Fatal(err)
	}
}

func (b *lxdBed) trust(certificate string) {
	b.t.Helper()
	block, _ := pem.Decode([]byte(certificate))
	err := b.server.CreateCertificate(api.CertificatesPost{
		Name: fmt.Sprintf("maas-%x", sha256.Sum256(block.Bytes)), Type: api.CertificateTypeClient, Certificate: base64.StdEncoding.EncodeToString(block.Bytes),
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *lxdBed) makePool() {
	b.t.Helper()
	if err := b.server.CreateStoragePool(api.StoragePoolsPost{Name: "default", Driver: "dir"}); err != nil {
		b.t.Fatal(err)
	}
}

// register registers the LXD as a VM host; the pairs add to the usual ones.
func (b *lxdBed) register(pairs ...string) answer {
	b.t.Helper()
	return b.do(post, "vm-hosts/", append([]string{
		"type", "lxd", "power_address", b.address, "project", lxdProject, "name", "host", "zone", "zone-b",
		"certificate", b.certificate, "key", b.key,
	}, pairs...)...)
}

// host registers the LXD and waits until MAAS knows all of it.
func (b *lxdBed) host() (path string) {
	b.t.Helper()
	h := b.register().object(b.t)
	if h["version"] == "" {
		b.t.Fatalf("not discovered: %v", h)
	}
	b.pass(time.Minute)
	return "vm-hosts/" + jsonNumber(h["id"]) + "/"
}

// vm is an instance of the project as LXD has it, or nil.
func (b *lxdBed) vm(name string) *api.Instance {
	b.t.Helper()
	found, _, err := b.server.UseProject(lxdProject).GetInstance(name)
	if api.StatusErrorCheck(err, http.StatusNotFound) {
		return nil
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return found
}

// MAAS works with a key that is restricted to its project, also if the project is as restricted as possible.
func TestLXDHostWithARestrictedKeyAndProject(t *testing.T) {
	b := newLXDBed(t)
	b.makePool()
	err := b.server.CreateProject(api.ProjectsPost{Name: lxdProject, ProjectPut: api.ProjectPut{Config: map[string]string{
		"restricted": "true", "restricted.devices.nic": "allow", "restricted.virtual-machines.lowlevel": "allow",
	}}})
	if err != nil {
		t.Fatal(err)
	}
	certificates, err := b.server.GetCertificates()
	if err != nil || len(certificates) != 1 {
		t.Fatalf("certificates %v, %v", certificates, err)
	}
	put := certificates[0].Writable()
	put.Restricted, put.Projects = true, []string{lxdProject}
	if err := b.server.UpdateCertificate(certificates[0].Fingerprint, put, ""); err != nil {
		t.Fatal(err)
	}

	path := b.host()
	machine := b.do(post, path, "op", "compose", "hostname", "vm1", "cores", "1", "memory", "1024",
		"storage", "root:2,data:1", "skip_commissioning", "true").object(t)
	b.checkLife(machine["system_id"].(string))

	// Without a bridge MAAS uses a device of the host. Such a VM can't be started on the test's node.
	hv := &lxdHost{
		sim: b.Simulator, address: "https://" + b.address, project: lxdProject, link: &hostLink{},
		certificate: b.certificate, privateKey: b.key,
	}
	made, err := hv.Create(vmSpec{
		name: "vm2", cores: 1, memory: 1024, disks: []vmDisk{{size: 1e9}, {size: 1e9}},
		nics: []attachment{{kind: "bridged", parent: "br0"}, {kind: "macvlan", parent: "eth0"}},
	})
	if err != nil || len(made.MACs) != 2 || len(made.Disks) != 2 {
		t.Errorf("made %+v, %v", made, err)
	}
	if err := hv.Delete("vm2"); err != nil || b.vm("vm2") != nil {
		t.Errorf("deletion: %v", err)
	}
}

// LXD calls the place of VMs "none" while it stands alone. As the only member of a cluster it has a name, and so has
// the VM host.
func TestLXDHostBecomesAMemberOfACluster(t *testing.T) {
	b := newLXDBed(t)
	b.makePool()
	path := b.host()
	b.do(post, path, "op", "compose", "hostname", "vm1", "cores", "1", "memory", "1024", "storage", "root:1", "skip_commissioning", "true").object(t)
	refresh := func(location, name string) {
		t.Helper()
		if vm := b.vm("vm1"); vm == nil || vm.Location != location {
			t.Fatalf("got %+v, want it at %s", vm, location)
		}
		b.do(post, path, "op", "refresh").object(t)
		b.pass(time.Minute)
		if got := b.do(get, path).object(t)["name"]; got != name {
			t.Errorf("the VM host is called %v, want %s", got, name)
		}
		if m := b.named("vm1"); m.VMHost != name {
			t.Errorf("MAAS has %+v, want it on %s", m, name)
		}
	}
	refresh("none", "host")
	op, err := b.server.UpdateCluster(api.ClusterPut{Cluster: api.Cluster{ServerName: "member", Enabled: true}}, "")
	lxdtest.Finish(t, op, err)
	refresh("member", "member")
	b.do(post, path, "op", "compose", "hostname", "vm2", "cores", "1", "memory", "1024", "storage", "root:1", "skip_commissioning", "true").object(t)
	if m := b.named("vm2"); m.VMHost != "member" {
		t.Errorf("MAAS has %+v", m)
	}
}

// checkLife deploys, releases and deletes the VM vm1.
func (b *lxdBed) checkLife(id string) {
	b.t.Helper()
	b.do(post, "machines/"+id+"/", "op", "deploy").object(b.t)
	b.passUntil("it is Deployed", func() bool { m, _ := b.Machine(id); return m.Status == "Deployed" })
	if got := b.vm("vm1").StatusCode; got != api.Running {
		b.t.Errorf("deployed, the VM is %s in LXD", got)
	}
	b.do(post, "machines/"+id+"/", "op", "release").object(b.t)
	b.passUntil("it is released", func() bool { m, _ := b.Machine(id); return m.Status == "New" && m.Power == "off" })
	if got := b.vm("vm1").StatusCode; got != api.Stopped {
		b.t.Errorf("released, the VM is %s in LXD", got)
	}
	if got := b.do(del, "machines/"+id+"/"); got.status != http.StatusNoContent {
		b.t.Fatalf("deletion: %d %s", got.status, got.body)
	}
	if b.vm("vm1") != nil {
		b.t.Error("deleted in MAAS, the VM is still in LXD")
	}
	volumes, err := b.server.UseProject(lxdProject).GetStoragePoolVolumeNames("default")
	if err != nil || slices.ContainsFunc(volumes, func(name string) bool { return strings.HasPrefix(name, "custom/") }) {
		b.t.Errorf("volumes %v (%v) are left", volumes, err)
	}
}
