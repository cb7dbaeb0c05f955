// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// defaultTimeout is longer than the slowest step of --apply: LXD may take half a minute to make a storage pool, MAAS as
// long to read the resources of a host.
const defaultTimeout = 3 * time.Minute

// options come from the command line and the environment.
type options struct {
	output  string // one of formats
	apply   bool
	timeout time.Duration
	socket  string

	node lxdnode.Config

	maas maas.Config
	// maasFrom says whose it is, or what it is from, unless it is from flags.
	maasFrom string

	apiKey, apiKeyFile, caBundle string

	nodeIP, name, zone, resourcePool, project string
	port                                      uint16
	address                                   netip.AddrPort // of nodeIP and port
	testVMHost                                bool
	dnsDomain                                 string

	kubeconfig string
	context    string // of the kubeconfig
	namespace  string
	object     string               // the operand, where it is no object of Kubernetes
	subject    types.NamespacedName // the operand, where it is one
	lasts      time.Duration        // --for
	why        string
	settleTime time.Duration

	toVersion string // --kubernetes-version

	image imageOptions

	manifests []string // --filename
	converted string   // --output-file
	allowLoss bool

	// problems are all reasons why nothing is done.
	problems []string
	// region is the MAAS, cluster the management cluster; nil if the command needs none. unconnected is why there is no
	// region: a result says so.
	region      *maas.Client
	cluster     client.Client
	unconnected error
}

// wrong adds a problem, once.
func (o *options) wrong(format string, args ...any) {
	if problem := fmt.Sprintf(format, args...); !slices.Contains(o.problems, problem) {
		o.problems = append(o.problems, problem)
	}
}

func defaultOptions() options {
	return options{
		output: "text", timeout: defaultTimeout, port: 8443, project: "maas",
		node: lxdnode.Config{Project: lxdnode.DefaultProject},
	}
}

// addFlags adds all flags of a command.
func (o *options) addFlags(fs *pflag.FlagSet, c command) {
	fs.SortFlags = false
	if c.flags != nil {
		c.flags(o, fs)
	}
	if c.find != nil {
		fs.StringVarP(&o.output, "output", "o", o.output, "Format of the output: "+strings.Join(formats, ", ")+".")
	}
	if c.hasTimeout {
		fs.DurationVar(&o.timeout, "timeout", o.timeout, "How long the command may take. 0s: as long as it takes.")
	}
	if c.needsMAAS {
		o.addMAASFlags(fs)
	}
	if c.needsMAAS || c.needsCluster {
		if c.inNamespace {
			fs.StringVarP(&o.namespace, "namespace", "n", "", "Namespace. Default: that of the kubeconfig's context.")
		}
		o.addClusterFlags(fs)
	}
}

func (o *options) addMAASFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.maas.Endpoint, "maas-endpoint", "", "URL of MAAS, such as http://maas.example.com:5240/MAAS. "+
		"Default: $MAAS_ENDPOINT, then the manager's in the management cluster.")
	fs.StringVar(&o.apiKeyFile, "maas-api-key-file", "",
		"File that holds the API key; - is the standard input. Default: $MAAS_API_KEY, then the manager's.")
	fs.StringVar(&o.apiKey, "maas-api-key", "", "API key. Everybody on this machine sees it in the list of processes: "+
		"prefer the file.")
	fs.StringVar(&o.caBundle, "maas-ca-file", "", "PEM file of the authorities that MAAS's certificate is verified "+
		"with, beside the system's.")
}

func (o *options) addClusterFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "Kubeconfig of the management cluster. Default: $KUBECONFIG, then "+
		"~/.kube/config, then the pod's own.")
	fs.StringVar(&o.context, "context", "", "Context of the kubeconfig. Default: the current one.")
}

// addManifestsFlag adds the flag for files that are read.
func (o *options) addManifestsFlag(fs *pflag.FlagSet, byDefault ...string) {
	fs.StringArrayVarP(&o.manifests, "filename", "f", byDefault,
		"YAML file to read; - is the standard input. It can be given several times.")
}

// complete reads what the flags name, and returns all problems.
func (o *options) complete(c command, flags *pflag.FlagSet, s surroundings) []string {
	if c.find != nil && !slices.Contains(formats, o.output) {
		o.wrong("--output: %q is none of %s", o.output, strings.Join(formats, ", "))
	}
	if o.timeout < 0 {
		o.wrong("--timeout: %s is no time to wait; 0s is as long as it takes", o.timeout)
	}
	if c.needsMAAS && len(o.image.hosts) == 0 {
		o.completeMAAS(flags.Changed("maas-api-key"), s)
	}
	if c.complete != nil {
		c.complete(o, flags)
	}
	if c.needsCluster || o.subject.Name != "" || len(o.image.hosts) > 0 {
		o.completeCluster(s)
	}
	return o.problems
}

