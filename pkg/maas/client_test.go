// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/test/refused"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/internal/permit"
)

const testKey = "consumer:token:secret"

func serve(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client, err := NewClient(Config{Endpoint: server.URL + "/MAAS", APIKey: testKey})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func answer(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

func TestErrorsAreTyped(t *testing.T) {
	for name, tc := range map[string]struct {
		status  int
		body    string
		kind    Kind
		message string
	}{
		"field errors":   {400, `{"hostname": ["Node with hostname \"cp1\" already exists"]}`, Invalid, `hostname: Node with hostname "cp1" already exists`},
		"no field":       {400, `{"__all__": ["Labels must be unique within their zone."]}`, Invalid, "Labels must be unique within their zone."},
		"text":           {400, "Unrecognised signature: method=POST op=frob", Invalid, "Unrecognised signature: method=POST op=frob"},
		"key":            {401, "Authorization Error: Invalid API key.", Unauthorized, "Authorization Error: Invalid API key."},
		"empty body":     {403, "", Forbidden, "Forbidden"},
		"not there":      {404, "No Machine matches the given query.", NotFound, "No Machine matches the given query."},
		"state":          {409, "Can't deploy a machine that is in the 'Deployed' state", Conflict, "Can't deploy a machine that is in the 'Deployed' state"},
		"no VM hosts":    {410, "VM host (KVM) support has been removed from MAAS.", Gone, "VM host (KVM) support has been removed from MAAS."},
		"busy":           {429, "", Unavailable, "Too Many Requests"},
		"broken":         {500, "boom\nboom", Unavailable, "boom boom"},
		"a proxy's page": {502, "<html>Bad gateway</html>", Unavailable, "Bad Gateway"},
		"no address":     {503, "No more IPs available in subnet: 10.77.0.0/24.", Exhausted, "No more IPs available in subnet: 10.77.0.0/24."},
		"no way to BMC":  {500, "Error determining BMC task queue for machine abc", Unroutable, "Error determining BMC task queue for machine abc"},
		"no rack's BMC":  {503, "No rack controllers can access the BMC of node abc", Unroutable, "No rack controllers can access the BMC of node abc"},
		"quoted":         {500, "boom: No more IPs available in subnet", Unavailable, "boom: No more IPs available in subnet"},
		"no rack":        {503, "Unable to connect to any rack controller", Unavailable, "Unable to connect to any rack controller"},
	} {
		t.Run(name, func(t *testing.T) {
			client := serve(t, answer(tc.status, "text/plain", tc.body))
			_, err := client.GetMachine(t.Context(), "abc123")
			if !errors.Is(err, tc.kind) {
				t.Fatalf("the error is %#v, want kind %s", err, tc.kind)
			}
			if got := Message(err); got != tc.message {
				t.Errorf("the message is %q, want %q", got, tc.message)
			}
		})
	}
}

// Another request may have won, or the process on the host may have done its part: what became of the call is not
// known.
func TestBusyIsNoConflict(t *testing.T) {
	const page = "<!DOCTYPE html>\n<html><body>Conflict</body></html>"
	for name, tc := range map[string]struct {
		retryAfter, body string
		busy             bool
		after            time.Duration
	}{
		"a page and a header":      {"7", page, true, 7 * time.Second},
		"a header":                 {"7", "anything", true, 7 * time.Second},
		"a header that is no time": {"soon", "", true, busyPause},
		"a page":                   {"", page, true, busyPause},
		"a state":                  {"", "Can't deploy a machine that is in the 'Deployed' state", false, 0},
		"nothing":                  {"", "", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if tc.retryAfter != "" {
					w.Header().Set("Retry-After", tc.retryAfter)
				}
				w.WriteHeader(http.StatusConflict)
				fmt.Fprint(w, tc.body)
			})
			for range guard.SilentCalls + 1 {
				_, err := client.AllocateMachine(t.Context(), Unrecorded("a test"), AllocateParams{})
				if errors.Is(err, Busy) != tc.busy || errors.Is(err, Unavailable) != tc.busy || errors.Is(err, Conflict) == tc.busy || NotSent(err) {
					t.Fatalf("the error is %#v", err)
				}
				if got := RetryAfter(err); got != tc.after {
					t.Errorf("try again after %v, want %v", got, tc.after)
				}
				if strings.Contains(Message(err), "<") {
					t.Errorf("the message is %q", Message(err))
				}
			}
		})
	}
}

