// SPDX-License-Identifier: Apache-2.0

package flows_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/e2e/ledger"
	"github.com/capmaas/cluster-api-provider-maas/e2e/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
)

const (
	createTimeout = 4 * time.Minute
	deleteTimeout = 3 * time.Minute
	shortTimeout  = time.Minute
)

// flow is one cluster's life, and what it is measured by.
type flow struct {
	*testing.T
	key    client.ObjectKey
	before []byte
	book   *ledger.Ledger
	begin  ledger.Mark
	record *recordWatch
	gone   bool
}

// begin notes how MAAS is. When the test fails, all that matters is shown, and the cluster is deleted for the tests after it.
func begin(t *testing.T, name string) *flow {
	t.Helper()
	f := &flow{T: t, key: client.ObjectKey{Namespace: namespace, Name: name}, before: box.MAAS.State(), book: ledger.Open(box.MAAS)}
	f.begin = f.book.Mark()
	t.Cleanup(func() {
		f.book.Close()
		if f.record != nil {
			f.record.stop()
		}
		if t.Failed() {
			dump(t)
		}
		if !f.gone {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), deleteTimeout)
			defer cancel()
			if err := box.DeleteCluster(ctx, f.key); err != nil {
				t.Errorf("cleaning up: %v", err)
			}
		}
	})
	return f
}

func (f *flow) within(limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(f.Context(), limit)
	f.Cleanup(cancel)
	return ctx
}

// create applies objects, and watches the DNS record of the cluster's endpoint from then on.
func (f *flow) create(manifest string) {
	f.Helper()
	if err := box.ApplyYAML(f.within(shortTimeout), strings.NewReader(manifest)); err != nil {
		f.Fatal(err)
	}
	f.record = watchRecord(f.T, f.endpoint())
}

// endpoint waits for the name of the cluster's API endpoint.
func (f *flow) endpoint() string {
	f.Helper()
	cluster := &clusterv1.Cluster{}
	f.wait("the API endpoint to have a name", func() (bool, string, error) {
		err := box.Client.Get(f.Context(), f.key, cluster)
		return cluster.Spec.ControlPlaneEndpoint.Host != "", sandbox.Conditions(cluster.Status.Conditions), err
	})
	return cluster.Spec.ControlPlaneEndpoint.Host
}

func (f *flow) wait(what string, check func() (bool, string, error)) {
	f.Helper()
	if err := sandbox.WaitFor(f.within(createTimeout), what, check); err != nil {
		f.Fatal(err)
	}
}

// available waits until the cluster is available with as many machines, and checks what must hold for any cluster.
func (f *flow) available(machines int) {
	f.Helper()
	if err := box.WaitAvailable(f.within(createTimeout), f.key, machines); err != nil {
		f.Fatal(err)
	}
	f.checkNodes()
	f.checkRecord()
}

func (f *flow) ours() []client.ListOption {
	return []client.ListOption{client.InNamespace(f.key.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: f.key.Name}}
}

// maasMachines are the cluster's, control planes first.
func (f *flow) maasMachines() (controlPlanes, workers []infrav1.MaasMachine) {
	f.Helper()
	list := &infrav1.MaasMachineList{}
	if err := box.Client.List(f.Context(), list, f.ours()...); err != nil {
		f.Fatal(err)
	}
	for _, m := range list.Items {
		if _, is := m.Labels[clusterv1.MachineControlPlaneLabel]; is {
			controlPlanes = append(controlPlanes, m)
		} else {
			workers = append(workers, m)
		}
	}
	return controlPlanes, workers
}

// held are the machines in MAAS that the cluster has, by what MAAS says: control planes' VMs and bare metal.
func (f *flow) held(of []infrav1.MaasMachine) []simulator.MachineSnapshot {
	f.Helper()
	var machines []simulator.MachineSnapshot
	for _, m := range of {
		snapshot, found := box.MAAS.Machine(m.Spec.SystemID)
		if !found {
			f.Errorf("MAAS has no machine %q, which %s is", m.Spec.SystemID, m.Name)
			continue
		}
		if snapshot.Status != "Deployed" || !snapshot.Running {
			f.Errorf("MAAS says that %s, which %s is, is %s and its power %s", snapshot.Hostname, m.Name, snapshot.Status, snapshot.Power)
		}
		machines = append(machines, snapshot)
	}
	return machines
}

