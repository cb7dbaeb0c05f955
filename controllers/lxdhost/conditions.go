// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// Conditions make up the Ready condition of an LXDHost, in order.
var Conditions = []string{
	infrav1.ReachableCondition, infrav1.TrustedCondition, infrav1.RegisteredCondition, infrav1.SchedulableCondition,
}

// summarize makes Ready. What is wrong comes before what is not known because of it. What MAAS has does not delay a
// deletion. That a person keeps VMs off is nothing wrong, as with a Node.
func summarize(host *infrav1.LXDHost) {
	markLeft(host)
	deleting := !host.DeletionTimestamp.IsZero()
	order := slices.DeleteFunc(slices.Clone(Conditions), func(c string) bool {
		return (deleting && c == infrav1.RegisteredCondition) || (c == infrav1.SchedulableCondition && isCordoned(host))
	})
	slices.SortStableFunc(order, func(a, b string) int { return isUnknown(host, a) - isUnknown(host, b) })
	report.Summarize(host, deleting, order...)
}

// markLeft reports the VMs that may be left on a host without a MaasMachine, those first that a person must see to. It
// is no part of Ready.
func markLeft(host *infrav1.LXDHost) {
	recorded, err := record.OfHost(host)
	if err != nil {
		report.SetUnknown(host, infrav1.NoVMsLeftCondition, infrav1.VMsLeftReason, report.Brief(err.Error()))
		return
	}
	if len(recorded.Left) == 0 {
		conditions.Delete(host, infrav1.NoVMsLeftCondition)
		return
	}
	var spared, waiting []string
	for _, vm := range recorded.Left {
		name := fmt.Sprintf("%s of MaasMachine %s/%s", vm.Hostname, vm.Namespace, vm.Machine)
		if vm.Spared == "" {
			waiting = append(waiting, name)
			continue
		}
		spared = append(spared, name+" ("+vm.Spared+")")
	}
	report.SetFalse(host, infrav1.NoVMsLeftCondition, infrav1.VMsLeftReason,
		"%d VM(s) may be left here, which are deleted when the host can be asked: %s",
		len(recorded.Left), text.List(append(spared, waiting...), maxNamed))
}

// isCordoned reports whether a host takes no VMs for the only reason that a person has chosen so.
func isCordoned(host *infrav1.LXDHost) bool {
	c := conditions.Get(host, infrav1.SchedulableCondition)
	return c != nil && (c.Reason == infrav1.UnschedulableReason || c.Reason == infrav1.EvacuateReason)
}

func isUnknown(host *infrav1.LXDHost, condition string) int {
	if c := conditions.Get(host, condition); c != nil && c.Status == metav1.ConditionUnknown {
		return 1
	}
	return 0
}

// announce says in events why a host is no longer ready, or is not for another reason, and that its keys end soon.
func announce(recorder events.EventRecorder, before, host *infrav1.LXDHost) {
	for _, condition := range []string{infrav1.ReadyCondition, infrav1.KeysCurrentCondition} {
		was, is := conditions.Get(before, condition), conditions.Get(host, condition)
		isNew := is != nil && is.Status == metav1.ConditionFalse && (was == nil || was.Reason != is.Reason)
		if isNew && is.Reason != infrav1.DeletingReason {
			recorder.Eventf(host, nil, corev1.EventTypeWarning, is.Reason, "Observe", "%s", is.Message)
		}
	}
}

// markConnection sets Reachable and Trusted after LXD was asked. Of other errors than LXD's it returns false.
func markConnection(host *infrav1.LXDHost, err error) (known bool) {
	if err == nil || offersNoVMs(err) != "" {
		report.SetTrue(host, infrav1.ReachableCondition, infrav1.ReadyReason)
		report.SetTrue(host, infrav1.TrustedCondition, infrav1.ReadyReason)
		return true
	}
	p, reached := explain(host, err)
	switch {
	case p == nil:
		return false
	case p.Reason == infrav1.CredentialsInvalidReason:
		report.SetUnknown(host, infrav1.ReachableCondition, p.Reason, "LXD is not asked without good credentials")
		report.SetFalse(host, infrav1.TrustedCondition, p.Reason, "%s", p.Message)
	case reached:
		report.SetTrue(host, infrav1.ReachableCondition, infrav1.ReadyReason)
		report.SetFalse(host, infrav1.TrustedCondition, p.Reason, "%s", p.Message)
	default:
		report.SetFalse(host, infrav1.ReachableCondition, p.Reason, "%s", p.Message)
		report.SetUnknown(host, infrav1.TrustedCondition, p.Reason, "LXD does not say")
	}
	return true
}

