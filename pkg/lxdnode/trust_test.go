// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/canonical/lxd/shared/api"
	"github.com/google/go-cmp/cmp"

	lxdbed "github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
)

// restrictionOf is how far LXD trusts a certificate.
func (n *node) restrictionOf(t *testing.T, keys Keys) (restricted bool, projects []string) {
	t.Helper()
	number, err := Fingerprint(keys.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	certificate, _, err := n.client.GetCertificate(number)
	if err != nil {
		t.Fatal(err)
	}
	return certificate.Restricted, certificate.Projects
}

func TestTrustIsForOneProject(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	config := named("x")
	config.Project = "maas"
	mustPrepare(t, n.Node, config, Changed)
	keys := newKeys(t, "node")
	for _, c := range []struct {
		project string
		changed bool
	}{{"maas", true}, {"maas", false}, {"default", true}, {"maas", true}} {
		changed, err := n.Trust(t.Context(), "node", c.project, keys.Certificate)
		if err != nil || changed != c.changed {
			t.Errorf("Trust for %s = %t, %v", c.project, changed, err)
		}
		if restricted, projects := n.restrictionOf(t, keys); !restricted || !slices.Equal(projects, []string{c.project}) {
			t.Errorf("restricted %t, to %v, want to %s", restricted, projects, c.project)
		}
	}

	_, answer := overHTTPS(t, n.daemon, keys, http.MethodGet, "/1.0/projects", "")
	var list api.Response
	if err := json.Unmarshal([]byte(answer), &list); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`["/1.0/projects/maas"]`, string(list.Metadata)); diff != "" {
		t.Errorf("projects that the key sees (-want +got):\n%s", diff)
	}
	err := n.client.CreateStoragePoolVolume(config.StoragePool, api.StorageVolumesPost{Name: "theirs", Type: "custom"})
	if err != nil {
		t.Fatal(err)
	}
	const container = `{"name":"c","type":"container","source":{"type":"none"}}`
	theirs := "/1.0/storage-pools/" + config.StoragePool + "/volumes/custom/theirs"
	for _, c := range []struct {
		method, path, body string
		allowed            bool
	}{
		{http.MethodGet, "/1.0/resources", "", true},
		{http.MethodGet, "/1.0/networks/br0/state?project=maas", "", true},
		{http.MethodPost, "/1.0/instances?project=maas", container, true},
		{http.MethodPost, "/1.0/instances?project=default", container, false},
		{http.MethodPost, "/1.0/storage-pools", `{"name":"root","driver":"dir","config":{"source":"/root"}}`, false},
		{http.MethodDelete, theirs + "?project=default", "", false},
		{http.MethodDelete, theirs + "?project=maas", "", false},
		{http.MethodPost, "/1.0/projects", `{"name":"mine"}`, false},
		{http.MethodPatch, "/1.0/projects/maas", `{"config":{"features.storage.volumes":"false"}}`, false},
		{http.MethodPost, "/1.0/certificates", `{"type":"client","name":"mine","token":true}`, false},
		{http.MethodPatch, "/1.0", `{"config":{"user.x":"y"}}`, false},
	} {
		status, answer := overHTTPS(t, n.daemon, keys, c.method, c.path, c.body)
		refused := status == http.StatusForbidden || status == http.StatusNotFound
		if allowed := status < http.StatusBadRequest; allowed != c.allowed || !allowed && !refused {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, answer)
		}
	}
}

