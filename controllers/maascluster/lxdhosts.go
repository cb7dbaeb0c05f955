// SPDX-License-Identifier: Apache-2.0

package maascluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// defaultPool is the resource pool that MAAS always has.
const defaultPool = "default"

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=lxdhosts,verbs=list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create;patch

// offer is what the initializer on a node says of its LXD, where MAAS has no VM hosts: the data of its Secret.
type offer map[string][]byte

// notYetLXDHost makes the LXDHost of a machine, or updates it, and returns why VMs can't be made there yet; "" if they
// can. The initializer's condition on the Node takes precedence over what is wrong with the LXDHost.
func (r *Reconciler) notYetLXDHost(
	ctx context.Context, s *scope.Cluster, workload client.Reader, m *infrav1.MaasMachine,
) string {
	node := r.lookAtNode(ctx, workload, m)
	host, err := clusters.LXDHost(ctx, r.Client, m)
	if err == nil && node.prepared {
		err = r.applyLXDHost(ctx, s, m, node, host)
	}
	switch {
	case err != nil:
		return report.Brief(err.Error())
	case host != nil && conditions.IsTrue(host, infrav1.ReadyCondition):
		return ""
	case node.lacks != "":
		return node.lacks
	case host == nil && !node.prepared:
		return "the initializer has not prepared it yet"
	case host == nil || conditions.Get(host, infrav1.ReadyCondition) == nil:
		return "its LXDHost was not checked yet"
	}
	ready := conditions.Get(host, infrav1.ReadyCondition)
	return "its LXDHost: " + report.Brief(cmp.Or(ready.Message, ready.Reason))
}

// applyLXDHost brings the LXDHost of a machine, and the Secret with its key pair, to what the machine's node offers.
// host is the LXDHost as it is now, or nil.
func (r *Reconciler) applyLXDHost(
	ctx context.Context, s *scope.Cluster, m *infrav1.MaasMachine, node nodeState, host *infrav1.LXDHost,
) error {
	offered, err := r.readOffer(ctx, client.ObjectKeyFromObject(s.Cluster), node.name)
	if err != nil {
		return err
	}
	name := m.Name
	if before, err := clusters.LXDHostOfVMHost(ctx, r.Client, m); err != nil {
		return err
	} else if before != nil {
		name = before.Name // It was a VM host.
	}
	machine, err := prove(ctx, s, m, host, string(offered[infrav1.LXDAddressKey]))
	if err != nil {
		return err
	}
	wanted, err := lxdHostOf(s, m, name, offered, machine)
	if err != nil {
		return err
	}
	if err := keepSubnet(wanted, host); err != nil {
		return err
	}
	secret, err := keysOf(s, m, offered)
	if err != nil {
		return err
	}
	if err := r.applyOwned(ctx, m, secret, &corev1.Secret{}); err != nil {
		return err
	}
	if err := r.applyOwned(ctx, m, wanted, &infrav1.LXDHost{}); err != nil {
		return err
	}
	return r.tellKeys(ctx, client.ObjectKeyFromObject(s.Cluster), host, node, offered)
}

// prove returns a machine as MAAS shows it. Whoever administers the host cluster may offer any LXD, and an LXDHost is
// for all namespaces: before one is made or moved, MAAS must show its address on the machine, and the machine as ours.
func prove(
	ctx context.Context, s *scope.Cluster, m *infrav1.MaasMachine, host *infrav1.LXDHost, address string,
) (*maas.Machine, error) {
	machine := lastSeen(s, m)
	if machine == nil {
		return nil, errors.New("what MAAS shows of its network is not known yet")
	}
	if isAt(s, host, address) {
		return machine, nil
	}
	shown := addressesOf(machine)
	at, err := netip.ParseAddrPort(address)
	if err != nil || !slices.Contains(shown, at.Addr().Unmap()) {
		return nil, fmt.Errorf("its node offers LXD at %q, which is not an address that MAAS shows on machine %s: let the "+
			"InternalIP of the Node be one of %v, or replace the machine: MAAS assigns no address once it is deployed",
			address, machine.SystemID, shown)
	}
	ours, err := s.Machines.IsOurs(ctx, (&scope.Machine{Cluster: s, MaasMachine: m}).Identity(), machine)
	if err == nil && !ours {
		err = fmt.Errorf("machine %s is not ours in MAAS: its LXD is none of this cluster", machine.SystemID)
	}
	return machine, err
}

// isAt reports whether an LXDHost was already made at an address, and opened to all namespaces by the cluster's key: an
// admission policy lets others do neither by the manager's.
func isAt(s *scope.Cluster, host *infrav1.LXDHost, address string) bool {
	return host != nil && host.Spec.Address == address &&
		slices.Contains(host.Spec.AllowedNamespaces, infrav1.AllNamespaces) &&
		ptr.Equal(host.Spec.MAASCredentialsRef, s.MaasCluster.Spec.CredentialsRef)
}

