// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
	"github.com/capmaas/cluster-api-provider-maas/test/golden"
)

const (
	secret  = "s3cr3tPartOfTheKey"
	goodKey = "consumer:token:" + secret
)

// resolve returns the options that the program makes from its arguments.
func resolve(t *testing.T, stdin string, env []string, args ...string) (options, []string, string) {
	t.Helper()
	var warnings strings.Builder
	s := surroundings{in: strings.NewReader(stdin), err: &warnings, getenv: func(name string) string {
		at := slices.IndexFunc(env, func(pair string) bool { return strings.HasPrefix(pair, name+"=") })
		if at < 0 {
			return ""
		}
		return env[at][len(name)+1:]
	}}
	p, root, words := newProgram(s, args...)
	c, rest, err := root.Find(words)
	this := p.doers[c]
	if err != nil || this == nil {
		t.Fatalf("%q is no command (%v)", args, err)
	}
	if err := c.ParseFlags(rest); err != nil {
		t.Fatal(err)
	}
	problems := this.options.complete(this.command, c.Flags(), s)
	return this.options, problems, warnings.String()
}

func TestTheFlagsOfTheTestPrograms(t *testing.T) {
	opts, problems, _ := resolve(t, "", nil, "./lxd-test-linux", "--storage-backend=btrfs", "--storage-size=20", "--network-bridge=br1")
	want := lxdnode.Config{
		StoragePool: "default", StorageBackend: "btrfs", StorageSizeGB: 20, NetworkBridge: "br1", Project: "maas",
	}
	if diff := cmp.Diff(want, opts.node); diff != "" || len(problems) > 0 || opts.apply {
		t.Errorf("lxd-test: %s\nproblems %q, apply %v", diff, problems, opts.apply)
	}
	for _, program := range [][]string{{"./vmhost-test-linux"}, {"./maas-test-linux", "--test-vm-host"}} {
		opts, problems, warning := resolve(t, "", nil, append(program, "--node-ip=192.0.2.7",
			"--maas-endpoint=http://maas:5240/MAAS", "--maas-api-key="+goodKey, "--zone=default", "--resource-pool=pool")...)
		if len(problems) > 0 || opts.apply || opts.testVMHost != (len(program) > 1) {
			t.Errorf("%s: problems %q, apply %v, test %v", program[0], problems, opts.apply, opts.testVMHost)
		}
		got := []string{opts.nodeIP, opts.maas.Endpoint, opts.maas.APIKey, opts.zone, opts.resourcePool}
		if diff := cmp.Diff([]string{"192.0.2.7", "http://maas:5240/MAAS", goodKey, "default", "pool"}, got); diff != "" {
			t.Errorf("%s: %s", program[0], diff)
		}
		if warning == "" || strings.Contains(warning, secret) {
			t.Errorf("%s: a key on the command line is worth a warning that does not repeat it; got %q", program[0], warning)
		}
	}
}

