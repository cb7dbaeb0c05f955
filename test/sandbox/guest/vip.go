// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// manifestDir is where the kubelet finds static pods.
const manifestDir = "/etc/kubernetes/manifests/"

// virtualIP returns the address that the machine announces while its API server runs: that of the static pod kube-vip,
// after the commands before kubeadm have changed it; zero if there is none. The first control plane's must have the
// file with more rights: while kubeadm waits for the address, the administrator's file has none.
func virtualIP(ctx context.Context, data *userData, first bool) (netip.Addr, error) {
	path := manifestDir + "kube-vip.yaml"
	if _, there := data.files[path]; !there {
		return netip.Addr{}, nil
	}
	manifest, err := edited(ctx, data, path)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("preparing kube-vip: %w", err)
	}
	pod := corev1.Pod{}
	if err := yaml.Unmarshal(manifest, &pod); err != nil {
		return netip.Addr{}, fmt.Errorf("reading the static pod kube-vip: %w", err)
	}
	credentials := "/etc/kubernetes/admin.conf"
	if first {
		credentials = "/etc/kubernetes/super-admin.conf"
	}
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil && v.HostPath.Path == credentials }) {
		return netip.Addr{}, fmt.Errorf("the static pod kube-vip does not mount %s: %w", credentials, errKubeVIP)
	}
	variables := map[string]string{}
	for _, container := range pod.Spec.Containers {
		for _, variable := range container.Env {
			variables[variable.Name] = variable.Value
		}
	}
	announced, err := netip.ParseAddrPort(net.JoinHostPort(variables["address"], variables["port"]))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("the static pod kube-vip: %w: %w", errKubeVIP, err)
	}
	return announced.Addr(), nil
}

// errKubeVIP is returned for a kube-vip that would not announce anything.
var errKubeVIP = errors.New("it can't announce an address")

// edited is a file after the commands before kubeadm that edit it with sed, or do so when a test passes, have run, on
// copies of the user data's files. Other commands don't run.
func edited(ctx context.Context, data *userData, path string) ([]byte, error) {
	root, err := os.MkdirTemp("", "guest-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(root) }()
	for name, content := range data.files {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	there := strings.NewReplacer(" "+path, " "+root+path, " /run/kubeadm/", " "+root+"/run/kubeadm/")
	for _, command := range data.commands {
		if kubeadmCommand.MatchString(command) {
			break
		}
		if program, _, _ := strings.Cut(command, " "); (program != "sed" && program != "test") || !strings.HasSuffix(command, " "+path) {
			continue
		}
		if out, err := exec.CommandContext(ctx, "sh", "-c", there.Replace(command)).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("running %q: %w: %s", command, err, out)
		}
	}
	return os.ReadFile(filepath.Join(root, path))
}
