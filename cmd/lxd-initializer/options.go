// SPDX-License-Identifier: Apache-2.0

package main

import (
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

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/rights"
)

// minInterval keeps a typo from flooding MAAS with requests.
const minInterval = time.Second

// options are the checked flags and environment variables.
type options struct {
	nodeName  string
	nodeIP    netip.Addr // invalid (zero): the Node's own InternalIP
	namespace string     // of the key pair's Secret

	sockets []string       // of LXD; the first that accepts connections is used
	lxd     lxdnode.Config // without ListenAddress
	listen  string         // [host]:port, or a port of the node's address

	zone, resourcePool string // "": the VM host stays where it is
	zoneOfMachine      bool   // without a zone: that of the node's machine
	credentials        credentials

	checkInterval           time.Duration
	healthAddr, metricsAddr string
	logLevel, logFormat     string
}

// listenAddress returns the address at which LXD listens for MAAS, on a node with this address.
func (o *options) listenAddress(node netip.Addr) string {
	host, port, err := net.SplitHostPort(o.listen)
	if err != nil {
		host, port = node.String(), o.listen
	}
	return net.JoinHostPort(host, port)
}

// powerAddress returns the address at which MAAS reaches a node with this address.
func (o *options) powerAddress(node netip.Addr) string {
	_, port, _ := net.SplitHostPort(o.listenAddress(node)) // It was checked.
	return net.JoinHostPort(node.String(), port)
}

// addFlags adds a flag for each setting.
func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.nodeName, "node-name", "", "Name of the Kubernetes node. Required.")
	fs.TextVar(&o.nodeIP, "node-ip", netip.Addr{}, "`Address` at which MAAS reaches the node. Default: the Node's "+
		"InternalIP.")
	o.lxd.AddFlags(fs)
	fs.StringVar(&o.lxd.Project, "lxd-project", lxdnode.DefaultProject, "Project in LXD that MAAS uses.")
	fs.StringSliceVar(&o.sockets, "lxd-socket", lxdnode.Sockets(""), "Paths of LXD's unix socket, separated by commas: "+
		"the first that accepts connections is used.")
	fs.StringVar(&o.listen, "lxd-listen", "8443", "Address and port, [host]:port, on which LXD listens for MAAS, or a "+
		"port of the node's address.")
	fs.StringVar(&o.credentials.endpoint, "maas-endpoint", "", "URL of MAAS. Default: the content of "+
		"config/maasEndpoint below the MAAS config dir.")
	fs.StringVar(&o.credentials.apiKey, "maas-api-key-file", "", "File with the API key of one of these: "+
		rights.Registration.Users("")+". MAAS_API_KEY holds the key itself. Default: credentials/apiKey below the MAAS "+
		"config dir.")
	fs.StringVar(&o.credentials.dir, "maas-config-dir", "/etc/capmaas", "Directory with config/maasEndpoint, "+
		"credentials/apiKey and, optionally, credentials/caBundle, for credentials that are not set otherwise. They are "+
		"read again when they change.")
	fs.StringVar(&o.zone, "zone", "", "Zone of the VM host in MAAS. Default: it stays where it is.")
	fs.BoolVar(&o.zoneOfMachine, "zone-of-machine", false, "Without a zone: put the VM host into that of the node's "+
		"machine, as soon as the Node's provider ID names that.")
	fs.StringVar(&o.resourcePool, "resource-pool", "", "Resource pool of the VM host in MAAS. Default: it stays where it "+
		"is.")
	fs.StringVar(&o.namespace, "pod-namespace", "capmaas-system", "Namespace of the Secret with the node's key pair.")
	fs.DurationVar(&o.checkInterval, "check-interval", time.Minute, "How often everything is checked again, and what "+
		"drifted repaired.")
	fs.StringVar(&o.healthAddr, "health-addr", ":9440", "Address of /healthz and /readyz.")
	fs.StringVar(&o.metricsAddr, "metrics-addr", ":8080", "Address of /metrics.")
	fs.StringVar(&o.logLevel, "log-level", "info", "debug, info or error.")
	fs.StringVar(&o.logFormat, "log-format", "json", "json or text.")
}

