// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// realVMs are the VMs that are on the host, and how many of them MAAS does not know.
func (b *bed) realVMs() (all, unknown int) {
	for _, vm := range b.VMHosts()[0].VMs {
		all++
		if vm.SystemID == "" {
			unknown++
		}
	}
	return all, unknown
}

func (b *bed) breakHost(how string) {
	b.t.Helper()
	if got := b.control(post, "vm-hosts/host", how); got.status != http.StatusOK {
		b.t.Fatalf("control: %d %s", got.status, got.body)
	}
}

func TestVMWhoseDecomposingFailsComesBack(t *testing.T) {
	b := newBed(t)
	id := b.composeVM("vm1")
	b.breakHost(`{"unreachable": true}`)
	if got := b.do(del, "machines/"+id+"/"); got.status != http.StatusNoContent {
		t.Fatalf("deletion: %d %s", got.status, got.body)
	}
	if got := b.do(get, "machines/"+id+"/"); got.status != http.StatusNotFound {
		t.Errorf("the row is still there: %d", got.status)
	}
	if all, unknown := b.realVMs(); all != 1 || unknown != 1 {
		t.Fatalf("%d VMs on the host, %d of them unknown to MAAS; want one that is leaked", all, unknown)
	}
	if got := b.do(post, "vm-hosts/1/", "op", "refresh"); got.status != http.StatusServiceUnavailable {
		t.Errorf("refresh of a broken host: %d %s", got.status, got.body)
	}
	b.breakHost(`{}`)
	b.do(post, "vm-hosts/1/", "op", "refresh").object(t)
	back := b.named("vm1")
	if back.SystemID == id || back.Status != "Commissioning" || back.VMHost != "host" {
		t.Errorf("the VM came back as %+v", back)
	}
	if all, unknown := b.realVMs(); all != 1 || unknown != 0 {
		t.Errorf("%d VMs on the host, %d of them unknown to MAAS", all, unknown)
	}
	b.expect(back.SystemID, []step{{5 * time.Minute, "Ready", "off"}})
}

// A host that responds and can't delete: the VM comes back at each refresh.
func TestHostThatKeepsVMs(t *testing.T) {
	b := newBed(t)
	id := b.composeVM("vm1")
	b.breakHost(`{"losing": true}`)
	for range 2 {
		if got := b.do(del, "machines/"+id+"/"); got.status != http.StatusNoContent {
			t.Fatalf("deletion: %d %s", got.status, got.body)
		}
		b.do(post, "vm-hosts/1/", "op", "refresh").object(t)
		back := b.named("vm1")
		if back.SystemID == id {
			t.Fatalf("%s is still there", id)
		}
		id = back.SystemID
	}
	b.breakHost(`{}`)
	b.do(del, "machines/"+id+"/")
	b.do(post, "vm-hosts/1/", "op", "refresh").object(t)
	if all, _ := b.realVMs(); all != 0 {
		t.Errorf("%d VMs are left on a host that was mended", all)
	}
}

// MAAS adds a VM that it finds under the VM's own name, unless another machine has that.
func TestVMWhoseNameIsTakenComesBackUnderAnother(t *testing.T) {
	b := newBed(t)
	id := b.composeVM("vm1")
	b.breakHost(`{"losing": true}`)
	b.do(del, "machines/"+id+"/")
	b.do(put, "machines/"+b.named("big").SystemID+"/", "hostname", "vm1").object(t)
	b.do(post, "vm-hosts/1/", "op", "refresh").object(t)
	for _, m := range b.Machines() {
		if m.VMHost == "host" && m.Hostname != "vm1" && m.Status == "Commissioning" {
			return
		}
	}
	t.Errorf("the VM is not there under another name: %+v", b.Machines())
}

// A refresh while a VM is composed adds the VM, and the compose finds its name taken.
func TestRefreshWhileAVMIsComposedTakesItOver(t *testing.T) {
	b := newBedWith(t, strings.Replace(testRegion, "compose: 0s", "compose: 2m", 1), Options{})
	answered := make(chan answer, 1)
	go func() {
		got, err := b.send(adminKey, post, "vm-hosts/1/", url.Values{"op": {"compose"}, "hostname": {"half"}, "skip_commissioning": {"true"}})
		if err != nil {
			got.body = err.Error()
		}
		answered <- got
	}()
	b.passUntil("the VM is made", func() bool { all, _ := b.realVMs(); return all > 0 })
	b.do(post, "vm-hosts/1/", "op", "refresh").object(t)
	taken := b.named("half")
	if taken.Status != "Commissioning" {
		t.Errorf("the half made VM is %s in MAAS, want Commissioning", taken.Status)
	}
	got := b.passUntilOne(answered)
	if got.status != http.StatusBadRequest || !strings.Contains(got.body, "already exists") {
		t.Errorf("the compose responds %d %s, want that the name is taken", got.status, got.body)
	}
	if now := b.named("half"); now.SystemID != taken.SystemID {
		t.Errorf("the compose took the VM over as %s", now.SystemID)
	}
}

