// SPDX-License-Identifier: Apache-2.0

// Package quarantine keeps bare-metal machines that failed from being allocated, for a while and for all managers of
// their MAAS: Machine puts one into quarantine, and the Keeper ends that.
package quarantine

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// Machine puts the bare-metal machine of a MaasMachine into quarantine, after it has proven that the machine is ours,
// and emits an event. why is one line of it, such as "failed to deploy". It does so once for each MaasMachine: if a
// person lifts the quarantine, that stays so. It does nothing for VMs, which are deleted, nor for machines of others.
//
// rec is the MaasMachine's record; the caller closes it. What MAAS refuses stops nothing: this process leaves the
// machine alone then as long as it runs. The error is of Kubernetes, or maas.Unavailable: then the same again may
// succeed.
func Machine(
	ctx context.Context, recorder events.EventRecorder, rec *record.Machine, s *scope.Machine, m *maas.Machine, why string,
) error {
	if s.IsLXD() || rec.Quarantine == record.Quarantined {
		return nil
	}
	ours, err := s.Machines.IsOurs(ctx, s.Identity(), m)
	if err == nil && ours {
		return proven(ctx, recorder, rec, s, m, why)
	}
	return remaining(ctx, m, err)
}

// Last is Machine for one that has just been proven to be ours, and is let go or replaced next. If MAAS is silent
// twice, that goes on without a quarantine.
func Last(
	ctx context.Context, recorder events.EventRecorder, rec *record.Machine, s *scope.Machine, m *maas.Machine, why string,
) error {
	again := rec.IsPending(record.Quarantine)
	err := proven(ctx, recorder, rec, s, m, why)
	if again && errors.Is(err, maas.Unavailable) {
		ctrl.LoggerFrom(ctx).Info("Going on without the quarantine of a machine that failed", "systemID", m.SystemID, "error",
			text.Lines(err))
		return nil
	}
	return err
}

// TemplateOf names whose checks a MaasMachine has: its MaasMachineTemplate's, or its own.
func TemplateOf(m *infrav1.MaasMachine) string {
	return cmp.Or(m.Annotations[clusterv1.TemplateClonedFromNameAnnotation], m.Name)
}

// proven quarantines a machine that is proven to be ours, and emits one event of what became of it.
func proven(
	ctx context.Context, recorder events.EventRecorder, rec *record.Machine, s *scope.Machine, m *maas.Machine, why string,
) error {
	if s.IsLXD() || rec.Quarantine == record.Quarantined {
		return nil
	}
	cause := quarantine.Cause{By: s.Identity().AgentName,
		Why: fmt.Sprintf("%s (MaasMachine %s/%s)", why, s.MaasMachine.Namespace, s.MaasMachine.Name)}
	if rec.TestsOf(m.SystemID).HasFailed() {
		cause.Checks, cause.Set = TemplateOf(s.MaasMachine), m.Tests.Set
	}
	if rec.Quarantine == record.QuarantineRefused {
		s.Machines.Quarantine.Remember(m, cause)
		return nil
	}
	err := rec.Call(ctx, record.Quarantine, func(ctx context.Context, permit maas.Permit) error {
		_, err := s.Machines.Quarantine.Put(ctx, permit, m.SystemID, cause)
		if err == nil {
			rec.Quarantine = record.Quarantined
		}
		return err
	})
	if err == nil {
		recorder.Eventf(s.MaasMachine, nil, corev1.EventTypeNormal, "Quarantined", "Quarantine",
			"machine %s failed, and is not allocated for a while: it has the tag %s in MAAS", m, quarantine.Tag)
		return nil
	}
	s.Machines.Quarantine.Remember(m, cause)
	if !errors.Is(err, maas.Forbidden) {
		return remaining(ctx, m, err)
	}
	rec.Quarantine = record.QuarantineRefused
	recorder.Eventf(s.MaasMachine, nil, corev1.EventTypeWarning, "QuarantineRefused", "Quarantine",
		"machine %s (%s) failed, and only this manager leaves it alone for a while: only %s may tag it, and the API key's "+
			"user is none of these", m.Hostname, m.SystemID, rights.Tags.Users(""))
	return nil
}

// remaining returns an error, unless it is MAAS's last word on a machine.
func remaining(ctx context.Context, m *maas.Machine, err error) error {
	if errors.Is(err, maas.Unavailable) || !guard.Is[*maas.Error](err) && !guard.Is[*ownership.UndecidedError](err) {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Failed to quarantine a machine that failed", "systemID", m.SystemID, "error",
		text.Lines(err))
	return nil
}