// checkNodes compares the provider IDs of the workload cluster's Nodes with those of the machines.
func (f *flow) checkNodes() {
	f.Helper()
	controlPlanes, workers := f.maasMachines()
	var want, got []string
	for _, m := range append(controlPlanes, workers...) {
		snapshot, _ := box.MAAS.Machine(m.Spec.SystemID)
		scheme := "maas://"
		if m.Spec.IsLXD() {
			scheme = "maas-lxd://"
		}
		want = append(want, scheme+snapshot.Zone+"/"+snapshot.SystemID)
	}
	workload, err := box.WorkloadClient(f.Context(), f.key)
	if err != nil {
		f.Fatal(err)
	}
	nodes := &corev1.NodeList{}
	if err := workload.List(f.within(shortTimeout), nodes); err != nil {
		f.Fatal(err)
	}
	for _, node := range nodes.Items {
		got = append(got, node.Spec.ProviderID)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		f.Errorf("provider IDs of the Nodes (-want +got):\n%s", diff)
	}
}

// checkRecord waits until the DNS record leads to all control planes and to nothing else.
func (f *flow) checkRecord() {
	f.Helper()
	f.wait("the DNS record to lead to the control planes", func() (bool, string, error) {
		controlPlanes, _ := f.maasMachines()
		var want []string
		for _, m := range controlPlanes {
			want = append(want, internalAddress(m))
		}
		slices.Sort(want)
		got := f.record.now()
		return slices.Equal(want, got), cmp.Diff(want, got), nil
	})
	f.record.check()
}

func internalAddress(m infrav1.MaasMachine) string {
	for _, address := range m.Status.Addresses {
		if address.Type == clusterv1.MachineInternalIP {
			return address.Address
		}
	}
	return ""
}

// scaleWorkers changes how many workers a topology Cluster has.
func (f *flow) scaleWorkers(replicas int32) {
	f.Helper()
	f.change(func(cluster *clusterv1.Cluster) {
		cluster.Spec.Topology.Workers.MachineDeployments[0].Replicas = ptr.To(replicas)
	})
}

// change changes the Cluster.
func (f *flow) change(mutate func(*clusterv1.Cluster)) {
	f.Helper()
	cluster := &clusterv1.Cluster{}
	if err := box.Client.Get(f.Context(), f.key, cluster); err != nil {
		f.Fatal(err)
	}
	changed := cluster.DeepCopy()
	mutate(changed)
	if err := box.Client.Patch(f.within(shortTimeout), changed, client.MergeFrom(cluster)); err != nil {
		f.Fatal(err)
	}
}

// delete deletes the cluster, and compares MAAS with how it was before.
func (f *flow) delete() {
	f.Helper()
	if f.record != nil {
		f.record.stop()
		f.record.check()
	}
	if err := box.DeleteCluster(f.within(deleteTimeout), f.key); err != nil {
		f.Fatal(err)
	}
	f.gone = true
	f.checkRemains()
}

func (f *flow) checkRemains() {
	f.Helper()
	remains, err := ledger.Remains(f.before, box.MAAS.State())
	if err != nil {
		f.Fatal(err)
	}
	if len(remains) > 0 {
		f.Errorf("left in MAAS (- before, + after):\n%s", strings.Join(remains, "\n"))
	}
}

// machines are the Machines of the cluster.
func (f *flow) machines() []clusterv1.Machine {
	f.Helper()
	list := &clusterv1.MachineList{}
	if err := box.Client.List(f.Context(), list, f.ours()...); err != nil {
		f.Fatal(err)
	}
	return list.Items
}
