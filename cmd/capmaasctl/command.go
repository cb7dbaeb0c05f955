// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// program is one run of capmaasctl.
type program struct {
	surroundings
	title string // what is typed to call it
	// doers are the commands that do something.
	doers map[*cobra.Command]*doer
	code  int // what it ends with
}

// doer is a command with the values of its flags.
type doer struct {
	command
	options options
}

// command is a command that does something.
type command struct {
	use     string // its name, and its operands; one in brackets may be left out
	short   string // ends in no period
	long    string // what short does not say
	example string // without the program's name, a line each
	page    string // of docs/, which has more; "": none

	// The flags that several commands have.
	needsMAAS, needsCluster, inNamespace, hasTimeout bool
	// asksClusters: it uses the credentials of clusters that have their own, and does without the manager's.
	asksClusters bool
	// byDefault changes the values that flags have by default.
	byDefault func(*options)
	// flags are those that only this command has, or that need more than a word above.
	flags func(*options, *pflag.FlagSet)
	// names are what the next operand may be, for the shell: words, or the names of objects like this one.
	names func(operands []string) ([]string, client.Object)
	// complete checks the options, and completes them.
	complete func(o *options, flags *pflag.FlagSet)

	// A command has find if it prints what it found, in each of the formats, and act otherwise, which returns the exit
	// code.
	find func(context.Context, options, surroundings) result
	act  func(context.Context, options, surroundings) int
}

// operands checks how many there are beside flags.
func (c command) operands() cobra.PositionalArgs {
	names := strings.Fields(c.use)[1:]
	return func(_ *cobra.Command, args []string) error {
		switch n := len(args); {
		case n > len(names):
			return fmt.Errorf("unexpected argument %q", args[len(names)])
		case n < len(names) && !strings.HasPrefix(names[n], "["):
			return fmt.Errorf("%s is missing", names[n])
		}
		return nil
	}
}

// groups are the parts of the overview.
var groups = []*cobra.Group{
	{ID: "find", Title: "Find out what is wrong:"},
	{ID: "maintain", Title: "Before and during maintenance:"},
	{ID: "other", Title: "Images, manifests, and this program:"},
}

// helpWidth is how many columns the flags take in help.
const helpWidth = 100

// root returns the tree of commands.
func (p *program) root() *cobra.Command {
	cobra.EnableCommandSorting = false // They are in the order in which they are added.
	p.doers = map[*cobra.Command]*doer{}
	root := &cobra.Command{
		Use: "capmaasctl", Short: "Look after clusters on MAAS", SilenceErrors: true, SilenceUsage: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: p.title},
	}
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)
	root.SetHelpTemplate("{{.Short}}.\n\n{{with .Long}}{{.}}\n\n{{end}}{{.UsageString}}")
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages",
		fmt.Sprintf(".FlagUsagesWrapped %d", helpWidth)))
	root.SetFlagErrorFunc(wrongFlag)
	root.AddGroup(groups...)
	root.SetCompletionCommandGroupID("other")
	root.SetHelpCommandGroupID("other")
	root.AddCommand(
		p.family("find", "check", "Check MAAS, a node's LXD or registration, or what moves", checkMAASCommand(),
			checkLXDCommand(), checkVMHostCommand(), checkMoveCommand()),
		p.single("find", explainCommand()),
		p.single("find", orphansCommand()),
		p.single("maintain", planCommand(), planUpgradeCommand(), planDrainCommand()),
		p.family("maintain", "host", "Keep VMs off an LXDHost (cordon, uncordon), or empty it (drain)", cordonCommand(),
			uncordonCommand(), drainCommand()),
		p.family("maintain", "machines", "Keep bare metal from being allocated (quarantine, lift)", listMachinesCommand(),
			quarantineCommand(), liftCommand()),
		p.family("other", "image", "List, check and upload images", listImagesCommand(), checkImageCommand(),
			uploadImageCommand()),
		p.single("other", convertCommand()),
		p.single("other", versionCommand()),
	)
	return root
}

// wrongFlag says what is wrong with a flag. The value of one that is not known is not repeated: it may be a key.
func wrongFlag(_ *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var garbled *pflag.InvalidSyntaxError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		name, _, _ := strings.Cut(unknown.GetSpecifiedShortnames(), "=")
		return fmt.Errorf("unknown flag: -%s", name)
	case errors.As(err, &garbled):
		return errors.New("a flag has the form --name=value")
	case errors.As(err, &invalid):
		wanted := map[string]string{"duration": "no time such as 90s or 5m", "bool": "neither true nor false"}
		kind := invalid.GetFlag().Value.Type()
		return fmt.Errorf("--%s: %q is %s", invalid.GetFlag().Name, invalid.GetValue(),
			cmp.Or(wanted[kind], "no number that is possible here"))
	}
	return err
}

// family returns a command that only has others below it.
func (p *program) family(group, word, short string, members ...command) *cobra.Command {
	c := &cobra.Command{
		Short: short, GroupID: group, DisableFlagsInUseLine: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return errors.New("a command is missing") },
	}
	var names []string
	for _, member := range members {
		below := p.single("", member)
		names = append(names, below.Name())
		c.AddCommand(below)
	}
	c.Use = word + " " + strings.Join(names, "|")
	return c
}

// single returns a command that does something, and those below it.
func (p *program) single(group string, d command, below ...command) *cobra.Command {
	this := &doer{command: d, options: defaultOptions()}
	if d.byDefault != nil {
		d.byDefault(&this.options)
	}
	head := "  " + p.title + " "
	c := &cobra.Command{
		Use: d.use, Short: d.short, Long: d.long, GroupID: group, Args: d.operands(),
		Example: head + strings.ReplaceAll(d.example, "\n", "\n"+head),
		RunE:    func(c *cobra.Command, _ []string) error { return p.do(c) },
	}
	if d.page != "" {
		c.Long += "\n\nMore: docs/" + d.page
	}
	this.options.addFlags(c.Flags(), d)
	p.doers[c] = this
	p.completeWords(c, d)
	for _, other := range below {
		c.AddCommand(p.single("", other))
	}
	return c
}

// do checks the options, and does what the command is for.
func (p *program) do(c *cobra.Command) error {
	this := p.doers[c]
	if problems := this.options.complete(this.command, c.Flags(), p.surroundings); len(problems) > 0 {
		return errors.New(strings.Join(problems, "\nerror: "))
	}
	p.code = this.run(c.Context(), this.options, p.surroundings)
	return nil
}

// run does what the command is for, and returns the exit code.
func (c command) run(ctx context.Context, o options, s surroundings) int {
	if c.hasTimeout && o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("it takes longer than %s (--timeout)", o.timeout))
		defer cancel()
	}
	o.unconnected = o.connect(ctx, c)
	if c.act != nil && o.unconnected != nil {
		return s.end(o.unconnected)
	}
	if c.act != nil {
		return c.act(ctx, o, s)
	}
	answer := c.find(ctx, o, s)
	if err := s.print(answer, o.output); err != nil {
		fmt.Fprintf(s.err, "error: writing the result: %v\n", err)
		return exitFailed
	}
	if !answer.good() {
		return exitFailed
	}
	return exitOK
}
