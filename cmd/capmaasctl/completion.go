// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// completionCommand is cobra's.
const completionCommand = "completion"

// describeCompletion adds that command, in our words.
func describeCompletion(root *cobra.Command) {
	root.SetCompletionCommandGroupID("other")
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == completionCommand {
			c.Short = "Print the completion for bash, zsh, fish or PowerShell"
			c.Long = "COMMAND --help says how a shell loads it. For kubectl capmaas, link kubectl_complete-capmaas to this program."
			c.Example = "  source <(capmaasctl completion bash)"
		}
	}
}

// completeWords tells the shell what may stand in the command line: formats, files, or nothing that it could know.
func completeWords(c *cobra.Command, d command) {
	if !strings.Contains(d.use, "FILE") {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	if d.find != nil {
		_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // The flag is there.
	}
}