// nameIn sets o.subject to the object that a text names.
func (o *options) nameIn(what, text string) {
	parts := strings.Split(text, "/")
	if len(parts) > 2 || slices.Contains(parts, "") || strings.ContainsAny(text, " \t\n") {
		o.wrong("%s: %q is neither NAME nor NAMESPACE/NAME", what, text)
		return
	}
	o.subject.Name = parts[len(parts)-1]
	if len(parts) == 2 {
		o.subject.Namespace = parts[0]
	}
}

// flagOf are the flags of the fields that maas.ConfigError names.
var flagOf = map[string]string{
	"endpoint": "--maas-endpoint (or MAAS_ENDPOINT)", "apiKey": "the API key", "caBundle": "--maas-ca-file",
}

// inFlagsOfMAAS explains errors of a MAAS that the flags give.
var inFlagsOfMAAS = maas.Names{Endpoint: "the endpoint (--maas-endpoint)", CABundle: "caBundle (--maas-ca-file)"}

// completeMAAS sets o.maas. It leaves URL and key empty if nothing is given and there is a management cluster, which
// has them.
func (o *options) completeMAAS(keyOnCommandLine bool, s surroundings) {
	if o.maas.Endpoint == "" && s.getenv("MAAS_ENDPOINT") != "" {
		o.maas.Endpoint = s.getenv("MAAS_ENDPOINT")
		o.maasFrom = "$MAAS_ENDPOINT and $MAAS_API_KEY"
		if keyOnCommandLine || o.apiKeyFile != "" {
			o.maasFrom = "$MAAS_ENDPOINT and that of a flag"
		}
	}
	key, noKey := o.key(keyOnCommandLine, s)
	bundle, noBundle := readSmall(o.caBundle)
	o.maas.APIKey, o.maas.CABundle = key, bundle
	none := errors.Is(noKey, errNoKey) && !keyOnCommandLine && o.apiKeyFile == "" && o.maas.Endpoint == ""
	if none {
		var err error
		o.cluster, _, err = o.managementCluster(s)
		if err != nil && !errors.Is(err, errNoCluster) {
			o.wrongCluster(err)
			return
		}
		none = err == nil
	}
	if noKey != nil && !none {
		o.wrong("%v", noKey)
	}
	if noBundle != nil {
		o.wrong("--maas-ca-file: %v", noBundle)
	}
	for _, problem := range guard.Parts(o.maas.Validate()) {
		var field *maas.ConfigError
		switch {
		case !errors.As(problem, &field):
			o.wrong("%v", problem)
		case none && field.Field != "caBundle":
			// The management cluster has it.
		case field.Field == "apiKey" && key == "":
			// A missing or unreadable value was already reported.
		case field.Field == "endpoint" && o.maas.Endpoint == "":
			o.wrong("%s is missing: %s", flagOf["endpoint"], field.Problem)
		default:
			o.wrong("%s: %s", flagOf[field.Field], field.Problem)
		}
	}
}

// checkNode checks the settings of a node as lxdnode does, with the names of flags.
func (o *options) checkNode() {
	for _, err := range guard.Parts(o.node.Validate()) {
		if setting, is := errors.AsType[*lxdnode.SettingError](err); is {
			o.wrong("%s: %q: %s", inFlags(setting.Setting), setting.Value, setting.Problem)
		} else {
			o.wrong("%v", err)
		}
	}
}

// maxFile bounds the size of a key or a CA bundle, in bytes.
const maxFile = 1 << 20

// errNoKey means that no key is given.
var errNoKey = errors.New("the API key is missing: give --maas-api-key-file, set MAAS_API_KEY, or name the " +
	"management cluster in --kubeconfig")

// key returns the API key from the command line, the file, or the environment. Errors contain no part of it.
func (o *options) key(onCommandLine bool, s surroundings) (string, error) {
	var text []byte
	var err error
	switch {
	case onCommandLine && o.apiKeyFile != "":
		return "", errors.New("--maas-api-key and --maas-api-key-file: give one of them")
	case onCommandLine:
		fmt.Fprintln(s.err, "warning: a key on the command line can be read by everybody on this machine; "+
			"--maas-api-key-file and MAAS_API_KEY keep it private")
		text = []byte(o.apiKey)
	case o.apiKeyFile == "-":
		text, err = io.ReadAll(io.LimitReader(s.in, maxFile))
	case o.apiKeyFile != "":
		text, err = readSmall(o.apiKeyFile)
	default:
		text = []byte(s.getenv("MAAS_API_KEY"))
	}
	if err != nil {
		return "", fmt.Errorf("--maas-api-key-file: %w", err)
	}
	key := strings.TrimSpace(string(text))
	if key == "" {
		return "", errNoKey
	}
	return key, nil
}

// readSmall returns the content of a file, or nil if name is "".
func readSmall(name string) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	file, err := os.Open(name)
	if path, is := errors.AsType[*fs.PathError](err); is {
		return nil, path.Err // without the name: a user may have given the key instead of a file
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxFile))
}
