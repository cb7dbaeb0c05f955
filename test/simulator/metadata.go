// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/http"
	"slices"
	"strings"
)

// metadataRoot is the path of the API that cloud-init on machines asks (metadataserver/urls.py).
const metadataRoot = "/MAAS/metadata/"

// metadataVersions are those of check_version in metadataserver/api.py.
var metadataVersions = []string{"2012-03-01", "latest"}

// enlisting are the responses to whoever has no key: MAAS takes it for a machine that it does not know yet
// (EnlistMetaDataHandler). The user data that would enlist it is left out.
var enlisting = map[string]string{"instance-id": "i-maas-enlistment", "local-hostname": "maas-enlisting-node", "public-keys": ""}

// vendorData is that of a MAAS without NTP servers and without a proxy (metadataserver/vendor_data.py).
const vendorData = "cloud-init: |\n  #cloud-config\n  {}\n"

func (s *Simulator) serveMetadata(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	out, err := s.metadata(r)
	s.mu.Unlock()
	if err != nil {
		out = makeReply(nil, err)
	}
	out.send(w, false)
}

// metadata responds to a machine about itself: its key says which one it is (get_node_for_request).
func (s *Simulator) metadata(r *http.Request) (*reply, error) {
	// Both have the same machine's data; below curtin, it is the installer that asks.
	path, installer := strings.CutPrefix(strings.TrimPrefix(r.URL.Path, metadataRoot), "curtin/")
	version, item, _ := strings.Cut(path, "/")
	if r.Method != http.MethodGet {
		return nil, textError(http.StatusMethodNotAllowed, "")
	}
	if version == "" {
		return listReply(metadataVersions), nil
	}
	if !slices.Contains(metadataVersions, version) {
		return nil, notFoundText("Unknown metadata version: %s", version)
	}
	m, err := s.machineOfKey(r)
	if err != nil {
		return nil, err
	}
	attribute, isAttribute := strings.CutPrefix(item, "meta-data/")
	switch {
	case isAttribute && m == nil:
		return enlistingAttribute(attribute)
	case m == nil:
		return nil, unauthorized("Forbidden")
	case isAttribute:
		return metadataAttribute(m, attribute)
	case item == "user-data" && !installer:
		return s.userDataOf(m)
	case item == "":
		fields := []string{"maas-commissioning-scripts", "meta-data"}
		if m.userData != nil {
			fields = append(fields, "user-data")
		}
		return listReply(fields), nil
	}
	return nil, notFoundText("")
}

// userDataOf hands the machine over to its user: MAAS calls a machine deployed once it has asked for the user data
// (UserDataHandler.read).
func (s *Simulator) userDataOf(m *machine) (*reply, error) {
	if m.status == statusDeploying {
		s.finishDeploy(m)
	}
	if m.userData == nil || m.status != statusDeployed {
		return nil, notFoundText("")
	}
	return contentReply("application/octet-stream", string(m.userData)), nil
}

// metadataAttribute is MetaDataHandler.read.
func metadataAttribute(m *machine, name string) (*reply, error) {
	switch first, _, _ := strings.Cut(name, "/"); first {
	case "":
		return listReply([]string{"instance-id", "local-hostname", "vendor-data", "x509"}), nil
	case "instance-id":
		return contentReply("text/plain", m.systemID), nil
	case "local-hostname":
		return contentReply("text/plain", m.fqdn()), nil
	case "public-keys", "x509": // No user has any.
		return contentReply("text/plain", ""), nil
	case "vendor-data":
		return contentReply("application/x-yaml; charset=utf-8", vendorData), nil
	}
	return nil, notFoundText("Unknown metadata attribute: %s", name)
}

func enlistingAttribute(name string) (*reply, error) {
	if name == "" {
		return listReply([]string{"instance-id", "local-hostname"}), nil
	}
	text, known := enlisting[name]
	if !known {
		return nil, notFoundText("Unknown metadata attribute: %s", name)
	}
	return contentReply("text/plain", text), nil
}

func listReply(lines []string) *reply { return contentReply("text/plain", strings.Join(lines, "\n")) }

func contentReply(contentType, body string) *reply {
	return &reply{status: http.StatusOK, header: http.Header{"Content-Type": {contentType}}, body: []byte(body)}
}

// machineOfKey returns the machine whose key a request carries; nil without an error if it carries no OAuth.
func (s *Simulator) machineOfKey(r *http.Request) (*machine, error) {
	params, ok := oauthParams(r)
	if !ok {
		return nil, nil
	}
	consumer := params["oauth_consumer_key"]
	if _, key := s.userOfConsumer(consumer); key.consumer != "" {
		if err := s.verify(params, key); err != nil {
			return nil, err
		}
		return nil, forbidden("Not authenticated as a known node.")
	}
	at := slices.IndexFunc(s.db.machines, func(m *machine) bool { return m.nodeKey.consumer != "" && m.nodeKey.consumer == consumer })
	if at < 0 {
		return nil, unauthorized(invalidKey)
	}
	m := s.db.machines[at]
	return m, s.verify(params, m.nodeKey)
}

// keyOf returns the key with which a machine asks for its metadata, which MAAS makes when it is needed first and deletes
// when the machine's owner changes (models/nodekey.py, clear_nodekey_when_owner_changes in models/signals/nodes.py).
func (s *Simulator) keyOf(m *machine) apiKey {
	if m.nodeKey.consumer == "" {
		m.nodeKey = apiKey{s.randomText(18), s.randomText(18), s.randomText(32)}
	}
	return m.nodeKey
}
