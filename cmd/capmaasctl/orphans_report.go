// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/orphans"
)

// kindLXD is the kind of VMs that were composed for us. Others are released like bare metal.
const kindLXD = "lxd"

// outcome words of an orphan. They are part of the output's contract.
const (
	outcomeRemoved = "removed"
	outcomeLeft    = "left"   // nothing was done; the message says why
	outcomeFailed  = "failed" // the removal failed
)

// orphan is a machine that nothing claims. The JSON names are part of the output's contract.
type orphan struct {
	Name     string `json:"name"`
	SystemID string `json:"systemID"`
	Kind     string `json:"kind"` // bare-metal or lxd
	State    string `json:"state"`
	Zone     string `json:"zone"`
	VMHost   string `json:"vmHost,omitempty"`
	Locked   bool   `json:"locked"`
	OwnerID  string `json:"ownerID"`
	// Cluster is the MaasCluster, as namespace/name; "" if it is gone. Machine is the MaasMachine that it was made for.
	Cluster string   `json:"cluster,omitempty"`
	Machine string   `json:"machine,omitempty"`
	Proof   []string `json:"proof"`
	// Doubt is what the proof lacks.
	Doubt   string `json:"doubt,omitempty"`
	Outcome string `json:"outcome,omitempty"` // with --delete
	Message string `json:"message,omitempty"`
	// Kept is why --delete never removes it.
	Kept string `json:"kept,omitempty"`
}

func newOrphan(f orphans.Finding) orphan {
	m := f.Machine
	o := orphan{
		Name: m.Hostname, SystemID: m.SystemID, Kind: "bare-metal", State: m.StatusName, Zone: m.Zone.Name,
		VMHost: m.HostName(),
		Locked: m.Locked, OwnerID: f.OwnerID, Proof: f.Proof, Doubt: f.Doubt, Kept: f.Kept(),
	}
	if f.VM() {
		o.Kind = kindLXD
	}
	if f.Cluster != nil {
		o.Cluster = f.Cluster.String()
	}
	if f.Object.Name != "" {
		o.Machine = f.Object.String()
	}
	return o
}

// orphanReport is the result of the command.
type orphanReport struct {
	Command string `json:"command"`
	// Delete: the command was allowed to remove machines.
	Delete  bool     `json:"delete"`
	OK      bool     `json:"ok"`
	Orphans []orphan `json:"orphans"`
	trouble
	Summary string `json:"summary"`
}

// sumUp sets what follows from the rest.
func (r *orphanReport) sumUp() {
	counts := map[string]int{}
	for _, o := range r.Orphans {
		counts[o.Outcome]++
	}
	r.OK = r.Problem == "" && counts[outcomeRemoved] == len(r.Orphans)
	switch n := len(r.Orphans); {
	case r.Problem != "":
		r.Summary = "The orphans could not be determined. Nothing was changed."
	case n == 0:
		r.Summary = "No orphans. Nothing was changed."
	case !r.Delete:
		r.Summary = fmt.Sprintf("%d orphan(s). Nothing was changed: without --delete this only looks.", n)
	default:
		r.Summary = fmt.Sprintf("%d orphan(s): %d removed, %d left, %d failed.", n, counts[outcomeRemoved],
			counts[outcomeLeft], counts[outcomeFailed])
	}
}

func (r *orphanReport) good() bool { return r.OK }

// text writes a table, then the proof of each.
func (r *orphanReport) text(w io.Writer) error {
	if len(r.Orphans) > 0 {
		var lines [][]any
		for _, o := range r.Orphans {
			lines = append(lines, []any{o.Name, o.SystemID, o.State, o.Zone, o.VMHost})
		}
		if err := table(w, "NAME,SYSTEM ID,STATE,ZONE,VM HOST", lines); err != nil {
			return err
		}
	}
	for _, o := range r.Orphans {
		fmt.Fprintln(w)
		o.explain(w)
		if o.Outcome != "" {
			fmt.Fprintf(w, "  -> %s: %s\n", o.Outcome, o.Message)
		}
	}
	r.trouble.text(w)
	if len(r.Orphans) > 0 {
		fmt.Fprintln(w)
	}
	_, err := fmt.Fprintln(w, r.Summary)
	return err
}

// explain writes the proof.
func (o orphan) explain(w io.Writer) {
	fmt.Fprintf(w, "%s (%s):\n", o.Name, o.SystemID)
	for _, line := range o.Proof {
		fmt.Fprintf(w, "  - %s\n", line)
	}
	if o.Doubt != "" {
		fmt.Fprintf(w, "  ? in doubt: %s\n", o.Doubt)
	}
	if o.Locked {
		fmt.Fprintln(w, "  ! locked in MAAS")
	}
	if o.Kept != "" {
		fmt.Fprintf(w, "  ! %s\n", o.Kept)
	}
}
