// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// As played against MAAS's own region code: what runs on the machine becomes a part of MAAS's record of it, and static
// links survive the release.
func TestHardwareSyncRewritesTheMachine(t *testing.T) {
	b := newBed(t)
	id := b.named("big").SystemID
	path := "machines/" + id + "/"
	b.do(post, "ipaddresses/", "op", "reserve", "ip", "10.10.0.90").object(t)
	deployed := b.do(post, path, "op", "deploy", "enable_hw_sync", "true").object(t)
	if deployed["sync_interval"] != 900. || deployed["last_sync"] != nil || deployed["next_sync"] != nil {
		t.Errorf("interval %v, last %v, next %v; want 900, none, none", deployed["sync_interval"], deployed["last_sync"], deployed["next_sync"])
	}
	if got := b.sync(id); got.status != http.StatusBadRequest {
		t.Errorf("a machine that is not deployed yet reported itself: %d", got.status)
	}
	b.pass(6 * time.Minute)
	if got := b.sync(id); got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	synced := b.do(http.MethodGet, path).object(t)
	want := []any{"10.10.0.3", "10.10.0.90", "10.244.0.1", "10.96.0.1"}
	if diff := cmp.Diff(want, synced["ip_addresses"], cmpopts.SortSlices(func(a, b any) bool { return fmt.Sprint(a) < fmt.Sprint(b) })); diff != "" {
		t.Errorf("its addresses (-want +got):\n%s", diff)
	}
	if disks := synced["physicalblockdevice_set"].([]any); len(disks) != 2 {
		t.Errorf("it has %d disks, want the mapped one, too", len(disks))
	}
	if synced["last_sync"] == nil || synced["next_sync"] == nil {
		t.Errorf("last sync %v, next %v", synced["last_sync"], synced["next_sync"])
	}
	if subnets := b.do(http.MethodGet, "subnets/").list(t); len(subnets) != 3 {
		t.Errorf("%d subnets, want those of pods and services, too", len(subnets))
	}
	if got := b.do(post, "ipaddresses/", "op", "release", "ip", "10.10.0.90"); got.status != http.StatusBadRequest {
		t.Errorf("the reservation is released: %d %s", got.status, got.body)
	}
	b.do(post, path, "op", "release").object(t)
	b.pass(time.Minute)
	if got := b.do(post, "ipaddresses/", "op", "reserve", "ip", "10.10.0.90"); got.status != http.StatusNotFound {
		t.Errorf("the address of a released machine is free: %d %s", got.status, got.body)
	}
	released := b.do(http.MethodGet, path).object(t)
	if released["sync_interval"] != nil || released["last_sync"] != nil || len(released["interface_set"].([]any)) != 1 {
		t.Errorf("a released machine: %v, %v, %v", released["sync_interval"], released["last_sync"], released["interface_set"])
	}
	b.do(post, path, "op", "deploy").object(t)
	b.pass(6 * time.Minute)
	if got := b.named("big"); len(got.Addresses) != 2 || got.Status != "Deployed" {
		t.Errorf("the next deployment, without hardware sync, has %v, want both addresses of the former", got.Addresses)
	}
}

// sync has a machine of one card report itself as a control plane with kube-vip.
func (b *bed) sync(id string) answer {
	b.t.Helper()
	m, _ := b.Machine(id)
	nic := m.Interfaces[0]
	return b.control(post, "machines/"+id+"/sync", fmt.Sprintf(`{
		"networks": [
			{"name": %q, "kind": "physical", "mac": %q, "addresses": ["10.10.0.3/24", "10.10.0.90/32"]},
			{"name": "cni0", "kind": "bridge", "mac": "aa:00:00:00:00:01", "addresses": ["10.244.0.1/24"]},
			{"name": "kube-ipvs0", "kind": "unknown", "mac": "aa:00:00:00:00:02", "addresses": ["10.96.0.1/32"]},
			{"name": "veth1", "kind": "unknown", "mac": "aa:00:00:00:00:03"}],
		"disks": [{"name": "rbd0", "size": 10000000000}]}`, nic.Name, nic.MAC))
}
