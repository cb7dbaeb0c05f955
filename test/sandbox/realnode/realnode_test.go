// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

var machine = simulator.MachineSnapshot{
	SystemID: "abc123", Hostname: "m1", FQDN: "m1.maas.sim", Zone: "zone-a", UserData: []byte("#cloud-config\n"), Status: "Deployed",
	Image: "custom/u-2204-k8s-1.36",
	Interfaces: []simulator.InterfaceSnapshot{
		{Name: "eth0", Kind: simulator.NetworkPhysical, MAC: "52:54:00:00:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("10.77.0.5/24")}, Gateway: "10.77.0.1"},
		{Name: "eth1", Kind: simulator.NetworkPhysical, MAC: "52:54:00:00:00:02"},
	},
}

var maasAddress = netip.MustParseAddr("10.77.0.2")

// Each network card is on the bridge, with its MAC address; netplan makes the rest of them.
func TestCards(t *testing.T) {
	m := machine
	m.Interfaces = append(slices.Clone(m.Interfaces), simulator.InterfaceSnapshot{Name: "br0", Kind: simulator.NetworkBridge, Ports: []string{"eth0"}})
	card := func(name, mac string) map[string]string {
		return map[string]string{"type": "nic", "nictype": "bridged", "parent": "outside", "name": name, "hwaddr": mac}
	}
	want := map[string]map[string]string{"eth0": card("eth0", "52:54:00:00:00:01"), "eth1": card("eth1", "52:54:00:00:00:02")}
	if diff := cmp.Diff(want, cards(m, "outside")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMachinesThatHaveASystem(t *testing.T) {
	for status, want := range map[string]bool{"Deployed": true, "Broken": true, "Rescue mode": true, "Deploying": false, "Releasing": false, "Ready": false} {
		m := machine
		m.Status = status
		if hasSystem(m) != want {
			t.Errorf("%s: %v", status, !want)
		}
	}
	m := machine
	m.UserData = nil
	if hasSystem(m) {
		t.Error("without user data")
	}
}

func TestTheImageTellsTheVersion(t *testing.T) {
	d := &disk{releases: [2]release{{version: "v1.36.3"}, {version: "v1.35.4"}}}
	for image, want := range map[string]string{
		"custom/u-2204-k8s-1.36": "v1.36.3", "custom/u-2204-k8s-1.35": "v1.35.4", "u-2204-k8s-v1.36.3": "v1.36.3", "u-2204-k8s-v1.35.4": "v1.35.4",
	} {
		if got, err := d.installed(image); got != want || err != nil {
			t.Errorf("%q: %q, %v", image, got, err)
		}
	}
	for _, image := range []string{"custom/u-2204-k8s-1.34", "custom/u-2204-k8s-1.3", "u-2204-k8s-v1.36.2", "ubuntu/noble", ""} {
		if got, err := d.installed(image); !errors.Is(err, errVersion) {
			t.Errorf("%q: %q, %v", image, got, err)
		}
	}
}

// The DNS server responds to each kind of question with the addresses of that kind, and knows what does not exist.
func TestDNS(t *testing.T) {
	four, six := netip.MustParseAddr("10.77.0.9"), netip.MustParseAddr("fd00:77::9")
	lookup := func(host string) []netip.Addr {
		return map[string][]netip.Addr{"both.maas.sim": {four, six}, "four.maas.sim": {four}}[host]
	}
	for name, tt := range map[string]struct {
		host string
		kind dnsmessage.Type
		code dnsmessage.RCode
		want []netip.Addr
	}{
		"IPv4":                  {"both.maas.sim.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, []netip.Addr{four}},
		"IPv6":                  {"both.maas.sim.", dnsmessage.TypeAAAA, dnsmessage.RCodeSuccess, []netip.Addr{six}},
		"in capitals":           {"FOUR.maas.sim.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, []netip.Addr{four}},
		"no address of a kind":  {"four.maas.sim.", dnsmessage.TypeAAAA, dnsmessage.RCodeSuccess, nil},
		"a name that is no one": {"none.maas.sim.", dnsmessage.TypeA, dnsmessage.RCodeNameError, nil},
	} {
		t.Run(name, func(t *testing.T) {
			query := dnsmessage.Message{Header: dnsmessage.Header{ID: 7}, Questions: []dnsmessage.Question{
				{Name: dnsmessage.MustNewName(tt.host), Type: tt.kind, Class: dnsmessage.ClassINET},
			}}
			packed, err := query.Pack()
			if err != nil {
				t.Fatal(err)
			}
			raw, err := answer(packed, lookup)
			if err != nil {
				t.Fatal(err)
			}
			var reply dnsmessage.Message
			if err := reply.Unpack(raw); err != nil || reply.ID != 7 || !reply.Response || reply.RCode != tt.code {
				t.Fatalf("%+v, %v", reply, err)
			}
			var got []netip.Addr
			for _, a := range reply.Answers {
				switch body := a.Body.(type) {
				case *dnsmessage.AResource:
					got = append(got, netip.AddrFrom4(body.A))
				case *dnsmessage.AAAAResource:
					got = append(got, netip.AddrFrom16(body.AAAA))
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
	if _, err := answer([]byte("nonsense"), lookup); err == nil {
		t.Error("nonsense is answered")
	}
}

// An image is what container engines read: its layers are found by their digests, in their order.
func TestContainerImage(t *testing.T) {
	dir := t.TempDir()
	program, first, second := filepath.Join(dir, "program"), filepath.Join(dir, "1.tar"), filepath.Join(dir, "2.tar")
	if err := os.WriteFile(program, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(writeLayer(first, map[string]string{"a": program}), writeLayer(second, map[string]string{"usr/bin/b": program})); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := (containerImage{"example.com/i:v1", []string{"b"}, []string{first, second}}).write(&archive); err != nil {
		t.Fatal(err)
	}
	content := untar(t, archive.Bytes())
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(content["manifest.json"], &manifest); err != nil || len(manifest) != 1 {
		t.Fatalf("%v, %v", manifest, err)
	}
	var config struct {
		Config struct{ Entrypoint []string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if err := json.Unmarshal(content[manifest[0].Config], &config); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(manifest[0].RepoTags, []string{"example.com/i:v1"}) || !slices.Equal(config.Config.Entrypoint, []string{"b"}) {
		t.Errorf("%+v, %+v", manifest[0], config)
	}
	for i, want := range [][]string{{"a"}, {"usr/", "usr/bin/", "usr/bin/b"}} {
		layer := content[manifest[0].Layers[i]]
		if got := slices.Sorted(maps.Keys(untar(t, layer))); !slices.Equal(got, want) {
			t.Errorf("layer %d has %v, want %v", i, got, want)
		}
		if config.RootFS.DiffIDs[i] != "sha256:"+filepath.Dir(manifest[0].Layers[i]) {
			t.Errorf("layer %d is %s in the configuration, and %s in the manifest", i, config.RootFS.DiffIDs[i], manifest[0].Layers[i])
		}
	}
}

func untar(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	content := map[string][]byte{}
	for in := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return content
		}
		if err != nil {
			t.Fatal(err)
		}
		if content[header.Name], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
	}
}

// Nodes have no registry: what the flavors name has to be among the images.
func TestTheFlavorsNameTheKubeVIPOfNodes(t *testing.T) {
	flavor, err := os.ReadFile(filepath.Join("..", "..", "..", "templates", "cluster-template-lxd-kube-vip.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(flavor, []byte(kubeVIP+"}")) {
		t.Errorf("the flavor lxd-kube-vip does not name %s", kubeVIP)
	}
}

// What LXC left of machines that are gone is removed, and nothing of those that run or of others.
func TestControlGroupsOfMachinesThatAreGone(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{
		"cpu/lxc.payload.node-a/system.slice/x", "cpu/lxc.monitor.node-a", "cpu/lxc.payload.prepared", "cpu/lxc.payload.node-a-1", "cpu/lxc.pivot",
		"memory/own/lxc.payload.node-a", "cpu/lxc.payload.node-b/system.slice", "cpu/lxc.payload.other", "cpu/user.slice",
	} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "cpu/lxc.payload.node-b/system.slice/cgroup.procs"), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := removeCgroups(root); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, pattern := range []string{"cpu/*", "memory/own/*"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			left = append(left, filepath.Base(path))
		}
	}
	if want := []string{"lxc.payload.node-b", "lxc.payload.other", "user.slice"}; !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
}