// A project can be restricted, too. What MAAS sends with each VM, limits.memory.hugepages, is allowed only together
// with raw.qemu, and networks that LXD manages are the default project's, with raw.dnsmasq: both write where root alone
// may. When this test fails because LXD refuses these, new projects should be restricted.
func TestARestrictedProjectDoesNotHoldTheKey(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	config := named("x")
	config.Project = "maas"
	mustPrepare(t, n.Node, config, Changed)
	keys := newKeys(t, "node")
	if _, err := n.Trust(t.Context(), "node", config.Project, keys.Certificate); err != nil {
		t.Fatal(err)
	}
	k := &keyHolder{t, n.daemon, keys}

	n.setProject(t, "restricted", "true")
	n.setProject(t, "restricted.devices.nic", "allow")
	server, _, err := n.client.GetServer()
	if err != nil {
		t.Fatal(err)
	}
	k.makes(vmOf("v0"), slices.Contains([]string{"6.6", "6.7"}, server.Environment.ServerVersion)) // They forgot to check it.
	n.setProject(t, "restricted.virtual-machines.lowlevel", "allow")
	pinned := vmOf("v1")
	pinned.Config["limits.cpu"], pinned.Config["limits.memory.hugepages"] = "0-0", "true"
	k.makes(pinned, true)

	container := func(config, device map[string]string) api.InstancesPost {
		post := api.InstancesPost{Name: "c", Type: api.InstanceTypeContainer, Source: api.InstanceSource{Type: api.SourceTypeNone}}
		post.Profiles, post.Config = []string{}, config
		post.Devices = map[string]map[string]string{"root": rootDisk()}
		if device != nil {
			post.Devices["device"] = device
		}
		return post
	}
	for _, post := range []api.InstancesPost{
		container(map[string]string{"security.privileged": "true"}, nil),
		container(map[string]string{"security.nesting": "true"}, nil),
		container(map[string]string{"raw.lxc": "lxc.apparmor.profile=unconfined"}, nil),
		container(nil, map[string]string{"type": "disk", "source": "/", "path": "/mnt"}),
		container(nil, map[string]string{"type": "unix-char", "path": "/dev/mem"}),
		container(nil, map[string]string{"type": "unix-block", "source": "/dev/vda", "path": "/dev/vda"}),
	} {
		k.makes(post, false)
	}
	k.makes(container(nil, nil), true)
	pci := vmOf("v3")
	pci.Devices["pci"] = map[string]string{"type": "pci", "address": "0000:00:01.0"}
	k.makes(pci, false)
	k.wants(http.MethodPatch, "/1.0/projects/maas", map[string]any{"config": map[string]string{"restricted": "false"}}, false)

	k.writesAsRoot()
}

func (n *node) setProject(t *testing.T, key, value string) {
	t.Helper()
	project, etag, err := n.client.GetProject("maas")
	if err != nil {
		t.Fatal(err)
	}
	put := project.Writable()
	put.Config[key] = value
	if err := n.client.UpdateProject("maas", put, etag); err != nil {
		t.Fatal(err)
	}
}

func rootDisk() map[string]string {
	return map[string]string{"type": "disk", "path": "/", "pool": "pool-x", "size": "10000000"}
}

// vmOf is a VM as MAAS asks for it, but for security.secureboot, which LXD 6.7 and newer refuse.
func vmOf(name string) api.InstancesPost {
	post := api.InstancesPost{Name: name, Type: api.InstanceTypeVM, Source: api.InstanceSource{Type: api.SourceTypeNone}}
	post.Profiles = []string{profileName}
	post.Config = map[string]string{
		"limits.cpu": "1", "limits.memory": "134217728", "limits.memory.hugepages": "false",
	}
	post.Devices = map[string]map[string]string{
		"root": rootDisk(), "eth0": {"type": "nic", "name": "eth0", "nictype": "bridged", "parent": "br0", "boot.priority": "1"},
	}
	return post
}

// keyHolder is a client with a key.
type keyHolder struct {
	t    *testing.T
	d    *lxdbed.Daemon
	keys Keys
}

func (k *keyHolder) makes(post api.InstancesPost, allowed bool) {
	k.t.Helper()
	k.wants(http.MethodPost, "/1.0/instances?project=maas", post, allowed)
}

// wants asks LXD for something, waits for its end, and compares whether it was done.
func (k *keyHolder) wants(method, path string, body any, allowed bool) {
	k.t.Helper()
	sent, err := json.Marshal(body)
	if err != nil {
		k.t.Fatal(err)
	}
	status, answer := overHTTPS(k.t, k.d, k.keys, method, path, string(sent))
	done := status < http.StatusBadRequest
	if status == http.StatusAccepted {
		var started api.Response
		if err := json.Unmarshal([]byte(answer), &started); err != nil {
			k.t.Fatal(err)
		}
		_, answer = overHTTPS(k.t, k.d, k.keys, http.MethodGet, started.Operation+"/wait?timeout=60", "")
		var ended struct{ Metadata api.Operation }
		if err := json.Unmarshal([]byte(answer), &ended); err != nil {
			k.t.Fatal(err)
		}
		done = ended.Metadata.StatusCode == api.Success
	}
	if done != allowed {
		k.t.Errorf("%s %s %s: %d %s", method, path, sent, status, answer)
	}
}