// MAAS commissions the VMs of a host that is registered anew. One that runs is switched off first.
func TestAHostThatIsRegisteredAnewHasItsVMsRestarted(t *testing.T) {
	b := newBed(t)
	id := b.composeVM("vm1")
	b.do(post, "machines/", "op", "allocate", "system_id", id).object(t)
	b.do(post, "machines/"+id+"/", "op", "deploy", "distro_series", "jammy").object(t)
	b.pass(10 * time.Minute)
	vm := func() VM { return b.VMHosts()[0].VMs[0] }
	b.do(del, "vm-hosts/1/")
	if now := vm(); !now.Running || now.Starts != 1 || now.SystemID != "" {
		t.Fatalf("when its host left MAAS, the VM is %+v", now)
	}
	host := b.do(post, "vm-hosts/", "type", "lxd", "name", "again", "project", vm().Project, "power_address", b.VMHosts()[0].Address).object(t)
	b.pass(15 * time.Second)
	if now := vm(); host["name"] != "again" || now.Running || now.SystemID == "" {
		t.Errorf("when its host was registered anew, the VM is %+v", now)
	}
	b.expect(vm().SystemID, []step{{5 * time.Minute, "Ready", "off"}})
	if now := vm(); now.Starts != 2 {
		t.Errorf("the VM was started %d times", now.Starts)
	}
}

func TestHostThatLosesVMs(t *testing.T) {
	b := newBed(t)
	b.breakHost(`{"unreachable": true, "losing": true}`)
	before := len(b.Machines())
	got := b.do(post, "vm-hosts/1/", "op", "compose", "hostname", "lost", "skip_commissioning", "true")
	if got.status != http.StatusServiceUnavailable {
		t.Errorf("status %d: %s", got.status, got.body)
	}
	if all, unknown := b.realVMs(); all != 1 || unknown != 1 || len(b.Machines()) != before {
		t.Errorf("%d VMs, %d unknown, %d machines more", all, unknown, len(b.Machines())-before)
	}
}

func TestVMDeletedByAnotherUser(t *testing.T) {
	b := newBed(t)
	id := b.composeVM("vm1")
	if got := b.control(del, "vm-hosts/host/vms/vm1", ""); got.status != http.StatusNoContent {
		t.Fatalf("control: %d %s", got.status, got.body)
	}
	if got := b.do(get, "machines/"+id+"/", "op", "query_power_state").object(t)["state"]; got != "error" {
		t.Errorf("power state %v of a VM that is not there, want error", got)
	}
	b.do(post, "machines/"+id+"/", "op", "deploy").object(t)
	b.expect(id, []step{{time.Minute, "Failed deployment", "error"}})
	b.do(post, "vm-hosts/1/", "op", "refresh").object(t)
	if _, ok := b.Machine(id); ok {
		t.Error("the refresh left a machine without a VM")
	}
}

func TestRegistration(t *testing.T) {
	b := newBedWith(t, testRegion+`
`, Options{})
	b.mu.Lock()
	b.lab[hostKey("10.99.0.1")] = &simulatedHost{facts: hostFacts{
		name: "fresh", version: "5.0.2", cores: 4, memory: 8192, pools: []storagePool{{id: "default", name: "default", total: 1e12}},
	}}
	b.mu.Unlock()
	h := b.do(post, "vm-hosts/", "type", "lxd", "power_address", "https://10.99.0.1:8443", "name", "fresh", "zone", "zone-b",
		"password", "secret").object(t)
	if h["version"] != "5.0.2" || h["total"].(map[string]any)["cores"] != 0.0 {
		t.Errorf("version %v, total %v in the reply", h["version"], h["total"])
	}
	path := "vm-hosts/" + jsonNumber(h["id"]) + "/"
	if _, kept := b.do(get, path, "op", "parameters").object(t)["password"]; kept {
		t.Error("the trust password is kept")
	}
	b.pass(30 * time.Second)
	total := b.do(get, path).object(t)["total"].(map[string]any)
	if total["cores"] != 4.0 || total["memory"] != 8192.0 {
		t.Errorf("total %v half a minute later", total)
	}
	if m := b.named("fresh"); m.Status != "Deployed" {
		t.Errorf("the host's machine is %s", m.Status)
	}
	if got := b.do(del, path); got.status != http.StatusNoContent {
		t.Fatalf("deletion: %d %s", got.status, got.body)
	}
	for _, m := range b.Machines() {
		if m.Hostname == "fresh" {
			t.Error("the host's machine stayed")
		}
	}
}

