// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const (
	// kubeVIPCredentials is what kube-vip reads when it starts: a link to the file of an administrator.
	kubeVIPCredentials = configDir + "kube-vip.conf"
	// administrator has rights once kubeadm init has made the roles; superAdministrator has them before.
	administrator, superAdministrator = "admin.conf", "super-admin.conf"
)

// errKubeVIP is returned for a kube-vip that would not announce anything.
var errKubeVIP = errors.New("it can't announce an address")

// virtualIP returns the address that the machine announces while its API server runs: that of the static pod kube-vip,
// after the commands before kubeadm have prepared it; zero if there is none. The first control plane's must have the
// file with more rights: while kubeadm waits for the address, the administrator's file has none. The commands after
// kubeadm take these rights away, and restart nothing.
func virtualIP(ctx context.Context, data *userData, first bool) (announced netip.Addr, err error) {
	if !slices.ContainsFunc(slices.Collect(maps.Keys(data.files)), func(path string) bool { return filepath.Base(path) == "kube-vip.yaml" }) {
		return netip.Addr{}, nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("the static pod kube-vip: %w", err)
		}
	}()
	disk, err := newDisk(data.files)
	if err != nil {
		return netip.Addr{}, err
	}
	defer disk.remove()
	before, after := aroundKubeadm(data.commands)
	if err := disk.run(ctx, before); err != nil {
		return netip.Addr{}, err
	}
	credentials := administrator
	if first {
		credentials = superAdministrator
	}
	pod, err := disk.kubeVIP(credentials)
	if err != nil {
		return netip.Addr{}, err
	}
	if announced, err = addressOf(pod); err != nil {
		return netip.Addr{}, err
	}
	if err := disk.run(ctx, after); err != nil {
		return netip.Addr{}, err
	}
	_, err = disk.kubeVIP(administrator)
	return announced, err
}

// aroundKubeadm are the commands before and after kubeadm.
func aroundKubeadm(commands []string) (before, after []string) {
	i := slices.IndexFunc(commands, kubeadmCommand.MatchString)
	if i < 0 {
		return commands, nil
	}
	return commands[:i], commands[i+1:]
}

// kubeVIP reads the static pod, which must find the given credentials.
func (d *disk) kubeVIP(credentials string) (*corev1.Pod, error) {
	manifest, err := os.ReadFile(d.path(manifestDir + "kube-vip.yaml"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errKubeVIP, err)
	}
	pod := &corev1.Pod{}
	if err := yaml.Unmarshal(manifest, pod); err != nil {
		return nil, fmt.Errorf("reading it: %w", err)
	}
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil && v.HostPath.Path == kubeVIPCredentials }) {
		return nil, fmt.Errorf("it does not mount %s: %w", kubeVIPCredentials, errKubeVIP)
	}
	if target, err := os.Readlink(d.path(kubeVIPCredentials)); err != nil || target != credentials {
		return nil, fmt.Errorf("%s leads to %q, want %s: %w", kubeVIPCredentials, target, credentials, errors.Join(errKubeVIP, err))
	}
	return pod, nil
}

func addressOf(pod *corev1.Pod) (netip.Addr, error) {
	variables := map[string]string{}
	for _, container := range pod.Spec.Containers {
		for _, variable := range container.Env {
			variables[variable.Name] = variable.Value
		}
	}
	announced, err := netip.ParseAddrPort(net.JoinHostPort(variables["address"], variables["port"]))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%w: %w", errKubeVIP, err)
	}
	return announced.Addr(), nil
}
