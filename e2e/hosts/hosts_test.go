// SPDX-License-Identifier: Apache-2.0

package hosts_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/vmhosts"
	"github.com/capmaas/cluster-api-provider-maas/test/chaos"
	"github.com/capmaas/cluster-api-provider-maas/test/document"
	"github.com/capmaas/cluster-api-provider-maas/test/ledger"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	pool          = "capi" // has all machines of the region
	controlPlanes = 3
	// foreign is the name of another user's objects in a node's LXD.
	foreign = "foreign"
)

// TestHostCluster is one life, because coming up is the expensive part.
func TestHostCluster(t *testing.T) {
	lxdtest.Require(t)
	h := begin(t)
	h.step("comes up", h.comesUp)
	h.step("grows", h.grows)
	vm := h.composeOnWorker()
	h.step("keeps a machine with a VM", func() { h.keepsMachineWithVM(vm) })
	theirs := h.plant()
	h.step("carries control planes", h.carriesControlPlanes)
	h.step("is full", h.isFull)
	h.step("goes", func() { h.goes(theirs) })
}

// step logs the duration of a part of the life.
func (h *hostCluster) step(what string, do func()) {
	h.Helper()
	started := time.Now()
	do()
	h.Logf("The host cluster %s: %s", what, time.Since(started).Round(time.Second))
}

// hostCluster is the life of a host cluster.
type hostCluster struct {
	*life.Life
	daemons *ledger.Daemons
	maas    *maas.Client
}

func begin(t *testing.T) *hostCluster {
	region, err := maas.NewClient(maas.Config{Endpoint: box.MAASURL, APIKey: box.MAASAPIKey})
	if err != nil {
		t.Fatal(err)
	}
	daemons := ledger.FollowDaemons(func() map[string]string {
		sockets := map[string]string{}
		for node, daemon := range box.LXDs() {
			sockets[node] = daemon.Socket()
		}
		return sockets
	})
	t.Cleanup(daemons.Close)
	return &hostCluster{Life: life.Begin(t, box, "hosts"), daemons: daemons, maas: region}
}

// flavor is a cluster template for the region of the sandbox.
func flavor(t *testing.T, name, cluster string, more map[string]string) string {
	t.Helper()
	variables := map[string]string{
		"NAMESPACE": life.Namespace, "CLUSTER_NAME": cluster, "KUBERNETES_VERSION": "v1.35.0",
		"MAAS_DNS_DOMAIN": "maas.sim", "MAAS_IMAGE": "u-2204-k8s-1.35",
		"CONTROL_PLANE_MACHINE_COUNT": strconv.Itoa(controlPlanes), "CONTROL_PLANE_MACHINE_RESOURCEPOOL": pool,
		"WORKER_MACHINE_COUNT": "0", "WORKER_MACHINE_RESOURCEPOOL": pool,
	}
	maps.Copy(variables, more)
	manifest, err := box.Flavor(name, variables)
	if err != nil {
		t.Fatal(err)
	}
	return manifest
}

// comesUp: the cluster reports how many of its nodes are hosts until all are.
func (h *hostCluster) comesUp() {
	h.Helper()
	last := holdBack(controlPlanes - 1)
	h.Cleanup(last)
	h.Create(flavor(h.T, "lxd-host", h.Key.Name, map[string]string{
		"LXD_STORAGE_BACKEND": "btrfs", "LXD_STORAGE_SIZE": sandbox.PoolGB, "LXD_RESOURCE_POOL": pool,
	}))
	h.progress(fmt.Sprintf("%d of %d ", controlPlanes-1, controlPlanes), last)
	h.hosts(controlPlanes)
}