func TestControlRefusals(t *testing.T) {
	b := newBed(t)
	for name, test := range map[string]struct {
		method, path, body string
		want               int
	}{
		"no machine":      {post, "machines/nosuch/power", `{"power": "off"}`, 404},
		"power":           {post, "machines/small/power", `{"power": "maybe"}`, 400},
		"unknown key":     {post, "machines/small/power", `{"pover": "off"}`, 400},
		"operation":       {post, "fail-next", `{"operation": "sleep"}`, 400},
		"nothing to fail": {post, "machines/small/fail", `{"now": true}`, 400},
		"status":          {post, "machines/small/status", `{"status": "happy"}`, 400},
		"no host":         {post, "vm-hosts/nosuch", `{}`, 404},
		"no VM":           {del, "vm-hosts/host/vms/nosuch", "", 404},
		"empty fault":     {post, "faults", `{}`, 400},
		"no fault":        {del, "faults/nosuch", "", 404},
		"time":            {put, "time", `{"scale": 0}`, 400},
	} {
		t.Run(name, func(t *testing.T) {
			got := b.control(test.method, test.path, test.body)
			if got.status != test.want || !json.Valid([]byte(got.body)) {
				t.Errorf("%d %s, want %d with JSON", got.status, got.body, test.want)
			}
		})
	}
}

func TestControlShows(t *testing.T) {
	b := newBed(t)
	for _, path := range []string{"state", "machines", "machines/small", "vm-hosts", "calls", "faults", "time"} {
		if got := b.control(get, path, ""); got.status != http.StatusOK || !json.Valid([]byte(got.body)) {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	id := b.named("small").SystemID
	b.control(post, "machines/small/status", `{"status": "missing"}`)
	b.expect(id, []step{{0, "Missing", "off"}})
	b.control(post, "machines/small/power", `{"power": "on", "unnoticed": true}`)
	b.expect(id, []step{{0, "Missing", "off"}})
	if got := b.do(get, "machines/"+id+"/", "op", "query_power_state").object(t)["state"]; got != "on" {
		t.Errorf("power state %v, want on", got)
	}
}

func TestProjectsOfAHostAreApart(t *testing.T) {
	b := newBed(t)
	if got := b.control(post, "vm-hosts/host/vms", `{"name": "guest", "project": "other", "cores": 1, "memory": 2048}`); got.status != http.StatusOK {
		t.Fatalf("control: %d %s", got.status, got.body)
	}
	before := len(b.Machines())
	b.do(post, "vm-hosts/1/", "op", "refresh").object(t)
	if after := len(b.Machines()); after != before {
		t.Errorf("the refresh enlisted %d VMs of another project", after-before)
	}
}

func TestSlowComposeTimesOutAndMakesTheVM(t *testing.T) {
	b := newBedWith(t, strings.Replace(testRegion, "compose: 0s", "compose: 3m", 1), Options{})
	answered := make(chan answer, 1)
	go func() {
		got, err := b.send(adminKey, post, "vm-hosts/1/", url.Values{"op": {"compose"}, "hostname": {"late"}})
		if err != nil {
			got.body = err.Error()
		}
		answered <- got
	}()
	got := b.passUntilOne(answered)
	if got.status != http.StatusServiceUnavailable {
		t.Errorf("status %d: %s", got.status, got.body)
	}
	b.pass(3 * time.Minute)
	if all, unknown := b.realVMs(); all != 1 || unknown != 1 {
		t.Errorf("%d VMs, %d of them unknown to MAAS; want the late one", all, unknown)
	}
}

// If the machine cannot be saved, what allocate composed is rolled back with the transaction; its VM stays.
func TestAllocateThatFailsAfterItComposedLeavesTheVM(t *testing.T) {
	b := newBed(t)
	_, before := b.realVMs()
	got := b.do(post, "machines/", "op", "allocate", "pod", "host", "agent_name", strings.Repeat("x", 256))
	if got.status != http.StatusBadRequest || !strings.Contains(got.body, `"agent_name"`) {
		t.Fatalf("%d %s, want the agent name to be refused", got.status, got.body)
	}
	if _, unknown := b.realVMs(); unknown != before+1 {
		t.Errorf("%d VMs that MAAS does not know, want %d", unknown, before+1)
	}
}

// VMs that MAAS does not know also use a storage pool.
func TestStoragePoolsFill(t *testing.T) {
	b := newBed(t)
	compose := func(name, storage string) answer {
		return b.do(post, "vm-hosts/1/", "op", "compose", "hostname", name, "storage", storage, "skip_commissioning", "true")
	}
	if got := b.control(post, "vm-hosts/host/vms", `{"name": "stranger", "cores": 1, "memory": 1024, "disks": [300], "project": "other"}`); got.status >= http.StatusBadRequest {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if got := compose("first", "root:150,data:51"); got.status != http.StatusInternalServerError || !strings.Contains(got.body, "Not enough space in default storage pool: default") {
		t.Errorf("%d %s, want the second disk to find no room", got.status, got.body)
	}
	if got := compose("first", "root:150,data:50(default)"); got.status != http.StatusOK {
		t.Errorf("%d %s, want what just fits to be made", got.status, got.body)
	}
	if got := compose("second", "root:1(default)"); got.status != http.StatusInternalServerError || !strings.Contains(got.body, "Not enough storage space on storage pools: default") {
		t.Errorf("%d %s, want the pool of the tag to be full", got.status, got.body)
	}
}
