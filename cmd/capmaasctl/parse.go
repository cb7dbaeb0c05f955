// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagsLast moves flags that stand before or between the words of a command behind these, where cobra looks for them.
func flagsLast(root *cobra.Command, args []string) []string {
	var words, flags []string
	for at := root; len(args) > 0 && args[0] != "--"; {
		if arg := args[0]; strings.HasPrefix(arg, "-") && len(arg) > 1 {
			n := 1
			if takesValue(root, arg) {
				n = min(2, len(args))
			}
			flags, args = append(flags, args[:n]...), args[n:]
			continue
		}
		next := slices.IndexFunc(at.Commands(), func(c *cobra.Command) bool { return c.Name() == args[0] || c.HasAlias(args[0]) })
		if next < 0 {
			break
		}
		at = at.Commands()[next]
		words, args = append(words, args[0]), args[1:]
	}
	return slices.Concat(words, flags, args)
}

// takesValue reports whether what follows a flag is its value: a flag of one name has one meaning.
func takesValue(root *cobra.Command, arg string) bool {
	name := strings.TrimLeft(arg, "-")
	if strings.Contains(name, "=") || slices.Contains([]string{"h", "help"}, name) {
		return false
	}
	for _, c := range everyCommand(root) {
		f := c.Flags().Lookup(name)
		if f == nil && len(name) == 1 {
			f = c.Flags().ShorthandLookup(name)
		}
		if f != nil {
			return f.NoOptDefVal == ""
		}
	}
	return !strings.HasPrefix(arg, "--") || root.Flags().Lookup(name) == nil
}

// slip is called at the first wrong flag. It looks for the others, and for whatever else is wrong.
func (p *program) slip(c *cobra.Command, first error) error {
	_, args, err := c.Root().Find(p.args)
	if err != nil {
		return first
	}
	problems := slips(c.Flags(), args)
	if p.doers[c] != nil {
		return p.do(c, c.Flags().Args(), problems)
	}
	return &usageError{problems, c.CommandPath()}
}

// complaints describe a wrong value, by the type of its flag.
var complaints = map[string]string{
	"bool": "neither true nor false", "int": "no whole number such as 50", "uint16": "no port: it is from 1 to 65535",
	"duration": "no time such as 90s or 2h",
}

// slips returns what is wrong with all flags. It repeats no value of a text flag, which may be a key.
func slips(flags *pflag.FlagSet, args []string) (problems []string) {
	for {
		flags.VisitAll(forget)
		var notThere *pflag.NotExistError
		var bad *pflag.InvalidValueError
		var bare *pflag.ValueRequiredError
		switch err := flags.Parse(args); {
		case err == nil:
			return problems
		case errors.As(err, &notThere):
			given := "--" + notThere.GetSpecifiedName()
			if short := notThere.GetSpecifiedShortnames(); short != "" {
				given = "-" + short
			}
			name, _, _ := strings.Cut(given, "=")
			problems = append(problems, "there is no flag "+name+orSimilar(flags, name))
			args = without(args, given)
		case errors.As(err, &bad):
			flag := bad.GetFlag()
			problems = append(problems, fmt.Sprintf("--%s: %q is %s", flag.Name, bad.GetValue(), complaints[flag.Value.Type()]))
			_ = flag.Value.Set(flag.DefValue) // A default is always valid.
			flag.Value = anything{}
		case errors.As(err, &bare):
			return append(problems, fmt.Sprintf("--%s: its value is missing", bare.GetFlag().Name))
		default:
			return append(problems, "a flag has the form --name=value")
		}
	}
}

// forget drops the values of a flag that can be given several times, as it is parsed again.
func forget(f *pflag.Flag) {
	if list, is := f.Value.(pflag.SliceValue); is {
		_ = list.Replace(nil) // It only fails if one of the values is wrong.
	}
}

// orSimilar says which flags have a name that is similar.
func orSimilar(flags *pflag.FlagSet, name string) string {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	return didYouMean(name, names)
}

// didYouMean names those of some words that are similar to one, as cobra does of commands.
func didYouMean(word string, known []string) string {
	all := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, one := range known {
		all.AddCommand(&cobra.Command{Use: one, Run: func(*cobra.Command, []string) {}})
	}
	similar := all.SuggestionsFor(word)
	if len(similar) == 0 {
		return ""
	}
	return ": did you mean " + strings.Join(similar, ", or ") + "?"
}

// without drops a flag, with or without a value, from the arguments.
func without(args []string, flag string) []string {
	var kept []string
	for _, arg := range args {
		if arg != flag && !strings.HasPrefix(arg, flag+"=") {
			kept = append(kept, arg)
		}
	}
	return kept
}

// anything replaces a flag that had a wrong value, so that the others can be checked.
type anything struct{}

func (anything) String() string   { return "" }
func (anything) Set(string) error { return nil }
func (anything) Type() string     { return "" }
