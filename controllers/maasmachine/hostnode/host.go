// SPDX-License-Identifier: Apache-2.0

// Package hostnode has the steps of the machines of host clusters, whose nodes are hosts of LXD VMs: how they become
// such hosts, and how they are taken out of service.
package hostnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/lxd"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/vmhosts"
)

const (
	// vmsRetry: the deletion of the VMs triggers no reconcile here.
	vmsRetry = 15 * time.Second
	// retireTimeout is how long an initializer may take to respond; after that its node counts as dead.
	retireTimeout = 2 * time.Minute
	// silenceLimit is how long a host cluster must not respond to this process before it counts as gone: after a start
	// the process is not connected yet, and an API server that leaves fails requests.
	silenceLimit = time.Minute
	// retireRetry: we don't watch for the response, which comes within seconds.
	retireRetry = 3 * time.Second
	// vmHostsMaxAge is the maximum age of the list of VM hosts during a release.
	vmHostsMaxAge = 2 * time.Second
	// maxNamed is how many VMs or machines a condition names.
	maxNamed = 5
)

// Phases of a host's deletion, before its release.
const (
	// hosting: the machine was seen as a VM host, and its node is not known to be out of service.
	hosting = "hosting"
	// retired: its node is no longer a VM host.
	retired = "retired"
)

// Steps are the steps of the machines of host clusters.
type Steps struct {
	*life.Steps
	*Silence
}

// New returns the steps of one reconcile.
func New(common *life.Steps, silence *Silence) *Steps { return &Steps{common, silence} }

// Silence is since when host clusters have not responded to this process.
type Silence struct {
	since sync.Map // by the UID of the MaasMachine that is being deleted
}

// End forgets a MaasMachine that is gone.
func (s *Silence) End(machine types.UID) { s.since.Delete(machine) }

