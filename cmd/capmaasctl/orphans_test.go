// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const orphanRegion = `
users: [{name: root, admin: true, keys: ["` + adminKey + `"]}, {name: capi, keys: ["` + plainKey + `"]}]
zones: [{name: zone-a}]
domains: [{name: maas.test}]
subnets: [{cidr: 10.10.0.0/24, dhcp: true, dynamic_ranges: [{start: 10.10.0.200, end: 10.10.0.254}]}]
images: [{name: ubuntu/jammy}]
machines: [{names: [metal-a, metal-b, metal-c, metal-d], zone: zone-a, cores: 8, memory: 16384, disks: [100]}]
vm_hosts: [{name: lxd-a, zone: zone-a, cores: 8, memory: 16384, storage_pools: [{name: default, size: 500}]}]
timings: {vm_host_sync: 24h, power_poll: 24h}
`

// orphanBed is a MAAS, and a namespace with a MaasCluster.
type orphanBed struct {
	bed
	kubernetes
	t         *testing.T
	namespace string
	owner     string
}

var seeds atomic.Int64

func newOrphanBed(t *testing.T, k kubernetes) *orphanBed {
	t.Helper()
	// Each MAAS has system ids of its own: the objects of all of them are in one management cluster.
	b := &orphanBed{bed: newBed(t, orphanRegion, simulator.Options{TimeScale: 2000, Seed: seeds.Add(1)}), kubernetes: k, t: t}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "orphans-"}}
	b.create(namespace)
	b.namespace, b.owner = namespace.Name, "owner-of-"+namespace.Name
	b.create(&infrav1.MaasCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "c1", Namespace: b.namespace, Annotations: map[string]string{infrav1.OwnerIDAnnotation: b.owner}},
		Spec:       infrav1.MaasClusterSpec{DNSDomain: "maas.test"},
	})
	return b
}

func (b *orphanBed) create(object client.Object) {
	b.t.Helper()
	if err := b.kubernetes.client.Create(b.t.Context(), object); err != nil {
		b.t.Fatal(err)
	}
}

// claim makes the MaasMachine of a machine.
func (b *orphanBed) claim(name, systemID string) {
	b.t.Helper()
	b.create(&infrav1.MaasMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.namespace},
		Spec:       infrav1.MaasMachineSpec{Image: "ubuntu/jammy", SystemID: systemID},
	})
}

// metal acquires a machine as the manager of a management cluster does.
func (b *orphanBed) metal(owner, name, management string) *maas.Machine {
	b.t.Helper()
	c := b.bed.client(b.t)
	m, err := c.AllocateMachine(b.t.Context(), maas.Unrecorded("a test"), maas.AllocateParams{AgentName: "capmaas/" + owner + "/" + name, NotOnVMHosts: []string{"lxd-a"}})
	if err != nil {
		b.t.Fatal(err)
	}
	m, err = c.SetWorkloadAnnotations(b.t.Context(), maas.Unrecorded("a test"), m.SystemID, map[string]string{
		ownership.AnnotationOwner: owner, ownership.AnnotationMachine: b.namespace + "." + name, ownership.AnnotationManagement: management,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return m
}

func (b *orphanBed) vm(owner, name string) string {
	b.t.Helper()
	c := b.bed.client(b.t)
	hosts, err := c.ListVMHosts(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	id, err := c.Compose(b.t.Context(), maas.Unrecorded("a test"), hosts[0].ID, maas.ComposeParams{
		Hostname: maas.Hostname(name, owner), Cores: 1, Memory: 2048, ZoneID: hosts[0].Zone.ID, PoolID: hosts[0].Pool.ID, SkipCommissioning: true,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

// orphans runs the command.
func (b *orphanBed) orphans(args ...string) outcome {
	b.t.Helper()
	var stdout, stderr bytes.Buffer
	env := map[string]string{"MAAS_ENDPOINT": b.url, "MAAS_API_KEY": adminKey, "KUBECONFIG": b.kubeconfig}
	code := run(b.t.Context(), append([]string{"capmaasctl", "orphans", "--settle-time=1ms"}, args...), surroundings{
		in: strings.NewReader(""), out: &stdout, err: &stderr, getenv: func(name string) string { return env[name] },
	})
	if strings.Contains(stdout.String()+stderr.String(), secret) {
		b.t.Errorf("the key is in the output: %s%s", &stdout, &stderr)
	}
	return outcome{code, stdout.String(), stderr.String()}
}

// report runs the command, and reads its JSON.
func (b *orphanBed) report(args ...string) orphanReport {
	b.t.Helper()
	got := b.orphans(append(args, "-o=json")...)
	var r orphanReport
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
		b.t.Fatalf("the output is no JSON: %v\n%s%s", err, got.stdout, got.err)
	}
	if r.OK != (got.code == exitOK) {
		b.t.Errorf("ok is %v and the exit code %d", r.OK, got.code)
	}
	return r
}

func TestOrphans(t *testing.T) {
	k := newKubernetes(t)
	for name, test := range map[string]func(*testing.T, *orphanBed){
		"it changes nothing, and tells all of each":                 listOrphans,
		"what is in doubt is told, without a command":               listDoubts,
		"what becomes claimed before the second check is no orphan": claimBeforeTheSecondCheck,
		"what can't be read is a failure":                           unreadable,
		"a machine that can't be read is in doubt":                  doubtUnreadable,
	} {
		t.Run(name, func(t *testing.T) { test(t, newOrphanBed(t, k)) })
	}
}

func listOrphans(t *testing.T, b *orphanBed) {
	if r := b.report(); !r.OK || len(r.Orphans) != 0 {
		t.Errorf("there is none, and it finds %+v", r)
	}
	metal, vm := b.metal(b.owner, "md-0", b.id), b.vm(b.owner, "cp-0")
	claimed := b.metal(b.owner, "md-1", b.id)
	b.claim("md-1", claimed.SystemID)
	b.claim("cp-1", b.vm(b.owner, "cp-1"))
	b.metal("somebody", "md-0", "another-management-cluster")
	b.vm("somebody", "cp-0")

	before := b.State()
	r := b.report()
	if !bytes.Equal(before, b.State()) {
		t.Error("the list changed something in MAAS")
	}
	want := []orphan{{
		Name: maas.Hostname("cp-0", b.owner), SystemID: vm, Kind: "lxd", State: "Ready", Zone: "zone-a", VMHost: "lxd-a", OwnerID: b.owner,
		Cluster: b.namespace + "/c1", Machine: b.namespace + "/cp-0",
	}, {
		Name: metal.Hostname, SystemID: metal.SystemID, Kind: "bare-metal", State: "Allocated", Zone: "zone-a", OwnerID: b.owner,
		Cluster: b.namespace + "/c1", Machine: b.namespace + "/md-0",
	}}
	got := r.Orphans
	for i := range got {
		if len(got[i].Proof) < 2 || len(got[i].Hints) == 0 {
			t.Errorf("the proof for %s is %q, the hints are %q", got[i].Name, got[i].Proof, got[i].Hints)
		}
		removal := map[string]string{vm: "machine delete ", metal.SystemID: "machine release "}[got[i].SystemID] + got[i].SystemID
		if !strings.HasSuffix(got[i].Commands[1], removal) {
			t.Errorf("the commands for %s are %q, want %s", got[i].Name, got[i].Commands, removal)
		}
		got[i].Proof, got[i].Hints, got[i].Commands = nil, nil, nil
	}
	if diff := cmp.Diff(want, got); diff != "" || r.OK {
		t.Errorf("ok is %v, and the orphans differ (-want +got):\n%s", r.OK, diff)
	}
	text := b.orphans()
	for _, want := range []string{metal.SystemID, vm, "lxd-a", "zone-a", "Allocated", b.owner, "maas $PROFILE machine release " + metal.SystemID} {
		if !strings.Contains(text.stdout, want) {
			t.Errorf("the text lacks %s:\n%s", want, text.stdout)
		}
	}
	if strings.Contains(text.stdout, claimed.SystemID) || text.code != exitFailed {
		t.Errorf("exit code %d:\n%s", text.code, text.stdout)
	}
}

func doubtUnreadable(t *testing.T, b *orphanBed) {
	body := `[{"system_id": "whole", "hostname": "whole"}, {"system_id": "odd", "hostname": "odd", "cpu_count": "many"}]`
	if _, err := b.AddFault(simulator.Fault{Method: http.MethodGet, Endpoint: "machines/", Status: http.StatusOK, Body: body}); err != nil {
		t.Fatal(err)
	}
	r := b.report()
	if len(r.Orphans) != 1 || r.OK {
		t.Fatalf("ok is %v, and the orphans are %+v; want the odd one", r.OK, r.Orphans)
	}
	if o := r.Orphans[0]; o.SystemID != "odd" || o.Doubt == "" || len(o.Commands) > 0 {
		t.Errorf("want it in doubt, without a command; got %+v", o)
	}
	b.claim("md-0", "odd")
	if r := b.report(); !r.OK {
		t.Errorf("a MaasMachine claims it, and it finds %+v", r)
	}
}

func listDoubts(t *testing.T, b *orphanBed) {
	gone := b.metal("gone-"+b.owner, "md-0", b.id)
	r := b.report()
	if len(r.Orphans) != 1 || r.Orphans[0].SystemID != gone.SystemID || r.Orphans[0].Doubt == "" || len(r.Orphans[0].Commands) > 0 {
		t.Errorf("want %s in doubt, without a command; got %+v", gone.SystemID, r.Orphans)
	}
}

func claimBeforeTheSecondCheck(t *testing.T, b *orphanBed) {
	metal := b.metal(b.owner, "md-0", b.id).SystemID
	looks := 0
	b.SetHook(func(call simulator.Call, phase simulator.Phase) error {
		if call.Endpoint == "machines/" && call.Query == "" && phase == simulator.Before {
			if looks++; looks == 2 {
				b.claim("md-0", metal)
			}
		}
		return nil
	})
	if r := b.report(); !r.OK || len(r.Orphans) > 0 || looks != 2 {
		t.Errorf("after %d audits: %+v", looks, r)
	}
}

func unreadable(t *testing.T, b *orphanBed) {
	b.metal(b.owner, "md-0", b.id)
	nothing := filepath.Join(t.TempDir(), "kubeconfig")
	if got := b.orphans("--kubeconfig=" + nothing); got.code != exitUsage {
		t.Errorf("no kubeconfig: exit code %d, want %d", got.code, exitUsage)
	}
	if _, err := b.AddFault(simulator.Fault{Method: http.MethodGet, Endpoint: "machines/", Status: http.StatusServiceUnavailable, ID: "down"}); err != nil {
		t.Fatal(err)
	}
	if r := b.report(); r.OK || r.Problem == "" || r.Remedy == "" || len(r.Orphans) > 0 {
		t.Errorf("MAAS does not respond, and it returned %+v", r)
	}
	b.RemoveFault("down")
	if got := call(t, "", []string{"MAAS_ENDPOINT=" + b.url, "MAAS_API_KEY=admin:token:wrong", "KUBECONFIG=" + b.kubeconfig},
		"capmaasctl", "orphans"); got.code != exitFailed || strings.Contains(got.stdout+got.err, secret) {
		t.Errorf("with a wrong key: exit code %d\n%s%s", got.code, got.stdout, got.err)
	}
}
