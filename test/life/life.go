// SPDX-License-Identifier: Apache-2.0

// Package life is the life of one cluster in a sandbox, under test: it comes up in the simulated MAAS, changes, and is
// deleted, and MAAS is as it was before. Lives run one after the other, because they compare all of MAAS, except those
// in Together.
package life

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/ledger"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	// createTimeout allows for the minutes that Cluster API takes to notice a broken connection to a control plane.
	createTimeout = 2 * eventually.Limit
	deleteTimeout = eventually.Limit
	shortTimeout  = eventually.Limit
)

// Namespace that clusters are created in.
const Namespace = "default"

// Life is one cluster's life. Errors fail the test.
type Life struct {
	*testing.T
	// Box is its sandbox.
	Box *sandbox.Sandbox
	// Key is the name of the Cluster.
	Key client.ObjectKey
	// Record watches the DNS record of the API endpoint; nil before Create or Watch, and where the endpoint is an address.
	Record *Record

	before []byte
	gone   bool
	among  bool // other lives, at the same time
}

// Begin records the state of MAAS. When the test fails, it shows everything that matters, and deletes the cluster for
// the tests after it.
func Begin(t *testing.T, box *sandbox.Sandbox, name string) *Life {
	t.Helper()
	return begin(t, box, name)[0]
}

// Several begins the lives of clusters that one test leads at the same time. What MAAS has when one of them has ended is
// not compared.
func Several(t *testing.T, box *sandbox.Sandbox, names ...string) []*Life {
	t.Helper()
	lives := begin(t, box, names...)
	for _, l := range lives {
		l.among = true
	}
	return lives
}

func begin(t *testing.T, box *sandbox.Sandbox, names ...string) []*Life {
	t.Helper()
	var lives []*Life
	for _, name := range names {
		l := &Life{
			T: t, Box: box, Key: client.ObjectKey{Namespace: Namespace, Name: name},
			before: box.MAAS.State(),
		}
		lives = append(lives, l)
	}
	t.Cleanup(func() {
		for _, l := range lives {
			if l.Record != nil {
				l.Record.stop()
			}
		}
		if t.Failed() {
			Dump(t, box)
		}
		cleanUp(t, lives)
	})
	return lives
}

// cleanUp deletes the clusters that are still there, all at once.
func cleanUp(t *testing.T, lives []*Life) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), deleteTimeout)
	defer cancel()
	var each sync.WaitGroup
	for _, l := range lives {
		if l.gone {
			continue
		}
		each.Go(func() {
			if err := l.Box.DeleteCluster(ctx, l.Key); err != nil {
				t.Errorf("cleaning up: %v", err)
			}
		})
	}
	each.Wait()
}

// Within is the test's context with a deadline.
func (l *Life) Within(limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(l.Context(), limit)
	l.Cleanup(cancel)
	return ctx
}

// Apply applies objects.
func (l *Life) Apply(manifest string) {
	l.Helper()
	if err := l.Box.ApplyYAML(l.Within(shortTimeout), strings.NewReader(manifest)); err != nil {
		l.Fatal(err)
	}
}

// Create applies objects, and watches the DNS record of the cluster's endpoint from then on.
func (l *Life) Create(manifest string) {
	l.Helper()
	l.Apply(manifest)
	l.Watch()
}

// Watch watches the DNS record of the endpoint of a cluster that was applied.
func (l *Life) Watch() {
	l.Helper()
	if endpoint := l.endpoint(); net.ParseIP(endpoint) == nil {
		l.Record = watchRecord(l.T, l.Box.MAAS, endpoint)
	}
}

// endpoint waits for the name of the cluster's API endpoint.
func (l *Life) endpoint() string {
	l.Helper()
	cluster := &clusterv1.Cluster{}
	l.Wait("the API endpoint to have a name", func() (bool, string, error) {
		err := l.Box.Client.Get(l.Context(), l.Key, cluster)
		return cluster.Spec.ControlPlaneEndpoint.Host != "", sandbox.Conditions(cluster.Status.Conditions), err
	})
	return cluster.Spec.ControlPlaneEndpoint.Host
}

// Wait waits for something that a cluster on its way does in time.
func (l *Life) Wait(what string, check func() (bool, string, error)) {
	l.Helper()
	if err := eventually.Wait(l.Within(createTimeout), what, check); err != nil {
		l.Fatal(err)
	}
}

// Control has the simulated MAAS do what no MAAS API can.
func (l *Life) Control(path, body string) {
	l.Helper()
	if err := l.Box.Control(l.Context(), path, body); err != nil {
		l.Fatal(err)
	}
}

// Available waits until the cluster is available with as many machines, and checks what must hold for any cluster.
func (l *Life) Available(machines int) {
	l.Helper()
	if err := l.Box.WaitAvailable(l.Within(createTimeout), l.Key, machines); err != nil {
		l.Fatal(err)
	}
	l.checkNodes()
	if l.Record != nil {
		l.checkRecord()
	}
}

func (l *Life) ours() []client.ListOption {
	return []client.ListOption{client.InNamespace(l.Key.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: l.Key.Name}}
}