// Bridge gives a machine that becomes a VM host the bridge for VMs, if it has none: MAAS sets it up when it deploys the
// machine.
func (s *Steps) Bridge(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if !life.Deployable(l.MAAS) || !life.LacksBridge(l, l.MAAS) {
		return life.Proceed, nil
	}
	if out, err := s.Prove(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	err := s.Change(ctx, l, record.Bridge, func(ctx context.Context, permit maas.Permit) error {
		return l.Machines.MakeBridge(ctx, permit, l.MAAS, life.BridgeName(l))
	})
	return report.Retry(report.UnknownRetry, infrav1.DeployingReason, "machine %s gets the bridge %s, then it is deployed",
		l.MAAS, life.BridgeName(l)), err
}

// HostRetirement takes the machine of a host cluster out of service as a VM host before it is released: it keeps new
// VMs off it, waits for the deletion of existing VMs, lets the initializer undo its setup, and removes the host from
// MAAS.
func (s *Steps) HostRetirement(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MAAS == nil || !life.IsHost(l) {
		return life.Proceed, nil
	}
	// MAAS releases a machine only after its VM hosts are gone. In these states another user may have the machine; its
	// VM host is not ours then.
	if life.OnItsWay.Has(l.MAAS.Status) || life.BackInPool.Has(l.MAAS.Status) {
		return life.Proceed, nil
	}
	if ours, err := s.IsOursToRelease(ctx, l); err != nil || !ours {
		return life.Proceed, err
	}
	node, err := s.hostNode(ctx, l)
	if err != nil {
		return life.Proceed, err
	}
	hosts, unclear, has, err := s.findVMHosts(ctx, l, node)
	switch {
	case err != nil:
		return life.Proceed, err
	case !has:
		return s.lxdHostRetirement(ctx, l, node)
	}
	if out, err := s.closeVMHosts(ctx, l, hosts); err != nil || out.Waits() {
		return out, err
	}
	if unclear != "" {
		return report.Wait(vmsRetry, infrav1.VMHostUnclearReason, "%s", unclear), nil
	}
	if out, err := awaitVMs(ctx, l, hosts); err != nil || out.Waits() {
		return out, err
	}
	// A retired node waits for other nodes, and the cluster's API may be gone meanwhile.
	if len(hosts) > 0 || !isOutOfService(l.Record.MachineData) {
		if out, err := s.retire(ctx, l, node); err != nil || out.Waits() {
			return out, err
		}
		// Before the hosts leave MAAS: later nothing shows that they left because of us.
		if err := l.Record.Store(ctx, func() {
			if !life.ReleaseBegan(l) {
				l.Record.Enter(retired, s.Clock.Now())
			}
		}); err != nil {
			return life.Proceed, err
		}
	}
	if out, err := s.removeVMHosts(ctx, l, hosts); err != nil || out.Waits() {
		return out, err
	}
	return s.awaitOtherHosts(ctx, l)
}

// awaitVMs waits until no VM is left on the hosts.
func awaitVMs(ctx context.Context, l *life.Life, hosts []maas.VMHost) (life.Outcome, error) {
	vms, err := vmsOn(ctx, l, hosts)
	if errors.Is(err, maas.Invalid) { // A host was renamed or removed meanwhile.
		l.Inventory.DropVMHosts()
		return report.Retry(retireRetry, infrav1.RetiringReason,
			"the VM hosts of MAAS have changed; reading which of them are on this machine"), nil
	}
	if err != nil {
		return life.Proceed, err
	}
	if len(vms) > 0 {
		return report.Wait(vmsRetry, infrav1.VMsOnHostReason, "waiting for %d VM(s) on this host to be deleted: %s", len(vms),
			text.List(vms, maxNamed)), nil
	}
	return life.Proceed, nil
}

// removeVMHosts removes the VM hosts on the machine from MAAS.
func (s *Steps) removeVMHosts(ctx context.Context, l *life.Life, hosts []maas.VMHost) (life.Outcome, error) {
	if len(hosts) == 0 {
		return life.Proceed, nil
	}
	if out, err := s.proveAgain(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	service := vmhosts.NewService(l.Inventory.Client())
	for _, host := range hosts {
		err := l.Inventory.ChangeVMHosts(func(*maas.Client) error {
			return service.Remove(ctx, record.CloseVMHost.Permit(), host.ID)
		})
		if err != nil {
			return life.Proceed, err
		}
		s.Tell(l.MaasMachine, "VMHostRemoved", "Delete", "VM host %s left MAAS", host.Name)
	}
	return life.Proceed, nil
}

// proveAgain proves that the machine is ours, just before it or its VM host is changed: the host cluster, and MAAS,
// may have taken long since the last proof. If it is not ours any more, the next reconcile says so.
func (s *Steps) proveAgain(ctx context.Context, l *life.Life) (life.Outcome, error) {
	ours, err := s.IsOursToRelease(ctx, l)
	if err != nil || ours {
		return life.Proceed, err
	}
	return report.Retry(retireRetry, infrav1.RetiringReason, "machine %s is no longer ours; it is not changed",
		l.MAAS), nil
}

// awaitOtherHosts keeps the control planes of a deleted host cluster until all of its machines are out of service:
// their initializers need the cluster's API, and VMs of other clusters may still run on some. Workers go: Cluster API
// deletes the control planes when there are none.
func (s *Steps) awaitOtherHosts(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.Cluster.Cluster.DeletionTimestamp.IsZero() || !l.IsControlPlane() {
		return life.Proceed, nil
	}
	machines, err := clusters.MachinesOf(ctx, s.Client, l.Cluster.Cluster, l.MaasCluster)
	if err != nil {
		return life.Proceed, err
	}
	isHost, err := s.hostsOfMAAS(ctx, l)
	if err != nil {
		return life.Proceed, err
	}
	var waiting []string
	for i := range machines {
		if machines[i].Name == l.MaasMachine.Name {
			continue
		}
		still, err := isHost(&machines[i])
		if err != nil {
			return life.Proceed, err
		}
		if still {
			waiting = append(waiting, machines[i].Name)
		}
	}
	if len(waiting) == 0 {
		return life.Proceed, nil
	}
	slices.Sort(waiting)
	return report.Wait(retireRetry, infrav1.LXDHostRetiredReason,
		"the node is out of service as a VM host; waiting for other machines of the host cluster: %s",
		text.List(waiting, maxNamed)), nil
}

// hostsOfMAAS returns a function that reports whether a machine is a VM host of MAAS, or, if MAAS has no VM hosts, has
// an LXDHost; or whether its node is still to be taken out of service.
func (s *Steps) hostsOfMAAS(ctx context.Context, l *life.Life) (func(*infrav1.MaasMachine) (bool, error), error) {
	hosts, has, err := l.Inventory.AnyVMHosts(ctx, vmHostsMaxAge)
	if err != nil {
		return nil, fmt.Errorf("looking for the cluster's VM hosts: %w", err)
	}
	if !has {
		return func(m *infrav1.MaasMachine) (bool, error) {
			host, err := clusters.LXDHost(ctx, s.Client, m)
			return host != nil || isRetiring(m), err
		}, nil
	}
	return func(m *infrav1.MaasMachine) (bool, error) {
		return isRetiring(m) || len(vmhosts.OnMachine(hosts, m.Spec.SystemID)) > 0, nil
	}, nil
}

// isOutOfService reports whether the machine's node was taken out of service: its release follows that.
func isOutOfService(d record.MachineData) bool {
	return d.In(retired, life.Releasing, life.DiskErasing, life.Undoing)
}

// isRetiring reports whether the node of a machine that is being deleted is not out of service yet.
func isRetiring(m *infrav1.MaasMachine) bool {
	recorded, err := record.OfMachine(m)
	return err == nil && !m.DeletionTimestamp.IsZero() && life.WasProvisioned(m) && !isOutOfService(recorded)
}

// findVMHosts finds the VM hosts on the machine. unclear is why they can't be identified; "" if they can. has reports
// whether MAAS has VM hosts still.
func (s *Steps) findVMHosts(
	ctx context.Context, l *life.Life, node *hostNode,
) (hosts []maas.VMHost, unclear string, has bool, err error) {
	service := vmhosts.NewService(l.Inventory.Client())
	for _, maxAge := range []time.Duration{vmHostsMaxAge, 0} {
		all, has, err := l.Inventory.AnyVMHosts(ctx, maxAge)
		if err != nil {
			return nil, "", false, fmt.Errorf("looking for VM hosts on the machine: %w", err)
		}
		if !has {
			return nil, "", false, nil
		}
		var inDoubt []maas.VMHost
		if hosts, inDoubt, err = service.OnNode(ctx, all, node.identity(l)); err != nil {
			return nil, "", false, err
		}
		if unclear = node.unclear(l, hosts, inDoubt, s.Clock.Now()); len(hosts) > 0 {
			break // Otherwise read again, uncached: a host may have registered a moment ago.
		}
	}
	if (len(hosts) > 0 || node.isHost()) && !isOutOfService(l.Record.MachineData) {
		l.Record.Enter(hosting, s.Clock.Now())
	}
	return hosts, unclear, true, nil
}

// closeVMHosts keeps new VMs off the VM hosts on the machine.
func (s *Steps) closeVMHosts(ctx context.Context, l *life.Life, hosts []maas.VMHost) (life.Outcome, error) {
	open := list.Where(hosts, func(h maas.VMHost) bool { return !slices.Contains(h.Tags, lxd.RetiringTag) })
	if len(open) == 0 {
		return life.Proceed, nil
	}
	if out, err := s.proveAgain(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	for _, host := range open {
		err := l.Inventory.ChangeVMHosts(func(client *maas.Client) error {
			_, err := client.AddVMHostTag(ctx, record.CloseVMHost.Permit(), host.ID, lxd.RetiringTag)
			return err
		})
		if err != nil && !errors.Is(err, maas.NotFound) {
			return life.Proceed, fmt.Errorf("keeping new VMs off VM host %s: %w", host.Name, err)
		}
	}
	return life.Proceed, nil
}

// vmsOn names the machines that MAAS has on the hosts, sorted. MAAS searches by the hosts' names, and says of each
// machine which host it is on. maas.Invalid: it has no host of such a name.
func vmsOn(ctx context.Context, l *life.Life, hosts []maas.VMHost) ([]string, error) {
	var names []string
	for _, host := range hosts {
		machines, err := l.Inventory.Client().ListMachines(ctx, maas.MachineFilter{VMHosts: []string{host.Name}})
		if err != nil {
			return nil, fmt.Errorf("looking for VMs on VM host %s: %w", host.Name, err)
		}
		for _, m := range machines {
			if m.Pod != nil && m.Pod.ID == host.ID {
				names = append(names, m.Hostname)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// retireNode asks the initializer on the node to stop, and waits until it confirms: a host that registers again while
// its machine is released would count as deployed. If the initializer can't be asked, or does not confirm in time, the
// machine is powered off first.
func (s *Steps) retireNode(ctx context.Context, l *life.Life, node *hostNode) (life.Outcome, error) {
	if node.unreachable == nil && node.Node == nil {
		return life.Proceed, nil // It never joined, or can't be asked any more.
	}
	asked, err := time.Time{}, node.unreachable
	if err != nil && node.silence < silenceLimit {
		return report.Wait(retireRetry, infrav1.RetiringReason, "the host cluster does not respond; asking it again"), nil
	}
	if err == nil {
		asked, err = node.askToRetire(ctx, s.Clock.Now())
	}
	if err != nil { // The host cluster does not respond, or a policy or a webhook there refuses.
		ctrl.LoggerFrom(ctx).Info("Can't ask the node to stop being a VM host; its machine is powered off instead", "reason",
			err.Error())
		return s.switchOff(ctx, l)
	}
	if node.hasRetired() || clusters.HostCondition(node.Node) == nil {
		return life.Proceed, nil // The initializer never began, and won't any more, or it is done.
	}
	if l.MAAS.PowerState == maas.PowerOff {
		return life.Proceed, nil // Nothing runs there that could confirm it, or register again.
	}
	if s.Clock.Since(asked) > retireTimeout {
		return s.switchOff(ctx, l)
	}
	return report.Wait(retireRetry, infrav1.RetiringReason,
		"waiting for the initializer to take the node out of service as a VM host"), nil
}

// askToRetire asks the initializer on a node to stop, once, and returns when it was asked. From then on the Node is as
// it was at that moment: the initializer may have begun since it was read.
func (n *hostNode) askToRetire(ctx context.Context, now time.Time) (time.Time, error) {
	if asked, err := time.Parse(time.RFC3339, n.Annotations[infrav1.LXDHostRetireAnnotation]); err == nil {
		return asked, nil
	}
	patched := n.DeepCopy()
	metav1.SetMetaDataAnnotation(&patched.ObjectMeta, infrav1.LXDHostRetireAnnotation, now.UTC().Format(time.RFC3339))
	if err := n.workload.Patch(ctx, patched, client.MergeFrom(n.Node)); err != nil {
		return now, fmt.Errorf("asking Node %s to stop being a VM host: %w", n.Name, err)
	}
	n.Node = patched
	return now, nil
}

// hostNode is the machine's Node as the host cluster has it now.
type hostNode struct {
	*corev1.Node               // nil if there is none, or the cluster does not respond
	joined       bool          // Cluster API has seen one
	unreachable  error         // why the cluster does not respond, or not to all that is asked
	silence      time.Duration // how long it has been unreachable
	others       []string      // names of the cluster's other Nodes
	certificate  string        // of its LXD's client, which is MAAS; "" if it is not known
	workload     client.Client
}

func (s *Steps) hostNode(ctx context.Context, l *life.Life) (*hostNode, error) {
	machines := &clusterv1.MachineList{}
	cluster := client.MatchingLabels{clusterv1.ClusterNameLabel: l.Cluster.Cluster.Name}
	if err := s.Client.List(ctx, machines, client.InNamespace(l.MaasMachine.Namespace), cluster); err != nil {
		return nil, fmt.Errorf("listing the host cluster's Machines: %w", err)
	}
	n := &hostNode{joined: l.Machine.Machine.Status.NodeRef.IsDefined()}
	for i := range machines.Items {
		if other := machines.Items[i].Status.NodeRef.Name; other != l.Machine.Machine.Status.NodeRef.Name {
			n.others = append(n.others, other)
		}
	}
	n.Node, n.workload, n.unreachable = s.readNode(ctx, l)
	if !l.Machine.Machine.Status.NodeRef.IsDefined() && !life.WasProvisioned(l.MaasMachine) {
		n.unreachable = nil // It never ran: there is none.
	}
	if n.Node != nil {
		n.unreachable = n.readCertificate(ctx)
	}
	n.silence = s.silence(l.MaasMachine.UID, n.unreachable != nil)
	return n, nil
}

// silence returns how long a machine's host cluster has not responded to this process.
func (s *Steps) silence(machine types.UID, silent bool) time.Duration {
	if !silent {
		s.End(machine)
		return 0
	}
	since, _ := s.since.LoadOrStore(machine, s.Clock.Now())
	return s.Clock.Since(since.(time.Time))
}

// readCertificate reads the certificate of the node's key pair.
func (n *hostNode) readCertificate(ctx context.Context) error {
	keys, err := clusters.NodeKeys(ctx, n.workload, n.Name)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if isOwner := func(owner metav1.OwnerReference) bool {
		return owner.UID == n.UID
	}; slices.ContainsFunc(keys.OwnerReferences, isOwner) {
		// Else it may be that of another machine, whose Node had this name.
		n.certificate = string(keys.Data[corev1.TLSCertKey])
	}
	return nil
}

// readNode returns nil if the cluster has no Node of this deployment, or no longer.
func (s *Steps) readNode(ctx context.Context, l *life.Life) (*corev1.Node, client.Client, error) {
	workload, err := s.ClusterCache.GetUncachedClient(ctx, client.ObjectKeyFromObject(l.Cluster.Cluster))
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return nil, nil, errors.New("the host cluster does not respond")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to the host cluster: %w", err)
	}
	nodes := &corev1.NodeList{}
	if err := workload.List(ctx, nodes); err != nil {
		return nil, nil, fmt.Errorf("reading the Node: %w", err)
	}
	return ownNode(l, nodes.Items), workload, nil
}

// ownNode returns the machine's Node, or nil. It finds it by provider ID, because Cluster API keeps the first name of a
// Node. A Node that has just joined, or that was deleted and that its kubelet registered again, has no provider ID.
// What that of the machine's former life says, for example that it has retired, is not said of this one.
func ownNode(l *life.Life, nodes []corev1.Node) *corev1.Node {
	nodes = list.Where(nodes, func(n corev1.Node) bool { return !l.IsFormer(&n) })
	id, names := l.MaasMachine.Spec.ProviderID, l.NodeNames()
	return cmp.Or(
		list.Find(nodes, func(n corev1.Node) bool { return n.Spec.ProviderID != "" && n.Spec.ProviderID == id }),
		list.Find(nodes, func(n corev1.Node) bool { return n.Spec.ProviderID == "" && slices.Contains(names, n.Name) }))
}

// identity returns the properties that identify the node's VM hosts. MAAS's addresses count only if the Node reports
// none itself: MAAS may have mixed them up.
func (n *hostNode) identity(l *life.Life) vmhosts.Node {
	id := vmhosts.Node{
		SystemID: l.MAAS.SystemID, Name: l.Machine.Machine.Status.NodeRef.Name, Others: n.others,
		Addresses:   l.MAAS.IPAddresses,
		Certificate: n.certificate,
	}
	if n.Node != nil {
		id.Name = n.Node.Name
	}
	if n.Node != nil && len(n.Status.Addresses) > 0 {
		id.Addresses = nil
		for _, address := range n.Status.Addresses {
			id.Addresses = append(id.Addresses, address.Address)
		}
	}
	return id
}

// isHost reports whether the Node says that it is a VM host. Its label stays while something fails there.
func (n *hostNode) isHost() bool {
	if n.Node == nil || n.hasRetired() {
		return false
	}
	c := clusters.HostCondition(n.Node)
	return n.Labels[infrav1.LXDHostLabel] == "true" || (c != nil && c.Status == corev1.ConditionTrue)
}

// hasRetired reports whether the initializer has taken the node out of service.
func (n *hostNode) hasRetired() bool {
	if n.Node == nil {
		return false
	}
	c := clusters.HostCondition(n.Node)
	return c != nil && c.Reason == infrav1.LXDHostRetiredReason
}

// unclear returns why it is not known which VM hosts run on the node; "" if it is. A node that was seen as a host is
// one until it has retired, whatever its cluster says of it meanwhile, or does not say.
func (n *hostNode) unclear(l *life.Life, on, inDoubt []maas.VMHost, now time.Time) string {
	if len(inDoubt) > 0 {
		doubtful := inDoubt[0]
		return fmt.Sprintf("VM host %s (id %d) may be on this machine: MAAS shows it on machine %q, and its address or its "+
			"certificate says otherwise. Remove it in MAAS if it is not there any more; if it is another machine's, these have "+
			"interfaces with one MAC address in common", doubtful.Name, doubtful.ID, doubtful.Host.SystemID)
	}
	if len(on) > 0 || isOutOfService(l.Record.MachineData) || n.hasRetired() {
		return ""
	}
	const waits = "and MAAS shows none on its machine, so its VMs are not known: the initializer registers it again " +
		"when LXD has none there. If it has none and is not registered, "
	switch {
	case n.Node == nil && l.Record.In(hosting):
		return fmt.Sprintf("machine %s was a VM host, its Node can't be read, %srelease the machine in MAAS", l.MAAS, waits)
	case n.isHost() || l.Record.In(hosting):
		return fmt.Sprintf("Node %s is a VM host, %sannotate the Node with %s=%s, or release machine %s in MAAS", n.Name,
			waits, infrav1.LXDHostRetireAnnotation, now.UTC().Format(time.DateOnly), l.MAAS)
	}
	return ""
}

// retire takes a node out of service: its initializer has confirmed that, or its machine is off. What MAAS saw last of
// its power may be old, and that MAAS does not know it, or fails, is no proof: its BMC is asked now.
func (s *Steps) retire(ctx context.Context, l *life.Life, node *hostNode) (life.Outcome, error) {
	if out, err := s.retireNode(ctx, l, node); err != nil || out.Waits() || !node.mayRun() {
		return out, err
	}
	power, err := l.Inventory.Client().QueryPower(ctx, l.MAAS.SystemID)
	switch {
	case errors.Is(err, maas.Unavailable) && !maas.NotSent(err):
		power = maas.PowerError // The BMC does not respond: MAAS was read just before.
	case err != nil:
		return life.Proceed, fmt.Errorf("asking for the power of machine %s: %w", l.MAAS.SystemID, err)
	}
	switch power {
	case maas.PowerOff:
		return life.Proceed, nil
	case maas.PowerOn:
		return s.cutPower(ctx, l)
	}
	return report.Wait(report.CapacityRetry, infrav1.RetiringReason, "the initializer has not confirmed that it stopped, "+
		"and MAAS can't say whether machine %s is off (its power is %s): check its power settings in MAAS, or switch it "+
		"off and release it in MAAS", l.MAAS, power), nil
}

// mayRun reports whether an initializer may run on the node. That of a Node which a person has deleted may.
func (n *hostNode) mayRun() bool {
	if n.Node == nil {
		return n.unreachable != nil || n.joined
	}
	return n.unreachable != nil || clusters.HostCondition(n.Node) != nil && !n.hasRetired()
}

// switchOff powers the machine off, so that nothing on it registers it again, unless MAAS saw last that it is not on.
func (s *Steps) switchOff(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MAAS.PowerState != maas.PowerOn {
		return life.Proceed, nil
	}
	return s.cutPower(ctx, l)
}

// cutPower powers the machine off.
func (s *Steps) cutPower(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if out, err := s.proveAgain(ctx, l); err != nil || out.Waits() {
		return out, err
	}
	return report.Wait(retireRetry, infrav1.RetiringReason, "switching the machine off before its release"),
		s.TellMachine(ctx, l, record.PowerOff, l.Machines.SwitchOff)
}
