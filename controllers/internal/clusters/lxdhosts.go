// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
)

// LXDKeysName returns the name of the Secret with the key pair that the LXD of a host cluster's machine trusts.
func LXDKeysName(m *infrav1.MaasMachine) string { return m.Name + "-lxd" }

// InitializerNamespace is the initializer's namespace in host clusters.
const InitializerNamespace = "capmaas-system"

// NodeKeys reads the Secret of the initializer on a Node, from the API of its host cluster: the key pair with which
// MAAS, or the manager, comes to its LXD. The error may be apierrors.IsNotFound.
func NodeKeys(ctx context.Context, workload client.Reader, node string) (*corev1.Secret, error) {
	name, secret := infrav1.LXDKeysPrefix+node, &corev1.Secret{}
	if err := workload.Get(ctx, client.ObjectKey{Namespace: InitializerNamespace, Name: name}, secret); err != nil {
		return secret, fmt.Errorf("reading Secret %s of the host cluster: %w", name, err)
	}
	return secret, nil
}

// LXDHost returns the LXDHost of a host cluster's machine whose VMs are made through LXD's own API; nil if there is
// none.
func LXDHost(ctx context.Context, c client.Reader, m *infrav1.MaasMachine) (*infrav1.LXDHost, error) {
	return lxdHost(ctx, c, m, func(host *infrav1.LXDHost) bool { return metav1.IsControlledBy(host, m) })
}

// LXDHostOfVMHost returns the LXDHost of a machine that is, or was, a VM host of MAAS; nil if there is none.
func LXDHostOfVMHost(ctx context.Context, c client.Reader, m *infrav1.MaasMachine) (*infrav1.LXDHost, error) {
	return lxdHost(ctx, c, m, func(host *infrav1.LXDHost) bool { return Mirrors(host, m) })
}

// Mirrors reports whether an LXDHost is that of a machine that is, or was, a VM host of MAAS: it is owned by the
// machine, and not controlled.
func Mirrors(host *infrav1.LXDHost, m *infrav1.MaasMachine) bool {
	return host.Spec.VMHost != nil && slices.ContainsFunc(host.OwnerReferences,
		func(owner metav1.OwnerReference) bool { return owner.UID == m.UID })
}

func lxdHost(
	ctx context.Context, c client.Reader, m *infrav1.MaasMachine, is func(*infrav1.LXDHost) bool,
) (*infrav1.LXDHost, error) {
	hosts := &infrav1.LXDHostList{}
	if err := c.List(ctx, hosts, client.InNamespace(m.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the LXDHosts of MaasMachine %s: %w", m.Name, err)
	}
	return list.Find(hosts.Items, func(host infrav1.LXDHost) bool { return is(&host) }), nil
}

// RefersTo reports whether a reference to the host of a VM, as a record has it, is to an LXDHost. inItsMAAS reports
// whether the VM's MAAS is the one whose VM host the LXDHost is, or was.
func RefersTo(ref string, host *infrav1.LXDHost, inItsMAAS func() bool) bool {
	vmHostID := 0
	if host.Spec.VMHost != nil {
		vmHostID = int(host.Spec.VMHost.ID)
	}
	is, byID := lxd.RefersTo(ref, host.Namespace, host.Name, vmHostID)
	return is && (!byID || inItsMAAS())
}

// MayUse reports whether a MaasMachine can have a VM on an LXDHost: the host is a VM host of MAAS, which every
// namespace may use; it allows the namespace; or LXD shows VMs of the Cluster, from when it did. What other
// MaasMachines say of themselves, and whether it can be read, does not concern the host.
func MayUse(host *infrav1.LXDHost, m *infrav1.MaasMachine) bool {
	cluster := KeyOf(m).String()
	isForAll := host.Spec.VMHost != nil && host.Spec.CredentialsRef == nil
	return isForAll || host.Spec.Allows(host.Namespace, m.Namespace) ||
		slices.ContainsFunc(host.Status.Clusters, func(c infrav1.LXDClusterVMs) bool {
			return c.Cluster == cluster && c.Count > 0
		})
}

// NodeOf returns the name of a machine's Node in its cluster; "" if it has none yet.
func NodeOf(ctx context.Context, c client.Client, m *infrav1.MaasMachine) (string, error) {
	machine, err := OwnerMachine(ctx, c, m)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading the Machine of MaasMachine %s: %w", m.Name, err)
	}
	if machine == nil {
		return "", nil
	}
	return machine.Status.NodeRef.Name, nil
}
