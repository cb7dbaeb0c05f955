// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
)

// machineCommand is one of the commands for one machine, with which it does something.
func machineCommand(
	c command, do func(*quarantines, context.Context, *maas.Machine, options, surroundings) error,
) command {
	c.page = "machine-states.md"
	c.needsMAAS, c.hasTimeout = true, true
	c.complete = func(o *options, fs *pflag.FlagSet) {
		if o.object = fs.Arg(0); fs.NArg() > 0 && (o.object == "" || strings.ContainsAny(o.object, "/ ")) {
			o.wrong("NAME: %q is no hostname or system id of a machine", o.object)
		}
		if o.lasts < 0 {
			o.wrong("--for: %s is no time in quarantine, such as 48h", o.lasts)
		}
	}
	c.act = func(ctx context.Context, o options, s surroundings) int {
		q := openQuarantines(o)
		m, err := q.find(ctx, o.object)
		if err == nil {
			err = do(q, ctx, m, o, s)
		}
		return s.end(err)
	}
	return c
}

func quarantineCommand() command {
	return machineCommand(command{
		use: "quarantine NAME", short: "Keep bare metal from being allocated, for a time or until it is lifted",
		long: `NAME is a hostname or a system id. The machine gets the tag capmaas-quarantine in MAAS. Whoever
has it keeps it.
It is for ` + rights.Tags.Users("") + `.`,
		example: "machines quarantine metal-a\nmachines quarantine metal-a --for 48h --why 'new disks'",
		flags: func(o *options, fs *pflag.FlagSet) {
			fs.DurationVar(&o.lasts, "for", 0, "How long, such as 48h. Default: until a person lifts it.")
			fs.StringVar(&o.why, "why", "by hand", "Why, for those who find the machine.")
		},
	}, (*quarantines).put)
}

func liftCommand() command {
	return machineCommand(command{
		use: "lift NAME", short: "Let a machine be allocated again, and forget its failures",
		long: "NAME is a hostname or a system id. It is for " + rights.Tags.Users("") + ".", example: "machines lift metal-a",
	}, (*quarantines).lift)
}

func listMachinesCommand() command {
	return command{
		use: "list", short: "List the machines in quarantine: since and until when, and why",
		long:    "These have the tag capmaas-quarantine in MAAS.",
		example: "machines list\nmachines list -o yaml", page: "machine-states.md", needsMAAS: true, hasTimeout: true,
		find: listQuarantined,
	}
}

// quarantines are those of one MAAS.
type quarantines struct {
	*quarantine.Service
	client *maas.Client
	permit maas.Permit
}

func openQuarantines(o options) *quarantines {
	return &quarantines{
		quarantine.NewService(inventory.New(o.region, inventory.Options{})), o.region,
		maas.Unrecorded("a person runs it, and can run it again: each call is the same once more"),
	}
}

// find returns the bare-metal machine with a hostname or a system id.
func (q *quarantines) find(ctx context.Context, name string) (*maas.Machine, error) {
	for _, filter := range []maas.MachineFilter{{Hostnames: []string{name}}, {SystemIDs: []string{name}}} {
		found, err := q.client.ListMachines(ctx, filter)
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(found, func(m *maas.Machine) bool { return m.Hostname != name && m.SystemID != name })
		if len(found) == 0 {
			continue
		}
		if found[0].Pod != nil {
			return nil, fmt.Errorf("machine %s is a VM: VMs are not allocated from MAAS's pool", name)
		}
		return found[0], nil
	}
	return nil, fmt.Errorf("MAAS has no machine %s, or does not show it to the user of the API key", name)
}

func (q *quarantines) put(ctx context.Context, m *maas.Machine, o options, s surroundings) error {
	note, err := q.PutByHand(ctx, q.permit, m.SystemID, o.why, o.lasts)
	if err == nil {
		fmt.Fprintf(s.out, "machine/%s quarantined %s\n", m.Hostname, note.Ends())
	}
	return err
}

func (q *quarantines) lift(ctx context.Context, m *maas.Machine, _ options, s surroundings) error {
	err := q.Lift(ctx, q.permit, m.SystemID)
	if err == nil {
		s.say("machine/"+m.Hostname, !quarantine.Has(m), "lifted")
	}
	return err
}

// quarantined is a machine in quarantine. The JSON names are part of the output's contract.
type quarantined struct {
	Name     string    `json:"name"`
	SystemID string    `json:"systemID"`
	State    string    `json:"state"`
	Since    time.Time `json:"since,omitzero"` // not known of those that a person tagged
	Until    time.Time `json:"until,omitzero"`
	// Ends is when it ends, in words: a time, a while after the machine's release, or when a person lifts it.
	Ends     string `json:"ends"`
	Failures int    `json:"failures"`
	Why      string `json:"why,omitempty"`
}

// quarantineReport is the result of machines list.
type quarantineReport struct {
	Command  string        `json:"command"`
	OK       bool          `json:"ok"`
	Machines []quarantined `json:"machines"`
	ending
}

func listQuarantined(ctx context.Context, o options, _ surroundings) result {
	r := &quarantineReport{Command: "machines list", Machines: []quarantined{}}
	var list []quarantine.Machine
	err := o.unconnected
	if err == nil {
		list, err = openQuarantines(o).List(ctx, 0)
	}
	if err != nil {
		r.Problem, r.Remedy = explainAll(err)
		r.Summary = "The machines in quarantine could not be listed."
		return r
	}
	for _, m := range list {
		one := quarantined{
			Name: m.Hostname, SystemID: m.SystemID, State: m.StatusName, Since: m.Since,
			Failures: m.Failures, Why: m.Why, Ends: strings.TrimPrefix(m.Note.Ends(), "until "),
		}
		if m.Pause == 0 {
			one.Until = m.Until
		}
		r.Machines = append(r.Machines, one)
	}
	r.OK, r.Summary = true, fmt.Sprintf("%d machine(s) in quarantine.", len(list))
	return r
}

func (r *quarantineReport) good() bool { return r.OK }

func (r *quarantineReport) text(w io.Writer) error {
	return r.end(w, table(w, "NAME,SYSTEM ID,STATE,SINCE,UNTIL,FAILURES,WHY", r.Machines, func(m quarantined) []any {
		since := "" // It is not known.
		if !m.Since.IsZero() {
			since = m.Since.Format(time.RFC3339)
		}
		return []any{m.Name, m.SystemID, m.State, since, m.Ends, m.Failures, m.Why}
	}))
}