// addressesOf returns the addresses that MAAS shows on a machine. It shows those that it discovered on the interfaces
// alone, if it assigned others.
func addressesOf(machine *maas.Machine) (addresses []netip.Addr) {
	texts := slices.Clone(machine.IPAddresses)
	for _, nic := range machine.Interfaces {
		texts = append(texts, list.Each(nic.Discovered, func(link maas.Link) string { return link.IPAddress })...)
	}
	for _, text := range texts {
		if ip, err := netip.ParseAddr(text); err == nil && !slices.Contains(addresses, ip) {
			addresses = append(addresses, ip)
		}
	}
	return addresses
}

// tellKeys tells the initializer on a node when LXD has accepted the key pair that it offers from the manager, which
// uses no earlier one any more.
func (r *Reconciler) tellKeys(
	ctx context.Context, cluster client.ObjectKey, host *infrav1.LXDHost, node nodeState, offered offer,
) error {
	current, err := lxdnode.Fingerprint(offered[corev1.TLSCertKey])
	if err != nil {
		return fmt.Errorf("the client certificate that Node %s offers: %w", node.name, err)
	}
	if host == nil || host.Status.ClientCertificate == nil || host.Status.ClientCertificate.Fingerprint != current ||
		node.keys == current {
		return nil
	}
	workload, err := r.ClusterCache.GetUncachedClient(ctx, cluster)
	if err != nil {
		return fmt.Errorf("connecting to the host cluster: %w", err)
	}
	before := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.name}}
	after := before.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, infrav1.LXDKeysAnnotation, current)
	if err := workload.Patch(ctx, after, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("telling Node %s which key pair is in use: %w", node.name, err)
	}
	return nil
}

// readOffer reads the Secret of the initializer on a node.
func (r *Reconciler) readOffer(ctx context.Context, cluster client.ObjectKey, node string) (offer, error) {
	workload, err := r.ClusterCache.GetUncachedClient(ctx, cluster) // A cache would hold all Secrets.
	if err != nil {
		return nil, fmt.Errorf("connecting to the host cluster: %w", err)
	}
	secret, err := clusters.NodeKeys(ctx, workload, node)
	if err != nil {
		return nil, err
	}
	for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey, infrav1.LXDServerCertificateKey,
		infrav1.LXDAddressKey} {
		if len(secret.Data[key]) == 0 {
			return nil, fmt.Errorf("the Secret %s of the host cluster lacks %s; the initializer on the node writes it",
				secret.Name, key)
		}
	}
	return secret.Data, nil
}

// applyOwned applies an object that belongs to a machine. Another's object of that name is not changed: there is an
// empty object of its kind, to read it into.
func (r *Reconciler) applyOwned(
	ctx context.Context, m *infrav1.MaasMachine, object *unstructured.Unstructured, there client.Object,
) error {
	kind, name := object.GetKind(), object.GetName()
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(object), there)
	if host, is := there.(*infrav1.LXDHost); is && apierrors.IsNotFound(err) { // The cache may not have it yet.
		err = r.readHost(ctx, client.ObjectKeyFromObject(object), host)
	}
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("reading %s %s: %w", kind, name, err)
	case !isOf(there, m):
		return fmt.Errorf("%s %s is not this machine's: delete it, or give it another name", kind, name)
	case isForged(there):
		return fmt.Errorf("%s %s was made by another user, who named this machine as its owner: delete it", kind, name)
	}
	// The deletion of the machine waits until its LXDHost is gone: it must not come back.
	current := &infrav1.MaasMachine{}
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(m), current); err != nil ||
		!current.DeletionTimestamp.IsZero() {
		return errors.New("the machine is being deleted")
	}
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), fieldOwner,
		client.ForceOwnership); err != nil {
		return fmt.Errorf("the management cluster refuses %s %s: %s", kind, name, refusalOf(object, err))
	}
	return nil
}

// readHost reads an LXDHost as it is now. The manager may list them, and not get one.
func (r *Reconciler) readHost(ctx context.Context, key client.ObjectKey, into *infrav1.LXDHost) error {
	hosts := &infrav1.LXDHostList{}
	if err := r.APIReader.List(ctx, hosts, client.InNamespace(key.Namespace)); err != nil {
		return err
	}
	host := list.Find(hosts.Items, func(host infrav1.LXDHost) bool { return host.Name == key.Name })
	if host == nil {
		return apierrors.NewNotFound(infrav1.GroupVersion.WithResource("lxdhosts").GroupResource(), key.Name)
	}
	host.DeepCopyInto(into)
	return nil
}

// isOf reports whether an object was made for a machine.
func isOf(object client.Object, m *infrav1.MaasMachine) bool {
	host, is := object.(*infrav1.LXDHost)
	return metav1.IsControlledBy(object, m) || (is && clusters.Mirrors(host, m))
}

