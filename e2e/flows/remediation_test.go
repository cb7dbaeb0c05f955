// SPDX-License-Identifier: Apache-2.0

package flows_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// failsLabel tells the MachineHealthChecks apart: each has one worker, and so none waits for another.
const failsLabel = "capmaas-test/fails"

// failing is a worker, and what becomes of it.
type failing struct {
	machine  clusterv1.Machine
	systemID string
	fail     func(l *life.Life, f *failing)
	replaced bool
}

// The kubelet of one worker dies, another one loses power: a restart mends both. The disk of the third is bad, and the
// BMC of the fourth dead: they are replaced, and their servers quarantined, which a new manager knows.
func TestRemediation(t *testing.T) {
	l := life.Begin(t, box, "remedied")
	l.Create(topology(t, "remedied", 1, 4, nil))
	l.Available(5)
	workers := map[string]*failing{
		"kubelet": {fail: func(l *life.Life, f *failing) { hang(l, f, false) }},
		"power": {fail: func(l *life.Life, f *failing) {
			l.Control("machines/"+f.systemID+"/power", `{"power": "off", "unnoticed": true}`)
		}},
		"disk": {fail: func(l *life.Life, f *failing) { hang(l, f, true) }, replaced: true},
		"bmc":  {fail: loseBMC, replaced: true},
	}
	watch(l, workers)
	for _, f := range workers {
		f.fail(l, f)
	}
	for name, f := range workers {
		if f.replaced {
			l.Wait("the worker with a bad "+name+" to be replaced", func() (bool, string, error) {
				gone := !slices.ContainsFunc(l.Machines(), func(m clusterv1.Machine) bool { return m.UID == f.machine.UID })
				return gone, remediations(l), nil
			})
		}
	}
	l.Available(5)
	l.Wait("no MaasRemediation to be left", func() (bool, string, error) { left := remediations(l); return left == "", left, nil })
	stays(l, workers)
	if err := box.Manager.Kill(); err != nil { // What is quarantined is in MAAS.
		t.Fatal(err)
	}
	isQuarantined(l, workers)
	l.Delete()
}

// watch labels a worker for each way to fail, and makes its MachineHealthCheck.
func watch(l *life.Life, workers map[string]*failing) {
	l.Helper()
	template := &infrav1.MaasRemediationTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: l.Key.Namespace, Name: l.Key.Name}}
	template.Spec.Template.Spec.PowerCycle = infrav1.PowerCycleRemediation{Tries: ptr.To[int32](1), TimeoutSeconds: 60}
	create(l, template)
	machines := slices.DeleteFunc(l.Machines(), func(m clusterv1.Machine) bool { return util.IsControlPlaneMachine(&m) })
	for name, f := range workers {
		f.machine, machines = machines[0], machines[1:]
		f.systemID = systemIDOf(l, f.machine.Name)
		labelled := f.machine.DeepCopy()
		labelled.Labels[failsLabel] = name
		if err := box.Client.Patch(l.Context(), labelled, client.MergeFrom(&f.machine)); err != nil {
			l.Fatal(err)
		}
		unhealthy := func(status corev1.ConditionStatus) clusterv1.UnhealthyNodeCondition {
			return clusterv1.UnhealthyNodeCondition{Type: corev1.NodeReady, Status: status, TimeoutSeconds: ptr.To[int32](1)}
		}
		create(l, &clusterv1.MachineHealthCheck{
			ObjectMeta: metav1.ObjectMeta{Namespace: l.Key.Namespace, Name: l.Key.Name + "-" + name},
			Spec: clusterv1.MachineHealthCheckSpec{
				ClusterName: l.Key.Name, Selector: metav1.LabelSelector{MatchLabels: map[string]string{failsLabel: name}},
				Checks: clusterv1.MachineHealthCheckChecks{
					NodeStartupTimeoutSeconds: ptr.To[int32](3600),
					UnhealthyNodeConditions:   []clusterv1.UnhealthyNodeCondition{unhealthy(corev1.ConditionUnknown), unhealthy(corev1.ConditionFalse)},
				},
				Remediation: clusterv1.MachineHealthCheckRemediation{TemplateRef: clusterv1.MachineHealthCheckRemediationTemplateReference{
					APIVersion: infrav1.GroupVersion.String(), Kind: "MaasRemediationTemplate", Name: template.Name,
				}},
			},
		})
	}
}

