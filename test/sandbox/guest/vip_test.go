// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"strings"
	"testing"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/yaml"
)

// kubeVIPData is the user data of a control plane of the flavor with kube-vip, with kubeadm's configuration in a file.
func kubeVIPData(t *testing.T, file, configuration, command string) *userData {
	t.Helper()
	template, err := os.ReadFile("../../../templates/cluster-template-lxd-kube-vip.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range bytes.Split(template, []byte("\n---\n")) {
		var object struct {
			Kind string `json:"kind"`
			Spec struct {
				KubeadmConfigSpec struct {
					PreKubeadmCommands []string           `json:"preKubeadmCommands"`
					Files              []bootstrapv1.File `json:"files"`
				} `json:"kubeadmConfigSpec"`
			} `json:"spec"`
		}
		if !bytes.Contains(document, []byte("\nkind: KubeadmControlPlane\n")) {
			continue
		}
		document = bytes.ReplaceAll(document, []byte("${CONTROL_PLANE_MACHINE_COUNT:=1}"), []byte("1"))
		if err := yaml.Unmarshal(document, &object); err != nil {
			t.Fatal(err)
		}
		data := &userData{files: map[string]string{file: configuration}, commands: append(object.Spec.KubeadmConfigSpec.PreKubeadmCommands, command)}
		for _, f := range object.Spec.KubeadmConfigSpec.Files {
			data.files[f.Path] = f.Content
		}
		return data
	}
	t.Fatal("the flavor has no KubeadmControlPlane")
	return nil
}

const (
	initFile, joinFile       = "/run/kubeadm/kubeadm.yaml", "/run/kubeadm/kubeadm-join-config.yaml"
	initCommand, joinCommand = "kubeadm init --config " + initFile, "kubeadm join --config " + joinFile
)

// What the flavor does before kubeadm finds the address in kubeadm's configuration, however that is written.
func TestVirtualIPOfTheFlavor(t *testing.T) {
	for name, tt := range map[string]struct {
		file, configuration, command, want string
	}{
		"init":             {initFile, "clusterName: c\ncontrolPlaneEndpoint: 10.77.0.20:6443\n", initCommand, "10.77.0.20"},
		"init with IPv6":   {initFile, "controlPlaneEndpoint: '[fd00:77::20]:6443'\n", initCommand, "fd00:77::20"},
		"init with quotes": {initFile, "controlPlaneEndpoint: \"[fd00:77::20]:8443\"\n", initCommand, "fd00:77::20"},
		"join":             {joinFile, "discovery:\n  bootstrapToken:\n    apiServerEndpoint: 10.77.0.20:6443\n    token: a.b\n", joinCommand, "10.77.0.20"},
		"join with IPv6":   {joinFile, "discovery:\n  bootstrapToken:\n    apiServerEndpoint: '[fd00:77::20]:6443'\n", joinCommand, "fd00:77::20"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := virtualIP(t.Context(), kubeVIPData(t, tt.file, tt.configuration, tt.command), tt.command == initCommand)
			if err != nil || got.String() != tt.want {
				t.Errorf("it announces %s, %v; want %s", got, err, tt.want)
			}
		})
	}
}

// A kube-vip that could not work does not.
func TestVirtualIPThatCanNotBeAnnounced(t *testing.T) {
	good := kubeVIPData(t, initFile, "controlPlaneEndpoint: 10.77.0.20:6443\n", initCommand)
	without := func(part string) *userData {
		data := &userData{files: maps.Clone(good.files)}
		for _, command := range good.commands {
			if !strings.Contains(command, part) {
				data.commands = append(data.commands, command)
			}
		}
		return data
	}
	for name, data := range map[string]*userData{
		"no address": without("VIRTUAL_IP"), "no port": without("VIRTUAL_PORT"), "no rights before kubeadm init has made them": without("super-admin.conf"),
		"a name in place of the address": kubeVIPData(t, initFile, "controlPlaneEndpoint: api.example.com:6443\n", initCommand),
	} {
		if got, err := virtualIP(t.Context(), data, true); !errors.Is(err, errKubeVIP) {
			t.Errorf("%s: it announces %s, %v", name, got, err)
		}
	}
}