// explain returns what is wrong with the connection to LXD, and whether something responds there; nil if the error is
// not about LXD.
func explain(host *infrav1.LXDHost, err error) (p *report.Problem, reached bool) {
	if guard.Is[*scope.CredentialsError](err) {
		return &report.Problem{Reason: infrav1.CredentialsInvalidReason, Message: report.Brief(err.Error())}, false
	}
	known, is := errors.AsType[*lxdhost.Error](err)
	if !is {
		return nil, false
	}
	made := func(reason, message string) *report.Problem {
		return &report.Problem{Reason: reason, Message: report.Brief(message)}
	}
	switch known.Kind {
	case lxdhost.KindInvalid:
		return made(infrav1.CredentialsInvalidReason, known.Problem+
			": correct the LXDHost, or its Secret "+host.Spec.CredentialsRef.Name), false
	case lxdhost.KindPin:
		return made(infrav1.CertificateMismatchReason, "what responds at "+host.Spec.Address+" has another certificate "+
			"than spec.serverCertificate: if it is this LXD with a new certificate, put that into the LXDHost"), true
	case lxdhost.KindNotTrusted:
		return made(infrav1.NotTrustedReason, known.Problem+
			": let LXD trust tls.crt of Secret "+host.Spec.CredentialsRef.Name+" for the project "+
			host.Spec.Project+" (lxc config trust add)"), true
	case lxdhost.KindProject:
		return made(infrav1.ProjectNotFoundReason, known.Problem+
			": create the project, or let the certificate be for it"), true
	case lxdhost.KindUnreachable:
		return made(infrav1.LXDUnreachableReason, "LXD does not respond at "+host.Spec.Address+": "+cause(err)), false
	}
	return made(infrav1.LXDFailedReason, known.Problem), false
}

// offersNoVMs returns the reason why LXD, which responds and trusts us, has no VMs for us; "" if it is another.
func offersNoVMs(err error) string {
	switch lxdhost.KindOf(err) {
	case lxdhost.KindNoVMs:
		return infrav1.VMsNotSupportedReason
	case lxdhost.KindCluster:
		return infrav1.LXDClusteredReason
	}
	return ""
}

// cause returns why there was no response, without the ports that are others each time.
func cause(err error) string {
	switch failed, is := errors.AsType[*net.OpError](err); {
	case guard.Is[*net.DNSError](err):
		return "its name can't be resolved"
	case errors.Is(err, context.DeadlineExceeded), is && failed.Timeout():
		return "no response in time"
	case is:
		return failed.Err.Error()
	}
	return "it broke the connection, or is not ready"
}

// markSchedulable sets Schedulable after the other conditions. why says why the host takes no VMs; nil if it does. It
// comes before a person's choice, which would hide from Ready that something is wrong.
func markSchedulable(host *infrav1.LXDHost, why *report.Problem) {
	switch {
	case why != nil:
		report.SetFalse(host, infrav1.SchedulableCondition, why.Reason, "%s", why.Message)
	case host.Spec.Evacuate:
		report.SetFalse(host, infrav1.SchedulableCondition, infrav1.EvacuateReason,
			"spec.evacuate empties the host, and keeps new VMs off it")
	case host.Spec.Unschedulable:
		report.SetFalse(host, infrav1.SchedulableCondition, infrav1.UnschedulableReason,
			"spec.unschedulable keeps new VMs off the host")
	default:
		for _, condition := range []string{infrav1.ReachableCondition, infrav1.TrustedCondition,
			infrav1.RegisteredCondition} {
			if !conditions.IsTrue(host, condition) {
				report.SetFalse(host, infrav1.SchedulableCondition, infrav1.NotReadyReason, "the condition %s is not True",
					condition)
				return
			}
		}
		report.SetTrue(host, infrav1.SchedulableCondition, infrav1.ReadyReason)
	}
}
