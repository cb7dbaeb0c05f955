// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// defaultTimeout is longer than the slowest step of --apply: LXD may take half a minute to make a storage pool, MAAS as
// long to read the resources of a host.
const defaultTimeout = 3 * time.Minute

// options come from the command line and the environment.
type options struct {
	output  string
	apply   bool
	timeout time.Duration
	socket  string

	node lxdnode.Config

	maas                         maas.Config
	apiKey, apiKeyFile, caBundle string

	nodeIP, name, zone, resourcePool, project string
	port                                      uint16
	address                                   netip.AddrPort // of nodeIP and port
	testVMHost                                bool
	dnsDomain                                 string

	kubeconfig string
	context    string // of the kubeconfig
	namespace  string
	object     string        // the name on the command line
	lasts      time.Duration // --for
	why        string
	kubernetes *rest.Config
	settleTime time.Duration
	remove     bool // --delete
	yes        bool
	vouched    []string

	subject   types.NamespacedName // the operand
	toVersion string               // --version

	image imageOptions

	manifests []string // --filename
	converted string   // --output of convert
	allowLoss bool
}

func defaultOptions() options {
	return options{
		output: "text", timeout: defaultTimeout, port: 8443, project: "maas",
		node: lxdnode.Config{
			StoragePool: "default", StorageBackend: "zfs", StorageSizeGB: 50, NetworkBridge: "br0", Project: "maas",
		},
	}
}

func (o *options) addLXDFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.node.StorageBackend, "storage-backend", o.node.StorageBackend, "Driver of the storage pool: zfs, btrfs, lvm or dir.")
	fs.IntVar(&o.node.StorageSizeGB, "storage-size", o.node.StorageSizeGB, "Size of the storage pool in GB. A pool in a directory has none.")
	fs.StringVar(&o.node.StoragePool, "storage-pool", o.node.StoragePool, "Name of the storage pool.")
	fs.StringVar(&o.node.NetworkBridge, "network-bridge", o.node.NetworkBridge, "Bridge that the VMs are attached to.")
	fs.BoolVar(&o.node.CreateBridge, "create-bridge", o.node.CreateBridge, "The bridge is to be one that LXD makes and manages, where there is none.")
	fs.StringVar(&o.node.Project, "project", o.node.Project, "LXD project that MAAS uses.")
	fs.StringVar(&o.node.ListenAddress, "listen", o.node.ListenAddress,
		"Address that MAAS reaches LXD at, as [host]:port. Default: the one that LXD listens on; where there is none, port 8443 of all.")
}

func (o *options) addMAASFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.maas.Endpoint, "maas-endpoint", "", "URL of MAAS, such as http://maas.example.com:5240/MAAS. Default: $MAAS_ENDPOINT.")
	fs.StringVar(&o.apiKey, "maas-api-key", "", "API key. Everybody on this machine sees it in the list of processes: prefer the file or $MAAS_API_KEY.")
	fs.StringVar(&o.apiKeyFile, "maas-api-key-file", "", "File that holds the API key; - is the standard input. Default: $MAAS_API_KEY.")
	fs.StringVar(&o.caBundle, "maas-ca-file", "", "PEM file of the certificate authorities that MAAS's certificate is verified with, beside the system's.")
}

func (o *options) addVMHostFlags(fs *pflag.FlagSet, canApply bool) {
	orNew := func(text, whenNew string) string {
		if canApply {
			text += "; with --apply a new one " + whenNew
		}
		return text + "."
	}
	fs.StringVar(&o.nodeIP, "node-ip", "", "IP address that MAAS reaches the node's LXD at.")
	fs.Uint16Var(&o.port, "port", o.port, "Port of LXD on the node.")
	fs.StringVar(&o.name, "name", "", orNew("Name of the VM host in MAAS. Default: any", "is named like this machine"))
	fs.StringVar(&o.project, "project", o.project, "LXD project that MAAS uses there.")
	fs.StringVar(&o.zone, "zone", "", orNew("Zone that the VM host has to be in. Default: any", "gets MAAS's default zone"))
	fs.StringVar(&o.resourcePool, "resource-pool", "",
		orNew("Resource pool that the VM host has to be in. Default: any", "gets MAAS's default pool"))
}

func (o *options) addCommonFlags(fs *pflag.FlagSet) {
	fs.StringVarP(&o.output, "output", "o", o.output, "text or json.")
	fs.DurationVar(&o.timeout, "timeout", o.timeout, "How long all of it may take.")
}

