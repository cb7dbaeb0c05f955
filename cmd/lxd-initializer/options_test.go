// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

// valid is the least that has to be set.
func valid() map[string]string {
	return map[string]string{"NODE_NAME": "node", "NODE_IP": "192.0.2.10", "MAAS_ENDPOINT": "http://maas.example.com:5240/MAAS", "MAAS_API_KEY": "a:b:c"}
}

func parse(env map[string]string, args ...string) (options, error) {
	opts, _, err := parseOptions(args, func(name string) (string, bool) { value, there := env[name]; return value, there })
	return opts, err
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	opts, err := parse(valid())
	if err != nil {
		t.Fatal(err)
	}
	type summary struct {
		Backend, Pool, Bridge, Project string
		Size                           int
		CreateBridge                   bool
		Zone, ResourcePool, Namespace  string
		Listen, Power, Health, Metrics string
		Interval                       time.Duration
	}
	node := netip.MustParseAddr("192.0.2.10")
	got := summary{
		opts.lxd.StorageBackend, opts.lxd.StoragePool, opts.lxd.NetworkBridge, opts.lxd.Project,
		opts.lxd.StorageSizeGB, opts.lxd.CreateBridge, opts.zone, opts.resourcePool, opts.namespace,
		opts.listenAddress(node), opts.powerAddress(node), opts.healthAddr, opts.metricsAddr, opts.checkInterval,
	}
	want := summary{
		"zfs", "default", "br0", "maas", 50, false, "", "", "capmaas-system",
		"192.0.2.10:8443", "192.0.2.10:8443", ":9440", ":8080", time.Minute,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestFlagsGoBeforeVariables(t *testing.T) {
	t.Parallel()
	env := valid()
	env["ZONE"], env["STORAGE_SIZE"], env["CREATE_BRIDGE"], env["STORAGE_POOL"] = "from-env", "70", "true", "from-env"
	opts, err := parse(env, "--zone=from-flag", "--storage-size=80", "--create-bridge=false")
	if err != nil {
		t.Fatal(err)
	}
	if opts.zone != "from-flag" || opts.lxd.StorageSizeGB != 80 || opts.lxd.CreateBridge || opts.lxd.StoragePool != "from-env" {
		t.Errorf("the options are %+v", opts)
	}
}

func TestEmptyVariables(t *testing.T) {
	t.Parallel()
	env := valid()
	env["ZONE"], env["RESOURCE_POOL"], env["STORAGE_BACKEND"], env["STORAGE_SIZE"] = "", "", "", ""
	opts, err := parse(env)
	if err != nil {
		t.Fatal(err)
	}
	if opts.zone != "" || opts.resourcePool != "" || opts.lxd.StorageBackend != "zfs" || opts.lxd.StorageSizeGB != 50 {
		t.Errorf("the options are %+v", opts)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ip, listen string
		wantListen string
		wantPower  string
	}{
		{"192.0.2.10", "", "192.0.2.10:8443", "192.0.2.10:8443"},
		{"192.0.2.10", "192.0.2.10:9443", "192.0.2.10:9443", "192.0.2.10:9443"},
		{"192.0.2.10", "[192.0.2.10]:9443", "192.0.2.10:9443", "192.0.2.10:9443"},
		{"192.0.2.10", ":9443", ":9443", "192.0.2.10:9443"},
		{"2001:db8::1", "", "[2001:db8::1]:8443", "[2001:db8::1]:8443"},
		{"2001:db8::1", "[::]:9443", "[::]:9443", "[2001:db8::1]:9443"},
		{"192.0.2.10", "9443", "192.0.2.10:9443", "192.0.2.10:9443"},
		{"2001:db8::1", "9443", "[2001:db8::1]:9443", "[2001:db8::1]:9443"},
	} {
		env := valid()
		env["NODE_IP"], env["LXD_LISTEN"] = c.ip, c.listen
		opts, err := parse(env)
		if err != nil {
			t.Errorf("%v: %v", c, err)
			continue
		}
		node := netip.MustParseAddr(c.ip)
		if listen, power := opts.listenAddress(node), opts.powerAddress(node); listen != c.wantListen || power != c.wantPower {
			t.Errorf("%v: LXD listens on %s and MAAS reaches it at %s", c, listen, power)
		}
	}
}

// names are the variables that an error complains about.
func names(err error) (all []string) {
	for _, part := range guard.Parts(errors.Unwrap(err)) {
		if one, is := errors.AsType[*settingError](part); is {
			all = append(all, one.variable)
		}
	}
	return all
}

func TestEverySettingThatIsWrongIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	bundle := t.TempDir()
	if err := errors.Join(
		os.Mkdir(filepath.Join(bundle, "credentials"), 0o700), os.WriteFile(filepath.Join(bundle, "credentials/caBundle"), []byte("no PEM"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"NODE_NAME": "Not A Node", "NODE_IP": "nowhere", "STORAGE_BACKEND": "floppy", "STORAGE_SIZE": "50GB", "STORAGE_POOL": "a/b",
		"NETWORK_BRIDGE": "a-bridge-with-a-long-name", "CREATE_BRIDGE": "perhaps", "LXD_PROJECT": "a b",
		"LXD_SOCKET": "unix.socket", "LXD_LISTEN": "here:8443", "MAAS_ENDPOINT": "maas", "MAAS_API_KEY": "key", "MAAS_CONFIG_DIR": bundle,
		"ZONE": "a/b", "ZONE_OF_MACHINE": "perhaps", "RESOURCE_POOL": "-", "POD_NAMESPACE": "No", "CHECK_INTERVAL": "1", "HEALTH_ADDR": "9440", "METRICS_ADDR": "8080:",
		"LOG_LEVEL": "loud", "LOG_FORMAT": "xml",
	}
	settings := pflag.NewFlagSet("settings", pflag.ContinueOnError)
	new(options).addFlags(settings)
	settings.VisitAll(func(f *pflag.Flag) {
		if _, there := env[variable(f.Name)]; !there {
			t.Errorf("there is no bad value for %s", variable(f.Name))
		}
	})
	_, err := parse(env)
	got := names(err)
	for variable := range env {
		if !slices.Contains(got, variable) {
			t.Errorf("%s=%q is taken", variable, env[variable])
		}
	}
	if len(got) != len(env) {
		t.Errorf("%d settings are complained about, want each of %d once: %v", len(got), len(env), got)
	}
}

func TestSettingsThatAreWrong(t *testing.T) {
	t.Parallel()
	nothing, withKey := t.TempDir(), t.TempDir()
	empty := filepath.Join(nothing, "empty")
	if err := errors.Join(os.WriteFile(empty, []byte(" \n"), 0o600), os.Mkdir(filepath.Join(withKey, "credentials"), 0o700),
		os.WriteFile(filepath.Join(withKey, "credentials/apiKey"), []byte("in:dir:c"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change map[string]string
		args   []string
		want   []string
	}{
		{"nothing is set", map[string]string{"NODE_NAME": "", "MAAS_ENDPOINT": "", "MAAS_API_KEY": ""}, nil, []string{"NODE_NAME", "MAAS_ENDPOINT", "MAAS_API_KEY"}},
		{"no key file", nil, []string{"--maas-api-key-file=/nothing/there"}, []string{"MAAS_API_KEY"}},
		{"a key for its file", nil, []string{"--maas-api-key-file=in:by:hush"}, []string{"MAAS_API_KEY"}},
		{"a directory for a key file", nil, []string{"--maas-api-key-file=" + nothing}, []string{"MAAS_API_KEY"}},
		{"no key file and no endpoint", map[string]string{"MAAS_ENDPOINT": "maas"}, []string{"--maas-api-key-file=/nothing/there"}, []string{"MAAS_API_KEY", "MAAS_ENDPOINT"}},
		{"an empty key file beside another key", map[string]string{"MAAS_CONFIG_DIR": withKey}, []string{"--maas-api-key-file=" + empty}, []string{"MAAS_API_KEY"}},
		{"flag", nil, []string{"--storage-size=0", "--zone=a/b"}, []string{"ZONE", "STORAGE_SIZE"}},
		{"one socket is no path", map[string]string{"LXD_SOCKET": "/run/lxd.socket,unix.socket"}, nil, []string{"LXD_SOCKET"}},
		{"no size", map[string]string{"STORAGE_SIZE": "0"}, nil, []string{"STORAGE_SIZE"}},
		{"any port", map[string]string{"LXD_LISTEN": ":0"}, nil, []string{"LXD_LISTEN"}},
		{"no port", map[string]string{"LXD_LISTEN": "https"}, nil, []string{"LXD_LISTEN"}},
		{"an address without brackets", map[string]string{"LXD_LISTEN": "2001:db8::1:9443"}, nil, []string{"LXD_LISTEN"}},
		{"too large a port", map[string]string{"LXD_LISTEN": ":65536"}, nil, []string{"LXD_LISTEN"}},
		{"unspecified address", map[string]string{"NODE_IP": "0.0.0.0"}, nil, []string{"NODE_IP"}},
		{"all the time", map[string]string{"CHECK_INTERVAL": "1ms"}, nil, []string{"CHECK_INTERVAL"}},
		{"one address for two", map[string]string{"METRICS_ADDR": ":9440"}, nil, []string{"METRICS_ADDR"}},
	} {
		env := valid()
		env["MAAS_CONFIG_DIR"] = nothing
		for variable, value := range c.change {
			env[variable] = value
		}
		_, err := parse(env, c.args...)
		if diff := cmp.Diff(c.want, names(err)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		if strings.Contains(fmt.Sprint(err), "hush") {
			t.Errorf("%s: the error has the key: %v", c.name, err)
		}
	}
}

// Each error of a value's form names the value and the form, and not the function that refused it.
func TestAValueOfAWrongFormIsToldByWhatItIsNot(t *testing.T) {
	t.Parallel()
	settings := pflag.NewFlagSet("settings", pflag.ContinueOnError)
	new(options).addFlags(settings)
	settings.VisitAll(func(f *pflag.Flag) {
		const bad = `"a"b`
		form, known := forms[f.Value.Type()]
		if f.Value.Type() == "string" {
			return
		}
		env := valid()
		env[variable(f.Name)] = bad
		_, err := parse(env)
		want := settingError{variable(f.Name), fmt.Sprintf("%q is not %s", bad, form)}
		if got, is := errors.AsType[*settingError](err); !known || !is || *got != want {
			t.Errorf("the error is %v, want %v", err, &want)
		}
	})
}

func TestSizeIsNotNeededForDirectories(t *testing.T) {
	t.Parallel()
	env := valid()
	env["STORAGE_BACKEND"], env["STORAGE_SIZE"] = "dir", "0"
	if _, err := parse(env); err != nil {
		t.Error(err)
	}
}

func TestCredentialsComeFromWhereTheyAreGiven(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("config/maasEndpoint", "http://in.dir/MAAS\n")
	write("credentials/apiKey", "in:dir:c\n")
	keyFile := write("key", "in:file:c\n")
	for _, c := range []struct {
		name          string
		change        map[string]string
		args          []string
		endpoint, key string
	}{
		{"directory", map[string]string{"MAAS_ENDPOINT": "", "MAAS_API_KEY": ""}, nil, "http://in.dir/MAAS", "in:dir:c"},
		{"variables", nil, nil, "http://maas.example.com:5240/MAAS", "a:b:c"},
		{"key file", nil, []string{"--maas-api-key-file=" + keyFile}, "http://maas.example.com:5240/MAAS", "in:file:c"},
		{"endpoint alone", map[string]string{"MAAS_API_KEY": ""}, nil, "http://maas.example.com:5240/MAAS", "in:dir:c"},
	} {
		env := valid()
		env["MAAS_CONFIG_DIR"] = dir
		for variable, value := range c.change {
			env[variable] = value
		}
		opts, err := parse(env, c.args...)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if config, err := opts.credentials.config(); err != nil || config.Endpoint != c.endpoint || config.APIKey != c.key {
			t.Errorf("%s: they are %+v, %v", c.name, config, err)
		}
	}
}