func TestInvalidField(t *testing.T) {
	client := serve(t, answer(400, "application/json", `{"hostname": ["taken"]}`))
	_, err := client.Compose(t.Context(), Unrecorded("a test"), 1, ComposeParams{Hostname: "cp1"})
	if !InvalidField(err, "hostname") || InvalidField(err, "cores") {
		t.Errorf("%v: the refused field is not told", err)
	}
}

func TestNoResponseIsUnavailable(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"cut off": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"garbage": answer(200, "application/json", "{not json"),
		"truncated": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "{")
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := serve(t, handler).GetMachine(t.Context(), "abc123")
			if !errors.Is(err, Unavailable) {
				t.Errorf("the error is %#v, want %s", err, Unavailable)
			}
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		client, err := NewClient(Config{Endpoint: "http://" + refused.Port(t) + "/MAAS", APIKey: testKey})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.ListZones(t.Context()); !errors.Is(err, Unavailable) {
			t.Errorf("the error is %#v, want %s", err, Unavailable)
		}
	})
	t.Run("the caller gives up", func(t *testing.T) {
		release := make(chan struct{})
		client := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
		defer close(release)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := client.ListZones(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v, want %v", err, context.Canceled)
		}
	})
}

func TestRetryAfterIsReturnedAndNotSleptOn(t *testing.T) {
	var calls atomic.Int32
	client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	_, err := client.ListZones(t.Context())
	if got := RetryAfter(err); got != time.Hour {
		t.Errorf("RetryAfter is %s, want 1h", got)
	}
	if calls.Load() != 1 {
		t.Errorf("%d calls, want 1: retrying is the caller's business", calls.Load())
	}
}