// holdBack makes MAAS register some VM hosts, and delays others until release is called: otherwise the last two may
// come together.
func holdBack(first int) (release func()) {
	var mutex sync.Mutex
	registered, underWay, released := 0, map[int]bool{}, make(chan struct{})
	box.MAAS.SetHook(func(call simulator.Call, phase simulator.Phase) error {
		if call.Method != http.MethodPost || call.Endpoint != "vm-hosts/" {
			return nil
		}
		mutex.Lock()
		if phase == simulator.After && underWay[call.Number] {
			delete(underWay, call.Number)
			if call.Status == http.StatusOK {
				registered++
			}
		}
		held := phase == simulator.Before && registered+len(underWay) >= first
		if phase == simulator.Before && !held {
			underWay[call.Number] = true
		}
		mutex.Unlock()
		if held {
			<-released
		}
		return nil
	})
	return sync.OnceFunc(func() {
		box.MAAS.SetHook(nil)
		close(released)
	})
}

// progress waits until the cluster reports its progress, lets the last node become a host, and waits until the cluster
// reports that all are.
func (h *hostCluster) progress(far string, last func()) {
	h.Helper()
	var said []string
	h.Wait("all nodes to be VM hosts", func() (bool, string, error) {
		cluster := &infrav1.MaasCluster{}
		err := h.Box.Client.Get(h.Context(), h.Key, cluster)
		ready := conditions.Get(cluster, infrav1.LXDReadyCondition)
		if err != nil || ready == nil {
			return false, "no condition", err
		}
		if !slices.Contains(said, ready.Message) {
			said = append(said, ready.Message)
		}
		if strings.HasPrefix(ready.Message, far) {
			last()
		}
		return ready.Status == metav1.ConditionTrue, fmt.Sprintf("%q", said), nil
	})
	if n := len(h.Machines()); n != controlPlanes {
		h.Errorf("LXDReady is true with %d machines, want %d", n, controlPlanes)
	}
}

// hosts waits until the cluster has as many machines and all are hosts, and checks that they are.
func (h *hostCluster) hosts(machines int) {
	h.Helper()
	h.Available(machines)
	var hosts []maas.VMHost
	h.Wait("all nodes to be VM hosts", func() (bool, string, error) {
		cluster := &infrav1.MaasCluster{}
		if err := h.Box.Client.Get(h.Context(), h.Key, cluster); err != nil {
			return false, "", err
		}
		var err error
		hosts, err = h.maas.ListVMHosts(h.Context())
		ready := conditions.IsTrue(cluster, infrav1.LXDReadyCondition) && len(hosts) == machines
		return ready, fmt.Sprintf("%d VM hosts; %s", len(hosts), sandbox.Conditions(cluster.Status.Conditions)), err
	})
	h.checkRegistered(hosts)
	h.checkNodes()
}

// checkRegistered compares MAAS's VM hosts with the cluster's machines.
func (h *hostCluster) checkRegistered(hosts []maas.VMHost) {
	h.Helper()
	controlPlanes, workers := h.MaasMachines()
	for _, m := range append(controlPlanes, workers...) {
		on := vmhosts.OnMachine(hosts, m.Spec.SystemID)
		if len(on) != 1 {
			h.Errorf("MAAS has %d VM hosts on %s, want one", len(on), m.Name)
			continue
		}
		if host := on[0]; !host.ResourcesKnown() || host.Zone.Name != m.Status.FailureDomain || host.Pool.Name != pool {
			h.Errorf("the VM host on %s (in zone %s) is %+v", m.Name, m.Status.FailureDomain, host)
		}
	}
}

// checkNodes checks the reports of the initializers, and their changes in LXD.
func (h *hostCluster) checkNodes() {
	h.Helper()
	workload, err := h.Box.WorkloadClient(h.Context(), h.Key)
	if err != nil {
		h.Fatal(err)
	}
	for _, running := range h.Box.HostNodes() {
		h.Wait("Node "+running.Name+" to be a host", func() (bool, string, error) {
			node := &corev1.Node{}
			err := workload.Get(h.Context(), ctrlclient.ObjectKey{Name: running.Name}, node)
			ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == infrav1.LXDHostReadyNodeCondition && c.Status == corev1.ConditionTrue
			})
			return ready && node.Labels[infrav1.LXDHostLabel] == "true", fmt.Sprint(node.Labels, node.Status.Conditions), err
		})
		server := h.lxd(running.Name)
		storage, _, err := server.GetStoragePool(lxdnode.DefaultStoragePool)
		if err != nil || storage.Driver != "btrfs" {
			h.Errorf("the storage pool of %s: %+v, %v", running.Name, storage, err)
		}
		if _, _, err := server.GetProject(lxdnode.DefaultProject); err != nil {
			h.Errorf("the project of %s: %v", running.Name, err)
		}
		if trusted, err := server.GetCertificateFingerprints(); err != nil || len(trusted) != 1 {
			h.Errorf("%s trusts %v (%v), want one certificate", running.Name, trusted, err)
		}
	}
}