func TestWhereTheKeyComesFrom(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(goodKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := "MAAS_API_KEY=a:b:c"
	for name, tc := range map[string]struct {
		stdin string
		env   []string
		args  []string
	}{
		"environment":              {env: []string{"MAAS_API_KEY=" + goodKey}},
		"file, before environment": {env: []string{other}, args: []string{"--maas-api-key-file", file}},
		"standard input":           {stdin: goodKey + "\n", args: []string{"--maas-api-key-file=-"}},
		"flag, before environment": {env: []string{other}, args: []string{"--maas-api-key", goodKey}},
	} {
		t.Run(name, func(t *testing.T) {
			env := append([]string{"MAAS_ENDPOINT=http://maas/MAAS"}, tc.env...)
			opts, problems, warning := resolve(t, tc.stdin, env, append([]string{"capmaasctl", "check", "maas"}, tc.args...)...)
			if len(problems) > 0 || opts.maas.APIKey != goodKey || opts.maas.Endpoint != "http://maas/MAAS" {
				t.Errorf("problems %q, key %q, endpoint %q", problems, opts.maas.APIKey, opts.maas.Endpoint)
			}
			if onCommandLine := strings.HasPrefix(name, "flag"); (warning != "") != onCommandLine {
				t.Errorf("the warning is %q", warning)
			}
		})
	}
}

// An upload takes as long as it takes; no other command is bounded by what it has no flag for.
func TestWhatHasATimeout(t *testing.T) {
	_, root, _ := newProgram(surroundings{}, "capmaasctl")
	upload, _, err := root.Find([]string{"image", "upload"})
	if err != nil {
		t.Fatal(err)
	}
	if flag := upload.Flags().Lookup("timeout"); flag == nil || flag.DefValue != "0s" {
		t.Errorf("an upload has the timeout %+v", flag)
	}
	for _, has := range []bool{true, false} {
		c := command{hasTimeout: has, act: func(ctx context.Context, _ options, _ surroundings) int {
			if _, is := ctx.Deadline(); is != has {
				t.Errorf("with a flag for it: %t; it is bounded: %t", has, is)
			}
			return exitOK
		}}
		c.run(t.Context(), defaultOptions(), surroundings{})
	}
}

// All that is wrong is said at once, and each complaint names its flag.
func TestAllProblemsAreReportedAtOnce(t *testing.T) {
	notPEM := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(notPEM, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	endpoint, key := "--maas-endpoint=http://maas/MAAS", "MAAS_API_KEY="+goodKey
	sentences := map[string]string{}
	for name, tc := range map[string]struct {
		env  []string
		args []string
	}{
		"nothing given": {nil, []string{"check", "vm-host"}},
		"LXD": {nil, []string{"check", "lxd", "--storage-backend=ceph", "--storage-size=0", "--network-bridge=", "--project=a/b",
			"--storage-pool=a/b", "--listen=8443", "--timeout=-1s", "-o", "xml"}},
		"bad MAAS":                        {nil, []string{"check", "maas", "--maas-endpoint=maas", "--maas-api-key=nokey", "--maas-ca-file", notPEM}},
		"two keys":                        {nil, []string{"check", "maas", endpoint, "--maas-api-key=" + goodKey, "--maas-api-key-file=-"}},
		"a key in place of a file":        {nil, []string{"check", "maas", endpoint, "--maas-api-key-file=" + goodKey, "--maas-ca-file=/none"}},
		"an empty key":                    {nil, []string{"check", "maas", endpoint, "--maas-api-key="}},
		"bad VM host":                     {[]string{key}, []string{"check", "vm-host", endpoint, "--node-ip=node1", "--port=0", "--project=", "--socket=/s"}},
		"VM host, but not asked for":      {[]string{key}, []string{"check", "maas", endpoint, "--node-ip=192.0.2.1", "--vm-host-name=n", "--zone=z"}},
		"bad orphans":                     {[]string{key, "KUBECONFIG=/none"}, []string{"orphans", endpoint, "--settle-time=-1s"}},
		"no time for orphans, no cluster": {[]string{key}, []string{"orphans", endpoint, "--timeout=1m"}},
		"no such kubeconfig":              {nil, []string{"machines", "list", "--kubeconfig=/none"}},
		"a context of no kubeconfig":      {nil, []string{"explain", "maasmachine", "m", "--context=typo"}},
	} {
		got := call(t, "", tc.env, append([]string{"capmaasctl"}, tc.args...)...)
		if got.code != exitUsage || got.stdout != "" {
			t.Errorf("%s: exit code %d, output %q", name, got.code, got.stdout)
		}
		if strings.Contains(got.err, secret) {
			t.Errorf("%s: the key is in what it says: %s", name, got.err)
		}
		sentences[name] = strings.ReplaceAll(got.err, notPEM, "FILE")
	}
	golden.Sentences(t, "capmaasctl-flags.txt", sentences)
}

// A flag that is wrong is named. Its value, which may be a key, is not repeated where the flag is unknown.
func TestWrongFlags(t *testing.T) {
	sentences := map[string]string{}
	for _, flag := range []string{
		"--zone=" + secret, "--apply", "-maas-api-key=" + goodKey, "--maas-api-keys=" + goodKey, "--=" + secret, "--timeout=soon",
		"--test-vm-host=maybe", "--port=99999", "--maas-ca-file",
	} {
		command := "maas"
		if flag == "--zone="+secret {
			command = "lxd"
		}
		got := call(t, "", nil, "capmaasctl", "check", command, flag)
		if got.code != exitUsage || got.stdout != "" {
			t.Errorf("%s: %+v", flag, got)
		}
		if strings.Contains(got.err, secret) {
			t.Errorf("%s: the key is in what it says: %s", flag, got.err)
		}
		name, _, _ := strings.Cut(flag, "=")
		sentences[name] = got.err
	}
	golden.Sentences(t, "capmaasctl-wrong-flags.txt", sentences)
}
