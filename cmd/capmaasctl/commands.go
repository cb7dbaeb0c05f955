// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
)

// command is one of the checks, or another command.
type command struct {
	name     string // capmaasctl check NAME, or capmaasctl NAME
	program  string // the separate program that a check also is
	about    string
	canApply bool
	// The groups of flags that it takes.
	needsLXD, needsMAAS, needsVMHost, needsPlan, needsImage bool
	// operand is what the command is about, such as CLUSTER; "": it takes none. In brackets it may be left out.
	operand string
	// A command has check if it is a check, find if it searches, and rewrite or act if it does neither; these return the
	// exit code.
	check   func(context.Context, options) checks
	find    func(context.Context, options, surroundings) result
	rewrite func(options, surroundings) int
	act     func(context.Context, options, surroundings) int
}

// names returns how many arguments it has beside its flags, at least and at most.
func (c command) names() (least, most int) {
	most = len(strings.Fields(c.operand))
	if strings.HasPrefix(c.operand, "[") {
		return 0, most
	}
	return most, most
}

// isCheck reports whether the command is called with the word check.
func (c command) isCheck() bool { return c.check != nil }

// title returns what is typed after capmaasctl.
func (c command) title() string {
	if c.isCheck() {
		return "check " + c.name
	}
	return c.name
}

// arguments returns what is typed after that, beside flags.
func (c command) arguments() string {
	if c.operand == "" {
		return ""
	}
	return " " + c.operand
}

var commands = []command{{
	name: "lxd", program: "lxd-test", canApply: true, needsLXD: true, check: checkLXD,
	about: "Check whether this node's LXD is as MAAS needs it: storage pool, bridge, project, profile, network address.\n" +
		"Run it on the node, as root or as a member of the group lxd. With --apply it creates missing objects.",
}, {
	name: "vm-host", program: "vmhost-test", canApply: true, needsMAAS: true, needsVMHost: true, check: checkVMHost,
	about: "Check whether a node is registered in MAAS as a VM host, where it should be, and whether MAAS can use it.\n" +
		"With --apply, on the node itself, it registers it, or brings its registration up to date.",
}, {
	name: "maas", program: "maas-test", needsMAAS: true, needsVMHost: true, check: checkMAAS,
	about: "Check whether MAAS responds, has a supported version, accepts the API key, and has what clusters need.\n" +
		"With --test-vm-host it checks a node's registration, too. It changes nothing.",
}, {
	name: "orphans", needsMAAS: true, find: findOrphans,
	about: "Lists the machines in MAAS that carry the marks of this management cluster and that no object in it claims, each with the\n" +
		"proof. With --delete it removes them: it asks for each, proves it once more, releases bare metal and deletes VMs.",
}, {
	name: "plan upgrade", operand: "CLUSTER", needsMAAS: true, needsPlan: true, find: planUpgrade,
	about: "Shows what the upgrade of a cluster to a version of Kubernetes would do: which machine is replaced when, where each new one\n" +
		"goes, and whether it fits. It changes nothing.",
}, {
	name: "plan drain", operand: "HOST", needsMAAS: true, needsPlan: true, find: planDrain,
	about: "Shows where the VMs on an LXDHost would go if it were emptied, and which can't leave it. It changes nothing.",
}, {
	name: "plan", needsMAAS: true, needsPlan: true, find: planManifests,
	about: "Shows which machines manifests would make, such as those that clusterctl generate prints, where each goes, and whether it fits.\n" +
		"It changes nothing.",
}, {
	name: "machines quarantine", operand: "NAME", needsMAAS: true, act: quarantineMachine,
	about: "Keeps a bare-metal machine of MAAS from being allocated, by its hostname or system id: it gets the tag capmaas-quarantine in MAAS.\n" +
		"Whoever has the machine keeps it. It is for " + rights.Tags.Users("") + ".",
}, {
	name: "machines lift", operand: "NAME", needsMAAS: true, act: liftMachine,
	about: "Lets a machine be allocated again, and forgets its failures. It is for " + rights.Tags.Users("") + ".",
}, {
	name: "machines list", needsMAAS: true, act: listQuarantined,
	about: "Lists the machines that are not allocated because they have the tag capmaas-quarantine in MAAS: since and until when, and why.",
}, {
	name: "image upload", operand: "FILE", needsMAAS: true, needsImage: true, act: uploadImage,
	about: "Uploads a file to MAAS as an image, in pieces, and shows how far it is. Interrupted, it goes on there when it is run again. A file that\n" +
		"MAAS has is not sent. It is for " + rights.ImageUpload.Users("") + ".",
}, {
	name: "image list", needsMAAS: true, needsImage: true, find: listImages,
	about: "Lists MAAS's images: whether MAAS has all of each, and how many machines that the user of the API key may see are deployed with it.",
}, {
	name: "image check", operand: "[NAME]", needsMAAS: true, needsImage: true, find: checkImages,
	about: "Checks whether machines can be deployed with an image, or, with --cluster, with all that a cluster's new machines get: MAAS has it, all\n" +
		"of it, and for their architecture. It changes nothing.",
}, {
	name: "convert", rewrite: convertManifests,
	about: "Turns manifests for Spectro Cloud's provider (MaasCluster, MaasMachine, MaasMachineTemplate) into manifests for this one.\n" +
		"All else in them stays byte for byte. What has no equivalent is reported on standard error; then nothing is written without --allow-loss.",
}, {
	name: "host cordon", operand: "NAME", act: cordonHost,
	about: "Keeps new VMs off an LXDHost (spec.unschedulable). Those that run there stay.",
}, {
	name: "host uncordon", operand: "NAME", act: uncordonHost,
	about: "Lets VMs be placed on an LXDHost again, and stops emptying it (spec.unschedulable, spec.evacuate).",
}, {
	name: "host drain", operand: "NAME", act: drainHost,
	about: "Empties an LXDHost (spec.unschedulable, spec.evacuate), and waits until no VM is left: the manager has the Machines there replaced, never\n" +
		"two of one control plane at a time. An interrupt ends only the waiting. It needs the chart's value evacuation.enabled.",
}}

