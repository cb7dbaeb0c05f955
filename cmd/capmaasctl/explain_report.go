// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/record"
)

// fact is worth knowing of an object.
type fact struct {
	Name  string `json:"name,omitempty"`
	Value string `json:"value"`
}

// waiting is a condition that is not as it should be. The JSON names are part of the output's contract.
type waiting struct {
	Condition string                 `json:"condition"`
	Status    metav1.ConditionStatus `json:"status"`
	Reason    string                 `json:"reason"`
	Message   string                 `json:"message"`
	// Means and Remedy are of its reason, if it is one of ours.
	Means  string `json:"means,omitempty"`
	Remedy string `json:"remedy,omitempty"`
	// Since is when its status changed last; its reason may have changed later.
	Since metav1.Time `json:"since"`
}

// explanation is the result of explain.
type explanation struct {
	Command   string       `json:"command"`
	Kind      string       `json:"kind"`
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Ready     bool         `json:"ready"`
	Deleting  *metav1.Time `json:"deleting,omitempty"` // since when
	Facts     []fact       `json:"facts,omitempty"`
	WaitsFor  []waiting    `json:"waitsFor"`
	// Asked is what its record has, in words.
	Asked []record.Entry `json:"asked"`
	// Next is what comes, in order, if nothing goes wrong.
	Next []string `json:"next"`
	trouble
}

// good reports whether the object could be explained.
func (r *explanation) good() bool { return r.Problem == "" }

func (r *explanation) text(w io.Writer) error {
	state := "is not ready"
	switch {
	case r.Problem != "":
		state = "is not known"
	case r.Deleting != nil:
		state = "is being deleted, since " + ago(*r.Deleting)
	case r.Ready:
		state = "is ready"
	}
	fmt.Fprintf(w, "%s %s/%s %s\n", r.Kind, r.Namespace, r.Name, state)
	for _, one := range r.Facts {
		fmt.Fprintf(w, "  %-14s %s\n", one.Name, one.Value)
	}
	r.trouble.text(w)
	if r.Problem == "" {
		r.textOfWaiting(w)
	}
	if len(r.Asked) > 0 {
		fmt.Fprintln(w, "\nRecorded of what it asked of MAAS:")
	}
	for _, one := range r.Asked {
		since := ""
		if one.Since != nil {
			since = ago(*one.Since)
		}
		fmt.Fprintf(w, "  %-5s %s\n", cmp.Or(since, "-"), one.Words)
	}
	if len(r.Next) > 0 {
		fmt.Fprintln(w, "\nComes next:")
	}
	for i, step := range r.Next {
		fmt.Fprintf(w, "  %d. %s\n", i+1, step)
	}
	return nil
}

// textOfWaiting writes each condition with its message below it, as messages are long.
func (r *explanation) textOfWaiting(w io.Writer) {
	if len(r.WaitsFor) == 0 {
		fmt.Fprintln(w, "\nIt waits for nothing.")
		return
	}
	fmt.Fprintln(w, "\nWaits for (more in docs/reasons.md):")
	for _, c := range r.WaitsFor {
		fmt.Fprintf(w, "  %-5s %s is %s: %s\n", ago(c.Since), c.Condition, c.Status, c.Reason)
		for _, line := range []struct{ head, words string }{{"", c.Message}, {"means: ", c.Means}, {"to do: ", c.Remedy}} {
			if line.words != "" {
				fmt.Fprintf(w, "        %s%s\n", line.head, line.words)
			}
		}
	}
}

// ago is how long it is since a time, as kubectl shows it.
func ago(at metav1.Time) string {
	if at.IsZero() {
		return "-"
	}
	return duration.HumanDuration(now().Sub(at.Time).Truncate(time.Second))
}