// lxd is the daemon of a node.
func (h *hostCluster) lxd(node string) client.InstanceServer {
	h.Helper()
	for _, running := range h.Box.HostNodes() {
		if running.Name == node {
			return lxdtest.Connect(h.T, running.LXD.Socket())
		}
	}
	h.Fatalf("no node %s runs", node)
	return nil
}

// grows: a new node becomes a host by itself.
func (h *hostCluster) grows() {
	h.Helper()
	h.scaleWorkers(1)
	h.hosts(controlPlanes + 1)
	for _, node := range h.Box.HostNodes() {
		h.checkOwnNetwork(node)
	}
}

// checkOwnNetwork: in MAAS, the machine has its own card, with its own address on the bridge.
func (h *hostCluster) checkOwnNetwork(node sandbox.HostNode) {
	h.Helper()
	m, ok := h.Box.MAAS.Machine(node.SystemID)
	own := slices.ContainsFunc(m.Interfaces, func(i simulator.InterfaceSnapshot) bool {
		return len(i.Ports) == 1 && slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr() == node.Address })
	})
	if !ok || !own {
		h.Errorf("MAAS has %+v on machine %s, want a bridge with %s", m.Interfaces, m.Hostname, node.Address)
	}
}

// isFull: a VM that is larger than the free room of the hosts is refused, and leaves nothing. Its Cluster says why.
func (h *hostCluster) isFull() {
	h.Helper()
	before := h.daemons.Left()
	work := life.Begin(h.T, h.Box, "large")
	work.Create(flavor(h.T, "lxd", work.Key.Name, map[string]string{
		"CONTROL_PLANE_MACHINE_COUNT": "1", "CONTROL_PLANE_MACHINE_MINMEMORY": "1000000",
	}))
	said := ""
	work.Wait("the machine to say that no host has room", func() (full bool, _ string, _ error) {
		machines, _ := work.MaasMachines()
		if len(machines) != 1 {
			return false, "no machine", nil
		}
		why := conditions.Get(&machines[0], infrav1.MachineDeployedCondition)
		full = why != nil && why.Reason == infrav1.NoHostAvailableReason
		if full {
			said = why.Message
		}
		return full, sandbox.Conditions(machines[0].Status.Conditions), nil
	})
	work.Wait("the Cluster to say so too", func() (bool, string, error) {
		cluster := &clusterv1.Cluster{}
		err := h.Box.Client.Get(h.Context(), work.Key, cluster)
		got := conditions.GetMessage(cluster, clusterv1.ClusterControlPlaneMachinesReadyCondition)
		return strings.Contains(got, said), got, err
	})
	work.Delete()
	h.awaitLeft("the daemons to be as they were", before, h.daemons.Left)
}

func (h *hostCluster) scaleWorkers(replicas int32) {
	h.Helper()
	workers := &clusterv1.MachineDeployment{}
	key := ctrlclient.ObjectKey{Namespace: h.Key.Namespace, Name: h.Key.Name + "-md-0"}
	if err := h.Box.Client.Get(h.Context(), key, workers); err != nil {
		h.Fatal(err)
	}
	changed := workers.DeepCopy()
	changed.Spec.Replicas = ptr.To(replicas)
	if err := h.Box.Client.Patch(h.Context(), changed, ctrlclient.MergeFrom(workers)); err != nil {
		h.Fatal(err)
	}
}

