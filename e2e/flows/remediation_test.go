// SPDX-License-Identifier: Apache-2.0

package flows_test

import (
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
)

// A MachineHealthCheck has a worker restarted, and another time replaced. It finds unhealthy what a person says is.
func TestRemediation(t *testing.T) {
	l := life.Begin(t, box, "remedied")
	l.Create(generate(t, "remedied", "", "1", "1"))
	l.Available(2)
	template := restartTwice(l)
	worker := workerOf(l)
	l.Box.MAAS.ResetCalls()
	remediate(l, &worker, true)
	remediation := &infrav1.MaasRemediation{}
	l.Wait("the worker to be restarted", func() (bool, string, error) {
		err := l.Box.Client.Get(l.Context(), client.ObjectKeyFromObject(&worker), remediation)
		return remediation.Status.Step == infrav1.RemediationRecover, fmt.Sprintf("%+v", remediation.Status), client.IgnoreNotFound(err)
	})
	remediate(l, &worker, false)
	l.Wait("the remediation to end", func() (bool, string, error) {
		err := l.Box.Client.Get(l.Context(), client.ObjectKeyFromObject(&worker), remediation)
		return apierrors.IsNotFound(err), fmt.Sprintf("%+v", remediation.Status), client.IgnoreNotFound(err)
	})
	switched := map[string]int{}
	for _, call := range l.Box.MAAS.Calls().Log {
		if call.Method == http.MethodPost {
			switched[call.Op]++
		}
	}
	if switched["power_off"] != 1 || switched["power_on"] != 1 {
		t.Errorf("MAAS was asked for %v, want to be asked once to switch a machine off, and on", switched)
	}
	l.Available(2)
	if now := workerOf(l); now.UID != worker.UID {
		t.Errorf("%s was replaced by %s", worker.Name, now.Name)
	}

	changed := template.DeepCopy()
	changed.Spec.Template.Spec.PowerCycle.Tries = ptr.To[int32](0)
	if err := l.Box.Client.Patch(l.Context(), changed, client.MergeFrom(template)); err != nil {
		t.Fatal(err)
	}
	remediate(l, &worker, true)
	l.Wait("the worker to be replaced", func() (bool, string, error) {
		err := l.Box.Client.Get(l.Context(), client.ObjectKeyFromObject(&worker), &clusterv1.Machine{})
		return apierrors.IsNotFound(err), "it is there", client.IgnoreNotFound(err)
	})
	l.Available(2)
	if err := l.Box.Client.Delete(l.Context(), template); err != nil {
		t.Error(err)
	}
	l.Delete()
}

// restartTwice makes a MachineHealthCheck of the workers.
func restartTwice(l *life.Life) *infrav1.MaasRemediationTemplate {
	l.Helper()
	template := &infrav1.MaasRemediationTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: l.Key.Namespace, Name: l.Key.Name}}
	template.Spec.Template.Spec.PowerCycle.Tries = ptr.To[int32](2)
	check := &clusterv1.MachineHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.Key.Namespace, Name: l.Key.Name},
		Spec: clusterv1.MachineHealthCheckSpec{
			ClusterName: l.Key.Name,
			Selector: metav1.LabelSelector{
				MatchLabels:      map[string]string{clusterv1.ClusterNameLabel: l.Key.Name},
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: clusterv1.MachineControlPlaneLabel, Operator: metav1.LabelSelectorOpDoesNotExist}},
			},
			Checks: clusterv1.MachineHealthCheckChecks{NodeStartupTimeoutSeconds: ptr.To[int32](3600)},
			Remediation: clusterv1.MachineHealthCheckRemediation{TemplateRef: clusterv1.MachineHealthCheckRemediationTemplateReference{
				APIVersion: infrav1.GroupVersion.String(), Kind: "MaasRemediationTemplate", Name: template.Name,
			}},
		},
	}
	for _, object := range []client.Object{template, check} {
		if err := l.Box.Client.Create(l.Context(), object); err != nil {
			l.Fatal(err)
		}
	}
	return template
}

// workerOf returns the only worker's Machine.
func workerOf(l *life.Life) clusterv1.Machine {
	l.Helper()
	for _, machine := range l.Machines() {
		if _, is := machine.Labels[clusterv1.MachineControlPlaneLabel]; !is {
			return machine
		}
	}
	l.Fatal("there is no worker")
	return clusterv1.Machine{}
}

// remediate says that a Machine is to be remedied, or is not any more.
func remediate(l *life.Life, machine *clusterv1.Machine, wanted bool) {
	l.Helper()
	if err := l.Box.Client.Get(l.Context(), client.ObjectKeyFromObject(machine), machine); err != nil {
		l.Fatal(err)
	}
	changed := machine.DeepCopy()
	delete(changed.Annotations, clusterv1.RemediateMachineAnnotation)
	if wanted {
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, clusterv1.RemediateMachineAnnotation, "")
	}
	if err := l.Box.Client.Patch(l.Context(), changed, client.MergeFrom(machine)); err != nil {
		l.Fatal(err)
	}
}
