// SPDX-License-Identifier: Apache-2.0

// Package quarantine keeps bare-metal machines that failed from being allocated, for a while and for all managers of
// their MAAS: Machine puts one into quarantine, and the Keeper ends that.
package quarantine

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/ownership"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
)

// NotOursError is for a machine that is not proven to be ours. It is not quarantined.
type NotOursError struct{ SystemID string }

// Error names the machine.
func (e *NotOursError) Error() string {
	return fmt.Sprintf("machine %s is not ours, and is not quarantined", e.SystemID)
}

// Machine puts the bare-metal machine of a MaasMachine into quarantine, after it has proven that the machine is ours.
// why is one line for people, such as "failed to deploy". It does so once for each MaasMachine: if a person lifts the
// quarantine, that stays so. It does nothing for VMs, which are deleted.
//
// rec is the MaasMachine's record; the caller closes it. If MAAS refuses, this process leaves the machine alone as long
// as it runs; the error is then maas.Forbidden the first time, and nil later. After any other error, the same call
// again completes it.
func Machine(ctx context.Context, rec *record.Machine, s *scope.Machine, m *maas.Machine, why string) error {
	if s.IsLXD() || rec.Quarantine == record.Quarantined {
		return nil
	}
	ours, err := s.Machines.IsOurs(ctx, s.Identity(), m)
	if err != nil {
		return err
	}
	if !ours {
		return &NotOursError{m.SystemID}
	}
	return Proven(ctx, rec, s, m, why)
}

// Proven is Machine for a caller who has just proven that the machine is ours.
func Proven(ctx context.Context, rec *record.Machine, s *scope.Machine, m *maas.Machine, why string) error {
	if s.IsLXD() || rec.Quarantine == record.Quarantined {
		return nil
	}
	cause := quarantine.Cause{By: s.Identity().AgentName,
		Why: fmt.Sprintf("%s (MaasMachine %s/%s)", why, s.MaasMachine.Namespace, s.MaasMachine.Name)}
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
		return nil
	}
	s.Machines.Quarantine.Remember(m, cause)
	if errors.Is(err, maas.Forbidden) {
		rec.Quarantine = record.QuarantineRefused
	}
	return err
}

// Report tells people what became of the quarantine of a machine: err is what Machine or Proven returned, and isNew
// whether the record has changed. What MAAS refuses stops nothing; an error that Report returns is of Kubernetes, or
// maas.Unavailable: then the same again may succeed.
func Report(
	ctx context.Context, recorder events.EventRecorder, s *scope.Machine, m *maas.Machine, isNew bool, err error,
) error {
	switch {
	case err == nil && isNew:
		recorder.Eventf(s.MaasMachine, nil, corev1.EventTypeNormal, "Quarantined", "Quarantine",
			"machine %s failed, and is not allocated for a while: it has the tag %s in MAAS", m, quarantine.Tag)
	case errors.Is(err, maas.Forbidden):
		recorder.Eventf(s.MaasMachine, nil, corev1.EventTypeWarning, "QuarantineRefused", "Quarantine",
			"machine %s (%s) failed, and only this manager leaves it alone for a while: only %s may tag it, "+
				"and the API key's user is none of these",
			m.Hostname, m.SystemID, rights.Tags.Users(""))
	case guard.Is[*NotOursError](err): // The condition says so.
	case errors.Is(err, maas.Unavailable):
		return err
	case guard.Is[*maas.Error](err), guard.Is[*ownership.UndecidedError](err):
		ctrl.LoggerFrom(ctx).Info("Failed to quarantine a machine that failed", "systemID", m.SystemID, "error",
			text.Lines(err))
	default:
		return err
	}
	return nil
}
