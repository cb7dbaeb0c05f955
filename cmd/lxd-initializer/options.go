// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
)

const (
	// defaultPort is LXD's own.
	defaultPort = "8443"
	// minInterval keeps a typo from flooding MAAS with requests.
	minInterval = time.Second
)

// options are the checked flags and environment variables.
type options struct {
	nodeName  string
	nodeIP    netip.Addr // invalid (zero): the Node's own InternalIP
	namespace string     // of the key pair's Secret

	sockets      []string       // of LXD; the first that accepts connections is used
	lxd          lxdnode.Config // without ListenAddress
	listen, port string         // listen is "" if LXD listens on the node's address

	zone         string // "": that of the node's machine
	resourcePool string // "": MAAS's choice
	credentials  credentials

	checkInterval           time.Duration
	healthAddr, metricsAddr string
	logLevel, logFormat     string
}

// listenAddress returns the address at which LXD listens for MAAS, on a node with this address.
func (o *options) listenAddress(node netip.Addr) string {
	if o.listen != "" {
		return o.listen
	}
	return net.JoinHostPort(node.String(), o.port)
}

// powerAddress returns the address at which MAAS reaches a node with this address.
func (o *options) powerAddress(node netip.Addr) string {
	return net.JoinHostPort(node.String(), o.port)
}

// setting is one environment variable and its flag.
type setting struct {
	flag     string
	variable string // if it is not the flag in capitals
	fallback string
	usage    string
	// empty: an empty variable is a value, too. Otherwise it counts as unset.
	empty bool
	// set checks a value and stores it. Its errors name the problem of the value, not the setting.
	set func(value string) error
}

func (s setting) env() string {
	if s.variable != "" {
		return s.variable
	}
	return strings.ToUpper(strings.ReplaceAll(s.flag, "-", "_"))
}

// settings returns all settings, in the order of error messages.
func (o *options) settings() []setting {
	return append(o.nodeSettings(), o.agentSettings()...)
}

func (o *options) nodeSettings() []setting {
	return []setting{
		{flag: "node-name", usage: "Name of the Kubernetes node. Required.", set: verbatim(&o.nodeName, isNodeName)},
		{flag: "node-ip", usage: "Address at which MAAS reaches the node. Default: the Node's InternalIP.", set: o.setNodeIP},
		{flag: "storage-backend", fallback: "zfs", usage: "Driver of the storage pool: zfs, btrfs, lvm or dir.",
			set: verbatim(&o.lxd.StorageBackend)},
		{flag: "storage-size", fallback: "50", usage: "Size of the storage pool in GB; a pool of the driver dir has none.",
			set: parsed(&o.lxd.StorageSizeGB, strconv.Atoi, "no whole number")},
		{flag: "storage-pool", fallback: "default", usage: "Name of the storage pool in LXD.",
			set: verbatim(&o.lxd.StoragePool)},
		{flag: "network-bridge", fallback: "br0", usage: "Bridge of the node that VMs are connected to.",
			set: verbatim(&o.lxd.NetworkBridge)},
		{flag: "create-bridge", fallback: "false", usage: "Make a managed LXD bridge of that name where there is none.",
			set: parsed(&o.lxd.CreateBridge, strconv.ParseBool, "neither true nor false")},
		{flag: "lxd-project", fallback: "maas", usage: "Project in LXD that MAAS uses.",
			set: verbatim(&o.lxd.Project)},
		{
			flag: "lxd-socket", set: o.setSockets,
			usage: "Paths of LXD's unix socket, separated by commas: the first that accepts connections is used. " +
				"Default: where LXD's snap and its Debian package have it.",
		},
		{
			flag: "lxd-listen", set: o.setListen,
			usage: "Address and port, [host]:port, on which LXD listens for MAAS, or a port of the node's address. " +
				"Default: 8443.",
		},
	}
}

