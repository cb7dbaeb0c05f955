// SPDX-License-Identifier: Apache-2.0

package orphans

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/juju/gomaasapi/v2"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator/simtest"
)

const (
	adminKey = "admin:token:secret"
	otherKey = "other:token:secret"
	region   = `
users: [{name: admin, admin: true, keys: ["` + adminKey + `"]}, {name: other, admin: true, keys: ["` + otherKey + `"]}]
zones: [{name: zone-a}]
domains: [{name: maas.sim, default: true}]
subnets: [{cidr: 10.77.0.0/24, dhcp: true, dynamic_ranges: [{start: 10.77.0.200, end: 10.77.0.254}]}]
images: [{name: ubuntu/jammy}]
machines: [{names: [metal-a, metal-b], zone: zone-a, cores: 8, memory: 16384, disks: [100]}]
vm_hosts: [{name: lxd-a, zone: zone-a, cores: 8, memory: 16384, storage_pools: [{name: default, size: 200}]}]
timings: {vm_host_sync: 24h, power_poll: 24h}
`
)

// bed is a MAAS with an administrator's client, and what Kubernetes claims.
type bed struct {
	*simulator.Simulator
	t       *testing.T
	url     string
	client  *maas.Client
	objects []Object
	vouched []string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	sim, endpoint := simtest.Start(t, region, simulator.Options{TimeScale: 2000})
	b := &bed{Simulator: sim, t: t, url: endpoint}
	b.client = b.as(adminKey)
	return b
}

func (b *bed) as(key string) *maas.Client {
	b.t.Helper()
	return simtest.Client(b.t, b.url, key)
}

// metal acquires a machine as the provider does, and leaves it behind.
func (b *bed) metal(owner, name, management string) *maas.Machine {
	b.t.Helper()
	m, err := b.client.AllocateMachine(b.t.Context(), maas.Unrecorded("a test"), maas.AllocateParams{AgentName: "capmaas/" + owner + "/" + name, NotOnVMHosts: []string{"lxd-a"}})
	if err != nil {
		b.t.Fatal(err)
	}
	m, err = b.client.DeployMachine(b.t.Context(), maas.Unrecorded("a test"), m.SystemID, maas.DeployParams{DistroSeries: "ubuntu/jammy"})
	if err != nil {
		b.t.Fatal(err)
	}
	return b.mark(m, owner, name, management)
}