// complete reads the files that the flags name, and returns all problems.
func (o *options) complete(c choice, flags *pflag.FlagSet, s surroundings) []string {
	var problems []string
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	switch {
	case c.needsImage:
		return o.completeImage(c.command, flags, s)
	case c.act != nil && c.needsMAAS:
		return o.completeMachines(flags, s)
	case c.act != nil:
		return o.completeHost(flags, s)
	}
	if outputs[o.output] == nil {
		wrong("--output: %q is neither text nor json", o.output)
	}
	if o.timeout <= 0 {
		wrong("--timeout: %s is no time to do anything in", o.timeout)
	}
	if c.needsLXD {
		problems = append(problems, nodeProblems(o.node)...)
	}
	if c.needsMAAS {
		problems = append(problems, o.completeMAAS(flags.Changed("maas-api-key"), s)...)
	}
	if c.rewrite != nil {
		problems = append(problems, o.completeConvert()...)
	}
	switch {
	case c.needsPlan:
		problems = append(problems, o.completePlan(c.command, flags.Args(), s)...)
	case c.find != nil:
		problems = append(problems, o.completeOrphans(s)...)
	}
	if !c.needsVMHost {
		return problems
	}
	wanted := c.canApply || o.testVMHost
	ip, err := netip.ParseAddr(o.nodeIP)
	o.address = netip.AddrPortFrom(ip.Unmap(), o.port)
	switch {
	case wanted && o.nodeIP == "":
		wrong("--node-ip is missing: the address that MAAS reaches the node's LXD at")
	case o.nodeIP != "" && err != nil:
		wrong("--node-ip: %q is no IP address", o.nodeIP)
	}
	if o.port == 0 {
		wrong("--port: 0 is no port")
	}
	if o.project == "" {
		wrong("--project: it is empty")
	}
	for _, name := range []string{"node-ip", "port", "name", "project"} {
		if !wanted && flags.Changed(name) {
			wrong("--%s is for a VM host: add --test-vm-host", name)
		}
	}
	if c.canApply && o.socket != "" && !o.apply && !c.needsLXD {
		wrong("--socket is for --apply: without it LXD is not asked")
	}
	return problems
}

// flagOf are the flags of the fields that maas.ConfigError names.
var flagOf = map[string]string{
	"endpoint": "--maas-endpoint (or MAAS_ENDPOINT)", "apiKey": "the API key", "caBundle": "--maas-ca-file",
}

// completeMAAS sets o.maas.
func (o *options) completeMAAS(keyOnCommandLine bool, s surroundings) []string {
	var problems []string
	if o.maas.Endpoint == "" {
		o.maas.Endpoint = s.getenv("MAAS_ENDPOINT")
	}
	key, err := o.key(keyOnCommandLine, s)
	if err != nil {
		problems = append(problems, err.Error())
	}
	o.maas.APIKey = key
	if o.maas.CABundle, err = readSmall(o.caBundle); err != nil {
		problems = append(problems, fmt.Sprintf("--maas-ca-file: %v", err))
	}
	for _, problem := range split(o.maas.Validate()) {
		var field *maas.ConfigError
		switch {
		case !errors.As(problem, &field):
			problems = append(problems, problem.Error())
		case field.Field == "apiKey" && key == "":
			// A missing or unreadable value was already reported.
		case field.Field == "endpoint" && o.maas.Endpoint == "":
			problems = append(problems, flagOf["endpoint"]+" is missing: "+field.Problem)
		default:
			problems = append(problems, flagOf[field.Field]+": "+field.Problem)
		}
	}
	return problems
}

// split returns the parts of an errors.Join.
func split(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	switch {
	case err == nil:
		return nil
	case ok:
		return joined.Unwrap()
	}
	return []error{err}
}

// nodeProblems returns lxdnode's problems with the settings, with the names of flags.
func nodeProblems(config lxdnode.Config) []string {
	var problems []string
	for _, err := range split(config.Validate()) {
		var setting *lxdnode.SettingError
		if !errors.As(err, &setting) {
			problems = append(problems, err.Error())
			continue
		}
		problems = append(problems, fmt.Sprintf("%s: %q: %s", inFlags(setting.Setting), setting.Value, setting.Problem))
	}
	return problems
}

// complaints describe a wrong value, by the type of its flag.
var complaints = map[string]string{
	"bool": "neither true nor false", "int": "no whole number", "uint16": "no port", "duration": "no time such as 90s",
}

// parse is flags.Parse, except that it does not stop at the first problem, and repeats no value of a text flag, which
// may be a key. least and most are how many arguments may belong to no flag. Its error is pflag.ErrHelp if help was requested.
func parse(flags *pflag.FlagSet, args []string, least, most int) (problems []string, err error) {
	flags.Usage = func() {}
	unknown := false
	for {
		var notThere *pflag.NotExistError
		var bad *pflag.InvalidValueError
		var bare *pflag.ValueRequiredError
		var noName *pflag.InvalidSyntaxError
		switch err := flags.Parse(args); {
		case errors.Is(err, pflag.ErrHelp):
			return nil, err
		case errors.As(err, &notThere):
			given := "--" + notThere.GetSpecifiedName()
			if short := notThere.GetSpecifiedShortnames(); short != "" {
				given = "-" + short
			}
			name, _, _ := strings.Cut(given, "=")
			problems, unknown = append(problems, "there is no flag "+name), true
			args = without(args, given)
		case errors.As(err, &bad):
			flag := bad.GetFlag()
			problems = append(problems, fmt.Sprintf("--%s: %q is %s", flag.Name, bad.GetValue(), complaints[flag.Value.Type()]))
			_ = flag.Value.Set(flag.DefValue) // A default is always valid.
			flag.Value = anything{}
		case errors.As(err, &bare):
			return append(problems, fmt.Sprintf("--%s: its value is missing", bare.GetFlag().Name)), nil
		case errors.As(err, &noName):
			return append(problems, "a flag has the form --name=value"), nil
		case err != nil:
			return problems, err
		default:
			// The value of an unknown flag stays behind; that needs no message.
			switch n := flags.NArg(); {
			case n > most && !unknown:
				problems = append(problems, fmt.Sprintf("%d argument(s) belong to no flag", n-most))
			case n < least:
				problems = append(problems, "the name is missing")
			}
			return problems, nil
		}
	}
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