func TestConnectionsAreReused(t *testing.T) {
	var opened atomic.Int32
	server := httptest.NewUnstartedServer(answer(200, "application/json", "[]"))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	client, err := NewClient(Config{Endpoint: server.URL, APIKey: testKey})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := client.ListZones(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if opened.Load() > 5 { // A call may begin just before the connection of the last one is free again.
		t.Errorf("20 calls opened %d connections", opened.Load())
	}
}

// TestRequests pins the requests: MAAS ignores parameters that it does not expect.
func TestRequests(t *testing.T) {
	type request struct {
		Method, Path string
		Query, Form  url.Values
	}
	var got request
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.Header.Get("Authorization"), "OAuth ") {
			t.Errorf("the request is not signed: %q", r.Header.Get("Authorization"))
		}
		body, _ := io.ReadAll(r.Body)
		form, _ := url.ParseQuery(string(body))
		got = request{r.Method, r.URL.Path, r.URL.Query(), form}
		if r.Method == http.MethodGet {
			fmt.Fprint(w, "[]")
		} else {
			fmt.Fprint(w, `{"system_id": "abc", "id": 1, "fqdn": "a.maas", "name": "a", "added": 1, "removed": 0, "architecture": "amd64/generic", "sets": {}}`)
		}
	})
	ctx := t.Context()
	for name, tc := range map[string]struct {
		call func() error
		want request
	}{
		"list by id": {
			func() error {
				_, err := client.ListMachines(ctx, MachineFilter{SystemIDs: []string{"a", "b"}})
				return err
			},
			request{"GET", "/MAAS/api/2.0/machines/", url.Values{"id": {"a", "b"}}, url.Values{}},
		},
		"list by who acquired them": {
			func() error {
				_, err := client.ListMachines(ctx, MachineFilter{SystemIDs: []string{"a"}, AgentNames: []string{"x"}, NotAgentNames: []string{"y", "z"}})
				return err
			},
			request{"GET", "/MAAS/api/2.0/machines/", url.Values{"id": {"a"}, "agent_name": {"x"}, "not_agent_name": {"y", "z"}}, url.Values{}},
		},
		"images": {
			func() error {
				_, err := client.ListImages(ctx)
				return err
			},
			request{"GET", "/MAAS/api/2.0/boot-resources/", url.Values{}, url.Values{}},
		},
		"region controllers": {
			func() error {
				_, err := client.CountRegionControllers(ctx)
				return err
			},
			request{"GET", "/MAAS/api/2.0/regioncontrollers/", url.Values{}, url.Values{}},
		},
		"who may edit machines": {
			func() error {
				_, err := client.Entitled(ctx, CanEditMachines)
				return err
			},
			request{"GET", "/MAAS/api/2.0/machines/", url.Values{"op": {"power_parameters"}, "id": {"none"}}, url.Values{}},
		},
		"who may edit global entities": {
			func() error {
				_, err := client.Entitled(ctx, CanEditGlobalEntities)
				return err
			},
			request{"GET", "/MAAS/api/2.0/commissioning-scripts/", url.Values{}, url.Values{}},
		},
		"who may edit images": {
			func() error {
				_, err := client.Entitled(ctx, CanEditBootEntities)
				return err
			},
			request{"POST", "/MAAS/api/2.0/boot-resources/", url.Values{}, url.Values{}},
		},
		"who may view machines of a pool": {
			func() error {
				_, err := client.EntitledIn(ctx, CanViewAvailableMachines, 7)
				return err
			},
			request{"GET", "/MAAS/api/2.0/resourcepool/7/", url.Values{}, url.Values{}},
		},
		"who may edit machines of a pool": {
			func() error {
				_, err := client.EntitledIn(ctx, CanEditMachines, 7)
				return err
			},
			request{"PUT", "/MAAS/api/2.0/resourcepool/7/", url.Values{}, url.Values{"name": {strings.Repeat("!", 257)}}},
		},
		"new image": {
			func() error {
				_, err := client.CreateImage(ctx, Unrecorded("a test"), CreateImageParams{
					Name: "u", Title: "U", Architecture: "amd64/generic", BaseImage: "ubuntu/noble", SHA256: "ab", Size: 5,
				})
				return err
			},
			request{"POST", "/MAAS/api/2.0/boot-resources/", url.Values{}, url.Values{
				"name": {"u"}, "title": {"U"}, "architecture": {"amd64/generic"}, "base_image": {"ubuntu/noble"}, "filetype": {"tgz"}, "sha256": {"ab"}, "size": {"5"},
			}},
		},
		"piece of an image": {
			func() error { return client.UploadImagePiece(ctx, Unrecorded("a test"), 7, 9, []byte("piece")) },
			request{"PUT", "/MAAS/api/2.0/boot-resources/7/upload/9/", url.Values{}, url.Values{"piece": {""}}},
		},
		"delete an image": {
			func() error { return client.DeleteImage(ctx, Unrecorded("a test"), 7) },
			request{"DELETE", "/MAAS/api/2.0/boot-resources/7/", url.Values{}, url.Values{}},
		},
		"allocate": {
			func() error {
				_, err := client.AllocateMachine(ctx, Unrecorded("a test"), AllocateParams{
					AgentName: "x", Zone: "z", Tags: []string{"one", "two"}, MinCPU: 4, MinMemory: 8192, MinDiskSize: 100, NotOnVMHosts: []string{"h1", "h2"},
					NotTags: []string{"three"}, Architecture: "arm64",
				})
				return err
			},
			request{"POST", "/MAAS/api/2.0/machines/", url.Values{"op": {"allocate"}}, url.Values{
				"agent_name": {"x"}, "zone": {"z"}, "tags": {"one", "two"}, "cpu_count": {"4"}, "mem": {"8192"},
				"storage": {"root:100"}, "not_pod": {"h1", "h2"}, "not_tags": {"three"}, "arch": {"arm64"},
			}},
		},
		"allocate none of these": {
			func() error {
				_, err := client.AllocateMachine(ctx, Unrecorded("a test"), AllocateParams{NotHostnames: []string{"metal-a", "bad;other:id=1", "", "metal-b"}})
				return err
			},
			request{"POST", "/MAAS/api/2.0/machines/", url.Values{"op": {"allocate"}}, url.Values{
				"interfaces": {"other:not_hostname=metal-a,not_hostname=metal-b"},
			}},
		},
		"deploy": {
			func() error {
				_, err := client.DeployMachine(ctx, Unrecorded("a test"), "abc", DeployParams{AgentName: "x", DistroSeries: "ubuntu/jammy", UserData: []byte("hi"), InMemory: true, Kernel: "ga-22.04", KernelCrashDump: true, HardwareSync: true})
				return err
			},
			request{"POST", "/MAAS/api/2.0/machines/abc/", url.Values{"op": {"deploy"}}, url.Values{
				"agent_name": {"x"}, "distro_series": {"ubuntu/jammy"}, "user_data": {"aGk="}, "ephemeral_deploy": {"true"},
				"hwe_kernel": {"ga-22.04"}, "enable_kernel_crash_dump": {"true"}, "enable_hw_sync": {"true"},
			}},
		},
		"delete": {
			func() error { return client.DeleteMachine(ctx, Unrecorded("a test"), "abc") },
			request{"DELETE", "/MAAS/api/2.0/machines/abc/", url.Values{}, url.Values{}},
		},
		"power on": {
			func() error {
				_, err := client.PowerOnMachine(ctx, Unrecorded("a test"), "abc", "why")
				return err
			},
			request{"POST", "/MAAS/api/2.0/machines/abc/", url.Values{"op": {"power_on"}}, url.Values{"comment": {"why"}}},
		},
		"compose": {
			func() error {
				_, err := client.Compose(ctx, Unrecorded("a test"), 7, ComposeParams{Hostname: "h", Cores: 2, Memory: 4096, Storage: "root:20", ZoneID: 3, SkipCommissioning: true})
				return err
			},
			request{"POST", "/MAAS/api/2.0/vm-hosts/7/", url.Values{"op": {"compose"}}, url.Values{
				"hostname": {"h"}, "cores": {"2"}, "memory": {"4096"}, "storage": {"root:20"}, "zone": {"3"}, "pool": {"0"}, "skip_commissioning": {"true"},
			}},
		},
		"link": {
			func() error {
				_, err := client.LinkSubnet(ctx, Unrecorded("a test"), "abc", 5, LinkParams{Mode: LinkModeStatic, SubnetID: 1, IPAddress: "10.0.0.5", Replace: true})
				return err
			},
			request{"POST", "/MAAS/api/2.0/nodes/abc/interfaces/5/", url.Values{"op": {"link_subnet"}}, url.Values{
				"mode": {"static"}, "subnet": {"1"}, "ip_address": {"10.0.0.5"}, "force": {"true"},
			}},
		},
		"bond": {
			func() error {
				_, err := client.CreateInterface(ctx, Unrecorded("a test"), "abc", InterfaceSpec{
					Type: InterfaceBond, Name: "bond0", Parents: []int{5, 6}, MTU: 9000, Params: InterfaceParams{"bond_mode": "802.3ad"},
				})
				return err
			},
			request{"POST", "/MAAS/api/2.0/nodes/abc/interfaces/", url.Values{"op": {"create_bond"}}, url.Values{
				"name": {"bond0"}, "parents": {"5", "6"}, "mtu": {"9000"}, "bond_mode": {"802.3ad"},
			}},
		},
		"VLAN": {
			func() error {
				_, err := client.CreateInterface(ctx, Unrecorded("a test"), "abc", InterfaceSpec{Type: InterfaceVLAN, Name: "v", Parents: []int{5}, VLANID: 9})
				return err
			},
			request{"POST", "/MAAS/api/2.0/nodes/abc/interfaces/", url.Values{"op": {"create_vlan"}}, url.Values{
				"name": {"v"}, "parent": {"5"}, "vlan": {"9"},
			}},
		},
		"change an interface": {
			func() error {
				none := 0
				_, err := client.UpdateInterface(ctx, Unrecorded("a test"), "abc", 5, InterfaceUpdate{MTU: &none, VLANID: &none, Params: InterfaceParams{"bond_mode": "802.3ad"}})
				return err
			},
			request{"PUT", "/MAAS/api/2.0/nodes/abc/interfaces/5/", url.Values{}, url.Values{"mtu": {""}, "vlan": {""}, "bond_mode": {"802.3ad"}}},
		},
		"delete an interface": {
			func() error { return client.DeleteInterface(ctx, Unrecorded("a test"), "abc", 5) },
			request{"DELETE", "/MAAS/api/2.0/nodes/abc/interfaces/5/", url.Values{}, url.Values{}},
		},
		"make a device": {
			func() error {
				_, err := client.CreateDevice(ctx, Unrecorded("a test"), CreateDeviceParams{
					Hostname: "h", MACAddresses: []string{"00:16:3e:00:00:01", "00:16:3e:00:00:02"}, Zone: "z", Domain: "d", Description: "mark",
				})
				return err
			},
			request{"POST", "/MAAS/api/2.0/devices/", url.Values{}, url.Values{
				"hostname": {"h"}, "mac_addresses": {"00:16:3e:00:00:01", "00:16:3e:00:00:02"}, "zone": {"z"}, "domain": {"d"}, "description": {"mark"},
			}},
		},
		"list devices": {
			func() error {
				_, err := client.ListDevices(ctx, DeviceFilter{SystemIDs: []string{"a"}, Hostnames: []string{"h"}, MACAddresses: []string{"m"}})
				return err
			},
			request{"GET", "/MAAS/api/2.0/devices/", url.Values{"id": {"a"}, "hostname": {"h"}, "mac_address": {"m"}}, url.Values{}},
		},
		"annotate a device": {
			func() error {
				_, err := client.AnnotateDevice(ctx, Unrecorded("a test"), "abc", map[string]string{"a": "b"})
				return err
			},
			request{"POST", "/MAAS/api/2.0/devices/abc/", url.Values{"op": {"set_workload_annotations"}}, url.Values{"a": {"b"}}},
		},
		"delete a device": {
			func() error { return client.DeleteDevice(ctx, Unrecorded("a test"), "abc") },
			request{"DELETE", "/MAAS/api/2.0/devices/abc/", url.Values{}, url.Values{}},
		},
		"give a device any address": {
			func() error {
				_, err := client.LinkSubnet(ctx, Unrecorded("a test"), "abc", 5, LinkParams{Mode: LinkModeStatic, SubnetID: 3})
				return err
			},
			request{"POST", "/MAAS/api/2.0/nodes/abc/interfaces/5/", url.Values{"op": {"link_subnet"}}, url.Values{"mode": {"static"}, "subnet": {"3"}}},
		},
		"partition": {
			func() error {
				_, err := client.SetStorageLayout(ctx, Unrecorded("a test"), "abc", StorageLayout{Name: "flat"})
				return err
			},
			request{"POST", "/MAAS/api/2.0/machines/abc/", url.Values{"op": {"set_storage_layout"}}, url.Values{"storage_layout": {"flat"}}},
		},
		"set a layout": {
			func() error {
				_, err := client.SetStorageLayout(ctx, Unrecorded("a test"), "abc",
					StorageLayout{Name: "lvm", RootDevice: 7, Options: map[string]string{"vg_name": "system"}})
				return err
			},
			request{"POST", "/MAAS/api/2.0/machines/abc/", url.Values{"op": {"set_storage_layout"}},
				url.Values{"storage_layout": {"lvm"}, "root_device": {"7"}, "vg_name": {"system"}}},
		},
		"restore the storage": {
			func() error { _, err := client.RestoreStorage(ctx, Unrecorded("a test"), "abc"); return err },
			request{"POST", "/MAAS/api/2.0/machines/abc/", url.Values{"op": {"restore_storage_configuration"}}, url.Values{}},
		},
		"pick": {
			func() error { _, err := client.PickMachine(ctx, AllocateParams{Zone: "z"}); return err },
			request{"POST", "/MAAS/api/2.0/machines/", url.Values{"op": {"allocate"}}, url.Values{"zone": {"z"}, "dry_run": {"true"}}},
		},
		"create a tag": {
			func() error {
				return client.CreateTag(ctx, Unrecorded("a test"), Tag{Name: "bad", Comment: "it smokes"})
			},
			request{"POST", "/MAAS/api/2.0/tags/", url.Values{}, url.Values{"name": {"bad"}, "comment": {"it smokes"}}},
		},
		"comment a tag": {
			func() error {
				return client.CommentTag(ctx, Unrecorded("a test"), Tag{Name: "bad", Comment: "it smokes"})
			},
			request{"PUT", "/MAAS/api/2.0/tags/bad/", url.Values{}, url.Values{"comment": {"it smokes"}}},
		},
		"delete a tag": {
			func() error { return client.DeleteTag(ctx, Unrecorded("a test"), "bad") },
			request{"DELETE", "/MAAS/api/2.0/tags/bad/", url.Values{}, url.Values{}},
		},
		"list tags": {
			func() error { _, err := client.ListTags(ctx); return err },
			request{"GET", "/MAAS/api/2.0/tags/", url.Values{}, url.Values{}},
		},
		"machines of a tag": {
			func() error { _, err := client.TaggedMachines(ctx, "bad"); return err },
			request{"GET", "/MAAS/api/2.0/tags/bad/", url.Values{"op": {"machines"}}, url.Values{}},
		},
		"tag a machine": {
			func() error { return client.TagMachine(ctx, Unrecorded("a test"), "bad", "abc") },
			request{"POST", "/MAAS/api/2.0/tags/bad/", url.Values{"op": {"update_nodes"}}, url.Values{"add": {"abc"}}},
		},
		"untag machines": {
			func() error { return client.UntagMachines(ctx, Unrecorded("a test"), "bad", []string{"abc", "def"}) },
			request{"POST", "/MAAS/api/2.0/tags/bad/", url.Values{"op": {"update_nodes"}}, url.Values{"remove": {"abc", "def"}}},
		},
		"what has the addresses of a subnet": {
			func() error { _, err := client.SubnetAddresses(ctx, 7); return err },
			request{"GET", "/MAAS/api/2.0/subnets/7/", url.Values{"op": {"ip_addresses"}}, url.Values{}},
		},
		"a plain create has no op": {
			func() error {
				_, err := client.CreateDNSResource(ctx, Unrecorded("a test"), "a.maas", []string{"10.0.0.5", "10.0.0.6"}, 10)
				return err
			},
			request{"POST", "/MAAS/api/2.0/dnsresources/", url.Values{}, url.Values{
				"fqdn": {"a.maas"}, "ip_addresses": {"10.0.0.5 10.0.0.6"}, "address_ttl": {"10"},
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tc.call(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("the request differs (-want +got):\n%s", diff)
			}
		})
	}
}

