// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is how many columns help takes at most.
const helpWidth = 100

// sections are the titles above flags, in order; each flag names its own.
var sections = []string{"Flags:", sectionMAAS, sectionCluster}

const (
	sectionMAAS    = "MAAS (default: that of the manager in the management cluster):"
	sectionCluster = "The management cluster:"
	// sectionKey is the annotation of a flag with its section.
	sectionKey = "section"
)

// section adds flags below a title.
func section(to *pflag.FlagSet, title string, add func(*pflag.FlagSet)) {
	part := pflag.NewFlagSet("", pflag.ContinueOnError)
	part.SortFlags = false
	add(part)
	part.VisitAll(func(f *pflag.Flag) { f.Annotations = map[string][]string{sectionKey: {title}} })
	to.AddFlagSet(part)
}

// helpCommand prints the same as --help.
func (p *program) helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Print the help of a command", Hidden: true, Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return p.unknown(about, rest[0])
			}
			return about.Help()
		},
	}
}

func addHelpFlag(c *cobra.Command) { c.Flags().BoolP("help", "h", false, "Print this help.") }

// writeHelp writes the overview, or the help of one command.
func (p *program) writeHelp(c *cobra.Command) {
	w := p.out
	if !c.HasParent() {
		p.writeOverview(w, c)
		return
	}
	fmt.Fprintf(w, "%s.\n", c.Short)
	if c.Long != "" {
		fmt.Fprintf(w, "\n%s\n", wrapped(c.Long))
	}
	usage := c.UseLine()
	if p.doers[c] == nil && c.HasAvailableSubCommands() {
		usage = c.CommandPath() + " COMMAND [flags]"
	}
	fmt.Fprintf(w, "\nUsage: %s\n", usage)
	if c.HasAvailableSubCommands() {
		fmt.Fprintln(w, "\nCommands:")
		writeCommands(w, c.Commands())
	}
	if c.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", c.Example)
	}
	for _, title := range sections {
		if flags := flagsIn(c, title); flags.HasAvailableFlags() {
			fmt.Fprintf(w, "\n%s\n%s", title, flags.FlagUsagesWrapped(helpWidth))
		}
	}
	if this := p.doers[c]; this != nil && this.page != "" {
		fmt.Fprintf(w, "\nMore: docs/%s\n", this.page)
	}
}

// wrapped breaks a text into lines that fit on a screen.
func wrapped(text string) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > helpWidth {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return strings.Join(append(lines, line), "\n")
}

// flagsIn returns the flags of a command in a section.
func flagsIn(c *cobra.Command, title string) *pflag.FlagSet {
	part := pflag.NewFlagSet("", pflag.ContinueOnError)
	part.SortFlags = false
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		is := sections[0]
		if of := f.Annotations[sectionKey]; len(of) > 0 {
			is = of[0]
		}
		if is == title {
			part.AddFlag(f)
		}
	})
	return part
}

// writeOverview writes a line for each command that does something.
func (p *program) writeOverview(w io.Writer, root *cobra.Command) {
	fmt.Fprintf(w, "Usage: %s COMMAND [flags]          COMMAND --help says more, and has examples\n", root.CommandPath())
	for _, group := range groups {
		var members []*cobra.Command
		for _, top := range root.Commands() {
			if top.GroupID == group.ID {
				members = append(members, p.leaves(top)...)
			}
		}
		fmt.Fprintf(w, "\n%s\n", group.Title)
		writeCommands(w, members)
	}
}

// leaves returns the commands that do something, of a command and those below it.
func (p *program) leaves(top *cobra.Command) (found []*cobra.Command) {
	if top.Name() == completionCommand {
		return []*cobra.Command{top}
	}
	for _, c := range everyCommand(top) {
		if p.doers[c] != nil {
			found = append(found, c)
		}
	}
	return found
}

// writeCommands writes what is typed behind the program's name for each, and what it does.
func writeCommands(w io.Writer, list []*cobra.Command) {
	table := tabwriter.NewWriter(w, overviewColumn, 0, 2, ' ', 0)
	for _, c := range list {
		path := strings.TrimPrefix(c.CommandPath(), c.Root().CommandPath()+" ")
		if _, operands, has := strings.Cut(c.Use, " "); has {
			path += " " + operands
		}
		fmt.Fprintf(table, "  %s\t%s\n", path, c.Short)
	}
	_ = table.Flush() // as for all help
}

// overviewColumn is where what a command does begins, in each group.
const overviewColumn = 28
