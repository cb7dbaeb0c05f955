// SPDX-License-Identifier: Apache-2.0

package maas

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

var unrecorded = Unrecorded("a test")

// requests are calls of the client, each with what MAAS gets: method, path and query, and form.
var requests = map[string]struct {
	call       func(context.Context, *Client) error
	want, form string
}{
	"list by id": {func(ctx context.Context, c *Client) error {
		return failed(c.ListMachines(ctx, MachineFilter{SystemIDs: []string{"a", "b"}}))
	}, "GET machines/?id=a&id=b", ""},
	"list all": {func(ctx context.Context, c *Client) error {
		return failed(c.AllMachines(ctx))
	}, "GET machines/", ""},
	"list by who acquired them": {func(ctx context.Context, c *Client) error {
		return failed(c.ListMachines(ctx, MachineFilter{SystemIDs: []string{"a"}, AgentNames: []string{"x"}, NotAgentNames: []string{"y", "z"}}))
	}, "GET machines/?agent_name=x&id=a&not_agent_name=y&not_agent_name=z", ""},
	"images": {func(ctx context.Context, c *Client) error {
		return failed(c.ListImages(ctx))
	}, "GET boot-resources/", ""},
	"region controllers": {func(ctx context.Context, c *Client) error {
		return failed(c.CountRegionControllers(ctx))
	}, "GET regioncontrollers/", ""},
	"new image": {func(ctx context.Context, c *Client) error {
		return failed(c.CreateImage(ctx, unrecorded, CreateImageParams{
			Name: "u", Title: "U", Architecture: "amd64/generic", BaseImage: "ubuntu/noble", SHA256: "ab", Size: 5,
		}))
	}, "POST boot-resources/", "architecture=amd64%2Fgeneric&base_image=ubuntu%2Fnoble&filetype=tgz&name=u&sha256=ab&size=5&title=U"},
	"piece of an image": {func(ctx context.Context, c *Client) error {
		return c.UploadImagePiece(ctx, unrecorded, 7, 9, []byte("piece"))
	}, "PUT boot-resources/7/upload/9/", "piece="},
	"delete an image": {func(ctx context.Context, c *Client) error {
		return c.DeleteImage(ctx, unrecorded, 7)
	}, "DELETE boot-resources/7/", ""},
	"allocate": {func(ctx context.Context, c *Client) error {
		return failed(c.AllocateMachine(ctx, unrecorded, AllocateParams{
			AgentName: "x", Zone: "z", Tags: []string{"one", "two"}, MinCPU: 4, MinMemory: 8192, MinDiskSize: 100, NotOnVMHosts: []string{"h1", "h2"},
			NotTags: []string{"three"}, Architecture: "arm64",
		}))
	}, "POST machines/?op=allocate", "agent_name=x&arch=arm64&cpu_count=4&mem=8192&not_pod=h1&not_pod=h2&not_tags=three&storage=root%3A100&tags=one&tags=two&zone=z"},
	"allocate none of these": {func(ctx context.Context, c *Client) error {
		return failed(c.AllocateMachine(ctx, unrecorded, AllocateParams{NotHostnames: []string{"metal-a", "bad;other:id=1", "", "metal-b"}}))
	}, "POST machines/?op=allocate", "interfaces=other%3Anot_hostname%3Dmetal-a%2Cnot_hostname%3Dmetal-b"},
	"deploy": {func(ctx context.Context, c *Client) error {
		return failed(c.DeployMachine(ctx, unrecorded, "abc", DeployParams{AgentName: "x", DistroSeries: "ubuntu/jammy", UserData: []byte("hi"), InMemory: true, Kernel: "ga-22.04"}))
	}, "POST machines/abc/?op=deploy", "agent_name=x&distro_series=ubuntu%2Fjammy&ephemeral_deploy=true&hwe_kernel=ga-22.04&user_data=aGk%3D"},
	"delete": {func(ctx context.Context, c *Client) error {
		return c.DeleteMachine(ctx, unrecorded, "abc")
	}, "DELETE machines/abc/", ""},
	"power on": {func(ctx context.Context, c *Client) error {
		return failed(c.PowerOnMachine(ctx, unrecorded, "abc", "why"))
	}, "POST machines/abc/?op=power_on", "comment=why"},
	"compose": {func(ctx context.Context, c *Client) error {
		return failed(c.Compose(ctx, unrecorded, 7, ComposeParams{Hostname: "h", Cores: 2, Memory: 4096, Storage: "root:20", ZoneID: 3, SkipCommissioning: true}))
	}, "POST vm-hosts/7/?op=compose", "cores=2&hostname=h&memory=4096&pool=0&skip_commissioning=true&storage=root%3A20&zone=3"},
	"link": {func(ctx context.Context, c *Client) error {
		return failed(c.LinkSubnet(ctx, unrecorded, "abc", 5, LinkParams{Mode: LinkModeStatic, SubnetID: 1, IPAddress: "10.0.0.5", Replace: true}))
	}, "POST nodes/abc/interfaces/5/?op=link_subnet", "force=true&ip_address=10.0.0.5&mode=static&subnet=1"},
	"bond": {func(ctx context.Context, c *Client) error {
		return failed(c.CreateInterface(ctx, unrecorded, "abc", InterfaceSpec{
			Type: InterfaceBond, Name: "bond0", Parents: []int{5, 6}, MTU: 9000, Params: InterfaceParams{"bond_mode": "802.3ad"},
		}))
	}, "POST nodes/abc/interfaces/?op=create_bond", "bond_mode=802.3ad&mtu=9000&name=bond0&parents=5&parents=6"},
	"VLAN": {func(ctx context.Context, c *Client) error {
		return failed(c.CreateInterface(ctx, unrecorded, "abc", InterfaceSpec{Type: InterfaceVLAN, Name: "v", Parents: []int{5}, VLANID: 9}))
	}, "POST nodes/abc/interfaces/?op=create_vlan", "name=v&parent=5&vlan=9"},
	"change an interface": {func(ctx context.Context, c *Client) error {
		none := 0
		return failed(c.UpdateInterface(ctx, unrecorded, "abc", 5, InterfaceUpdate{MTU: &none, VLANID: &none, Params: InterfaceParams{"bond_mode": "802.3ad"}}))
	}, "PUT nodes/abc/interfaces/5/", "bond_mode=802.3ad&mtu=&vlan="},
	"delete an interface": {func(ctx context.Context, c *Client) error {
		return c.DeleteInterface(ctx, unrecorded, "abc", 5)
	}, "DELETE nodes/abc/interfaces/5/", ""},
	"make a device": {func(ctx context.Context, c *Client) error {
		return failed(c.CreateDevice(ctx, unrecorded, CreateDeviceParams{
			Hostname: "h", MACAddresses: []string{"00:16:3e:00:00:01", "00:16:3e:00:00:02"}, Zone: "z", Domain: "d", Description: "mark",
		}))
	}, "POST devices/", "description=mark&domain=d&hostname=h&mac_addresses=00%3A16%3A3e%3A00%3A00%3A01&mac_addresses=00%3A16%3A3e%3A00%3A00%3A02&zone=z"},
	"list devices": {func(ctx context.Context, c *Client) error {
		return failed(c.ListDevices(ctx, DeviceFilter{SystemIDs: []string{"a"}, Hostnames: []string{"h"}, MACAddresses: []string{"m"}}))
	}, "GET devices/?hostname=h&id=a&mac_address=m", ""},
	"annotate a device": {func(ctx context.Context, c *Client) error {
		return failed(c.AnnotateDevice(ctx, unrecorded, "abc", map[string]string{"a": "b"}))
	}, "POST devices/abc/?op=set_workload_annotations", "a=b"},
	"delete a device": {func(ctx context.Context, c *Client) error {
		return c.DeleteDevice(ctx, unrecorded, "abc")
	}, "DELETE devices/abc/", ""},
	"give a device any address": {func(ctx context.Context, c *Client) error {
		return failed(c.LinkSubnet(ctx, unrecorded, "abc", 5, LinkParams{Mode: LinkModeStatic, SubnetID: 3}))
	}, "POST nodes/abc/interfaces/5/?op=link_subnet", "mode=static&subnet=3"},
	"partition": {func(ctx context.Context, c *Client) error {
		return failed(c.SetStorageLayout(ctx, unrecorded, "abc", StorageLayout{Name: "flat"}))
	}, "POST machines/abc/?op=set_storage_layout", "storage_layout=flat"},
	"set a layout": {func(ctx context.Context, c *Client) error {
		return failed(c.SetStorageLayout(ctx, unrecorded, "abc",
			StorageLayout{Name: "lvm", RootDevice: 7, Options: map[string]string{"vg_name": "system"}}))
	}, "POST machines/abc/?op=set_storage_layout", "root_device=7&storage_layout=lvm&vg_name=system"},
	"restore the storage": {func(ctx context.Context, c *Client) error {
		return failed(c.RestoreStorage(ctx, unrecorded, "abc"))
	}, "POST machines/abc/?op=restore_storage_configuration", ""},
	"test": {func(ctx context.Context, c *Client) error {
		return failed(c.StartTests(ctx, unrecorded, "abc", TestParams{
			Scripts: []string{"memtester", "storage"}, Parameters: map[string]string{"fio_storage": "sda", "testing_scripts": "x", "enable_ssh": "1"},
		}))
	}, "POST machines/abc/?op=test", "fio_storage=sda&testing_scripts=memtester%2Cstorage"},
	"test as after commissioning": {func(ctx context.Context, c *Client) error {
		return failed(c.StartTests(ctx, unrecorded, "abc", TestParams{}))
	}, "POST machines/abc/?op=test", ""},
	"mark broken": {func(ctx context.Context, c *Client) error {
		return failed(c.MarkMachineBroken(ctx, Unrecorded("a test"), "abc", "why"))
	}, "POST machines/abc/?op=mark_broken", "comment=why"},
	"test results": {func(ctx context.Context, c *Client) error {
		return failed(c.TestResults(ctx, "abc"))
	}, "GET nodes/abc/results/?type=testing", ""},
	"testing scripts": {func(ctx context.Context, c *Client) error {
		return failed(c.TestScripts(ctx))
	}, "GET scripts/?type=testing", ""},
	"pick": {func(ctx context.Context, c *Client) error {
		return failed(c.PickMachine(ctx, AllocateParams{Zone: "z"}))
	}, "POST machines/?op=allocate", "dry_run=true&zone=z"},
	"create a tag": {func(ctx context.Context, c *Client) error {
		return c.CreateTag(ctx, unrecorded, Tag{Name: "bad", Comment: "it smokes"})
	}, "POST tags/", "comment=it+smokes&name=bad"},
	"comment a tag": {func(ctx context.Context, c *Client) error {
		return c.CommentTag(ctx, unrecorded, Tag{Name: "bad", Comment: "it smokes"})
	}, "PUT tags/bad/", "comment=it+smokes"},
	"delete a tag": {func(ctx context.Context, c *Client) error {
		return c.DeleteTag(ctx, unrecorded, "bad")
	}, "DELETE tags/bad/", ""},
	"list tags": {func(ctx context.Context, c *Client) error {
		return failed(c.ListTags(ctx))
	}, "GET tags/", ""},
	"machines of a tag": {func(ctx context.Context, c *Client) error {
		return failed(c.TaggedMachines(ctx, "bad"))
	}, "GET tags/bad/?op=machines", ""},
	"tag a machine": {func(ctx context.Context, c *Client) error {
		return c.TagMachine(ctx, unrecorded, "bad", "abc")
	}, "POST tags/bad/?op=update_nodes", "add=abc"},
	"untag machines": {func(ctx context.Context, c *Client) error {
		return c.UntagMachines(ctx, unrecorded, "bad", []string{"abc", "def"})
	}, "POST tags/bad/?op=update_nodes", "remove=abc&remove=def"},
	"what has the addresses of a subnet": {func(ctx context.Context, c *Client) error {
		return failed(c.SubnetAddresses(ctx, 7))
	}, "GET subnets/7/?op=ip_addresses", ""},
	"a plain create has no op": {func(ctx context.Context, c *Client) error {
		return failed(c.CreateDNSResource(ctx, unrecorded, "a.maas", []string{"10.0.0.5", "10.0.0.6"}, 10))
	}, "POST dnsresources/", "address_ttl=10&fqdn=a.maas&ip_addresses=10.0.0.5+10.0.0.6"},
}

