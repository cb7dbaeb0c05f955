// SPDX-License-Identifier: Apache-2.0

package life

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// Cluster API may have read the Node before it had the provider ID. It reads it again when the MaasMachine changes.
func TestTheStatusNamesTheNodeWithTheProviderID(t *testing.T) {
	const providerID = "maas://zone-a/abc123"
	for name, tc := range map[string]struct {
		node, providerID string // "" is none
		ref              string // the Machine's
		want, patched    string
	}{
		"it has not joined":                    {},
		"it joined":                            {node: "metal-a", want: "metal-a", patched: providerID},
		"it joined under its full name":        {node: "metal-a.maas.sim", want: "metal-a.maas.sim", patched: providerID},
		"it has it, after a move":              {node: "metal-a", providerID: providerID, want: "metal-a", patched: providerID},
		"it has one from another provider":     {node: "metal-a", providerID: "aws:///z/i-1", patched: "aws:///z/i-1"},
		"Cluster API found it by another name": {node: "other", providerID: providerID, ref: "other", want: "other", patched: providerID},
		"Cluster API found it":                 {node: "metal-a", providerID: providerID, ref: "metal-a", want: "metal-a", patched: providerID},
	} {
		t.Run(name, func(t *testing.T) {
			workload := fake.NewClientBuilder().Build()
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: tc.node}, Spec: corev1.NodeSpec{ProviderID: tc.providerID}}
			if tc.node != "" {
				if err := workload.Create(t.Context(), node); err != nil {
					t.Fatal(err)
				}
			}
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Namespace: "ns"}}
			machine := &clusterv1.Machine{}
			machine.Status.NodeRef.Name = tc.ref
			m := &infrav1.MaasMachine{Spec: infrav1.MaasMachineSpec{ProviderID: providerID}}
			l := &Life{
				Machine: &scope.Machine{Cluster: &scope.Cluster{Cluster: cluster}, Machine: machine, MaasMachine: m},
				MAAS:    &maas.Machine{Hostname: "metal-a", FQDN: "metal-a.maas.sim", Zone: maas.Ref{Name: "zone-a"}},
				Record:  &record.Machine{},
			}
			recorder := events.NewFakeRecorder(10)
			r := &Steps{Base: reconciler.Base{Recorder: recorder}, ClusterCache: clustercache.NewFakeClusterCache(workload, client.ObjectKeyFromObject(cluster), NodeWatch)}
			if _, err := r.Node(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			if m.Status.NodeName != tc.want {
				t.Errorf("the status names the Node %q, want %q", m.Status.NodeName, tc.want)
			}
			if tc.node == "" {
				return
			}
			if err := workload.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
				t.Fatal(err)
			}
			if node.Spec.ProviderID != tc.patched {
				t.Errorf("the Node's provider ID is %q, want %q", node.Spec.ProviderID, tc.patched)
			}
			ours := tc.patched == providerID
			if (node.Labels[corev1.LabelTopologyZone] == "zone-a") != ours {
				t.Errorf("the Node is labelled %v; it is ours: %t", node.Labels, ours)
			}
			if got := len(recorder.Events); (got == 0) != ours {
				t.Errorf("there are %d events; the Node is ours: %t", got, ours)
			}
		})
	}
}

// By its own evidence, never by its name.
func TestWhoseNodeItIs(t *testing.T) {
	deployed := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	before, after := metav1.NewTime(deployed.Add(-time.Hour)), metav1.NewTime(deployed.Add(time.Hour))
	reported := func(at metav1.Time) []corev1.NodeCondition {
		return []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: at}, {Type: corev1.NodeDiskPressure, LastHeartbeatTime: after}}
	}
	for name, tc := range map[string]struct {
		created      metav1.Time
		going        bool
		boot, former string // ids
		reported     []corev1.NodeCondition
		early        bool // deployed by a manager that recorded no time
		isOwn        bool
	}{
		"registered since":                          {created: after, isOwn: true},
		"registered in the same second":             {created: deployed, isOwn: true},
		"registered since, in its second boot":      {created: after, boot: "b", former: "a", isOwn: true},
		"being deleted":                             {created: after, going: true},
		"older, in the same boot":                   {created: before, boot: "a", former: "a", reported: reported(after)},
		"older, in another boot":                    {created: before, boot: "b", former: "a", reported: reported(before), isOwn: true},
		"older, with a boot that is not known":      {created: before, former: "a", reported: reported(after)},
		"older, and silent since":                   {created: before, boot: "b", reported: reported(before)},
		"older, and never heard of":                 {created: before},
		"older, with a report since":                {created: before, boot: "b", reported: reported(after), isOwn: true},
		"older, in another boot, and being deleted": {created: before, boot: "b", former: "a", going: true},
		"when nobody knows when it was deployed":    {created: before, early: true, isOwn: true},
		"being deleted, when nobody knows that":     {created: before, early: true, going: true},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "metal-a", CreationTimestamp: tc.created}}
			node.Status.NodeInfo.BootID, node.Status.Conditions = tc.boot, tc.reported
			if tc.going {
				node.DeletionTimestamp, node.Finalizers = &after, []string{"example.com/holds"}
			}
			l := &Life{MAAS: &maas.Machine{Hostname: "metal-a"}, Record: &record.Machine{}}
			if l.Record.FormerBoot = tc.former; !tc.early {
				l.Record.DeployedSince = &deployed
			}
			why := l.whyFormer(node)
			if (why == "") != tc.isOwn || strings.Contains(why, "example.com/holds") != tc.going {
				t.Errorf("it is not the machine's: %q", why)
			}
		})
	}
}