// worker returns the existing worker, and its VM host.
func (h *hostCluster) worker() (infrav1.MaasMachine, maas.VMHost) {
	h.Helper()
	_, workers := h.MaasMachines()
	hosts, err := h.maas.ListVMHosts(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	return workers[0], vmhosts.OnMachine(hosts, workers[0].Spec.SystemID)[0]
}

// composeOnWorker makes another user's VM there.
func (h *hostCluster) composeOnWorker() (vm string) {
	h.Helper()
	_, host := h.worker()
	vm, err := h.maas.Compose(h.Context(), maas.Unrecorded("a test"), host.ID, maas.ComposeParams{
		Hostname: foreign, Cores: 1, Memory: 1024, Storage: "root:" + sandbox.VMDiskGB, ZoneID: host.Zone.ID, PoolID: host.Pool.ID, SkipCommissioning: true,
	})
	if err != nil {
		h.Fatal(err)
	}
	return vm
}

// keepsMachineWithVM: a host with a VM, even another user's, is not released; without VMs it is.
func (h *hostCluster) keepsMachineWithVM(vm string) {
	h.Helper()
	worker, host := h.worker()
	h.scaleWorkers(0)
	h.Wait("the machine to say what VM it waits for", func() (bool, string, error) {
		err := h.Box.Client.Get(h.Context(), ctrlclient.ObjectKeyFromObject(&worker), &worker)
		why := conditions.Get(&worker, infrav1.MachineDeployedCondition)
		said := why != nil && why.Reason == infrav1.VMsOnHostReason && strings.Contains(why.Message, foreign)
		return said, sandbox.Conditions(worker.Status.Conditions), err
	})
	if _, err := h.maas.GetVMHost(h.Context(), host.ID); err != nil {
		h.Errorf("the VM host, with a VM on it: %v", err)
	}
	h.checkInstance(host.Name, foreign)
	if err := h.maas.DeleteMachine(h.Context(), maas.Unrecorded("a test"), vm); err != nil {
		h.Fatal(err)
	}
	h.hosts(controlPlanes)
	h.awaitLeft("nothing in the LXD of the machine that was released", nil, func() []string { return h.leftOf(worker.Status.Hostname) })
}

// awaitLeft waits until the daemons, whose events come a moment later, report that exactly this is left.
func (h *hostCluster) awaitLeft(what string, want []string, left func() []string) {
	h.Helper()
	h.Wait(what, func() (bool, string, error) {
		got := left()
		return slices.Equal(want, got), cmp.Diff(want, got), nil
	})
}

func (h *hostCluster) checkInstance(node, name string) *api.Instance {
	h.Helper()
	instance, _, err := h.lxd(node).UseProject(lxdnode.DefaultProject).GetInstance(name)
	if err != nil {
		h.Errorf("VM %s on %s: %v", name, node, err)
		return &api.Instance{}
	}
	if instance.Type != string(api.InstanceTypeVM) {
		h.Errorf("%s on %s is a %s", name, node, instance.Type)
	}
	return instance
}

func (h *hostCluster) leftOf(node string) []string {
	return slices.DeleteFunc(h.daemons.Left(), func(line string) bool { return !strings.HasPrefix(line, node+": ") })
}

// plant puts another user's certificate and project into a node's LXD, and returns how they are reported.
func (h *hostCluster) plant() []string {
	h.Helper()
	node := h.Box.HostNodes()[0].Name
	server := h.lxd(node)
	if err := server.CreateProject(api.ProjectsPost{Name: foreign}); err != nil {
		h.Fatal(err)
	}
	keys, err := lxdnode.NewKeys(foreign)
	if err != nil {
		h.Fatal(err)
	}
	theirs, err := lxdnode.Connect(h.Context(), h.Box.HostNodes()[0].LXD.Socket())
	if err != nil {
		h.Fatal(err)
	}
	if _, err := theirs.Trust(h.Context(), foreign, foreign, keys.Certificate); err != nil {
		h.Fatal(err)
	}
	fingerprint, err := lxdnode.Fingerprint(keys.Certificate)
	if err != nil {
		h.Fatal(err)
	}
	certificate := node + ": certificates/" + fingerprint
	h.Wait("LXD to tell of the certificate", func() (bool, string, error) {
		left := h.daemons.Left()
		return slices.Contains(left, certificate), fmt.Sprint(left), nil
	})
	return []string{certificate}
}

// carriesControlPlanes: the control planes of another cluster are VMs in the daemons, one in each. In the full attack,
// they stay available while all hosts are replaced. They are deleted again.
func (h *hostCluster) carriesControlPlanes() {
	h.Helper()
	work := life.Several(h.T, h.Box, "work")[0] // Its hosts are others in the end.
	work.Create(flavor(h.T, "lxd", work.Key.Name, map[string]string{"CONTROL_PLANE_MACHINE_MINDISKSIZE": sandbox.VMDiskGB}))
	work.Available(controlPlanes)
	machines, _ := work.MaasMachines()
	nodes := map[string]bool{}
	for _, vm := range work.Held(machines) {
		nodes[vm.VMHost] = true
		if instance := h.checkInstance(vm.VMHost, vm.Hostname); instance.StatusCode != api.Running {
			h.Errorf("VM %s is %s", vm.Hostname, instance.Status)
		}
	}
	if len(nodes) != controlPlanes {
		h.Errorf("the control planes are on %v, want %d hosts", slices.Collect(maps.Keys(nodes)), controlPlanes)
	}
	if chaos.Full() {
		h.step("is rolled out under them", func() { h.isRolledOut(work) })
	}
	work.Delete()
	h.awaitLeft("the daemons to have no instances", nil, func() []string {
		return slices.DeleteFunc(h.daemons.Left(), func(line string) bool { return !strings.Contains(line, ": instances/") })
	})
}

// isRolledOut replaces all hosts, one after the other. Each is emptied before it goes, into the room that its successor
// brings.
func (h *hostCluster) isRolledOut(work *life.Life) {
	h.Helper()
	endWatch := life.WatchQuorum(h.T, life.Replicas{Life: work, ControlPlanes: controlPlanes})
	old := h.Machines()
	document.Open(h.T, "../../docs/maintenance.md", "KUBECONFIG="+box.KubeconfigPath).Run(h.T, "rollout")
	h.Wait("all hosts to be replaced", func() (bool, string, error) {
		var left []string
		for _, m := range h.Machines() {
			if slices.ContainsFunc(old, func(o clusterv1.Machine) bool { return o.UID == m.UID }) {
				left = append(left, m.Name+": "+conditions.GetMessage(&m, clusterv1.InfrastructureReadyCondition))
			}
		}
		return len(left) == 0, strings.Join(left, "; "), nil
	})
	h.hosts(controlPlanes)
	work.Available(controlPlanes)
	endWatch()
}

// goes: nothing is left but other users' objects.
func (h *hostCluster) goes(theirs []string) {
	h.Helper()
	controlPlanes, _ := h.MaasMachines()
	h.Delete()
	h.awaitLeft("the daemons to have nothing but what was another user's", theirs, h.daemons.Left)
	for node, events := range h.daemons.Events() {
		for _, event := range events {
			kind, deleted := strings.CutSuffix(event.Action, "-deleted")
			if deleted && kind != "certificate" && kind != "instance" && kind != "storage-volume" {
				h.Errorf("%s: %s %s", node, event.Action, event.Source)
			}
		}
	}
	h.Wait("the machines to be wiped", func() (bool, string, error) {
		var left []string
		for _, node := range h.Box.HostNodes() {
			left = append(left, node.Name+" runs")
		}
		for _, m := range controlPlanes {
			if h.Box.LXD(m.Spec.SystemID) != nil {
				left = append(left, m.Name+" has its LXD")
			}
		}
		return len(left) == 0, strings.Join(left, ", "), nil
	})
}