// MAAS passes over machines that it does not have.
func TestTagMachineThatMAASDoesNotHave(t *testing.T) {
	client := serve(t, answer(200, "application/json", `{"added": 0, "removed": 0}`))
	if err := client.TagMachine(t.Context(), Unrecorded("a test"), "bad", "abc"); !errors.Is(err, NotFound) {
		t.Errorf("the error is %v, want %s", err, NotFound)
	}
}

func TestTLSIsVerified(t *testing.T) {
	server := httptest.NewTLSServer(answer(200, "application/json", "[]"))
	t.Cleanup(server.Close)
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for name, tc := range map[string]struct {
		bundle []byte
		ok     bool
	}{"without the CA": {nil, false}, "with the CA": {bundle, true}} {
		t.Run(name, func(t *testing.T) {
			client, err := NewClient(Config{Endpoint: server.URL, APIKey: testKey, CABundle: tc.bundle})
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.ListZones(t.Context())
			var verification *tls.CertificateVerificationError
			if refused := errors.As(err, &verification); refused == tc.ok {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// A response without a state is none: the machine's power is not known then.
func TestQueryPower(t *testing.T) {
	for body, want := range map[string]string{`{"state": "off"}`: PowerOff, `{"state": ""}`: "", `{}`: "", `null`: ""} {
		client := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path != "/MAAS/api/2.0/machines/abc/" || r.URL.Query().Get("op") != "query_power_state" {
				t.Errorf("the request is %s %s", r.Method, r.URL)
			}
			fmt.Fprint(w, body)
		})
		got, err := client.QueryPower(t.Context(), "abc")
		if got != want || errors.Is(err, Unavailable) != (want == "") {
			t.Errorf("the power of %s is %q, %v; want %q", body, got, err, want)
		}
	}
}

func TestConfigErrorsNameTheFieldAndNotTheKey(t *testing.T) {
	for field, config := range map[string]Config{
		"endpoint": {Endpoint: "maas.example.com", APIKey: testKey},
		"apiKey":   {Endpoint: "http://maas/MAAS", APIKey: "verysecret"},
		"caBundle": {Endpoint: "http://maas/MAAS", APIKey: testKey, CABundle: []byte("no PEM")},
	} {
		t.Run(field, func(t *testing.T) {
			_, err := NewClient(config)
			var wrong *ConfigError
			if !errors.As(err, &wrong) || wrong.Field != field {
				t.Fatalf("the error is %v, want a ConfigError of %s", err, field)
			}
			if strings.Contains(err.Error(), config.APIKey) {
				t.Errorf("the error gives the key away: %v", err)
			}
		})
	}
}

// Both flags are given with each kind: left out, they would mean different things to different versions of MAAS.
func TestReleaseSendsHowDisksAreErased(t *testing.T) {
	for erase, want := range map[Erase]url.Values{
		EraseDefault: {},
		EraseQuick:   {"erase": {"true"}, "secure_erase": {"false"}, "quick_erase": {"true"}},
		EraseSecure:  {"erase": {"true"}, "secure_erase": {"true"}, "quick_erase": {"false"}},
		EraseFull:    {"erase": {"true"}, "secure_erase": {"false"}, "quick_erase": {"false"}},
	} {
		t.Run("erase "+string(erase), func(t *testing.T) {
			client := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if err := r.ParseForm(); err != nil {
					t.Error(err)
				}
				got := r.PostForm
				got.Del("comment")
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("the form differs (-want +got):\n%s", diff)
				}
				answer(200, "application/json", `{"system_id": "abc123", "status": 14}`)(w, r)
			})
			machine, err := client.ReleaseMachine(t.Context(), UnrecordedRelease("a test"), "abc123", ReleaseParams{Erase: erase, Comment: "test"})
			if err != nil || machine.Status != StatusDiskErasing {
				t.Errorf("got %+v, %v", machine, err)
			}
		})
	}
}

// A process that was paused after it recorded a call must not send it any more, nor remove the record as if MAAS had
// refused the call.
func TestACallThatIsTooLateIsNotSent(t *testing.T) {
	var calls atomic.Int32
	client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		_, _ = io.WriteString(w, "[]")
	})
	for range guard.SilentCalls + 1 {
		_, err := client.AbortMachine(t.Context(), permit.Before(time.Now().Add(-time.Second)), "abc", "")
		if !errors.Is(err, Unavailable) || NotSent(err) {
			t.Fatalf("the error is %v, want one of which nothing is known", err)
		}
	}
	if calls.Load() != 0 {
		t.Errorf("%d calls were sent", calls.Load())
	}
	if err := client.DeleteMachine(t.Context(), permit.Before(time.Now().Add(time.Hour)), "abc"); err != nil {
		t.Errorf("in time, and MAAS was never silent: %v", err)
	}
}