func TestRequests(t *testing.T) {
	var got, form string
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.Header.Get("Authorization"), "OAuth ") {
			t.Errorf("the request is not signed: %q", r.Header.Get("Authorization"))
		}
		body, _ := io.ReadAll(r.Body)
		values, _ := url.ParseQuery(string(body))
		got, form = r.Method+" "+strings.TrimPrefix(r.URL.Path, "/MAAS/api/2.0/"), values.Encode()
		if query := r.URL.Query().Encode(); query != "" {
			got += "?" + query
		}
		if r.Method == http.MethodGet {
			fmt.Fprint(w, "[]")
		} else {
			fmt.Fprint(w, `{"system_id": "abc", "id": 1, "fqdn": "a.maas", "name": "a", "added": 1, "removed": 0, "architecture": "amd64/generic", "sets": {}}`)
		}
	})
	for name, tc := range requests {
		t.Run(name, func(t *testing.T) {
			if err := tc.call(t.Context(), client); err != nil {
				t.Fatal(err)
			}
			if got != tc.want || form != tc.form {
				t.Errorf("MAAS got %s, %q; want %s, %q", got, form, tc.want, tc.form)
			}
		})
	}
}

// Each field of a call's parameters is in what MAAS gets: one that is forgotten would do nothing.
func TestEveryParameterIsSent(t *testing.T) {
	var form string
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		form = r.PostForm.Encode()
		fmt.Fprint(w, `{"system_id": "abc", "name": "a", "architecture": "amd64/generic", "sets": {}}`)
	})
	everyFieldIsSent(t, &form, func(p AllocateParams) error { return failed(client.AllocateMachine(t.Context(), unrecorded, p)) })
	everyFieldIsSent(t, &form, func(p ComposeParams) error { return failed(client.Compose(t.Context(), unrecorded, 1, p)) })
	everyFieldIsSent(t, &form, func(p DeployParams) error { return failed(client.DeployMachine(t.Context(), unrecorded, "abc", p)) })
	everyFieldIsSent(t, &form, func(p CreateDeviceParams) error { return failed(client.CreateDevice(t.Context(), unrecorded, p)) })
}

func everyFieldIsSent[P any](t *testing.T, form *string, send func(P) error) {
	t.Helper()
	sent := func(p P) string {
		*form = "nothing"
		if err := send(p); err != nil {
			t.Fatalf("%+v: %v", p, err)
		}
		return *form
	}
	var empty P
	without := sent(empty)
	for _, field := range reflect.VisibleFields(reflect.TypeFor[P]()) {
		var p P
		for _, value := range []any{"a", 7, true, []string{"a"}, []byte("a")} {
			if reflect.TypeOf(value) == field.Type {
				reflect.ValueOf(&p).Elem().FieldByIndex(field.Index).Set(reflect.ValueOf(value))
			}
		}
		if sent(p) == without {
			t.Errorf("MAAS does not get %s of %T", field.Name, p)
		}
	}
}

func failed[T any](_ T, err error) error { return err }