func (o *options) agentSettings() []setting {
	return []setting{
		{flag: "maas-endpoint", usage: "URL of MAAS. Default: the content of config/maasEndpoint below the MAAS config dir.",
			set: verbatim(&o.credentials.endpoint)},
		{
			flag: "maas-api-key-file", variable: "MAAS_API_KEY", set: verbatim(&o.credentials.apiKey),
			usage: "File with the API key of one of these: " + rights.Registration.Users("") + ". MAAS_API_KEY holds the key " +
				"itself. Default: credentials/apiKey below the MAAS config dir.",
		},
		{
			flag: "maas-config-dir", fallback: "/etc/capmaas", set: verbatim(&o.credentials.dir, isPath),
			usage: "Directory with config/maasEndpoint, credentials/apiKey and, optionally, credentials/caBundle, for " +
				"credentials that are not set otherwise. They are read again when they change.",
		},
		{
			flag: "zone", fallback: "default", empty: true, set: verbatim(&o.zone, isMAASName),
			usage: "Zone of the VM host in MAAS. Empty: the zone in the node's provider ID.",
		},
		{
			flag: "resource-pool", fallback: "default", empty: true, set: verbatim(&o.resourcePool, isMAASName),
			usage: "Resource pool of the VM host in MAAS. Empty: the one that MAAS gives it.",
		},
		{flag: "pod-namespace", fallback: "capmaas-system", usage: "Namespace of the Secret with the node's key pair.",
			set: verbatim(&o.namespace, isNamespace)},
		{flag: "check-interval", fallback: "1m", usage: "How often everything is checked again, and what drifted repaired.",
			set: o.setInterval},
		{flag: "health-addr", fallback: ":9440", usage: "Address of /healthz and /readyz.",
			set: verbatim(&o.healthAddr, isAddress)},
		{flag: "metrics-addr", fallback: ":8080", usage: "Address of /metrics.", set: verbatim(&o.metricsAddr, isAddress)},
		{flag: "log-level", fallback: "info", usage: "debug, info or error.",
			set: verbatim(&o.logLevel, oneOf("debug", "info", "error"))},
		{flag: "log-format", fallback: "json", usage: "json or text.", set: verbatim(&o.logFormat, oneOf("json", "text"))},
	}
}

// settingError is one setting that can't be used.
type settingError struct {
	Variable, Flag string
	Problem        string
}

func (e *settingError) Error() string {
	return fmt.Sprintf("%s (--%s): %s", e.Variable, e.Flag, e.Problem)
}

// settingsError is all problems of the settings.
type settingsError []*settingError

func (e settingsError) Error() string {
	lines := list.Each(e, func(one *settingError) string { return "\n  " + one.Error() })
	return "these settings can't be used (environment variable, flag):" + strings.Join(lines, "")
}

// parseOptions reads flags, then environment variables, then defaults. Errors are pflag's for unknown flags, and
// settingsError, with all problems, for values.
func parseOptions(args []string, lookup func(string) (string, bool)) (opts options, showVersion bool, err error) {
	settings := opts.settings()
	flags := pflag.NewFlagSet("lxd-initializer", pflag.ContinueOnError)
	for _, s := range settings {
		flags.String(s.flag, s.fallback, s.usage+" ("+s.env()+")")
	}
	flags.Lookup("create-bridge").NoOptDefVal = "true"
	flags.BoolVar(&showVersion, "version", false, "Print the version and exit.")
	if err := flags.Parse(args); err != nil || showVersion {
		return opts, showVersion, err
	}
	opts.credentials.fromFile = flags.Changed("maas-api-key-file")

	wrong := wrongSettings{settings: settings, problems: map[string]string{}}
	for _, s := range settings {
		value, _ := flags.GetString(s.flag)
		if given, there := lookup(s.env()); there && (given != "" || s.empty) && !flags.Changed(s.flag) {
			value = given
		}
		if err := s.set(strings.TrimSpace(value)); err != nil {
			wrong.add(s.env(), err.Error())
		}
	}
	opts.checkTogether(&wrong)
	return opts, false, wrong.err()
}

// wrongSettings collects problems, one for each setting.
type wrongSettings struct {
	settings []setting
	problems map[string]string // by variable
}

func (w *wrongSettings) add(variable, problem string) {
	if w.problems[variable] == "" {
		w.problems[variable] = problem
	}
}

