// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// installed is what a machine's installer leaves for cloud-init, as op get_curtin_config tells it.
type installed struct {
	Network struct {
		Version   int
		Ethernets map[string]struct {
			Match   struct{ MACAddress string }
			SetName string `json:"set-name"`
		}
		Bridges map[string]struct {
			Interfaces, Addresses []string
			MACAddress            string
			Parameters            map[string]any
		}
	}
	Cloudconfig map[string]struct{ Path, Content string }
}

func (m *maas) installed(t *testing.T, machine object) (config installed) {
	t.Helper()
	answer := m.get(t, machinePath(machine.str("system_id")), "op", "get_curtin_config").wants(t, http.StatusOK)
	if err := yaml.Unmarshal(answer.body, &config); err != nil {
		t.Fatalf("reading the curtin config: %v", err)
	}
	return config
}

// nodeKey is the key with which the machine itself asks for its metadata.
func (m *maas) nodeKey(t *testing.T, machine object) apiKey {
	t.Helper()
	var source struct {
		Datasource struct {
			MAAS struct {
				ConsumerKey string `json:"consumer_key"`
				TokenKey    string `json:"token_key"`
				TokenSecret string `json:"token_secret"`
				MetadataURL string `json:"metadata_url"`
			}
		}
	}
	file := m.installed(t, machine).Cloudconfig["maas-cloud-config"]
	if err := yaml.Unmarshal([]byte(file.Content), &source); err != nil {
		t.Fatalf("reading %s: %v", file.Path, err)
	}
	key := source.Datasource.MAAS
	if !strings.HasSuffix(key.MetadataURL, "/MAAS/metadata/") || key.ConsumerKey == "" || key.TokenKey == "" || key.TokenSecret == "" {
		t.Fatalf("%s has the keys %v for %q", file.Path, key.ConsumerKey != "", key.MetadataURL)
	}
	return apiKey{key.ConsumerKey, key.TokenKey, key.TokenSecret}
}

// metadata asks as a machine with a key does.
func (m *maas) metadata(t *testing.T, key apiKey, path string) *answer {
	t.Helper()
	return m.do(t, request{method: http.MethodGet, path: path, metadata: true, oauth: key.sign()})
}

// metadataserver/api.py: MetaDataHandler and UserDataHandler; cloud-init's DataSourceMAAS asks for these.
func TestMachineReadsItsMetadataAndItsUserData(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		const userData = "#cloud-config\nruncmd: [true]\n"
		spare := m.deployed(t, "user_data", base64.StdEncoding.EncodeToString([]byte(userData)))
		key := m.nodeKey(t, spare)
		for path, want := range map[string]string{
			"2012-03-01/meta-data/instance-id":    spare.str("system_id"),
			"2012-03-01/meta-data/local-hostname": spare.str("fqdn"),
			"2012-03-01/user-data":                userData,
			"latest/user-data":                    userData,
		} {
			if got := string(m.metadata(t, key, path).wants(t, http.StatusOK).body); got != want {
				t.Errorf("%s is %q, want %q", path, got, want)
			}
		}
		m.metadata(t, key, "2012-03-01/meta-data/public-keys").wants(t, http.StatusOK)
		var vendor map[string]string
		answer := m.metadata(t, key, "2012-03-01/meta-data/vendor-data").wants(t, http.StatusOK)
		if err := yaml.Unmarshal(answer.body, &vendor); err != nil || !strings.HasPrefix(vendor["cloud-init"], "#cloud-config\n") {
			t.Errorf("vendor data %q, %v", answer.body, err)
		}
		attributes := strings.Split(string(m.metadata(t, key, "2012-03-01/meta-data/").wants(t, http.StatusOK).body), "\n")
		for _, name := range []string{"instance-id", "local-hostname", "vendor-data"} {
			if !strings.Contains(strings.Join(attributes, " "), name) {
				t.Errorf("the attributes are %q, want also %s", attributes, name)
			}
		}
		m.metadata(t, key, "2012-03-01/meta-data/nothing").refuses(t, http.StatusNotFound, "Unknown metadata attribute")
		m.metadata(t, key, "2009-04-04/user-data").refuses(t, http.StatusNotFound, "Unknown metadata version")
	})
}

