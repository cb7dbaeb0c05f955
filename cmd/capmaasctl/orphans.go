// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
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
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/orphans"
)

const (
	// orphansTimeout leaves time to wait for --settle-time, to read the proofs and to answer the questions.
	orphansTimeout = 30 * time.Minute
	// defaultSettleTime is the manager's.
	defaultSettleTime = 4 * time.Minute
)

func orphansCommand() command {
	return command{
		use: "orphans", short: "Find machines in MAAS that nothing claims; --delete removes them",
		long: `It lists the machines in MAAS that carry the marks of this management cluster and that no object
in it claims, each with the proof. With --delete it removes them: it asks for each, proves it
once more, releases bare metal and deletes VMs. It reads all namespaces of the management
cluster, and one MAAS: run it once for each MAAS.`,
		example:   "orphans\norphans --delete\norphans --delete --yes --vouch-for=x7k2m9qwzc4t",
		page:      "orphans.md",
		needsMAAS: true, needsCluster: true, hasTimeout: true,
		byDefault: func(o *options) { o.timeout = orphansTimeout },
		flags: func(o *options, fs *pflag.FlagSet) {
			fs.DurationVar(&o.settleTime, "settle-time", defaultSettleTime, "Machines that look like orphans are checked again "+
				"after this time, and only reported if they still do. 0s: no second check.")
			fs.BoolVar(&o.remove, "delete", false, "Remove the orphans, after a question for each. Without it nothing is "+
				"changed.")
			fs.BoolVar(&o.yes, "yes", false, "Don't ask.")
			fs.StringArrayVar(&o.vouched, "vouch-for", nil, "Owner id of a cluster whose machines are in doubt: --delete "+
				"removes them, too. You vouch that no other management cluster has that cluster. It can be given several times.")
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
	if o.yes && !o.remove {
		o.wrong("--yes is for --delete")
	}
	if len(o.vouched) > 0 && !o.remove {
		o.wrong("--vouch-for is for --delete")
	}
	if o.apiKeyFile == "-" && o.remove && !o.yes {
		o.wrong("--maas-api-key-file=-: the standard input is for the answers to --delete; give a file, or --yes")
	}
}

// findOrphans lists orphans and, with --delete, removes them.
func findOrphans(ctx context.Context, o options, s surroundings) result {
	r := &orphanReport{Command: "orphans", Delete: o.remove, Orphans: []orphan{}}
	defer r.sumUp()
	found, err := o.settledOrphans(ctx, s)
	if err != nil {
		r.Problem, r.Remedy = explainAll(err)
		return r
	}
	r.Orphans = append(r.Orphans, list.Each(found, newOrphan)...)
	if o.remove {
		o.removeOrphans(ctx, r.Orphans, s)
	}
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
	return maas.Explain(err)
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

// removeOrphans removes one orphan after the other.
func (o *options) removeOrphans(ctx context.Context, found []orphan, s surroundings) {
	remover := &orphans.Remover{Client: o.region, Claims: o.claims, Vouched: o.vouched}
	answers := &answers{questions: s.err, in: bufio.NewReader(s.in)}
	for i := range found {
		one := &found[i]
		if one.Outcome, one.Message = o.mayRemove(ctx, one, answers); one.Outcome != "" {
			continue
		}
		done, err := remover.Remove(ctx, one.SystemID)
		var left *orphans.KeptError
		switch {
		case err == nil:
			one.Outcome, one.Message = outcomeRemoved, done
		case errors.As(err, &left):
			one.Outcome, one.Message = outcomeLeft, left.Why
		default:
			one.Outcome, one.Message = outcomeFailed, strings.ReplaceAll(err.Error(), "\n", "; ")
		}
	}
}

// mayRemove returns an empty outcome if the machine may be removed, else the outcome.
func (o *options) mayRemove(ctx context.Context, one *orphan, answers *answers) (outcome, message string) {
	switch {
	case one.Locked:
		return outcomeLeft, "it is locked: unlock it in MAAS first"
	case one.Kept != "":
		return outcomeLeft, one.Kept
	case one.Doubt != "" && !slices.Contains(o.vouched, one.OwnerID):
		return outcomeLeft, fmt.Sprintf("it is in doubt; add --vouch-for=%s if no other management cluster has the cluster",
			one.OwnerID)
	case o.yes:
		return "", ""
	}
	question := "Release it?"
	if one.Kind == kindLXD {
		question = "Delete the VM?"
	}
	one.explain(answers.questions)
	if !answers.yes(ctx, question) {
		return outcomeLeft, "the answer was not yes"
	}
	return "", ""
}

// answers reads what a person types.
type answers struct {
	questions io.Writer
	in        *bufio.Reader
}

// yes asks a question. The end of the input is a no, and so is an interrupt, which must not wait for a line.
func (a *answers) yes(ctx context.Context, question string) bool {
	if ctx.Err() != nil {
		return false
	}
	fmt.Fprintf(a.questions, "  %s [y/N] ", question)
	line := make(chan string, 1)
	go func() {
		text, _ := a.in.ReadString('\n') // Without a line, it is empty.
		line <- strings.ToLower(strings.TrimSpace(text))
	}()
	select {
	case <-ctx.Done():
		return false
	case text := <-line:
		return text == "y" || text == "yes"
	}
}

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
	ending
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
	err := table(w, "NAME,SYSTEM ID,STATE,ZONE,VM HOST", r.Orphans, func(o orphan) []any {
		return []any{o.Name, o.SystemID, o.State, o.Zone, o.VMHost}
	})
	for _, o := range r.Orphans {
		fmt.Fprintln(w)
		o.explain(w)
		if o.Outcome != "" {
			fmt.Fprintf(w, "  -> %s: %s\n", o.Outcome, o.Message)
		}
	}
	if len(r.Orphans) > 0 {
		fmt.Fprintln(w)
	}
	return r.end(w, err)
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
