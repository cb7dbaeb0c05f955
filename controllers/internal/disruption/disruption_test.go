// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/clusters"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/controlplane"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/test/allkinds"
)

// site is two namespaces: of a host cluster, whose machines host-1 to host-3 are hosts, and of a tenant. Both are in one
// MAAS.
type site struct{ objects []client.Object }

const hosts, tenant, inMAAS = "hosts", "tenant", "https://maas.example.com"

func newSite() *site {
	s := &site{}
	s.add(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: hosts, Name: "infra"}},
		&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "c"}},
		maasCluster(hosts, "infra", infrav1.MaasClusterSpec{LXDControlPlaneCluster: true}),
		maasCluster(tenant, "c", infrav1.MaasClusterSpec{}))
	for i := 1; i <= 3; i++ {
		name := fmt.Sprintf("host-%d", i)
		m := s.machine(hosts, "infra", name, false)
		m.Spec.SystemID = "id-" + name
		s.add(&infrav1.LXDHost{ObjectMeta: metav1.ObjectMeta{Namespace: hosts, Name: name, UID: types.UID("lxd-" + name),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: infrav1.GroupVersion.String(), Kind: "MaasMachine", Name: name, UID: m.UID, Controller: ptr.To(true)}}},
			Spec: infrav1.LXDHostSpec{AllowedNamespaces: []string{infrav1.AllNamespaces}}})
	}
	return s
}

func maasCluster(namespace, cluster string, spec infrav1.MaasClusterSpec) *infrav1.MaasCluster {
	return &infrav1.MaasCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cluster,
		Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}, Annotations: map[string]string{infrav1.MAASAnnotation: inMAAS}}, Spec: spec}
}

func (s *site) add(objects ...client.Object) { s.objects = append(s.objects, objects...) }

// machine makes a healthy Machine, and its MaasMachine.
func (s *site) machine(namespace, cluster, name string, controlPlane bool) *infrav1.MaasMachine {
	labels := map[string]string{clusterv1.ClusterNameLabel: cluster}
	if controlPlane {
		labels[clusterv1.MachineControlPlaneLabel] = ""
	}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name), Labels: labels, Annotations: map[string]string{}}
	machine := &clusterv1.Machine{ObjectMeta: meta}
	machine.Spec.ClusterName = cluster
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "MaasMachine", Name: name}
	machine.Status.NodeRef.Name = name
	for _, condition := range append([]string{clusterv1.ReadyCondition}, controlplane.MachineHealth...) {
		conditions.Set(machine, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: "Test"})
	}
	m := &infrav1.MaasMachine{ObjectMeta: *meta.DeepCopy()}
	m.UID = "maas-" + m.UID
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: machine.UID}}
	s.add(machine, m)
	return m
}

// vm makes a VM of the tenant on a host.
func (s *site) vm(name, host string, controlPlane bool) {
	m := s.machine(tenant, "c", name, controlPlane)
	m.Spec.ProvisioningMode = infrav1.ProvisioningModeLXD
	m.Annotations[infrav1.RecordAnnotation] = `{"hosts":["lxdhost:hosts/` + host + `"]}`
}

// find finds what the site has of a kind.
func find[T client.Object](s *site, namespace, name string) (found T) {
	for _, o := range s.objects {
		if object, is := o.(T); is && o.GetNamespace() == namespace && o.GetName() == name {
			return object
		}
	}
	return found
}

// without takes the LXDHost of a host away.
func (s *site) without(host string) {
	gone := client.Object(find[*infrav1.LXDHost](s, hosts, host))
	s.objects = slices.DeleteFunc(s.objects, func(o client.Object) bool { return o == gone })
}

// unowned makes the LXDHost of a host one that the manager has made in its own namespace, for VM host 7 of a MAAS.
func (s *site) unowned(host, maas string) {
	h := find[*infrav1.LXDHost](s, hosts, host)
	h.Namespace, h.Name, h.OwnerReferences = "manager", "vm-host", nil
	h.Annotations = map[string]string{infrav1.MAASAnnotation: maas}
	h.Spec.VMHost = &infrav1.VMHostReference{ID: 7, SystemID: "id-" + host}
	for _, o := range s.objects {
		if m, is := o.(*infrav1.MaasMachine); is && m.Annotations[infrav1.RecordAnnotation] == `{"hosts":["lxdhost:hosts/`+host+`"]}` {
			m.Annotations[infrav1.RecordAnnotation] = `{"hosts":["7/vm-host"]}`
		}
	}
}

func (s *site) sick(namespace, name string) {
	conditions.Set(find[*clusterv1.Machine](s, namespace, name), metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: "Test"})
}

// remedied makes a remediation of a Machine at a step.
func (s *site) remedied(namespace, name, record string) {
	s.add(&infrav1.MaasRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{infrav1.RecordAnnotation: record},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: types.UID(namespace + name)}}}})
}

