// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// referenceHead is what is said before the commands.
const referenceHead = `<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Generated from the commands by "capmaasctl reference" (make generate); do not edit. -->

# capmaasctl

The operator's program. ` + "`capmaasctl COMMAND --help`" + ` prints the same. ` + "`make build`" + ` builds it as ` + "`bin/capmaasctl`" + `; as ` + "`kubectl-capmaas`" + ` on the path it is
` + "`kubectl capmaas`" + `:

` + "```sh" + `
ln -s "$(command -v capmaasctl)" ~/.local/bin/kubectl-capmaas
ln -s "$(command -v capmaasctl)" ~/.local/bin/kubectl_complete-capmaas     # completion of kubectl capmaas
source <(capmaasctl completion bash)                                       # or zsh, fish, powershell
` + "```" + `

Flags may stand anywhere, and each has one meaning, whatever the command. Slips get a suggestion.

`

// referenceMiddle is what is said between the table of commands and the commands.
const referenceMiddle = `
## MAAS and the management cluster

Commands that ask MAAS take its URL and key from flags, else from the environment. Where neither is given, they are those of the manager in the management cluster: of its
Deployment (label ` + "`cluster.x-k8s.io/provider=infrastructure-maas`" + `), which must be the only one, the ConfigMap and the Secret that it mounts. You must be allowed to list Deployments and to read these two. Plans, and
` + "`image check --cluster`" + `, use the Secrets of MaasClusters and LXDHosts that have their own.

Everybody on a machine can read command lines: ` + "`--maas-api-key`" + ` works, with a warning. ` + "`sudo`" + ` drops the environment: use the file there. MAAS's certificate is always verified. The key is never printed.

`

// referenceOutput is about what all commands print and end with.
const referenceOutput = `
## Output

` + "`-o json` and `-o yaml`" + ` print the whole result, for all commands that print a table or a report. Names of fields are stable; more may be added. ` + "`--timeout`" + ` bounds the whole command; 0s is as long as it takes.

| Exit code | Meaning |
|---|---|
| 0 | it is as asked: checks are good, what was planned fits, no orphans are there or all were removed, the object was explained, the host, machine or image is as it should be |
| 1 | it is not, or that could not be found out; the output says what to do |
| 2 | wrong usage: nothing was done. Standard error lists all mistakes at once |
`

// referenceCommand prints the page on all commands, for make generate.
func (p *program) referenceCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "reference", Short: "Print docs/capmaasctl.md", Hidden: true, Args: cobra.NoArgs,
		Run: func(*cobra.Command, []string) { p.writeReference(p.out, root) },
	}
}

// writeReference writes the page on all commands, as Markdown.
func (p *program) writeReference(w io.Writer, root *cobra.Command) {
	fmt.Fprint(w, referenceHead)
	fmt.Fprint(w, "| Command | |\n|---|---|\n")
	var all []*cobra.Command
	for _, top := range root.Commands() {
		for _, c := range p.leaves(top) {
			if p.doers[c] != nil {
				all = append(all, c)
				fmt.Fprintf(w, "| [`%s`](#%s) | %s |\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), c.Short)
			}
		}
	}
	fmt.Fprint(w, referenceMiddle)
	shared := &cobra.Command{}
	o := defaultOptions()
	o.addFlags(shared.Flags(), command{needsMAAS: true, inNamespace: true})
	writeFlags(w, shared.Flags())
	fmt.Fprint(w, referenceOutput)
	for _, c := range all {
		p.writeCommand(w, c)
	}
}

// writeCommand writes the section of one command.
func (p *program) writeCommand(w io.Writer, c *cobra.Command) {
	fmt.Fprintf(w, "\n## %s\n\n%s.\n", c.CommandPath(), c.Short)
	this := p.doers[c]
	if c.Long != "" {
		fmt.Fprintf(w, "\n%s\n", c.Long)
	}
	fmt.Fprintf(w, "\n```sh\n%s\n```\n\n", strings.ReplaceAll(c.Example, "  "+p.title, p.title))
	fmt.Fprintf(w, "Usage: `%s`", c.UseLine())
	var also []string
	if this.find != nil {
		also = append(also, "[`-o`](#output)")
	}
	if this.hasTimeout {
		also = append(also, "[`--timeout`](#output) ("+this.options.timeout.String()+")")
	}
	if this.needsMAAS || this.needsCluster {
		also = append(also, "those of [MAAS and the management cluster](#maas-and-the-management-cluster)")
	}
	if len(also) > 0 {
		fmt.Fprintf(w, ". Flags: %s", strings.Join(also, ", "))
	}
	fmt.Fprintln(w, ".")
	if this.page != "" {
		fmt.Fprintf(w, "More: [%s](%s).\n", this.page, this.page)
	}
	flags := flagsIn(c, sections[0])
	for _, common := range []string{"output", "timeout", "help"} {
		if f := flags.Lookup(common); f != nil {
			f.Hidden = true
		}
	}
	if flags.HasAvailableFlags() {
		fmt.Fprintln(w)
		writeFlags(w, flags)
	}
}

// writeFlags writes a table.
func writeFlags(w io.Writer, flags *pflag.FlagSet) {
	fmt.Fprint(w, "| Flag | Default | |\n|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name, byDefault := "`--"+f.Name+"`", ""
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" {
			byDefault = "`" + f.DefValue + "`"
		}
		fmt.Fprintf(w, "| %s | %s | %s |\n", name, byDefault, strings.ReplaceAll(f.Usage, "|", `\|`))
	})
}