func hang(l *life.Life, f *failing, badDisk bool) {
	l.Helper()
	if err := box.Hang(f.systemID, badDisk); err != nil {
		l.Fatal(err)
	}
}

// loseBMC lets a worker lose power, and its BMC not respond any more.
func loseBMC(l *life.Life, f *failing) {
	l.Helper()
	for _, op := range []string{"power_off", "power_on", "query_power_state"} {
		_, err := box.MAAS.AddFault(simulator.Fault{Op: op, SystemID: f.systemID, Status: http.StatusServiceUnavailable, Body: "Failed talking to node's BMC"})
		if err != nil {
			l.Fatal(err)
		}
	}
	l.Cleanup(box.MAAS.ClearFaults)
	l.Control("machines/"+f.systemID+"/power", `{"power": "off"}`)
}

// stays checks that the workers which a restart mends have their Machines and servers, and the others' are new.
func stays(l *life.Life, workers map[string]*failing) {
	l.Helper()
	for name, f := range workers {
		at := slices.IndexFunc(l.Machines(), func(m clusterv1.Machine) bool { return m.UID == f.machine.UID })
		if (at < 0) != f.replaced {
			l.Errorf("%s: the Machine is gone: %t, want %t", name, at < 0, f.replaced)
		}
		if !f.replaced && at >= 0 && systemIDOf(l, f.machine.Name) != f.systemID {
			l.Errorf("%s: its server is %s, want %s", name, systemIDOf(l, f.machine.Name), f.systemID)
		}
	}
}

// isQuarantined waits until the servers that a restart did not mend are in quarantine, and no others.
func isQuarantined(l *life.Life, workers map[string]*failing) {
	l.Helper()
	c, err := maas.NewClient(maas.Config{Endpoint: box.MAASURL, APIKey: box.MAASAPIKey})
	if err != nil {
		l.Fatal(err)
	}
	service := quarantine.NewService(inventory.New(c, inventory.Options{}))
	l.Wait("the servers to be in quarantine", func() (bool, string, error) {
		machines, err := service.List(l.Context(), 0)
		if err != nil {
			return false, "", err
		}
		agrees := true
		for _, f := range workers {
			in := slices.ContainsFunc(machines, func(m quarantine.Machine) bool { return m.SystemID == f.systemID })
			agrees = agrees && in == f.replaced
		}
		return agrees, fmt.Sprintf("%+v", machines), nil
	})
}

// remediations describes those that are under way.
func remediations(l *life.Life) string {
	list := &infrav1.MaasRemediationList{}
	if err := box.Client.List(l.Context(), list, client.InNamespace(l.Key.Namespace)); err != nil {
		return err.Error()
	}
	var all []string
	for i := range list.Items {
		all = append(all, fmt.Sprintf("%s: %+v", list.Items[i].Name, list.Items[i].Status))
	}
	return strings.Join(all, "; ")
}

// systemIDOf returns the server of a Machine.
func systemIDOf(l *life.Life, name string) string {
	l.Helper()
	m := &infrav1.MaasMachine{}
	if err := box.Client.Get(l.Context(), client.ObjectKey{Namespace: l.Key.Namespace, Name: name}, m); err != nil {
		l.Fatal(err)
	}
	return m.Spec.SystemID
}

func create(l *life.Life, object client.Object) {
	l.Helper()
	if err := box.Client.Create(l.Context(), object); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		if err := box.Client.Delete(context.WithoutCancel(l.Context()), object); client.IgnoreNotFound(err) != nil {
			l.Error(err)
		}
	})
}
