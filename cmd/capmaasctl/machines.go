// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/inventory"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/quarantine"
)

func (o *options) addMachineFlags(fs *pflag.FlagSet, c command) {
	o.addMAASFlags(fs)
	if c.name == "machines quarantine" {
		fs.DurationVar(&o.lasts, "for", 0, "How long, such as 48h. Default: until somebody lifts it.")
		fs.StringVar(&o.why, "why", "by hand", "Why, for those who find the machine.")
	}
	fs.DurationVar(&o.timeout, "timeout", o.timeout, "How long all of it may take.")
}

// completeMachines sets o.maas and o.object.
func (o *options) completeMachines(flags *pflag.FlagSet, s surroundings) []string {
	problems := o.completeMAAS(flags.Changed("maas-api-key"), s)
	if o.object = flags.Arg(0); flags.NArg() > 0 && (o.object == "" || strings.ContainsAny(o.object, "/ ")) {
		problems = append(problems, fmt.Sprintf("%q is no name of a machine", o.object))
	}
	if o.lasts < 0 {
		problems = append(problems, fmt.Sprintf("--for: %s is no time in quarantine", o.lasts))
	}
	if o.timeout <= 0 {
		problems = append(problems, fmt.Sprintf("--timeout: %s is no time to do anything in", o.timeout))
	}
	return problems
}

// quarantines are those of one MAAS.
type quarantines struct {
	*quarantine.Service
	client *maas.Client
	permit maas.Permit
}

func openQuarantines(o options) (*quarantines, error) {
	client, err := maas.NewClient(o.maas)
	if err != nil {
		return nil, err
	}
	return &quarantines{
		quarantine.NewService(inventory.New(client, inventory.Options{})), client,
		maas.Unrecorded("a person runs it, and can run it again: each call is the same once more"),
	}, nil
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

// onMachine opens MAAS, and does something with the machine that the command names.
func onMachine(ctx context.Context, o options, s surroundings, do func(context.Context, *quarantines, *maas.Machine) error) int {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	q, err := openQuarantines(o)
	if err != nil {
		return s.endMAAS(err)
	}
	m, err := q.find(ctx, o.object)
	if err == nil {
		err = do(ctx, q, m)
	}
	return s.endMAAS(err)
}

func quarantineMachine(ctx context.Context, o options, s surroundings) int {
	return onMachine(ctx, o, s, func(ctx context.Context, q *quarantines, m *maas.Machine) error {
		note, err := q.PutByHand(ctx, q.permit, m.SystemID, o.why, o.lasts)
		if err == nil {
			fmt.Fprintf(s.out, "machine/%s quarantined %s\n", m.Hostname, note.Ends())
		}
		return err
	})
}

func liftMachine(ctx context.Context, o options, s surroundings) int {
	return onMachine(ctx, o, s, func(ctx context.Context, q *quarantines, m *maas.Machine) error {
		err := q.Lift(ctx, q.permit, m.SystemID)
		if err == nil {
			s.say("machine/"+m.Hostname, !quarantine.Has(m), "lifted")
		}
		return err
	})
}

func listQuarantined(ctx context.Context, o options, s surroundings) int {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	q, err := openQuarantines(o)
	if err != nil {
		return s.endMAAS(err)
	}
	list, err := q.List(ctx, 0)
	if err != nil {
		return s.endMAAS(err)
	}
	if len(list) == 0 {
		fmt.Fprintln(s.err, "No machines in quarantine.")
		return exitOK
	}
	return s.endMAAS(writeQuarantined(s.out, list))
}

func writeQuarantined(w io.Writer, list []quarantine.Machine) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NAME\tSYSTEM ID\tSTATE\tSINCE\tUNTIL\tFAILURES\tWHY")
	for _, m := range list {
		since, reason := "<unknown>", m.Why
		if !m.Since.IsZero() {
			since = m.Since.Format(time.RFC3339)
		}
		if reason == "" {
			reason = "<unknown>"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", m.Hostname, m.SystemID, m.StatusName, since, strings.TrimPrefix(m.Ends(), "until "), m.Failures, reason)
	}
	return table.Flush()
}

// endMAAS returns the exit code for an error, which it prints with its remedy.
func (s surroundings) endMAAS(err error) int {
	var answer *maas.Error
	if err == nil || !errors.As(err, &answer) {
		return s.end(err)
	}
	found, remedy := explain(err)
	fmt.Fprintf(s.err, "error: %s\n", found)
	if remedy != "" {
		fmt.Fprintf(s.err, "  -> %s\n", remedy)
	}
	return exitFailed
}
