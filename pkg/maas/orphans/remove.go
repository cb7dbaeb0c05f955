// SPDX-License-Identifier: Apache-2.0

package orphans

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
)

const (
	comment = "cluster-api-provider-maas: nothing in Kubernetes claims this machine"
	// goneInterval and goneTimeout bound the search for a deleted VM. MAAS responds when it is gone or the deletion
	// failed; this is for a lost response.
	goneInterval = time.Second
	goneTimeout  = 2 * time.Minute
)

// byHand is the permit for removing an orphan: a person runs the removal, and sees its result.
var (
	byHand         = maas.Unrecorded(seen)
	releasedByHand = maas.UnrecordedRelease(seen)
)

const seen = "a person runs this and sees the result"

// KeptError is the reason why a machine that looked like an orphan before was not removed.
type KeptError struct {
	Why string
}

// Error returns the reason.
func (e *KeptError) Error() string { return "it is kept: " + e.Why }

// Remover removes orphans from one MAAS.
type Remover struct {
	Client *maas.Client
	// Claims reads Kubernetes again.
	Claims func(context.Context) (*Claims, error)
	// Vouched are the owner ids of clusters that, as a person has confirmed, no other management cluster has.
	Vouched []string
}

// Remove proves once more that a machine is an orphan, and then releases it or, if it is a VM that was composed for us,
// deletes it. It returns what it did. An error is a *KeptError if nothing was done.
func (r *Remover) Remove(ctx context.Context, systemID string) (string, error) {
	m, err := r.Client.GetMachine(ctx, systemID)
	err = r.Client.ProveGone(ctx, systemID, err)
	if errors.Is(err, maas.NotFound) {
		return "MAAS no longer has it", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading machine %s again: %w", systemID, err)
	}
	left, err := r.leftOn(ctx, m) // Before the proof: nothing slow comes after it.
	if err != nil {
		return "", err
	}
	finding, err := r.prove(ctx, m)
	if err != nil {
		return "", err
	}
	if err := r.unchanged(ctx, m); err != nil {
		return "", err
	}
	if finding.Composed() {
		return r.deleteVM(ctx, m)
	}
	return r.release(ctx, m, left)
}

// unchanged returns an error if a machine is not whose it was when the proof began, which reads Kubernetes for long.
// Its state may change by itself.
func (r *Remover) unchanged(ctx context.Context, before *maas.Machine) error {
	m, err := r.Client.GetMachine(ctx, before.SystemID)
	switch {
	case err != nil:
		return fmt.Errorf("reading machine %s again: %w", before.SystemID, err)
	case m.Owner != before.Owner || m.Locked || m.Description != before.Description ||
		!maps.Equal(m.WorkloadAnnotations, before.WorkloadAnnotations):
		return &KeptError{"it has changed a moment ago"}
	}
	return nil
}

// prove is the last check before a machine is removed. Kubernetes is read after MAAS.
func (r *Remover) prove(ctx context.Context, m *maas.Machine) (Finding, error) {
	claims, err := r.Claims(ctx)
	if err != nil {
		return Finding{}, err
	}
	finding, notOrphan := claims.Judge(m)
	switch {
	case notOrphan != "":
		return Finding{}, &KeptError{notOrphan}
	case finding.Doubt != "" && !slices.Contains(r.Vouched, finding.OwnerID):
		return Finding{}, &KeptError{finding.Doubt}
	case m.Locked:
		return Finding{}, &KeptError{"it is locked in MAAS"}
	case finding.Kept() != "":
		return Finding{}, &KeptError{finding.Kept()}
	}
	stands, err := Recorded(ctx, r.Client, []Finding{finding})
	if err != nil {
		return Finding{}, err
	}
	if len(stands) == 0 {
		return Finding{}, &KeptError{fmt.Sprintf("MAAS did not record that %s acquired it; its owner in MAAS is %q",
			finding.AgentName(), m.Owner)}
	}
	return finding, nil
}

func (r *Remover) release(ctx context.Context, m *maas.Machine, left string) (string, error) {
	released, err := r.Client.ReleaseMachine(ctx, releasedByHand, m.SystemID, maas.ReleaseParams{Comment: comment})
	if err != nil {
		return "", fmt.Errorf("releasing machine %s: %w", m.SystemID, err)
	}
	return "released: " + released.StatusName + left, nil
}

// leftOn says what of a MaasMachine a release leaves on the machine; "" if nothing is known. Its object is gone, and
// nobody else restores that.
func (r *Remover) leftOn(ctx context.Context, m *maas.Machine) (string, error) {
	tags, err := r.Client.ListTags(ctx)
	if err != nil {
		return "", fmt.Errorf("reading what is noted on machine %s: %w", m.SystemID, err)
	}
	var left []string
	for _, nic := range m.Interfaces {
		for _, link := range nic.Links {
			if link.Mode == maas.LinkModeStatic && link.IPAddress != "" {
				left = append(left, "the static address "+link.IPAddress)
			}
		}
	}
	note := quarantine.ExcludeTag + "-" + m.SystemID
	if slices.ContainsFunc(tags, func(tag maas.Tag) bool { return tag.Name == note }) {
		left = append(left, "what the tag "+note+" notes")
	}
	if len(left) == 0 {
		return "", nil
	}
	return "; it keeps " + strings.Join(left, " and ") + ": restore its network and storage in MAAS, and delete that tag",
		nil
}

// deleteVM deletes a VM and checks that its host no longer has it: MAAS reports no error if it could not remove it
// there, and finds it again when it refreshes the host.
func (r *Remover) deleteVM(ctx context.Context, m *maas.Machine) (string, error) {
	if err := r.Client.DeleteMachine(ctx, byHand, m.SystemID); err != nil && !errors.Is(err, maas.NotFound) &&
		!errors.Is(err, maas.Unavailable) {
		return "", fmt.Errorf("deleting VM %s: %w", m.SystemID, err)
	}
	err := wait.PollUntilContextTimeout(ctx, goneInterval, goneTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := r.Client.GetMachine(ctx, m.SystemID)
		err = r.Client.ProveGone(ctx, m.SystemID, err)
		if errors.Is(err, maas.NotFound) || errors.Is(err, maas.Unavailable) {
			return errors.Is(err, maas.NotFound), nil
		}
		return false, err
	})
	if err != nil {
		return "", fmt.Errorf("deleting VM %s: MAAS does not confirm that it is gone: %w", m.SystemID, err)
	}
	if _, err := r.Client.RefreshVMHost(ctx, m.Pod.ID); err != nil {
		return "", fmt.Errorf("VM %s is gone from MAAS; whether VM host %s still has it is unknown: %w", m.SystemID,
			m.Pod.Name, err)
	}
	back, err := r.Client.ListMachines(ctx, maas.MachineFilter{Hostnames: []string{m.Hostname}})
	if err != nil {
		return "", fmt.Errorf("searching for VM %s in MAAS: %w", m.SystemID, err)
	}
	if len(back) > 0 {
		return "", fmt.Errorf("VM host %s still has the VM, and MAAS took it in again as %s", m.Pod.Name, back[0].SystemID)
	}
	return "deleted, and gone from VM host " + m.Pod.Name, nil
}