// asks asks for the leave of a Machine.
func (s *site) asks(t *testing.T, locks *Locks, namespace, name string) (*Leave, string, error) {
	t.Helper()
	return s.asksAt(t, locks, namespace, name, testingclock.NewFakePassiveClock(time.Now()), 0)
}

// asksAt is asks with a clock, by which each list of the API server takes a time.
func (s *site) asksAt(
	t *testing.T, locks *Locks, namespace, name string, clock *testingclock.FakePassiveClock, takes time.Duration,
) (*Leave, string, error) {
	t.Helper()
	objects := make([]client.Object, len(s.objects))
	for i := range s.objects {
		objects[i] = s.objects[i].DeepCopyObject().(client.Object)
	}
	c := fake.NewClientBuilder().WithScheme(allkinds.Scheme()).WithObjects(objects...).Build()
	slow := interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, options ...client.ListOption) error {
			clock.SetTime(clock.Now().Add(takes))
			return c.List(ctx, into, options...)
		},
	})
	b := &reconciler.Base{Client: c, APIReader: slow, Clock: clock}
	member := &clusters.Member{Cluster: &clusterv1.Cluster{}, Machine: &clusterv1.Machine{}, MaasMachine: &infrav1.MaasMachine{}}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	if err := errors.Join(c.Get(t.Context(), key, member.Machine), c.Get(t.Context(), key, member.MaasMachine),
		c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: member.Machine.Spec.ClusterName}, member.Cluster)); err != nil {
		t.Fatal(err)
	}
	return locks.Ask(t.Context(), b, member)
}

const begun, replaced = `{"remediation":{"step":"PowerOff"}}`, `{"remediation":{"step":"Replace"}}`

// recovers is a remediation that waits for the Node, since a time ago.
func recovers(ago time.Duration) string {
	return fmt.Sprintf(`{"remediation":{"step":"Recover","since":%q}}`, time.Now().Add(-ago).UTC().Format(time.RFC3339))
}

// A host goes down with the control planes of others on it, and a control plane with its host.
func TestAHostMayGoDownIfEachOfItsVMsMay(t *testing.T) {
	three := func(s *site) {
		s.vm("cp-1", "host-1", true)
		s.vm("cp-2", "host-2", true)
		s.vm("cp-3", "host-3", true)
	}
	for name, tc := range map[string]struct {
		site    func(*site)
		ns, who string
		may     bool
	}{
		"a host without VMs":                        {func(*site) {}, hosts, "host-1", true},
		"a host with one of three":                  {three, hosts, "host-1", true},
		"a host with one of three, another is sick": {func(s *site) { three(s); s.sick(tenant, "cp-2") }, hosts, "host-1", false},
		"a host, another's host is switched off":    {func(s *site) { three(s); s.remedied(hosts, "host-2", begun) }, hosts, "host-1", false},
		"a host, what is done there can't be read":  {func(s *site) { three(s); s.remedied(hosts, "host-2", "{") }, hosts, "host-1", false},
		"a host, another is switched off":           {func(s *site) { three(s); s.remedied(tenant, "cp-3", begun) }, hosts, "host-1", false},
		"a VM, another's host is switched off":      {func(s *site) { three(s); s.remedied(hosts, "host-2", begun) }, tenant, "cp-1", false},
		"a VM, all others are well":                 {three, tenant, "cp-1", true},
		"a VM, whose remediation has begun":         {func(s *site) { three(s); s.remedied(tenant, "cp-1", begun) }, tenant, "cp-1", true},
		"a VM, another's remediation is over":       {func(s *site) { three(s); s.remedied(tenant, "cp-2", recovers(0)) }, tenant, "cp-1", true},
		"a VM, another's host is just on again":     {func(s *site) { three(s); s.remedied(hosts, "host-2", recovers(0)) }, tenant, "cp-1", false},
		"a host, another's host is just on again":   {func(s *site) { three(s); s.remedied(hosts, "host-2", recovers(0)) }, hosts, "host-1", false},
		"a host, another's host had its time":       {func(s *site) { three(s); s.remedied(hosts, "host-2", recovers(time.Hour)) }, hosts, "host-1", true},
		"a host, another's host is replaced":        {func(s *site) { three(s); s.remedied(hosts, "host-2", replaced) }, hosts, "host-1", true},
		"a host without an LXDHost":                 {func(s *site) { three(s); s.without("host-1") }, hosts, "host-1", false},
		"a host without an LXDHost, without VMs":    {func(s *site) { s.without("host-1") }, hosts, "host-1", false},
		"a host without an LXDHost, that was never a Node": {func(s *site) {
			s.without("host-1")
			find[*clusterv1.Machine](s, hosts, "host-1").Status.NodeRef.Name = ""
		}, hosts, "host-1", true},
		"a machine without an LXDHost, of no host cluster": {func(s *site) {
			s.without("host-1")
			find[*infrav1.MaasCluster](s, hosts, "infra").Spec.LXDControlPlaneCluster = false
		}, hosts, "host-1", true},
		"a host whose LXDHost nobody owns":                       {func(s *site) { three(s); s.unowned("host-1", inMAAS) }, hosts, "host-1", true},
		"a host whose LXDHost nobody owns, one is sick":          {func(s *site) { three(s); s.unowned("host-1", inMAAS); s.sick(tenant, "cp-2") }, hosts, "host-1", false},
		"a host, and an LXDHost of another MAAS":                 {func(s *site) { three(s); s.unowned("host-1", "https://other") }, hosts, "host-1", false},
		"a VM, another's host is off, whose LXDHost nobody owns": {func(s *site) { three(s); s.unowned("host-2", inMAAS); s.remedied(hosts, "host-2", begun) }, tenant, "cp-1", false},
		"a host with two of three": {func(s *site) {
			s.vm("cp-1", "host-1", true)
			s.vm("cp-2", "host-1", true)
			s.vm("cp-3", "host-2", true)
		}, hosts, "host-1", false},
		"a host with a control plane of one":    {func(s *site) { s.vm("cp-1", "host-1", true) }, hosts, "host-1", false},
		"a host with one of one, which is sick": {func(s *site) { s.vm("cp-1", "host-1", true); s.sick(tenant, "cp-1") }, hosts, "host-1", true},
		"the control plane of one itself":       {func(s *site) { s.vm("cp-1", "host-1", true) }, tenant, "cp-1", true},
		"a host with workers":                   {func(s *site) { s.vm("md-1", "host-1", false); s.vm("md-2", "host-1", false) }, hosts, "host-1", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite()
			tc.site(s)
			leave, why, err := s.asks(t, &Locks{}, tc.ns, tc.who)
			if err != nil || (why == "") != tc.may || (leave == nil) == tc.may || leave.IsLate() == tc.may {
				t.Errorf("it may go down: %v (%s), want %v: %v", why == "", why, tc.may, err)
			}
			leave.End()
		})
	}
}

