// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"

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
	// Seconds is how long the new machines take to come up one after the other; 0 if that is not known of each.
	Seconds int `json:"seconds,omitempty"`
	trouble
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
	refused, unknown, untimed := 0, false, false
	for _, step := range r.Steps {
		if step.Fits {
			counts[step.Action]++
			r.Calls += step.Calls
			r.Seconds += step.Seconds
			unknown = unknown || (step.Calls == 0 && step.Action != plan.Keep)
			untimed = untimed || (step.Seconds == 0 && step.Action == plan.Create)
		} else {
			refused++
		}
	}
	if unknown {
		r.Calls = 0
	}
	if untimed {
		r.Seconds = 0
	}
	r.Fits = r.Problem == "" && refused == 0
	switch {
	case r.Problem != "":
		r.Summary = "There is no plan. Nothing was changed."
	case len(r.Steps) == 0:
		r.Summary = "There is nothing to do."
	case r.Fits:
		r.Summary = fmt.Sprintf("It fits: %d machine(s) created, %d deleted, %d stay. Nothing was changed.",
			counts[plan.Create], counts[plan.Delete], counts[plan.Keep])
	default:
		r.Summary = fmt.Sprintf("It does not fit: %d machine(s) created, %d deleted, then it waits. Nothing was changed.",
			counts[plan.Create], counts[plan.Delete])
	}
}

func (r *planReport) good() bool { return r.Fits }

// text writes a table, then why what does not fit.
func (r *planReport) text(w io.Writer) error {
	if len(r.Steps) > 0 {
		var lines [][]any
		for _, step := range r.Steps {
			fits := "yes"
			if !step.Fits {
				fits = "no"
			}
			lines = append(lines, []any{step.Number, step.Action, step.Cluster, step.Owner, step.Machine, step.Host, step.Zone,
				fits})
		}
		if err := table(w, "STEP,ACTION,CLUSTER,OWNER,MACHINE,HOST,ZONE,FITS", lines); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	for _, step := range r.Steps {
		if step.Reason != "" {
			fmt.Fprintf(w, "%d: %s\n", step.Number, step.Reason)
		}
	}
	r.trouble.text(w)
	if r.Calls > 0 {
		fmt.Fprintf(w, "It takes at most %d calls to MAAS, beside the lists that all machines share.\n", r.Calls)
	}
	if r.Seconds > 0 {
		fmt.Fprintf(w, "Its new machines take about %s to come up one after the other, by what others took. The drains of "+
			"Nodes come on top.\n", duration.HumanDuration(time.Duration(r.Seconds)*time.Second))
	}
	_, err := fmt.Fprintln(w, r.Summary)
	return err
}
