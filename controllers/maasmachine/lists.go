// SPDX-License-Identifier: Apache-2.0

package maasmachine

import (
	"context"

	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/hostnode"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/life"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/metal"
	"github.com/capmaas/cluster-api-provider-maas/controllers/maasmachine/vm"
)

// The ways of a machine, step by step. Each reconcile goes through a list until a step waits or fails; a step whose
// task is done returns at once. What a step relies on, an earlier one in the list has done in the same reconcile. The
// steps are in packages that don't call each other: metal, vm and hostnode, and life, which they have in common.

// bareMetalSteps lead from a machine in MAAS's pool to one that runs.
func (r *Reconciler) bareMetalSteps() []life.Step {
	s, m := &r.Steps, metal.New(&r.Steps)
	return []life.Step{
		m.Unused,         // What MAAS gave and the object does not use goes back before another one is taken.
		m.Lookup,         // If the spec names a machine, all that follows is about that one.
		m.GiveBackForNow, // A machine that goes back to the pool for now is not changed by later steps.
		s.Address,        // No machine is held while its address is awaited.
		m.Succession,     // A machine that waits for this object comes before the pool.
		m.Adoption,       // So does one that an earlier try acquired and could not record.
		m.Acceptance,     // Of the adopted one.
		m.Preflight,      // What MAAS would refuse later is said before a machine is taken.
		s.Image,          // The image is needed for the architecture that the pool is asked for.
		m.EarlierChoice,  // An earlier try may have set a machine in the pool aside for its layout.
		m.Settlement,     // What an earlier try left on another one is undone first.
		m.Choice,         // From here until acceptance it is this object's turn.
		m.Layout,         // MAAS sets a layout only while the machine has no owner.
		m.Allocation,     // MAAS gives one.
		m.Refused,        // Or none: what was set for it is undone.
		m.Acceptance,     // Of what MAAS gave.
		m.UnderTest,      // MAAS may still test it for this object.
		s.Readiness,      // MAAS may still prepare it, or it may be broken.
		m.Fit,            // A machine of choice is still free: it must fit before it is claimed.
		m.Storage,        // It gets its layout before it is claimed, too.
		s.Claim,          // From here on no other user gets it.
		m.StorageCheck,   // Another user may have set another layout right before.
		m.Checks,         // Before anything is done to it that would have to be undone.
		m.Interfaces,     // Links need the interfaces that they are on.
		r.host().Bridge,
		m.Network,     // The last change before it is deployed: MAAS changes nothing of a deployed machine.
		s.Deployment,  // MAAS installs the image, and boots it.
		s.Annotation,  // Whose it is must be in MAAS before its release, which removes the other marks.
		s.Observation, // The status says that it runs.
	}
}

// vmSteps lead from no VM to one that runs.
func (r *Reconciler) vmSteps() []life.Step {
	s, v := &r.Steps, r.vm()
	return []life.Step{
		v.Lookup,      // If the spec names a VM, all that follows is about that one.
		v.Composed,    // Of one that was not composed for the object, the deletion would delete another's disks.
		s.Address,     // No VM is made before its address is known.
		v.Adoption,    // A VM that an earlier try made and could not record comes before a new one.
		v.Recovery,    // So does one that is on a host, and that MAAS does not have.
		v.Preflight,   // What MAAS or the host would refuse later is said before a VM is made.
		v.Image,       // Whether MAAS has the image decides which hosts may have the VM.
		v.Composition, // A host is chosen, and makes the VM.
		v.Start,       // It is recorded by now where the VM is.
		s.Readiness,   // MAAS may still commission it, or it may be broken.
		s.Claim,       // From here on no other user gets it.
		v.Network,     // The last change before it is deployed.
		s.Deployment,  // MAAS installs the image, and boots it.
		s.Annotation,  // Whose it is must be in MAAS before it is deleted.
		s.Observation, // The status says that it runs.
		v.Deployed,    // The conditions of VMs say so, too.
	}
}

// runningSteps lead from a machine that runs to its Node.
func (r *Reconciler) runningSteps() []life.Step {
	return []life.Step{
		r.Endpoint, // The Node can't join before the endpoint leads to a control plane.
		r.Node,
	}
}

// bareMetalDeletion releases a machine to MAAS's pool.
func (r *Reconciler) bareMetalDeletion() []life.Step {
	s, m := &r.Steps, metal.New(&r.Steps)
	return []life.Step{
		s.EndpointRemoval, // No client is sent to a control plane that goes.
		m.Unused,          // What the object never used goes back, too.
		m.DeletionLookup,  // Also a machine that was acquired and could not be recorded.
		m.Acceptance,      // Of that one.
		s.LateNode,        // While the machine is known: by the provider ID Cluster API finds the Node that it deletes.
		r.host().HostRetirement,
		m.Keep,        // The next Machine of the owner may take it as it is.
		m.Release,     // Otherwise MAAS releases it.
		m.Restoration, // In the pool, its storage becomes what it was.
	}
}

// vmDeletion deletes a VM, and makes sure that neither its host nor MAAS has it any more.
func (r *Reconciler) vmDeletion() []life.Step {
	s, v := &r.Steps, removal{r.vm(), metal.New(&r.Steps)}
	return []life.Step{
		s.EndpointRemoval, // No client is sent to a control plane that goes.
		v.DeletionLookup,  // Also a VM that was made and could not be recorded.
		s.LateNode,        // While the machine is known: by the provider ID Cluster API finds the Node that it deletes.
		v.MarkComposed,    // MAAS would delete the machine alone if it composed the VM on a host that it has no more.
		v.Removal,         // What is not a VM of the object is released instead.
		v.Verification,    // MAAS reports a machine as deleted even if its VM could not be.
		v.Deregistration,  // What holds the VM's name and address goes after the VM.
	}
}

// removal is the deletion of what a spec calls a VM.
type removal struct {
	*vm.Steps
	metal *metal.Steps
}

// Removal deletes the VM. A machine that was not composed for the object is released as bare metal: the deletion of one
// deletes its disks.
func (r removal) Removal(ctx context.Context, l *life.Life) (life.Outcome, error) {
	if l.MAAS == nil {
		return life.Proceed, nil
	}
	composed, err := l.Machines.IsComposed(ctx, l.Identity(), l.MAAS)
	switch {
	case err != nil:
		return life.Proceed, err
	case !composed:
		l.NotComposed = true
		return r.metal.Release(ctx, l)
	}
	return r.Steps.Removal(ctx, l)
}

// vm returns the steps of a VM in one reconcile.
func (r *Reconciler) vm() *vm.Steps { return vm.New(&r.Steps, r.HostUnreachableTimeout) }

// host returns the steps of a machine that is a VM host.
func (r *Reconciler) host() *hostnode.Steps { return hostnode.New(&r.Steps, &r.silence) }