// What was found out is true for a moment: a leave is too late soon, also if the API server took long to say it.
func TestALeaveIsSoonTooLate(t *testing.T) {
	site := newSite()
	for i := 1; i <= 3; i++ {
		site.vm(fmt.Sprintf("cp-%d", i), fmt.Sprintf("host-%d", i), true)
	}
	for name, tc := range map[string]struct {
		takes, after time.Duration
		late         bool
	}{
		"at once":                      {},
		"in time":                      {after: reconciler.LookLasts},
		"too late":                     {after: reconciler.LookLasts + time.Second, late: true},
		"the API server took too long": {takes: reconciler.LookLasts + time.Second, late: true},
	} {
		t.Run(name, func(t *testing.T) {
			clock := testingclock.NewFakePassiveClock(time.Now())
			leave, why, err := site.asksAt(t, &Locks{}, tenant, "cp-1", clock, tc.takes)
			if err != nil || why != "" {
				t.Fatalf("it may not go down: %s, %v", why, err)
			}
			defer leave.End()
			clock.SetTime(clock.Now().Add(tc.after))
			if leave.IsLate() != tc.late {
				t.Errorf("it is too late: %v, want %v", leave.IsLate(), tc.late)
			}
		})
	}
}

// While one of a control plane's Machines has the leave, no other gets one; another control plane does not wait.
func TestALeaveLocksItsControlPlanes(t *testing.T) {
	locks := &Locks{}
	a, b := client.ObjectKey{Namespace: "ns", Name: "a"}, client.ObjectKey{Namespace: "ns", Name: "b"}
	first, err := locks.take(t.Context(), []client.ObjectKey{b, a, a})
	if err != nil {
		t.Fatal(err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := locks.take(stopped, []client.ObjectKey{a}); !errors.Is(err, context.Canceled) {
		t.Errorf("a second one has the lock, too: %v", err)
	}
	other, err := locks.take(t.Context(), []client.ObjectKey{{Namespace: "ns", Name: "c"}})
	if err != nil {
		t.Errorf("another control plane: %v", err)
	}
	other()
	got := make(chan error)
	go func() {
		end, err := locks.take(t.Context(), []client.ObjectKey{a, b})
		if err == nil {
			end()
		}
		got <- err
	}()
	first()
	first() // Once is enough.
	if err := <-got; err != nil {
		t.Errorf("the next one: %v", err)
	}
	if len(locks.locks) != 0 {
		t.Errorf("%d locks are left", len(locks.locks))
	}
	if late := (*Leave)(nil).IsLate(); !late {
		t.Error("without a leave it is not too late")
	}
}
