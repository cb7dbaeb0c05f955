// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maascluster"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/internal/reasons"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// began is when everything in these tests began; it is 90 seconds ago.
var began = metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

func atAFixedTime(t *testing.T) {
	t.Helper()
	before := now
	now = func() time.Time { return began.Add(90 * time.Second) }
	t.Cleanup(func() { now = before })
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: began}
}

// aMachine is a control plane on bare metal that MAAS deploys.
func aMachine(t *testing.T) *infrav1.MaasMachine {
	t.Helper()
	text, err := json.Marshal(record.MachineData{
		Calls: record.Calls{Pending: []record.Pending{{Op: record.Deploy, At: began}}}, Deployed: "mtqq4g", Phase: &record.Phase{Name: "deploying", Since: began},
	})
	if err != nil {
		t.Fatal(err)
	}
	m := &infrav1.MaasMachine{
		ObjectMeta: metav1.ObjectMeta{
			Name: "c1-cp-x7k2p", Namespace: "default", Labels: map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""},
			Annotations: map[string]string{infrav1.RecordAnnotation: string(text)},
		},
		Spec:   infrav1.MaasMachineSpec{Image: "ubuntu/jammy", SystemID: "mtqq4g"},
		Status: infrav1.MaasMachineStatus{Hostname: "metal-a3", MachineState: "Deploying", FailureDomain: "zone-a"},
	}
	m.Status.Conditions = []metav1.Condition{
		condition(infrav1.MachineDeployedCondition, metav1.ConditionFalse, infrav1.DeployingReason, "machine mtqq4g is being deployed"),
		condition(infrav1.HardwareHealthyCondition, metav1.ConditionFalse, infrav1.TestsFailedReason, "memtest failed"),
		condition(clusterv1.PausedCondition, metav1.ConditionFalse, "NotPaused", ""),
		condition(infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.DeployingReason, "machine mtqq4g is being deployed"),
	}
	return m
}