func (w *wrongSettings) err() error {
	var all settingsError
	for _, s := range w.settings {
		if problem := w.problems[s.env()]; problem != "" {
			all = append(all, &settingError{Variable: s.env(), Flag: s.flag, Problem: problem})
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// checkTogether checks what needs several settings, or knowledge of LXD or MAAS.
func (o *options) checkTogether(wrong *wrongSettings) {
	config := o.lxd
	config.ListenAddress = o.listenAddress(netip.IPv6Unspecified())
	for _, err := range guard.Parts(config.Validate()) {
		if setting, is := errors.AsType[*lxdnode.SettingError](err); is {
			wrong.add(setting.Setting, fmt.Sprintf("%q: %s", setting.Value, setting.Problem))
		}
	}
	_, err := o.credentials.config()
	for _, err := range guard.Parts(err) {
		if credential, is := errors.AsType[*credentialError](err); is {
			wrong.add(credential.variable, credential.problem)
		}
	}
	if o.healthAddr == o.metricsAddr && !strings.HasSuffix(o.healthAddr, ":0") {
		wrong.add("METRICS_ADDR", fmt.Sprintf("%q is the address of /healthz, too", o.metricsAddr))
	}
}

func (o *options) setNodeIP(value string) (err error) {
	if value == "" {
		return nil
	}
	if o.nodeIP, err = netip.ParseAddr(value); err != nil || o.nodeIP.IsUnspecified() || o.nodeIP.Zone() != "" {
		return fmt.Errorf("%q is no IP address of a node", value)
	}
	return nil
}

func (o *options) setSockets(value string) error {
	o.sockets = lxdnode.Sockets(value)
	for _, path := range o.sockets {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("%q is no absolute path", path)
		}
	}
	return nil
}

// setListen takes an address and a port, or the port alone.
func (o *options) setListen(value string) error {
	value = cmp.Or(value, defaultPort)
	ofNode := !strings.Contains(value, ":")
	if ofNode {
		value = ":" + value
	}
	if err := isAddress(value); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(value)
	if _, err := netip.ParseAddr(host); err != nil && host != "" {
		return fmt.Errorf("%q is no IP address", host)
	}
	if port == "0" {
		return errors.New("MAAS must know the port: give one between 1 and 65535")
	}
	if o.port = port; !ofNode {
		o.listen = net.JoinHostPort(host, port)
	}
	return nil
}

func (o *options) setInterval(value string) (err error) {
	if o.checkInterval, err = time.ParseDuration(value); err != nil || o.checkInterval < minInterval {
		return fmt.Errorf("%q is no duration of at least %s, such as 1m", value, minInterval)
	}
	return nil
}

// verbatim is for text. What has no check is checked together with other values.
func verbatim(into *string, checks ...func(string) error) func(string) error {
	return func(value string) error {
		*into = value
		return errors.Join(list.Each(checks, func(check func(string) error) error { return check(value) })...)
	}
}

// parsed is for what is not text. wrong is what a value is that can't be parsed.
func parsed[T any](into *T, parse func(string) (T, error), wrong string) func(string) error {
	return func(value string) (err error) {
		if *into, err = parse(value); err != nil {
			return fmt.Errorf("%q is %s", value, wrong)
		}
		return nil
	}
}

// isNodeName also ensures that the name of the node's Secret is valid.
func isNodeName(value string) error {
	if value == "" {
		return errors.New("it is required: the name of the Kubernetes node (spec.nodeName of the pod)")
	}
	if complaints := validation.IsDNS1123Subdomain(secretPrefix + value); len(complaints) > 0 {
		return fmt.Errorf("%q is no name of a Kubernetes node", value)
	}
	return nil
}

// must makes a check. wrong is what a value is that is not good.
func must(isGood func(string) bool, wrong string) func(string) error {
	return func(value string) error {
		if isGood(value) {
			return nil
		}
		return fmt.Errorf("%q is %s", value, wrong)
	}
}

// maasName is what MAAS accepts as names of zones and resource pools.
var maasName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_ -]{0,255}$`)

var (
	isNamespace = must(func(v string) bool { return len(validation.IsDNS1123Label(v)) == 0 }, "no name of a namespace")
	isMAASName  = must(func(v string) bool { return v == "" || maasName.MatchString(v) },
		"no name that MAAS takes: letters, digits, spaces, - and _")
	isPath    = must(func(v string) bool { return v == "" || filepath.IsAbs(v) }, "no absolute path")
	isAddress = must(func(v string) bool {
		_, port, err := net.SplitHostPort(v)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		return err == nil
	}, "no [host]:port")
)

func oneOf(known ...string) func(string) error {
	return must(func(v string) bool { return slices.Contains(known, v) }, "none of "+strings.Join(known, ", "))
}
