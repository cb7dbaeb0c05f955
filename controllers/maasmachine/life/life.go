// SPDX-License-Identifier: Apache-2.0

// Package life has what the lives of bare metal and of VMs have in common: what one reconcile knows of a machine, the
// steps that both go through, and whose a machine is. The packages metal, vm and hostnode have the other steps, and do
// not call each other.
package life

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	capicontroller "sigs.k8s.io/cluster-api/util/controller"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/reconciler"
	"github.com/capmaas/cluster-api-provider-maas/controllers/internal/report"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/machine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/scope"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/turns"
)

// Steps are the steps that bare metal and VMs have in common, and what they work with.
type Steps struct {
	reconciler.Base
	ClusterCache clustercache.ClusterCache
	// CommissionTimeout is how long MAAS may commission and test a machine, DeployTimeout how long it may deploy one,
	// before the condition reports a timeout. 0 is no limit.
	CommissionTimeout, DeployTimeout time.Duration
	// Controller is what the watches on workload clusters wake.
	Controller capicontroller.Controller
	// Told are the MaasMachines whose event Provisioned was sent, and those that are gone.
	Told report.Once

	addressUsers addressUsers
}

// Life is one machine during one reconcile.
type Life struct {
	*scope.Machine
	Record *record.Machine
	Clock  clock.PassiveClock
	// MAAS is the machine in MAAS; nil until a step found or acquired it.
	MAAS *maas.Machine
	// Foreign is another user's machine that has our VM's id or name; nil if the deletion has met none.
	Foreign *maas.Machine
	// Kept means that the machine waits for the next Machine.
	Kept bool
	// NotComposed means that the machine is bare metal, though the spec wants a VM: it was not composed for the object,
	// and is released to the pool.
	NotComposed bool
	// Proven means that MAAS proved to this reconcile that the machine is ours.
	Proven bool
	// turn ends the turn that the machine has; nil if it has none.
	turn func()
	// formerBoot is what FormerBoot has found; nil if nothing was asked.
	formerBoot *string
}

// TakeTurn waits for a turn, which lasts until EndTurn, or until the reconcile ends.
func (l *Life) TakeTurn(ctx context.Context, line turns.Line, rank turns.Rank) error {
	done, err := l.Turn(ctx, line, rank)
	if err == nil {
		l.turn = done
	}
	return err
}

// EndTurn ends the turn, if the machine has one.
func (l *Life) EndTurn() {
	if l.turn != nil {
		l.turn()
	}
}

// Step is a step of reconciler.Through.
type Step func(ctx context.Context, l *Life) (Outcome, error)

// Outcome is what a step comes to.
type Outcome = report.Outcome

// Proceed is the outcome of a step that waits for nothing.
var Proceed = Outcome{}

// Change changes the machine in MAAS, unless it is too soon after the same failed. A change of bare metal is recorded,
// in one patch with the changes of also: MAAS may finish a call after the client stopped waiting for the response, and
// by then the machine may be back in the pool, or another user's.
func (s *Steps) Change(
	ctx context.Context, l *Life, op record.Op, do func(context.Context, maas.Permit) error, also ...func(client.Object),
) error {
	if l.IsLXD() && !l.NotComposed {
		if err := s.stillWanted(ctx, l); err != nil {
			return err
		}
		return l.Record.Try(op, func() error { return do(ctx, record.ChangeVM.Permit()) })
	}
	return s.Ask(ctx, l, op, do, also...)
}

// stillWanted returns a conflict, as the record does, if a VM's MaasMachine is being deleted, or is another one of
// its name, since this reconcile read it: a compose, or the wait for a turn, may have taken minutes.
func (s *Steps) stillWanted(ctx context.Context, l *Life) error {
	if !l.MaasMachine.DeletionTimestamp.IsZero() {
		return nil // It is changed for its deletion.
	}
	now := &infrav1.MaasMachine{}
	err := s.Client.Get(ctx, client.ObjectKeyFromObject(l.MaasMachine), now)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading MaasMachine %s again: %w", l.MaasMachine.Name, err)
	}
	if err == nil && now.DeletionTimestamp.IsZero() && now.UID == l.MaasMachine.UID {
		return nil
	}
	return apierrors.NewConflict(schema.GroupResource{Group: infrav1.GroupVersion.Group, Resource: "maasmachines"},
		l.MaasMachine.Name, errGoing)
}

var errGoing = errors.New("it is being deleted: nothing more is acquired or deployed for it")

// BridgeName is the bridge for VMs on nodes of a host cluster.
func BridgeName(l *Life) string {
	return ptr.Deref(l.MaasCluster.Spec.LXDConfig, infrav1.DefaultLXDHostConfig()).NetworkBridge
}

// IsHost reports whether the machine is, or becomes, a VM host.
func IsHost(l *Life) bool { return !l.IsLXD() && l.MaasCluster.Spec.LXDControlPlaneCluster }

// LacksBridge reports whether a machine that becomes a VM host lacks the bridge for VMs.
func LacksBridge(l *Life, m *maas.Machine) bool {
	return IsHost(l) && !machine.HasBridge(m, BridgeName(l))
}

// Of returns the life of another machine that MAAS gave the object: what is found out about one holds for no other.
func (l *Life) Of(m *maas.Machine) *Life {
	return &Life{Machine: l.Machine, Record: l.Record, Clock: l.Clock, MAAS: m}
}
