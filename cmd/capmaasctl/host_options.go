// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

func (o *options) addHostFlags(fs *pflag.FlagSet, waits bool) {
	o.addClusterFlags(fs, "the LXDHost")
	if waits {
		o.timeout = 0
		fs.DurationVar(&o.timeout, "timeout", o.timeout, "How long to wait until the host is empty; it is emptied all the same afterwards. 0: for ever.")
	}
}

// completeHost sets o.object, and what completeCluster sets.
func (o *options) completeHost(flags *pflag.FlagSet, s surroundings) []string {
	var problems []string
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if o.timeout < 0 {
		wrong("--timeout: %s is no time to wait", o.timeout)
	}
	if o.object = flags.Arg(0); flags.NArg() > 0 && (o.object == "" || strings.Contains(o.object, "/")) {
		wrong("%q is no name of an LXDHost", o.object)
	}
	return append(problems, o.completeCluster(s)...)
}
