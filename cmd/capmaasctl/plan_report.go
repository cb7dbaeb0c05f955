// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capmaas/cluster-api-provider-maas/controllers/planner"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/plan"
)

// planReport is the result of a plan. The JSON names are part of the output's contract.
type planReport struct {
	Command string      `json:"command"`
	Fits    bool        `json:"fits"`
	Steps   []plan.Step `json:"steps"`
	// Calls is how many calls to MAAS it takes at most; 0 if that is not known of each step.
	Calls int `json:"calls,omitempty"`
	// Problem is why there is no plan, and Remedy what to do.
	Problem string `json:"problem,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
	Summary string `json:"summary"`
}

func (r *planReport) failed(err error) {
	var wrong *planner.Error
	switch {
	case errors.As(err, &wrong):
		r.Problem = err.Error()
	case apierrors.IsNotFound(err):
		r.Problem, r.Remedy = err.Error(), "give its name, and its namespace with --namespace"
	default:
		r.Problem, r.Remedy = explainAll(err)
	}
}

// sumUp sets what follows from the rest.
func (r *planReport) sumUp() {
	counts := map[plan.Action]int{}
	refused, unknown := 0, false
	for _, step := range r.Steps {
		if step.Fits {
			counts[step.Action]++
			r.Calls += step.Calls
			unknown = unknown || (step.Calls == 0 && step.Action != plan.Keep)
		} else {
			refused++
		}
	}
	if unknown {
		r.Calls = 0
	}
	r.Fits = r.Problem == "" && refused == 0
	switch {
	case r.Problem != "":
		r.Summary = "There is no plan. Nothing was changed."
	case len(r.Steps) == 0:
		r.Summary = "There is nothing to do."
	case r.Fits:
		r.Summary = fmt.Sprintf("It fits: %d machine(s) created, %d deleted, %d stay. Nothing was changed.", counts[plan.Create], counts[plan.Delete], counts[plan.Keep])
	default:
		r.Summary = fmt.Sprintf("It does not fit: %d machine(s) created, %d deleted, then it waits. Nothing was changed.", counts[plan.Create], counts[plan.Delete])
	}
}

func (r *planReport) good() bool { return r.Fits }

func (r *planReport) json(w io.Writer) error { return writeJSON(w, r) }

// text writes a table, then why what does not fit.
func (r *planReport) text(w io.Writer) error {
	if len(r.Steps) > 0 {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "STEP\tACTION\tCLUSTER\tOWNER\tMACHINE\tHOST\tZONE\tFITS")
		for _, step := range r.Steps {
			fits := "yes"
			if !step.Fits {
				fits = "no"
			}
			fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", step.Number, step.Action, step.Cluster, step.Owner, step.Machine, orDash(step.Host), orDash(step.Zone), fits)
		}
		if err := table.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	for _, step := range r.Steps {
		if step.Reason != "" {
			fmt.Fprintf(w, "%d: %s\n", step.Number, step.Reason)
		}
	}
	if r.Problem != "" {
		fmt.Fprintln(w, r.Problem)
	}
	if r.Remedy != "" {
		fmt.Fprintf(w, "  -> %s\n", r.Remedy)
	}
	if r.Calls > 0 {
		fmt.Fprintf(w, "It takes at most %d calls to MAAS, beside the lists that all machines share.\n", r.Calls)
	}
	_, err := fmt.Fprintln(w, r.Summary)
	return err
}