// MaasMachines are the cluster's, control planes first. One that Cluster API made for a Machine that it then could not
// make stays behind alone, and does not count.
func (l *Life) MaasMachines() (controlPlanes, workers []infrav1.MaasMachine) {
	l.Helper()
	list := &infrav1.MaasMachineList{}
	if err := l.Box.Client.List(l.Context(), list, l.ours()...); err != nil {
		l.Fatal(err)
	}
	for _, m := range list.Items {
		_, controlPlane := m.Labels[clusterv1.MachineControlPlaneLabel]
		switch {
		case !slices.ContainsFunc(m.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.Kind == "Machine" }):
		case controlPlane:
			controlPlanes = append(controlPlanes, m)
		default:
			workers = append(workers, m)
		}
	}
	return controlPlanes, workers
}

// Held returns the cluster's machines, according to MAAS or LXD: control planes' VMs and bare metal.
func (l *Life) Held(of []infrav1.MaasMachine) []simulator.MachineSnapshot {
	l.Helper()
	var machines []simulator.MachineSnapshot
	for _, m := range of {
		snapshot, found := l.Box.Machine(m.Spec.SystemID)
		if !found {
			l.Errorf("there is no machine %q, which %s is", m.Spec.SystemID, m.Name)
			continue
		}
		if snapshot.Status != "Deployed" || !snapshot.Running {
			l.Errorf("MAAS says that %s, which %s is, is %s and its power %s", snapshot.Hostname, m.Name, snapshot.Status, snapshot.Power)
		}
		machines = append(machines, snapshot)
	}
	return machines
}

// checkNodes compares the provider IDs of the workload cluster's Nodes with those of the machines.
func (l *Life) checkNodes() {
	l.Helper()
	controlPlanes, workers := l.MaasMachines()
	var want, got []string
	for _, m := range append(controlPlanes, workers...) {
		snapshot, _ := l.Box.Machine(m.Spec.SystemID)
		scheme := "maas://"
		if m.Spec.IsLXD() {
			scheme = "maas-lxd://"
		}
		want = append(want, scheme+snapshot.Zone+"/"+snapshot.SystemID)
	}
	workload, err := l.Box.WorkloadClient(l.Context(), l.Key)
	if err != nil {
		l.Fatal(err)
	}
	nodes := &corev1.NodeList{}
	if err := workload.List(l.Within(shortTimeout), nodes); err != nil {
		l.Fatal(err)
	}
	for _, node := range nodes.Items {
		got = append(got, node.Spec.ProviderID)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		l.Errorf("provider IDs of the Nodes (-want +got):\n%s", diff)
	}
}

// checkRecord waits until the DNS record leads to all control planes and to nothing else.
func (l *Life) checkRecord() {
	l.Helper()
	l.Wait("the DNS record to lead to the control planes", func() (bool, string, error) {
		controlPlanes, _ := l.MaasMachines()
		var want []string
		for _, m := range controlPlanes {
			want = append(want, internalAddress(m))
		}
		slices.Sort(want)
		got := l.Record.Addresses()
		return slices.Equal(want, got), cmp.Diff(want, got), nil
	})
	l.Record.check()
}

func internalAddress(m infrav1.MaasMachine) string {
	for _, address := range m.Status.Addresses {
		if address.Type == clusterv1.MachineInternalIP {
			return address.Address
		}
	}
	return ""
}

// ScaleWorkers changes how many workers a topology Cluster has.
func (l *Life) ScaleWorkers(replicas int32) {
	l.Helper()
	l.Change(func(cluster *clusterv1.Cluster) {
		cluster.Spec.Topology.Workers.MachineDeployments[0].Replicas = ptr.To(replicas)
	})
}

// Change changes the Cluster.
func (l *Life) Change(mutate func(*clusterv1.Cluster)) {
	l.Helper()
	cluster := &clusterv1.Cluster{}
	if err := l.Box.Client.Get(l.Context(), l.Key, cluster); err != nil {
		l.Fatal(err)
	}
	changed := cluster.DeepCopy()
	mutate(changed)
	if err := l.Box.Client.Patch(l.Within(shortTimeout), changed, client.MergeFrom(cluster)); err != nil {
		l.Fatal(err)
	}
}

// Delete deletes the cluster, and compares MAAS with how it was before.
func (l *Life) Delete() {
	l.Helper()
	if l.Record != nil {
		l.Record.stop()
		l.Record.check()
	}
	if err := l.Box.DeleteCluster(l.Within(deleteTimeout), l.Key); err != nil {
		l.Fatal(err)
	}
	l.gone = true
	if !l.among {
		checkRemains(l.T, l.before, l.Box)
	}
}

func checkRemains(t *testing.T, before []byte, box *sandbox.Sandbox) {
	t.Helper()
	remains, err := ledger.Remains(before, box.MAAS.State())
	if err != nil {
		t.Fatal(err)
	}
	if len(remains) > 0 {
		t.Errorf("left in MAAS (- before, + after):\n%s", strings.Join(remains, "\n"))
	}
}

// Machines are the Machines of the cluster.
func (l *Life) Machines() []clusterv1.Machine {
	l.Helper()
	list := &clusterv1.MachineList{}
	if err := l.Box.Client.List(l.Context(), list, l.ours()...); err != nil {
		l.Fatal(err)
	}
	return list.Items
}