// maasserver/models/node.py: Node._start and _start_deployment; models/nodeuserdata.py: NodeUserDataManager. A machine that
// runs in memory stays Deployed.
func TestPowerOnForgetsTheUserData(t *testing.T) {
	for name, inMemory := range map[string]bool{"from a disk": false, "in memory": true} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, m *maas) {
				const path = "2012-03-01/user-data"
				spare := m.deployed(t, "ephemeral_deploy", strconv.FormatBool(inMemory),
					"user_data", base64.StdEncoding.EncodeToString([]byte("#cloud-config\n{}\n")))
				id, key := spare.str("system_id"), m.nodeKey(t, spare)
				m.metadata(t, key, path).wants(t, http.StatusOK)
				for _, state := range []string{"off", "on"} {
					m.machineOp(t, spare, "power_"+state).object(t)
					m.awaitMachine(t, id, state, func(o object) bool { return o.str("power_state") == state })
				}
				m.metadata(t, key, path).wants(t, http.StatusNotFound)
				after := m.machine(t, id)
				if after.str("status_name") != "Deployed" || after.flag("ephemeral_deploy") != inMemory {
					t.Errorf("it is %s, in memory: %v", after.str("status_name"), after["ephemeral_deploy"])
				}
			})
		})
	}
}

// metadataserver/api.py: get_node_for_request; models/signals/nodes.py: clear_nodekey_when_owner_changes.
func TestOnlyAMachinesOwnKeyOpensItsMetadata(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		const path = "2012-03-01/meta-data/instance-id"
		spare := m.deployed(t)
		key := m.nodeKey(t, spare)
		m.metadata(t, key, path).wants(t, http.StatusOK)
		m.metadata(t, m.key, path).refuses(t, http.StatusForbidden, "Not authenticated as a known node.")
		m.metadata(t, apiKey{key.consumer, key.token, "wrong"}, path).wants(t, http.StatusUnauthorized)
		anonymous := m.do(t, request{method: http.MethodGet, path: path, metadata: true, anonymous: true}).wants(t, http.StatusOK)
		if string(anonymous.body) == spare.str("system_id") {
			t.Error("without a key, a machine's id is shown")
		}
		m.release(t, spare).ok(t)
		m.await(t, "the key of a machine without an owner to be refused", func() (bool, string) {
			got := m.metadata(t, key, path)
			return got.status == http.StatusUnauthorized, string(got.body)
		})
	})
}

// maasserver/preseed_network.py: InterfaceConfiguration.
func TestInstallerConfiguresTheMachinesInterfaces(t *testing.T) {
	each(t, func(t *testing.T, m *maas) {
		spare := m.spare(t)
		nic := spare.objects("interface_set")[0]
		m.op(t, "machines/", "allocate", "system_id", spare.str("system_id")).object(t)
		bridge := m.makeNIC(t, spare, "create_bridge", "name", "br0", "parents", nic.id("id"), "bridge_fd", "4").object(t)
		m.deploy(t, spare).object(t)
		m.awaitStatus(t, spare.str("system_id"), "Deployed")
		got := m.installed(t, spare).Network
		card := got.Ethernets[nic.str("name")]
		if got.Version != 2 || card.Match.MACAddress != nic.str("mac_address") || card.SetName != nic.str("name") {
			t.Errorf("version %d, the card is %+v", got.Version, card)
		}
		made := got.Bridges["br0"]
		if diff := cmp.Diff([]string{nic.str("name")}, made.Interfaces); diff != "" || made.MACAddress != bridge.str("mac_address") {
			t.Errorf("the bridge is %+v", made)
		}
		if made.Parameters["forward-delay"] != float64(4) || made.Parameters["stp"] != false {
			t.Errorf("the bridge's parameters are %v", made.Parameters)
		}
		addresses := m.machine(t, spare.str("system_id")).strings("ip_addresses")
		if len(made.Addresses) != 1 || len(addresses) != 1 || !strings.HasPrefix(made.Addresses[0], addresses[0]+"/") {
			t.Errorf("the bridge has the addresses %v, the machine in MAAS %v", made.Addresses, addresses)
		}
	})
}