// linkAll gives each server a static address.
func (b *bed) linkAll() {
	b.t.Helper()
	all, err := b.client.ListMachines(b.t.Context(), maas.MachineFilter{Hostnames: []string{"metal-a", "metal-b"}})
	if err != nil {
		b.t.Fatal(err)
	}
	for i, m := range all {
		link := maas.LinkParams{Mode: maas.LinkModeStatic, Subnet: "10.77.0.0/24", IPAddress: fmt.Sprintf("10.77.0.5%d", i), Replace: true}
		if _, err := b.client.LinkSubnet(b.t.Context(), maas.Unrecorded("a test"), m.SystemID, m.Interfaces[0].ID, link); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bed) mark(m *maas.Machine, owner, name, management string) *maas.Machine {
	b.t.Helper()
	m, err := b.client.SetWorkloadAnnotations(b.t.Context(), maas.Unrecorded("a test"), m.SystemID, map[string]string{
		ownership.AnnotationOwner: owner, ownership.AnnotationMachine: "ns." + name, ownership.AnnotationManagement: management,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return m
}

// vm composes a VM as the provider does, and leaves it behind.
func (b *bed) vm(owner, name string) *maas.Machine {
	b.t.Helper()
	return b.become(b.compose(maas.Hostname(name, owner)), maas.StatusReady)
}

func (b *bed) compose(hostname string) (systemID string) {
	b.t.Helper()
	hosts, err := b.client.ListVMHosts(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	id, err := b.client.Compose(b.t.Context(), maas.Unrecorded("a test"), hosts[0].ID, maas.ComposeParams{
		Hostname: hostname, Cores: 2, Memory: 2048, Storage: "root:10", ZoneID: hosts[0].Zone.ID, PoolID: hosts[0].Pool.ID,
		SkipCommissioning: true,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

// become waits for a state.
func (b *bed) become(systemID string, status maas.Status) *maas.Machine {
	b.t.Helper()
	var m *maas.Machine
	err := wait.PollUntilContextTimeout(b.t.Context(), 10*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		var err error
		m, err = b.client.GetMachine(ctx, systemID)
		return err == nil && m.Status == status, err
	})
	if err != nil {
		b.t.Fatalf("machine %s does not come into state %d: %v; MAAS has %+v", systemID, status, err, b.Machines())
	}
	return m
}

// call makes calls that the client lacks.
func (b *bed) call(systemID, op string) {
	b.t.Helper()
	client, err := gomaasapi.NewAuthenticatedClient(b.url+"/api/2.0/", adminKey)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := client.Post(&url.URL{Path: "machines/" + systemID + "/"}, op, url.Values{}, nil); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) remove(systemID string) (string, error) {
	b.t.Helper()
	remover := &Remover{Client: b.client, Vouched: b.vouched, Claims: func(context.Context) (*Claims, error) {
		return NewClaims(here, "", []Cluster{alive, frozen}, b.objects), nil
	}}
	return remover.Remove(b.t.Context(), systemID)
}

// removals returns the calls that remove a machine. A call may be logged a moment after its response, so those that
// prepare a test don't count.
func (b *bed) removals() []string {
	var list []string
	for _, call := range b.Calls().Log {
		if call.Method == http.MethodDelete || call.Op == "release" {
			list = append(list, call.Method+" "+call.Endpoint+" "+call.Op)
		}
	}
	return list
}

func (b *bed) vmsOnHosts() []string {
	var names []string
	for _, host := range b.VMHosts() {
		for _, vm := range host.VMs {
			names = append(names, vm.Name)
		}
	}
	return names
}

func TestAnOrphanIsRemoved(t *testing.T) {
	t.Parallel()
	release, deletion := "POST machines/{id}/ release", "DELETE machines/{id}/ "
	for name, tc := range map[string]struct {
		left    func(*bed) *maas.Machine
		vouched []string
		want    string
		kept    string // the VM that stays on its host; it was never commissioned
	}{
		"bare metal": {left: func(b *bed) *maas.Machine { return b.metal("owner1", "a", here) }, want: release},
		"a VM":       {left: func(b *bed) *maas.Machine { return b.vm("owner1", "a") }, want: deletion},
		"of a gone MaasCluster, vouched for": {left: func(b *bed) *maas.Machine { return b.metal("owner9", "a", here) },
			vouched: []string{"owner9"}, want: release},
		"a VM that is not ours, used like bare metal": {left: func(b *bed) *maas.Machine {
			m, err := b.client.AllocateMachine(b.t.Context(), maas.Unrecorded("a test"), maas.AllocateParams{SystemID: b.compose("somebodys-vm"), AgentName: "capmaas/owner1/a"})
			if err != nil {
				b.t.Fatal(err)
			}
			return b.mark(m, "owner1", "a", here)
		}, want: release, kept: "somebodys-vm"},
		"a VM that is deployed": {left: func(b *bed) *maas.Machine {
			m := b.vm("owner1", "a")
			deployed, err := b.client.DeployMachine(b.t.Context(), maas.Unrecorded("a test"), m.SystemID, maas.DeployParams{AgentName: "capmaas/owner1/a", DistroSeries: "ubuntu/jammy"})
			if err != nil {
				b.t.Fatal(err)
			}
			return b.mark(deployed, "owner1", "a", here)
		}, want: deletion},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			m := tc.left(b)
			b.vouched = tc.vouched
			if done, err := b.remove(m.SystemID); err != nil || done == "" {
				t.Fatalf("it was not removed: %q, %v", done, err)
			}
			if tc.want == release {
				back := maas.StatusReady
				if tc.kept != "" {
					back = maas.StatusNew
				}
				if m := b.become(m.SystemID, back); m.Owner != "" || len(m.WorkloadAnnotations) > 0 {
					t.Errorf("it is not back in the pool: owner %q, annotations %v", m.Owner, m.WorkloadAnnotations)
				}
			}
			if diff := cmp.Diff([]string{tc.want}, b.removals()); diff != "" {
				t.Errorf("what was done differs (-want +got):\n%s", diff)
			}
			if vms := strings.Join(b.vmsOnHosts(), " "); vms != tc.kept {
				t.Errorf("on the host there is %q, want %q", vms, tc.kept)
			}
		})
	}
}

// A release undoes nothing that was set on the machine: the outcome says what a person has to.
func TestWhatIsLeftOnAnOrphanIsTold(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.linkAll()
	m := b.metal("owner1", "a", here)
	note := quarantine.ExcludeTag + "-" + m.SystemID
	if err := b.client.CreateTag(t.Context(), maas.Unrecorded("a test"), maas.Tag{Name: note, Comment: "by=capmaas/owner1/a"}); err != nil {
		t.Fatal(err)
	}
	done, err := b.remove(m.SystemID)
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range append(m.IPAddresses, note) {
		if !strings.Contains(done, left) {
			t.Errorf("%q does not name %s", done, left)
		}
	}
}

func TestWhatIsNotProvenIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]func(*bed) *maas.Machine{
		"claimed meanwhile": func(b *bed) *maas.Machine {
			m := b.metal("owner1", "a", here)
			b.objects = []Object{{"ns", "a", m.SystemID}}
			return m
		},
		"claimed meanwhile, not recorded yet": func(b *bed) *maas.Machine {
			b.objects = []Object{{"ns", "a", ""}}
			return b.vm("owner1", "a")
		},
		"locked": func(b *bed) *maas.Machine {
			m := b.metal("owner1", "a", here)
			b.become(m.SystemID, maas.StatusDeployed)
			b.call(m.SystemID, "lock")
			return m
		},
		"of a cluster that is paused":          func(b *bed) *maas.Machine { return b.metal("owner2", "a", here) },
		"of a gone cluster, not vouched for":   func(b *bed) *maas.Machine { return b.metal("owner9", "a", here) },
		"of another management cluster":        func(b *bed) *maas.Machine { return b.metal("owner9", "a", elsewhere) },
		"marked by another management cluster": func(b *bed) *maas.Machine { return b.metal("owner1", "a", elsewhere) },
		"of another management cluster, though an operator vouches": func(b *bed) *maas.Machine {
			b.vouched = []string{"owner9"}
			return b.metal("owner9", "a", elsewhere)
		},
		"acquired by another user under our annotations": func(b *bed) *maas.Machine {
			m, err := b.client.AllocateMachine(b.t.Context(), maas.Unrecorded("a test"), maas.AllocateParams{AgentName: "somebody", NotOnVMHosts: []string{"lxd-a"}})
			if err != nil {
				b.t.Fatal(err)
			}
			return b.mark(m, "owner1", "a", here)
		},
		"a VM that another user took": func(b *bed) *maas.Machine {
			m := b.vm("owner1", "a")
			m, err := b.as(otherKey).AllocateMachine(b.t.Context(), maas.Unrecorded("a test"), maas.AllocateParams{SystemID: m.SystemID})
			if err != nil {
				b.t.Fatal(err)
			}
			return m
		},
		"a VM, in a MAAS that has no VM hosts any more": func(b *bed) *maas.Machine {
			m := b.vm("owner1", "a")
			if err := b.Upgrade("4.0"); err != nil {
				b.t.Fatal(err)
			}
			return m
		},
		"a stranger": func(b *bed) *maas.Machine {
			m, err := b.client.AllocateMachine(b.t.Context(), maas.Unrecorded("a test"), maas.AllocateParams{NotOnVMHosts: []string{"lxd-a"}})
			if err != nil {
				b.t.Fatal(err)
			}
			return m
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			m := left(b)
			done, err := b.remove(m.SystemID)
			var alone *KeptError
			if !errors.As(err, &alone) || alone.Why == "" || done != "" {
				t.Errorf("want it left alone, with the reason; got %q, %v", done, err)
			}
			if removals := b.removals(); len(removals) > 0 {
				t.Errorf("this was done to it: %v", removals)
			}
		})
	}
}

// Another user takes the machine while the proof reads on.
func TestAMachineThatChangesDuringTheProofIsLeftAlone(t *testing.T) {
	b := newBed(t)
	m := b.metal(alive.OwnerID, "m", here)
	other := b.as(otherKey)
	var once sync.Once
	b.SetHook(func(call simulator.Call, at simulator.Phase) error {
		if at == simulator.After && call.Method == http.MethodGet && call.Endpoint == "machines/" && strings.Contains(call.Query, "agent_name=") {
			once.Do(func() {
				if _, err := b.client.ReleaseMachine(t.Context(), maas.UnrecordedRelease("a test"), m.SystemID, maas.ReleaseParams{}); err != nil {
					t.Error(err)
				}
				b.become(m.SystemID, maas.StatusReady)
				if _, err := other.AllocateMachine(t.Context(), maas.Unrecorded("a test"), maas.AllocateParams{SystemID: m.SystemID}); err != nil {
					t.Error(err)
				}
			})
		}
		return nil
	})
	var kept *KeptError
	if done, err := b.remove(m.SystemID); !errors.As(err, &kept) {
		t.Errorf("%q, %v", done, err)
	}
	if now, _ := b.Machine(m.SystemID); now.Owner != "other" {
		t.Errorf("the machine is %s, of %q", now.Status, now.Owner)
	}
}

func TestAVMThatItsHostKeepsIsNotCalledGone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	m := b.vm("owner1", "a")
	// MAAS can't reach the host while it deletes the VM, responds with 204 all the same, and finds the VM again.
	b.SetHook(func(call simulator.Call, phase simulator.Phase) error {
		if call.Method == http.MethodDelete {
			b.BreakVMHost("lxd-a", phase == simulator.Before, false)
		}
		return nil
	})
	if done, err := b.remove(m.SystemID); err == nil {
		t.Errorf("it is called %q; on the host there is %v", done, b.vmsOnHosts())
	}
	b.SetHook(nil)
	if len(b.vmsOnHosts()) != 1 {
		t.Errorf("the test shows nothing: on the host there is %v", b.vmsOnHosts())
	}
}