// variable returns the environment variable of a flag.
func variable(flag string) string {
	if flag == "maas-api-key-file" {
		return "MAAS_API_KEY"
	}
	return strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// forms are what values of each type of flag look like; pflag has no name for the type of a TextVar. A string may be
// anything.
var forms = map[string]string{
	"": "an IP address", "bool": "true or false", "duration": "a duration, such as 90s or 5m", "int": "a whole number",
	"stringSlice": "a list, separated by commas",
}

// settingError is one setting that can't be used.
type settingError struct {
	variable, problem string
}

func (e *settingError) Error() string { return e.variable + ": " + e.problem }

// parseOptions reads flags, then environment variables, then defaults. Errors are pflag's for flags that it can't
// parse, and a *settingError for each other value that can't be used.
func parseOptions(args []string, lookup func(string) (string, bool)) (o options, showVersion bool, err error) {
	settings := pflag.NewFlagSet("settings", pflag.ContinueOnError)
	o.addFlags(settings)
	settings.VisitAll(func(f *pflag.Flag) { f.Usage += " (" + variable(f.Name) + ")" })
	flags := pflag.NewFlagSet("lxd-initializer", pflag.ContinueOnError)
	flags.AddFlagSet(settings)
	flags.BoolVar(&showVersion, "version", false, "Print the version and exit.")
	if err := flags.Parse(args); err != nil || showVersion {
		return o, showVersion, err
	}
	o.credentials.fromFile = flags.Changed("maas-api-key-file")

	var errs []error
	reported := map[string]bool{} // The first problem of a setting counts.
	wrong := func(variable, problem string) {
		if !reported[variable] {
			errs = append(errs, &settingError{variable, problem})
		}
		reported[variable] = true
	}
	settings.VisitAll(func(f *pflag.Flag) {
		name := variable(f.Name)
		value, there := lookup(name)
		value = strings.TrimSpace(value)
		if !there || f.Changed || value == "" {
			return
		}
		if err := f.Value.Set(value); err != nil {
			wrong(name, fmt.Sprintf("%q is not %s", value, forms[f.Value.Type()]))
		}
	})
	o.check(wrong)
	if len(errs) > 0 {
		err = fmt.Errorf("these settings can't be used (environment variables, or flags of the same names; "+
			"that of MAAS_API_KEY is --maas-api-key-file):\n%w", errors.Join(errs...))
	}
	return o, false, err
}

// maasName is what MAAS accepts as names of zones and resource pools, or nothing.
var maasName = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9_ -]{0,255})?$`)

const isMAASName = "a name that MAAS takes: letters, digits, spaces, - and _"

// check returns which values can't be used.
func (o *options) check(wrong func(variable, problem string)) {
	isNode := o.nodeName != "" && len(validation.IsDNS1123Subdomain(secretPrefix+o.nodeName)) == 0 // a Secret's name, too
	for _, c := range []struct {
		variable, value string
		ok              bool
		wanted          string
	}{
		{"NODE_NAME", o.nodeName, isNode, "the name of a Kubernetes node (spec.nodeName of the pod)"},
		{"NODE_IP", o.nodeIP.String(), !o.nodeIP.IsUnspecified() && o.nodeIP.Zone() == "", "an IP address of a node"},
		{"LXD_SOCKET", strings.Join(o.sockets, ","), !slices.ContainsFunc(o.sockets, isRelative), "absolute paths"},
		{"MAAS_CONFIG_DIR", o.credentials.dir, !isRelative(o.credentials.dir), "an absolute path"},
		{"ZONE", o.zone, maasName.MatchString(o.zone), isMAASName},
		{"RESOURCE_POOL", o.resourcePool, maasName.MatchString(o.resourcePool), isMAASName},
		{"POD_NAMESPACE", o.namespace, len(validation.IsDNS1123Label(o.namespace)) == 0, "the name of a namespace"},
		{"CHECK_INTERVAL", o.checkInterval.String(), o.checkInterval >= minInterval, "at least " + minInterval.String()},
		{"HEALTH_ADDR", o.healthAddr, isAddress(o.healthAddr), "[host]:port"},
		{"METRICS_ADDR", o.metricsAddr, isAddress(o.metricsAddr), "[host]:port"},
		{"METRICS_ADDR", o.metricsAddr, o.metricsAddr != o.healthAddr || strings.HasSuffix(o.metricsAddr, ":0"),
			"another address than that of /healthz"},
		{"LOG_LEVEL", o.logLevel, slices.Contains([]string{"debug", "info", "error"}, o.logLevel), "debug, info or error"},
		{"LOG_FORMAT", o.logFormat, slices.Contains([]string{"json", "text"}, o.logFormat), "json or text"},
	} {
		if !c.ok {
			wrong(c.variable, fmt.Sprintf("%q is not %s", c.value, c.wanted))
		}
	}
	config := o.lxd
	config.ListenAddress = o.listenAddress(netip.IPv6Unspecified())
	for _, err := range guard.Parts(config.Validate()) {
		if setting, is := errors.AsType[*lxdnode.SettingError](err); is {
			wrong(setting.Setting, fmt.Sprintf("%q: %s", setting.Value, setting.Problem))
		}
	}
	_, err := o.credentials.config()
	for _, err := range guard.Parts(err) {
		if field, is := errors.AsType[*maas.ConfigError](err); is {
			wrong(credentialVariables[field.Field], field.Error())
		}
	}
}

func isRelative(path string) bool { return !filepath.IsAbs(path) }

func isAddress(value string) bool {
	_, port, err := net.SplitHostPort(value)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return err == nil
}
