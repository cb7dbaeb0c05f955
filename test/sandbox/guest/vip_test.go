// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"slices"
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
					PreKubeadmCommands  []string           `json:"preKubeadmCommands"`
					PostKubeadmCommands []string           `json:"postKubeadmCommands"`
					Files               []bootstrapv1.File `json:"files"`
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
		spec := object.Spec.KubeadmConfigSpec
		data := &userData{
			files:    map[string]string{file: configuration},
			commands: slices.Concat(spec.PreKubeadmCommands, []string{command}, spec.PostKubeadmCommands),
		}
		for _, f := range spec.Files {
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
		data := &userData{files: maps.Clone(good.files), commands: slices.Clone(good.commands)}
		data.commands = slices.DeleteFunc(data.commands, func(command string) bool { return strings.Contains(command, part) })
		if len(data.commands) == len(good.commands) {
			t.Fatalf("no command has %q", part)
		}
		return data
	}
	for name, data := range map[string]*userData{
		"no address": without("VIRTUAL_IP"), "no port": without("VIRTUAL_PORT"), "not in the directory of manifests": without("mv "),
		"no rights before kubeadm init has made them": without("echo super-"), "too many rights afterwards": without("ln --symbolic --force admin.conf"),
		"a name in place of the address": kubeVIPData(t, initFile, "controlPlaneEndpoint: api.example.com:6443\n", initCommand),
	} {
		if got, err := virtualIP(t.Context(), data, true); !errors.Is(err, errKubeVIP) {
			t.Errorf("%s: it announces %s, %v", name, got, err)
		}
	}
}

// The kubelet may read a file of a static pod at any time: such a file comes as a whole, and once.
func TestManifestsAreNotEditedInPlace(t *testing.T) {
	const manifest = manifestDir + "kube-vip.yaml"
	good := kubeVIPData(t, initFile, "controlPlaneEndpoint: 10.77.0.20:6443\n", initCommand)
	edit := "sed --in-place 's|VIRTUAL_PORT|6443|' " + manifest
	for name, data := range map[string]*userData{
		"edited before kubeadm":  {files: map[string]string{manifest: good.files[configDir+"kube-vip.yaml"]}, commands: []string{edit, initCommand}},
		"edited after kubeadm":   {files: good.files, commands: append(slices.Clone(good.commands), edit)},
		"replaced after kubeadm": {files: good.files, commands: append(slices.Clone(good.commands), "mv /run/kubeadm/kubeadm.yaml "+manifest)},
		"overwritten":            {files: good.files, commands: append(slices.Clone(good.commands), "sed 's|a|b|' /run/kubeadm/kubeadm.yaml > "+manifest)},
	} {
		if _, err := virtualIP(t.Context(), data, true); !errors.Is(err, errManifestInPlace) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