// choice is the command that was called.
type choice struct {
	command
	program string   // the name it was called by
	usage   string   // what to type
	rest    []string // the remaining arguments
}

// choose finds the command: by the program's own name, or by the words after it. done: there is nothing more to do.
func choose(args []string, s surroundings) (chosen choice, done bool, code int) {
	program := filepath.Base(args[0])
	rest := args[1:]
	for _, c := range commands {
		if c.isCheck() && (program == c.program || strings.HasPrefix(program, c.program+"-")) {
			return choice{c, program, program, rest}, false, exitOK
		}
	}
	for _, c := range commands {
		words := strings.Fields(c.title())
		if len(rest) >= len(words) && slices.Equal(rest[:len(words)], words) {
			return choice{c, program, program + " " + c.title() + c.arguments(), rest[len(words):]}, false, exitOK
		}
	}
	switch {
	case len(rest) == 1 && rest[0] == "--version":
		fmt.Fprintln(s.out, version)
		return choice{}, true, exitOK
	case asksForHelp(rest):
		fmt.Fprint(s.out, overview(program))
		return choice{}, true, exitOK
	}
	fmt.Fprintf(s.err, "%s: no such command\n%s", program, overview(program))
	return choice{}, true, exitUsage
}

// asksForHelp reports whether the arguments are --help or check --help.
func asksForHelp(args []string) bool {
	if len(args) > 0 && args[0] == "check" {
		args = args[1:]
	}
	return len(args) == 1 && (args[0] == "--help" || args[0] == "-h" || args[0] == "help")
}

func overview(program string) string {
	var text strings.Builder
	text.WriteString("Usage:\n")
	for _, c := range commands {
		fmt.Fprintf(&text, "  %s %-20s [flags]", program, c.title()+c.arguments())
		if c.isCheck() {
			fmt.Fprintf(&text, "   also: %s [flags]", c.program)
		}
		text.WriteString("\n")
	}
	fmt.Fprintf(&text, "  %s --version\nEach of them knows --help.\n", program)
	return text.String()
}

// flags returns the flags of the command; they set o.
func (c command) flags(o *options) *pflag.FlagSet {
	flags := pflag.NewFlagSet(c.program, pflag.ContinueOnError)
	flags.SortFlags = false
	switch {
	case c.needsImage:
		o.addImageFlags(flags, c)
		return flags
	case c.act != nil && c.needsMAAS:
		o.addMachineFlags(flags, c)
		return flags
	}
	if c.needsLXD {
		o.addLXDFlags(flags)
	}
	if c.needsMAAS {
		o.addMAASFlags(flags)
	}
	if c.needsVMHost {
		o.addVMHostFlags(flags, c.canApply)
	}
	switch {
	case c.rewrite != nil:
		o.addConvertFlags(flags)
		return flags
	case c.act != nil:
		o.addHostFlags(flags, c.name == "host drain")
		return flags
	case c.needsPlan:
		o.addPlanFlags(flags, c)
	case c.find != nil:
		o.addOrphanFlags(flags)
	case c.canApply:
		flags.StringVar(&o.socket, "socket", "", "LXD's unix socket. Default: $LXD_SOCKET, then where the snap or the package has it.")
		flags.BoolVar(&o.apply, "apply", false, "Create missing objects. Without it nothing is changed.")
	default:
		flags.BoolVar(&o.testVMHost, "test-vm-host", false, "Check the registration of the node --node-ip, too.")
		flags.StringVar(&o.dnsDomain, "dns-domain", "", "DNS domain that MAAS has to have.")
	}
	o.addCommonFlags(flags)
	return flags
}