// writesAsRoot makes QEMU and dnsmasq write into a directory of root's.
func (k *keyHolder) writesAsRoot() {
	k.t.Helper()
	root := filepath.Join(k.t.TempDir(), "root")
	if err := os.Mkdir(root, 0o700); err != nil {
		k.t.Fatal(err)
	}
	raw := vmOf("v2")
	raw.Config["raw.qemu"] = "-chardev file,id=x,path=" + filepath.Join(root, "qemu")
	k.makes(raw, true)
	k.wants(http.MethodPut, "/1.0/instances/v2/state?project=maas", api.InstanceStatePut{Action: "start"}, true)
	k.wants(http.MethodPost, "/1.0/networks?project=maas", api.NetworksPost{Name: "mine", Type: "bridge", NetworkPut: api.NetworkPut{
		Config: map[string]string{
			"ipv4.address": "10.99.0.1/24", "ipv4.nat": "false", "ipv4.firewall": "false", "ipv6.address": "none",
			"raw.dnsmasq": "log-facility=" + filepath.Join(root, "dnsmasq"),
		},
	}}, true)
	for _, name := range []string{"qemu", "dnsmasq"} {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			k.t.Errorf("the key could not write as root: %v", err)
		}
	}
}

// MAAS has the key in the power parameters of its VMs: it keeps what it needs to switch and delete them.
func TestTrustStaysForAProjectThatHasVMs(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	config := named("x")
	config.Project = "maas"
	mustPrepare(t, n.Node, config, Changed)
	keys, replacement := newKeys(t, "node"), newKeys(t, "node")
	if _, err := n.Trust(t.Context(), "node", "maas", keys.Certificate); err != nil {
		t.Fatal(err)
	}
	k := &keyHolder{t, n.daemon, keys}
	k.makes(vmOf("v"), true)
	for name, each := range map[string]Keys{"the key": keys, "the one that replaces it": replacement} {
		changed, err := n.Trust(t.Context(), "node", "default", each.Certificate)
		if changed || !stepError(t, err, StepTrust).Permanent {
			t.Errorf("%s: Trust for another project = %t, %v", name, changed, err)
		}
		if trusted, err := n.Trusts(t.Context(), replacement.Certificate); trusted || err != nil {
			t.Errorf("%s: the replacement is trusted: %t, %v", name, trusted, err)
		}
	}
	if restricted, projects := n.restrictionOf(t, keys); !restricted || !slices.Equal(projects, []string{"maas"}) {
		t.Errorf("the key is restricted %t, to %v", restricted, projects)
	}
	k.wants(http.MethodDelete, "/1.0/instances/v?project=maas", nil, true)
	if changed, err := n.Trust(t.Context(), "node", "default", keys.Certificate); err != nil || !changed {
		t.Errorf("Trust = %t, %v", changed, err)
	}
}

func TestCertificateThatWasTrustedForAllIsRestricted(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	ours, theirs := newKeys(t, "node"), newKeys(t, "theirs")
	for name, keys := range map[string]Keys{"node": ours, "theirs": theirs} {
		err := n.client.CreateCertificate(api.CertificatesPost{
			Name: name, Type: api.CertificateTypeClient, Certificate: base64.StdEncoding.EncodeToString(decode(t, keys)),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if changed, err := n.Trust(t.Context(), "node", "default", ours.Certificate); err != nil || !changed {
		t.Errorf("Trust = %t, %v", changed, err)
	}
	if restricted, projects := n.restrictionOf(t, ours); !restricted || !slices.Equal(projects, []string{"default"}) {
		t.Errorf("restricted %t, to %v", restricted, projects)
	}
	// What LXD knows by another name is not for us to change.
	if changed, err := n.Trust(t.Context(), "node", "default", theirs.Certificate); err != nil || changed {
		t.Errorf("Trust of another user's = %t, %v", changed, err)
	}
	if restricted, _ := n.restrictionOf(t, theirs); restricted {
		t.Error("another user's certificate is restricted")
	}
}