func TestALostResponseIsNoFailureWhenTheVMIsGone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	m := b.vm("owner1", "a")
	if _, err := b.AddFault(simulator.Fault{Method: http.MethodDelete, DropAfter: true, First: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.remove(m.SystemID); err != nil || len(b.vmsOnHosts()) > 0 {
		t.Errorf("%v; on the host there is %v", err, b.vmsOnHosts())
	}
}

func TestNothingIsDoneWhenItCannotBeProven(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	m := b.metal("owner1", "a", here)
	broken := errors.New("Kubernetes does not respond")
	remover := &Remover{Client: b.client, Claims: func(context.Context) (*Claims, error) { return nil, broken }}
	if _, err := remover.Remove(t.Context(), m.SystemID); !errors.Is(err, broken) {
		t.Errorf("Kubernetes' error is lost: %v", err)
	}
	if _, err := b.AddFault(simulator.Fault{Method: http.MethodGet, Endpoint: "machines/", Status: 503}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.remove(m.SystemID); !errors.Is(err, maas.Unavailable) {
		t.Errorf("MAAS's error is lost: %v", err)
	}
	if removals := b.removals(); len(removals) > 0 {
		t.Errorf("this was done all the same: %v", removals)
	}
}

// Something before MAAS answers 404, too.
func TestAMachineThatMAASListsIsNotGone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	m := b.metal("owner1", "a", here)
	if _, err := b.AddFault(simulator.Fault{Endpoint: "machines/{id}/", Status: http.StatusNotFound, Body: "404 page not found"}); err != nil {
		t.Fatal(err)
	}
	if done, err := b.remove(m.SystemID); !errors.Is(err, maas.Unavailable) {
		t.Errorf("%q, %v", done, err)
	}
}

func TestAMachineThatIsGoneNeedsNothing(t *testing.T) {
	t.Parallel()
	if done, err := newBed(t).remove("nosuch"); err != nil || done == "" {
		t.Errorf("%q, %v", done, err)
	}
}
