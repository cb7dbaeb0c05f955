// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

var machine = simulator.MachineSnapshot{SystemID: "abc123", Hostname: "metal-a1", FQDN: "metal-a1.maas.sim", Zone: "zone-a"}

func compress(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	writer := gzip.NewWriter(&out)
	if _, err := writer.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const template = `## template: jinja
#cloud-config
write_files:
- path: /etc/name
  content: "{{ ds.meta_data.local_hostname }} {{ v1.instance_id }} {{local_hostname}} {{ ds.meta_data.nothing }}"
- path: /etc/encoded
  encoding: b64
  content: %BASE64%
- path: /etc/more
  content: one
- path: /etc/more
  append: true
  content: two
runcmd:
- echo {{ local_hostname }}
- [kubeadm, init]
`

func TestParseUserData(t *testing.T) {
	encoded := base64.StdEncoding.EncodeToString([]byte("decoded"))
	text := string(bytes.ReplaceAll([]byte(template), []byte("%BASE64%"), []byte(encoded)))
	want := &userData{
		files: map[string]string{
			"/etc/name":    "metal-a1 abc123 metal-a1 CI_MISSING_JINJA_VAR/nothing",
			"/etc/encoded": "decoded",
			"/etc/more":    "onetwo",
		},
		commands: []string{"echo metal-a1", "kubeadm init"},
	}
	for name, raw := range map[string][]byte{"plain": []byte(text), "compressed": compress(t, text)} {
		got, err := parseUserData(raw, metadataOf(machine))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(userData{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// As cloud-init 22.4.2 does: a warning is in its log, and the machine gets nothing at all.
func TestATemplateThatJinjaCantReadIsDroppedWhole(t *testing.T) {
	for name, text := range map[string]string{
		"a minus":                    "{{local-hostname}}",
		"a chart's value":            "{{ .Values.x }}",
		"the length of bash's array": "${#array[@]}",
		"below what is not there":    "{{ nothing.x }}",
		"without an end":             "{{ local_hostname",
	} {
		raw := "## template: jinja\n#cloud-config\nruncmd:\n- [echo, '" + text + "']\n"
		if _, err := parseUserData([]byte(raw), metadataOf(machine)); !errors.Is(err, errDropped) {
			t.Errorf("%s: %v, want %v", name, err, errDropped)
		}
		if _, err := parseUserData([]byte(strings.TrimPrefix(raw, "## template: jinja\n")), nil); err != nil {
			t.Errorf("%s, without Jinja's header: %v", name, err)
		}
	}
	for name, tc := range map[string]struct{ text, want string }{
		"a comment": {"a{# b #}c", "ac"}, "no space": {"{{-v1.local_hostname-}}", "metal-a1"}, "nothing": {"{{ nothing }}", "CI_MISSING_JINJA_VAR/nothing"},
	} {
		data, err := parseUserData([]byte("## template: jinja\n#cloud-config\nruncmd: [\""+tc.text+"\"]\n"), metadataOf(machine))
		if err != nil || data.commands[0] != tc.want {
			t.Errorf("%s: %+v, %v; want %s", name, data, err, tc.want)
		}
	}
}

func TestParseUserDataRefuses(t *testing.T) {
	for name, raw := range map[string]string{"empty": "", "script": "#!/bin/sh\n", "template of a script": "## template: jinja\n#!/bin/sh\n"} {
		if _, err := parseUserData([]byte(raw), metadataOf(machine)); !errors.Is(err, errNotCloudConfig) {
			t.Errorf("%s: %v, want %v", name, err, errNotCloudConfig)
		}
	}
	if _, err := parseUserData([]byte("#cloud-config\nruncmd: [1, {}]\n"), nil); err == nil {
		t.Error("commands that are none are accepted")
	}
}

func TestKubeletVersion(t *testing.T) {
	for _, test := range []struct{ image, cluster, want string }{
		{"ubuntu/jammy", "v1.35.2", "v1.35.2"},
		{"custom/u-2204-k8s-1.35", "v1.35.2", "v1.35.2"},
		{"custom/u-2204-k8s-1.36", "v1.35.2", "v1.36.0"},
		{"custom/u-2404-k8s-v1.36.4", "v1.35.2", "v1.36.4"},
		{"custom/u-2404-11.35", "v1.35.2", "v1.35.2"},
	} {
		if got := kubeletVersion(test.image, test.cluster); got != test.want {
			t.Errorf("kubeletVersion(%s, %s) = %s, want %s", test.image, test.cluster, got, test.want)
		}
	}
}

func TestReadKubeadm(t *testing.T) {
	const join = `
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken: {apiServerEndpoint: "api.maas.sim:6443", token: abcdef.0123456789abcdef, caCertHashes: ["sha256:00"]}
nodeRegistration:
  kubeletExtraArgs: [{name: node-labels, value: "a=b,c=d"}]
`
	run, err := readInstaller(&userData{
		files:    map[string]string{"/run/join.yaml": join},
		commands: []string{"true", "kubeadm join --config /run/join.yaml  && echo success"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if port, join := run.ports(); run.founds() || run.controlPlane() || port != defaultPort || join != defaultPort {
		t.Errorf("run = %+v", run)
	}
	if diff := cmp.Diff(map[string]string{"a": "b", "c": "d"}, labelsOf(run.registration().KubeletExtraArgs["node-labels"])); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if _, err := readInstaller(&userData{commands: []string{"apt-get update"}}); !errors.Is(err, errNoInstaller) {
		t.Errorf("without kubeadm: %v, want %v", err, errNoInstaller)
	}
	if _, err := readInstaller(&userData{commands: []string{"kubeadm init --config /missing"}}); err == nil || errors.Is(err, errNoInstaller) {
		t.Errorf("a missing file: %v", err)
	}
}