func explained(t *testing.T, name string, object withConditions) *explanation {
	t.Helper()
	r := &explanation{Kind: name, Namespace: object.GetNamespace(), Name: object.GetName()}
	if err := r.of(*kindNamed(name), object); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestExplanation(t *testing.T) {
	atAFixedTime(t)
	var text strings.Builder
	if err := explained(t, "maasmachine", aMachine(t)).text(&text); err != nil {
		t.Fatal(err)
	}
	want := `maasmachine default/c1-cp-x7k2p is not ready
  cluster        c1
  image          ubuntu/jammy
  server         metal-a3 (mtqq4g)
  state in MAAS  Deploying
  zone           zone-a

Waits for (more in docs/reasons.md):
  90s   MachineDeployed is False: Deploying
        machine mtqq4g is being deployed
        means: MAAS installs the image, or does not show the address yet.
        if it stays: the machine does not boot (docs/troubleshooting.md#the-machine-does-not-boot)
  90s   HardwareHealthy is False: TestsFailed
        memtest failed
        means: a hardware test of this bare-metal machine failed, or timed out, in MAAS. The message says of what: CPU, memory, storage, network.
        to do: see the results in MAAS (` + "`maas admin node-script-results read ID`" + `). Replace the Machine, or its broken part; a result that does not matter can be suppressed in MAAS.

Recorded of what it asked of MAAS:
  90s   asked to deploy the machine; the outcome is not known
  -     machine mtqq4g is deployed for this object
  90s   in the phase deploying

Comes next:
  1. a machine is acquired, deployed, and on
  2. its address is in the DNS record of the API endpoint
  3. its Node joins the cluster
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Error(diff)
	}
}

func TestWhatAnObjectWaitsFor(t *testing.T) {
	atAFixedTime(t)
	deleted := aMachine(t)
	deleted.DeletionTimestamp = &began
	deleted.Status.Conditions[3] = condition(infrav1.ReadyCondition, metav1.ConditionFalse, infrav1.DeletingReason, "waiting for MAAS")
	pausedOne := aMachine(t)
	pausedOne.Status.Conditions[2].Status = metav1.ConditionTrue
	running := aMachine(t)
	running.Annotations, running.Status.NodeName = nil, "metal-a3"
	running.Status.Conditions = []metav1.Condition{
		condition(infrav1.ReadyCondition, metav1.ConditionTrue, infrav1.ReadyReason, ""), condition(infrav1.MachineDeployedCondition, metav1.ConditionTrue, infrav1.DeployedReason, ""),
		condition(infrav1.DNSAttachedCondition, metav1.ConditionTrue, infrav1.ReadyReason, ""),
	}
	fresh := &infrav1.MaasMachine{Spec: infrav1.MaasMachineSpec{ProvisioningMode: infrav1.ProvisioningModeLXD}}
	for name, tc := range map[string]struct {
		kind   string
		object withConditions
		waits  []string // conditions
		next   []string // the beginning of each step
	}{
		"deleted": {"maasmachine", deleted, []string{infrav1.ReadyCondition, infrav1.MachineDeployedCondition, infrav1.HardwareHealthyCondition},
			[]string{"the machine is released"}},
		"paused": {"maasmachine", pausedOne, []string{clusterv1.PausedCondition, infrav1.MachineDeployedCondition, infrav1.HardwareHealthyCondition},
			[]string{"a machine", "its address", "its Node"}},
		"running":    {"maasmachine", running, nil, nil},
		"not begun":  {"maasmachine", fresh, nil, []string{"a host", "the VM's cores", "the VM is made", "the VM is deployed", "a machine", "its Node"}},
		"a cluster":  {"maascluster", &infrav1.MaasCluster{}, nil, []string{"every failure domain", "the API endpoint"}},
		"host nodes": {"maascluster", &infrav1.MaasCluster{Spec: infrav1.MaasClusterSpec{LXDControlPlaneCluster: true}}, nil, []string{"every failure domain", "the API endpoint", "every node"}},
		"a host":     {"lxdhost", &infrav1.LXDHost{}, nil, []string{"LXD responds", "LXD has", "MAAS has", "VMs are placed"}},
		"a remedy":   {"maasremediation", &infrav1.MaasRemediation{}, nil, []string{"the machine is switched", "Cluster API"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := explained(t, tc.kind, tc.object)
			var waits []string
			for _, c := range r.WaitsFor {
				waits = append(waits, c.Condition)
			}
			if diff := cmp.Diff(tc.waits, waits); diff != "" {
				t.Errorf("it waits for: %s", diff)
			}
			same := slices.EqualFunc(r.Next, tc.next, strings.HasPrefix)
			if !same {
				t.Errorf("next is %q, want %q", r.Next, tc.next)
			}
		})
	}
}

// Each condition that makes up Ready has words for what comes next.
func TestEveryConditionHasWords(t *testing.T) {
	vm := &infrav1.MaasMachine{Spec: infrav1.MaasMachineSpec{ProvisioningMode: infrav1.ProvisioningModeLXD}}
	for _, c := range slices.Concat(life.Conditions(vm), life.Conditions(&infrav1.MaasMachine{}), maascluster.Conditions, lxdhost.Conditions) {
		if reasons.Becomes(c) == "" {
			t.Errorf("%s has no words", c)
		}
	}
	for _, k := range kinds {
		for _, c := range k.order(k.empty()) {
			if reasons.Becomes(c) == "" {
				t.Errorf("%s of a %s has no words", c, k.names[0])
			}
		}
		if k.end(k.empty()) == "" {
			t.Errorf("nothing is said of a %s that is deleted", k.names[0])
		}
	}
}

func TestExplain(t *testing.T) {
	k := newKubernetes(t)
	m := aMachine(t)
	status := m.Status
	for _, object := range []withConditions{m, &infrav1.MaasCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "c1", Namespace: "default"}, Spec: infrav1.MaasClusterSpec{DNSDomain: "maas.test"},
	}} {
		if err := k.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	m.Status = status
	if err := k.client.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if err := k.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}}); err != nil {
		t.Fatal(err)
	}
	ctl := func(args ...string) outcome {
		return call(t, "", []string{"KUBECONFIG=" + k.kubeconfig}, append([]string{"capmaasctl", "explain"}, args...)...)
	}
	for _, format := range []string{"json", "yaml"} {
		got := ctl("maasmachine", m.Name, "-n", "default", "-o", format)
		var r explanation
		if err := yaml.Unmarshal([]byte(got.stdout), &r); err != nil || got.code != exitOK || got.err != "" {
			t.Fatalf("%s: %+v (%v)", format, got, err)
		}
		if len(r.WaitsFor) != 2 || len(r.Asked) != 3 || r.Asked[0].Op != record.Deploy || len(r.Next) != 3 || r.Ready || r.Kind != "maasmachine" {
			t.Errorf("%s: %+v", format, r)
		}
	}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "owner", Namespace: "default"}}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "MaasCluster", Name: "c1"}
	other := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "default"}}
	other.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "example.com", Kind: "MaasCluster", Name: "c1"}
	mixed, two := other.DeepCopy(), other.DeepCopy()
	mixed.Name, two.Name = "mixed", "two"
	for name, of := range map[string]string{"workers": "mixed", "a": "two", "b": "two"} {
		serving := &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: infrav1.MaasClusterSpec{ClusterName: of}}
		if err := k.client.Create(t.Context(), serving); err != nil {
			t.Fatal(err)
		}
	}
	for _, object := range []*clusterv1.Cluster{cluster, other, mixed, two} {
		if err := k.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		args []string
		code int
		said string
	}{
		"of Cluster API":      {[]string{"cluster", "owner"}, exitOK, "maascluster default/c1"},
		"another provider's":  {[]string{"cl", "other"}, exitFailed, "spec.infrastructureRef"},
		"that it serves":      {[]string{"cluster", "mixed"}, exitOK, "maascluster default/workers"},
		"that several serve":  {[]string{"cluster", "two"}, exitFailed, "has the MaasClusters a, b"},
		"no such Machine":     {[]string{"machine", "none"}, exitFailed, "nor in any other"},
		"not looked at":       {[]string{"maascluster", "c1"}, exitOK, "It says nothing of what it waits for"},
		"no manager":          {[]string{"maascluster", "c1"}, exitOK, "no manager of this provider runs"},
		"as kubectl calls it": {[]string{"MM", "default/" + m.Name}, exitOK, "asked to deploy the machine"},
		"a cluster":           {[]string{"maascluster", "c1"}, exitOK, "every failure domain is a zone of MAAS"},
		"another namespace":   {[]string{"maasmachine", m.Name, "-n", "elsewhere"}, exitFailed, "add --namespace=default"},
		"nowhere":             {[]string{"maasmachine", "none"}, exitFailed, "nor in any other"},
		"no kind":             {[]string{"maasmachin", m.Name}, exitUsage, "maasmachine,"},
		"no name":             {[]string{"maasmachine"}, exitUsage, "explain KIND NAME"},
		"no good name":        {[]string{"maasmachine", "a/b/c"}, exitUsage, "a/b/c"},
	} {
		if got := ctl(tc.args...); got.code != tc.code || !strings.Contains(got.stdout+got.err, tc.said) {
			t.Errorf("%s: %+v, want exit code %d, and %q", name, got, tc.code, tc.said)
		}
	}
	broken := m.DeepCopy()
	broken.Annotations[infrav1.RecordAnnotation] = "{"
	if err := k.client.Update(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	if got := ctl("maasmachine", m.Name); got.code != exitFailed || !strings.Contains(got.stdout, infrav1.RecordAnnotation) {
		t.Errorf("a record that somebody spoiled: %+v", got)
	}
}

// A manager whose Deployment has a replica is there, and nothing is said of it.
func TestAManagerThatRuns(t *testing.T) {
	manager := func(name string, available int32) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: name, Labels: managerLabels}}
		d.Status.AvailableReplicas = available
		return d
	}
	for name, tc := range map[string]struct {
		there []client.Object
		fails bool
		says  string
	}{
		"none":            {nil, false, "no Deployment"},
		"no replica":      {[]client.Object{manager("a", 0)}, false, "system/a"},
		"one of two":      {[]client.Object{manager("a", 0), manager("b", 1)}, false, ""},
		"may not be read": {nil, true, ""},
	} {
		c := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(tc.there...).WithInterceptorFuncs(interceptor.Funcs{List: func(
			ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption,
		) error {
			if tc.fails {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "", nil)
			}
			return c.List(ctx, list, opts...)
		}}).Build()
		if got := noManager(t.Context(), c); !strings.Contains(got, tc.says) || (got == "") != (tc.says == "") {
			t.Errorf("%s: it says %q, want %q in it", name, got, tc.says)
		}
	}
}

// Whatever kubectl takes for a kind is taken here, too.
func TestKindsHaveKubectlsNames(t *testing.T) {
	files, err := filepath.Glob("../../charts/capmaas/files/crds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	found := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(data, crd); err != nil {
			t.Fatal(err)
		}
		names := crd.Spec.Names
		for _, k := range kinds {
			if !slices.Contains(k.names, names.Plural) {
				continue
			}
			found++
			for _, name := range append(names.ShortNames, names.Singular) {
				if !slices.Contains(k.names, name) {
					t.Errorf("%s is not taken for %s", name, names.Plural)
				}
			}
		}
	}
	if found != len(kinds) {
		t.Errorf("%d of %d kinds have a CRD", found, len(kinds))
	}
}
