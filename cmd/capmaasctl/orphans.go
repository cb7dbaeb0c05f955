// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/capmaas/cluster-api-provider-maas/controllers/orphanaudit"
	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/orphans"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
)

// orphansTimeout leaves time to wait for --settle-time, and to read the proofs.
const orphansTimeout = 30 * time.Minute

func orphansCommand() command {
	return command{
		use: "orphans", short: "Find machines in MAAS that nothing claims, and how to remove them",
		long: `It lists the machines in MAAS that carry the marks of this management cluster and that no object
in it claims, each with the proof, and with the commands of MAAS's CLI by which you remove it. It
changes nothing. It reads all namespaces of the management cluster, and one MAAS: run it once for
each MAAS.`,
		example:   "orphans\norphans --settle-time=0s",
		page:      "orphans.md",
		needsMAAS: true, needsCluster: true, hasTimeout: true,
		byDefault: func(o *options) { o.timeout = orphansTimeout },
		flags: func(o *options, fs *pflag.FlagSet) {
			fs.DurationVar(&o.settleTime, "settle-time", record.DefaultPowerSettleTime, "Machines that look like orphans are "+
				"checked again after this time, and only reported if they still do. The default is as long as MAAS may do late "+
				"what a manager asked for. 0s: no second check.")
		},
		complete: (*options).completeOrphans,
		find:     findOrphans,
	}
}

func (o *options) completeOrphans(*pflag.FlagSet) {
	switch {
	case o.settleTime < 0:
		o.wrong("--settle-time: %s is no time to wait; 0s checks once", o.settleTime)
	case o.timeout > 0 && o.timeout <= o.settleTime:
		o.wrong("--timeout: %s is not longer than --settle-time, %s", o.timeout, o.settleTime)
	}
}

// findOrphans lists orphans.
func findOrphans(ctx context.Context, o options, s surroundings) result {
	r := &orphanReport{Command: "orphans", Orphans: []orphan{}}
	defer r.sumUp()
	found, err := o.settledOrphans(ctx, s)
	if err != nil {
		r.Problem, r.Remedy = explainAll(err)
		return r
	}
	r.Orphans = append(r.Orphans, list.Each(found, newOrphan)...)
	return r
}

// explainAll is maas.Explain for errors of the management cluster, too.
func explainAll(err error) (problem, remedy string) {
	var none *noMAASError
	switch {
	case errors.As(err, &none):
		return none.problem, giveMAAS
	case meta.IsNoMatchError(err):
		return "the cluster of the kubeconfig has no MaasMachines", "give the kubeconfig of the management cluster"
	}
	if lacking := rights.Refusal(err); lacking != nil {
		return lacking.Found(), lacking.Remedy()
	}
	return inFlagsOfMAAS.Explain(err)
}

// claims reads what the management cluster claims.
func (o *options) claims(ctx context.Context) (*orphans.Claims, error) {
	management, err := orphanaudit.ManagementID(ctx, o.cluster)
	if err != nil {
		return nil, err
	}
	claims, _, err := orphanaudit.ReadClaims(ctx, o.cluster, management, "")
	return claims, err
}

// searchOrphans returns what looks like an orphan now, sorted by hostname.
func (o *options) searchOrphans(ctx context.Context) ([]orphans.Finding, error) {
	machines, err := orphans.List(ctx, o.region)
	if err != nil {
		return nil, err
	}
	claims, err := o.claims(ctx)
	if err != nil {
		return nil, err
	}
	found, err := orphans.Recorded(ctx, o.region, claims.Audit(machines))
	slices.SortFunc(found, func(a, b orphans.Finding) int {
		return strings.Compare(a.Machine.Hostname, b.Machine.Hostname)
	})
	return found, err
}

// settledOrphans searches twice: a machine that is an orphan only for a moment is none.
func (o *options) settledOrphans(ctx context.Context, s surroundings) ([]orphans.Finding, error) {
	if o.unconnected != nil {
		return nil, o.unconnected
	}
	first, err := o.searchOrphans(ctx)
	if err != nil || len(first) == 0 || o.settleTime == 0 {
		return first, err
	}
	fmt.Fprintf(s.err, "%d machine(s) look like orphans; looking again in %s\n", len(first), o.settleTime)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(o.settleTime):
	}
	second, err := o.searchOrphans(ctx)
	return slices.DeleteFunc(second, func(f orphans.Finding) bool {
		return !slices.ContainsFunc(first, func(old orphans.Finding) bool {
			return old.Machine.SystemID == f.Machine.SystemID
		})
	}), err
}

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
	Doubt string `json:"doubt,omitempty"`
	// Commands remove it, after a look at it; Hints say what you have to know of that.
	Commands []string `json:"commands,omitempty"`
	Hints    []string `json:"hints,omitempty"`
}

func newOrphan(f orphans.Finding) orphan {
	m := f.Machine
	o := orphan{
		Name: m.Hostname, SystemID: m.SystemID, Kind: "bare-metal", State: m.StatusName, Zone: m.Zone.Name,
		VMHost: m.HostName(),
		Locked: m.Locked, OwnerID: f.OwnerID, Proof: f.Proof, Doubt: f.Doubt,
		Commands: f.Removal(), Hints: f.Hints(),
	}
	if f.VM() {
		o.Kind = "lxd"
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
	Command string   `json:"command"`
	OK      bool     `json:"ok"`
	Orphans []orphan `json:"orphans"`
	ending
}

// sumUp computes the totals.
func (r *orphanReport) sumUp() {
	r.OK = r.Problem == "" && len(r.Orphans) == 0
	switch n := len(r.Orphans); {
	case r.Problem != "":
		r.Summary = "The orphans could not be determined."
	case n == 0:
		r.Summary = "No orphans."
	default:
		r.Summary = fmt.Sprintf("%d orphan(s). Nothing was changed. Right before you remove one, look once more: it is "+
			"still in this list (--settle-time=0s), and its first command still shows it.", n)
	}
}

func (r *orphanReport) good() bool { return r.OK }

// text writes a table, then the proof of each, and how it is removed.
func (r *orphanReport) text(w io.Writer) error {
	err := table(w, "NAME,SYSTEM ID,STATE,ZONE,VM HOST", r.Orphans, func(o orphan) []any {
		return []any{o.Name, o.SystemID, o.State, o.Zone, o.VMHost}
	})
	for _, o := range r.Orphans {
		fmt.Fprintf(w, "\n%s (%s):\n", o.Name, o.SystemID)
		for _, line := range o.Proof {
			fmt.Fprintf(w, "  - %s\n", line)
		}
		if o.Doubt != "" {
			fmt.Fprintf(w, "  ? in doubt: %s\n", o.Doubt)
		}
		for _, line := range o.Hints {
			fmt.Fprintf(w, "  ! %s\n", line)
		}
		for _, line := range o.Commands {
			fmt.Fprintf(w, "    %s\n", line)
		}
	}
	if len(r.Orphans) > 0 {
		fmt.Fprintln(w)
	}
	return r.end(w, err)
}