// isForged reports whether an LXDHost was made by another user, who named the machine as its owner: that proves
// nothing. By the manager's key it would be opened to all namespaces, with what they wrote. One that the manager made
// is open from its first request on, which a policy refuses to others, or was a VM host.
func isForged(object client.Object) bool {
	host, is := object.(*infrav1.LXDHost)
	return is && host.Spec.VMHost == nil && !slices.Contains(host.Spec.AllowedNamespaces, infrav1.AllNamespaces)
}

// subnetOf returns the CIDR of the subnet that MAAS shows on the bridge of a machine; if it shows none there, that of
// the address of LXD; "" without either: then a person may set it.
func subnetOf(machine *maas.Machine, bridge, address string) string {
	at, _ := netip.ParseAddrPort(address)
	best, found := 0, ""
	for _, nic := range machine.Interfaces {
		for _, subnet := range nic.Subnets() {
			rank := 0
			if subnet.Contains(at.Addr()) {
				rank++
			}
			if nic.Name == bridge {
				rank += 2
			}
			if rank > best {
				best, found = rank, subnet.String()
			}
		}
	}
	return found
}

func configOf(s *scope.Cluster) infrav1.LXDHostConfig {
	return ptr.Deref(s.MaasCluster.Spec.LXDConfig, infrav1.DefaultLXDHostConfig())
}

// lxdHostOf returns the LXDHost of a machine. It leaves out what people set, above all unschedulable.
func lxdHostOf(
	s *scope.Cluster, m *infrav1.MaasMachine, name string, offered offer, machine *maas.Machine,
) (*unstructured.Unstructured, error) {
	config, address := configOf(s), string(offered[infrav1.LXDAddressKey])
	zone := cmp.Or(config.Zone, m.Status.FailureDomain)
	if zone == "" {
		return nil, errors.New("its zone is not known yet")
	}
	return apply(&infrav1.LXDHost{
		TypeMeta:   metav1.TypeMeta{APIVersion: infrav1.GroupVersion.String(), Kind: "LXDHost"},
		ObjectMeta: ownedBy(s, m, name),
		Spec: infrav1.LXDHostSpec{
			Address: address, Project: lxdnode.DefaultProject,
			ServerCertificate:  string(offered[infrav1.LXDServerCertificateKey]),
			CredentialsRef:     &infrav1.LocalObjectReference{Name: clusters.LXDKeysName(m)},
			MAASCredentialsRef: s.MaasCluster.Spec.CredentialsRef,
			Zone:               zone, ResourcePool: cmp.Or(config.ResourcePool, defaultPool),
			StoragePool:       lxdnode.DefaultStoragePool,
			NetworkBridge:     config.NetworkBridge,
			Subnet:            subnetOf(machine, config.NetworkBridge, address),
			AllowedNamespaces: []string{infrav1.AllNamespaces}, // As VM hosts of MAAS are for every cluster.
		},
	})
}

// keepSubnet keeps the subnet of an LXDHost while MAAS shows none, at the address for which it did: without one, VMs
// with a static address would find no gateway.
func keepSubnet(wanted *unstructured.Unstructured, host *infrav1.LXDHost) error {
	subnet, _, _ := unstructured.NestedString(wanted.Object, "spec", "subnet")
	address, _, _ := unstructured.NestedString(wanted.Object, "spec", "address")
	if subnet != "" || host == nil || host.Spec.Subnet == "" || host.Spec.Address != address {
		return nil
	}
	if err := unstructured.SetNestedField(wanted.Object, host.Spec.Subnet, "spec", "subnet"); err != nil {
		return fmt.Errorf("keeping the subnet of LXDHost %s: %w", host.Name, err)
	}
	return nil
}

// keysOf returns the Secret with the key pair that the LXD of a machine trusts.
func keysOf(s *scope.Cluster, m *infrav1.MaasMachine, offered offer) (*unstructured.Unstructured, error) {
	meta := ownedBy(s, m, clusters.LXDKeysName(m))
	meta.Finalizers = []string{infrav1.LXDKeysFinalizer}
	return apply(&corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: secretKind},
		ObjectMeta: meta, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
			corev1.TLSCertKey: offered[corev1.TLSCertKey], corev1.TLSPrivateKeyKey: offered[corev1.TLSPrivateKeyKey],
		},
	})
}

// ownedBy returns the metadata of an object that goes with a machine.
func ownedBy(s *scope.Cluster, m *infrav1.MaasMachine, name string) metav1.ObjectMeta {
	labels := map[string]string{clusterv1.ClusterNameLabel: s.Cluster.Name}
	if filter, is := m.Labels[clusterv1.WatchLabel]; is {
		labels[clusterv1.WatchLabel] = filter
	}
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: name, Labels: labels,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: infrav1.GroupVersion.String(), Kind: "MaasMachine", Name: m.Name, UID: m.UID,
			Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(false),
		}},
	}
}

// apply returns the fields of an object that are set, for server-side apply.
func apply(object client.Object) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("converting %T %s: %w", object, object.GetName(), err)
	}
	return &unstructured.Unstructured{Object: fields}, nil
}
