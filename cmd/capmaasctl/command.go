// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// program is one run of capmaasctl.
type program struct {
	surroundings
	title string   // what is typed to call it
	args  []string // behind that
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
	// complete checks the options, completes them, and returns all problems.
	complete func(o *options, flags *pflag.FlagSet, s surroundings) []string

	// A command has find if it prints what it found, in each of the formats, and act otherwise, which returns the exit
	// code.
	find func(context.Context, options, surroundings) result
	act  func(context.Context, options, surroundings) int
}

// operands are what it takes beside flags, and how many there are at least.
func (c command) operands() (names []string, least int) {
	names = strings.Fields(c.use)[1:]
	least = len(names)
	if strings.Contains(c.use, "[") {
		least = 0
	}
	return names, least
}

// groups are the parts of the overview.
var groups = []*cobra.Group{
	{ID: "find", Title: "Find out what is wrong:"},
	{ID: "maintain", Title: "Before and during maintenance:"},
	{ID: "images", Title: "Images and manifests:"},
	{ID: "other", Title: "Other:"},
}

// root returns the tree of commands.
func (p *program) root() *cobra.Command {
	cobra.EnableCommandSorting = false // They are in the order in which they are added.
	p.doers = map[*cobra.Command]*doer{}
	root := p.family("", "capmaasctl", "Look after clusters on MAAS")
	root.Version = version
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: p.title}
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { p.writeHelp(c) })
	root.SetFlagErrorFunc(p.slip)
	root.AddGroup(groups...)
	root.SetHelpCommand(p.helpCommand(root))
	root.AddCommand(
		p.family("find", "check", "Check MAAS, a node's LXD, or its registration", checkMAASCommand(), checkLXDCommand(), checkVMHostCommand()),
		p.single("find", explainCommand()),
		p.single("find", orphansCommand()),
		p.single("maintain", planCommand(), planUpgradeCommand(), planDrainCommand()),
		p.family("maintain", "host", "Keep VMs off an LXDHost, or empty it", cordonCommand(), uncordonCommand(), drainCommand()),
		p.family("maintain", "machines", "Keep bare metal from being allocated", listMachinesCommand(), quarantineCommand(), liftCommand()),
		p.family("images", "image", "Upload, list and check images", listImagesCommand(), checkImageCommand(), uploadImageCommand()),
		p.single("images", convertCommand()),
		p.single("other", versionCommand()),
		p.referenceCommand(root),
	)
	describeCompletion(root)
	return root
}

// family returns a command that only has others below it.
func (p *program) family(group, word, short string, members ...command) *cobra.Command {
	c := &cobra.Command{Use: word, Short: short, GroupID: group, Args: cobra.ArbitraryArgs, DisableFlagsInUseLine: true}
	c.SuggestionsMinimumDistance = 2
	addHelpFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return p.unknown(c, args[0])
		case c.HasParent():
			return &usageError{[]string{"a word is missing: " + strings.Join(wordsBelow(c), ", ")}, c.CommandPath()}
		}
		return c.Help()
	}
	for _, member := range members {
		c.AddCommand(p.single("", member))
	}
	return c
}

// single returns a command that does something, and those below it.
func (p *program) single(group string, d command, below ...command) *cobra.Command {
	this := &doer{command: d, options: defaultOptions()}
	if d.byDefault != nil {
		d.byDefault(&this.options)
	}
	c := &cobra.Command{
		Use: d.use, Short: d.short, Long: d.long, GroupID: group, Args: cobra.ArbitraryArgs,
		Example: p.examples(d.example),
	}
	c.SuggestionsMinimumDistance = 2
	this.options.addFlags(c.Flags(), d)
	addHelpFlag(c)
	p.doers[c] = this
	completeWords(c, d)
	c.RunE = func(c *cobra.Command, args []string) error { return p.do(c, args, nil) }
	for _, other := range below {
		c.AddCommand(p.single("", other))
	}
	return c
}

func (p *program) examples(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, "  "+p.title+" "+strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}

// do checks the usage, and does it. problems are those that are known already.
func (p *program) do(c *cobra.Command, args, problems []string) error {
	this := p.doers[c]
	names, least := this.operands()
	switch n := len(args); {
	case len(problems) > 0: // The value of an unknown flag stays behind; that needs no message.
	case n > len(names) && c.HasAvailableSubCommands() && n > 0:
		return p.unknown(c, args[0])
	case n > len(names):
		problems = append(problems, fmt.Sprintf("%d argument(s) too many: it takes %s", n-len(names), orNone(names)))
	case n < least:
		problems = append(problems, names[n]+" is missing: "+c.CommandPath()+" "+strings.Join(names, " "))
	}
	problems = append(problems, this.options.complete(this.command, c.Flags(), p.surroundings)...)
	if len(problems) > 0 {
		return &usageError{problems, c.CommandPath()}
	}
	p.code = this.run(c.Context(), this.options, p.surroundings)
	return nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, " ")
}

// run does what the command is for, and returns the exit code.
func (c command) run(ctx context.Context, o options, s surroundings) int {
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("it takes longer than %s (--timeout)", o.timeout))
		defer cancel()
	}
	if err := o.askCluster(ctx, c); err != nil {
		return s.endMAAS(err)
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

// usageError means that nothing was done, as the command was not called as it has to be.
type usageError struct {
	problems []string
	command  string // whose help helps
}

func (e *usageError) Error() string { return strings.Join(e.problems, "; ") }

// unknown returns the error for a word that calls nothing.
func (p *program) unknown(c *cobra.Command, word string) error {
	var similar []string
	for _, name := range c.SuggestionsFor(word) {
		similar = append(similar, c.CommandPath()+" "+name)
	}
	for _, other := range everyCommand(c.Root()) {
		if other.Name() == word && other.HasParent() {
			similar = append(similar, other.CommandPath())
		}
	}
	slices.Sort(similar)
	problem := fmt.Sprintf("%s has no command %q", c.CommandPath(), word)
	if similar = slices.Compact(similar); len(similar) > 0 {
		problem += ": did you mean " + strings.Join(similar, ", or ") + "?"
	}
	return &usageError{[]string{problem}, c.CommandPath()}
}

// everyCommand returns a command and all that are below it, without hidden ones.
func everyCommand(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, below := range c.Commands() {
		if !below.Hidden {
			all = append(all, everyCommand(below)...)
		}
	}
	return all
}

func wordsBelow(c *cobra.Command) (words []string) {
	for _, below := range c.Commands() {
		words = append(words, below.Name())
	}
	return words
}