// Kubelets change their Nodes all the time: only what concerns an identity wakes a machine.
func TestWhichChangesOfNodesWakeAMachine(t *testing.T) {
	whole := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "metal-a", UID: "1", Labels: map[string]string{corev1.LabelTopologyZone: "zone-a"}},
		Spec: corev1.NodeSpec{ProviderID: "maas://zone-a/abc123"}}
	whole.Status.NodeInfo.BootID = "a"
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		wakes  bool
	}{
		"a report":       {change: func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}} }},
		"another label":  {change: func(n *corev1.Node) { n.Labels["a"] = "b" }},
		"no provider ID": {change: func(n *corev1.Node) { n.Spec.ProviderID = "" }, wakes: true},
		"another object, deleted and made again unseen": {change: func(n *corev1.Node) { n.UID = "2" }, wakes: true},
		"a deletion":           {change: func(n *corev1.Node) { n.DeletionTimestamp = ptr.To(metav1.Now()) }, wakes: true},
		"a boot":               {change: func(n *corev1.Node) { n.Status.NodeInfo.BootID = "b" }, wakes: true},
		"a label that is gone": {change: func(n *corev1.Node) { delete(n.Labels, corev1.LabelTopologyZone) }, wakes: true},
	} {
		node := whole.DeepCopy()
		tc.change(node)
		if got := identities.Update(event.UpdateEvent{ObjectOld: whole, ObjectNew: node}); got != tc.wakes {
			t.Errorf("%s: it wakes the machine: %t", name, got)
		}
	}
	if identities.Create(event.CreateEvent{Object: whole}) || !identities.Delete(event.DeleteEvent{Object: whole}) {
		t.Error("a Node with an identity wakes its machine as it comes, or not as it goes")
	}
	for name, lacks := range map[string]func(*corev1.Node){
		"a provider ID": func(n *corev1.Node) { n.Spec.ProviderID = "" }, "labels": func(n *corev1.Node) { n.Labels = nil },
	} {
		node := whole.DeepCopy()
		if lacks(node); !identities.Create(event.CreateEvent{Object: node}) {
			t.Errorf("a Node without %s does not wake its machine", name)
		}
	}
}

// A machine that runs is not polled for its Node: the watch wakes it.
func TestAMachineWithANodeCausesNoRequests(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "metal-a", Labels: map[string]string{corev1.LabelTopologyZone: "zone-a"}},
		Spec: corev1.NodeSpec{ProviderID: "maas://zone-a/abc123"}}
	workload := interceptor.NewClient(fake.NewClientBuilder().WithObjects(node).Build(), interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			t.Error("a Node that lacks nothing is patched")
			return nil
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			t.Error("all Nodes are listed")
			return nil
		},
	})
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Namespace: "ns"}}
	for name, cache := range map[string]clustercache.ClusterCache{
		"": clustercache.NewFakeClusterCache(workload, client.ObjectKeyFromObject(cluster), NodeWatch),
		"while the workload cluster does not respond": clustercache.NewFakeEmptyClusterCache(),
	} {
		machine, m := &clusterv1.Machine{}, &infrav1.MaasMachine{Spec: infrav1.MaasMachineSpec{ProviderID: node.Spec.ProviderID}}
		machine.Status.NodeRef.Name, m.Status.NodeName = node.Name, node.Name
		r := &Steps{Base: reconciler.Base{Recorder: events.NewFakeRecorder(10)}, ClusterCache: cache}
		out, err := r.Node(t.Context(), &Life{
			Machine: &scope.Machine{Cluster: &scope.Cluster{Cluster: cluster}, Machine: machine, MaasMachine: m},
			MAAS:    &maas.Machine{Hostname: "metal-a", Zone: maas.Ref{Name: "zone-a"}}, Record: &record.Machine{},
		})
		if err != nil || out.Waits() || len(m.Status.Conditions) > 0 {
			t.Errorf("%s: %+v, %v, %v", name, out, err, m.Status.Conditions)
		}
	}
}

func TestLabels(t *testing.T) {
	for name, tc := range map[string]struct {
		machine maas.Machine
		host    string
		before  map[string]string
		want    map[string]string
	}{
		"bare metal": {
			machine: maas.Machine{Zone: maas.Ref{Name: "zone-a"}, Pool: maas.Ref{Name: "metal"}},
			want:    map[string]string{corev1.LabelTopologyZone: "zone-a", infrav1.ResourcePoolLabel: "metal"},
		},
		"a VM": {
			machine: maas.Machine{Zone: maas.Ref{Name: "zone-a"}, Pool: maas.Ref{Name: "vms"}}, host: "lxd-a",
			want: map[string]string{corev1.LabelTopologyZone: "zone-a", infrav1.ResourcePoolLabel: "vms", infrav1.HostLabel: "lxd-a"},
		},
		"names that are no values": {
			machine: maas.Machine{Zone: maas.Ref{Name: "zone a"}, Pool: maas.Ref{Name: "metal"}},
			want:    map[string]string{infrav1.ResourcePoolLabel: "metal"},
		},
		"somebody else's": {
			machine: maas.Machine{Zone: maas.Ref{Name: "zone-a"}, Pool: maas.Ref{Name: "metal"}},
			before:  map[string]string{corev1.LabelTopologyZone: "hall-1", "a": "b"},
			want:    map[string]string{corev1.LabelTopologyZone: "hall-1", "a": "b", infrav1.ResourcePoolLabel: "metal"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: tc.before}}
			m := &infrav1.MaasMachine{ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(tc.before)}, Status: infrav1.MaasMachineStatus{LXDHost: tc.host}}
			label(node, &Life{Machine: &scope.Machine{MaasMachine: m}, MAAS: &tc.machine})
			for what, got := range map[string]map[string]string{"Node": node.Labels, "MaasMachine": m.Labels} {
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("labels of the %s (-want +got):\n%s", what, diff)
				}
			}
		})
	}
}
