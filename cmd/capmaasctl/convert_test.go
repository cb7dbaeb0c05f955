// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	oldCluster = "apiVersion: infrastructure.cluster.x-k8s.io/v1alpha4\nkind: MaasCluster\nmetadata: {name: c}\nspec: {dnsDomain: maas, failureDomains: [a]}\n"
	newCluster = "apiVersion: infrastructure.cluster.x-k8s.io/v1beta1\nkind: MaasCluster\nmetadata: {name: c}\nspec: {dnsDomain: maas, failureDomains: [a]}\n"
	other      = "kind:   ConfigMap\napiVersion: v1\n"
)

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func convertWith(t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	return call(t, stdin, nil, append([]string{"capmaasctl", "convert"}, args...)...)
}

func TestConvertReadsStandardInputAndFiles(t *testing.T) {
	first, second := write(t, "first", oldCluster), write(t, "second", strings.TrimSuffix(other, "\n"))
	for name, tc := range map[string]struct {
		stdin string
		args  []string
		want  string
	}{
		"standard input":         {oldCluster, nil, newCluster},
		"standard input by name": {oldCluster, []string{"-f", "-", "--output-file", "-"}, newCluster},
		"a file":                 {"", []string{"--filename", first}, newCluster},
		"several files":          {"---\n" + other, []string{"-f", second, "-f", first, "-f", "-"}, other + "---\n" + newCluster + "---\n" + other},
	} {
		t.Run(name, func(t *testing.T) {
			got := convertWith(t, tc.stdin, tc.args...)
			if got.code != exitOK || got.stdout != tc.want || got.err != "" {
				t.Errorf("exit code %d, output %q, standard error %q; want the output %q", got.code, got.stdout, got.err, tc.want)
			}
		})
	}
}

func TestConvertWritesAFileThatItReads(t *testing.T) {
	path := write(t, "manifests.yaml", oldCluster)
	if got := convertWith(t, "", "-f", path, "--output-file", path); got.code != exitOK || got.stdout != "" {
		t.Errorf("exit code %d, output %q: %s", got.code, got.stdout, got.err)
	}
	content, err := os.ReadFile(path)
	if err != nil || string(content) != newCluster {
		t.Errorf("the file has %q (%v)", content, err)
	}
}

// The output may be applied with kubectl at once.
func TestConvertWritesAllOrNothing(t *testing.T) {
	bad := strings.Replace(oldCluster, "dnsDomain", "domain", 1)
	lossy := strings.Replace(oldCluster, "dnsDomain", "lxdConfig: {zone: z}, dnsDomain", 1)
	for name, tc := range map[string]struct {
		stdin string
		args  []string
		code  int
		said  string // on standard error
	}{
		"an error":                      {other + "---\n" + bad, nil, exitFailed, "-:7: error: MaasCluster c: spec.domain:"},
		"an error, and loss is allowed": {bad, []string{"--allow-loss"}, exitFailed, "spec.domain"},
		"a loss":                        {lossy, nil, exitFailed, "-:4: loss: MaasCluster c: spec.lxdConfig.zone:"},
		"a loss that is allowed":        {lossy, []string{"--allow-loss"}, exitOK, "spec.lxdConfig.zone"},
		"nothing":                       {" \n", nil, exitFailed, "the standard input is empty"},
		"a file of nothing":             {"", []string{"-f", write(t, "nothing", "")}, exitFailed, "nothing is empty"},
		"a file that is not there":      {"", []string{"-f", filepath.Join(t.TempDir(), "none")}, exitFailed, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "out.yaml")
			got := convertWith(t, tc.stdin, append(tc.args, "--output-file", path)...)
			if got.code != tc.code || got.stdout != "" {
				t.Errorf("exit code %d, want %d; output %q", got.code, tc.code, got.stdout)
			}
			if !strings.Contains(got.err, tc.said) {
				t.Errorf("standard error has no %q: %s", tc.said, got.err)
			}
			if _, err := os.Stat(path); (err == nil) != (tc.code == exitOK) {
				t.Errorf("the file is there: %v", err == nil)
			}
		})
	}
}

func TestConvertFailsWhereItCantWrite(t *testing.T) {
	got := convertWith(t, oldCluster, "--output-file", filepath.Join(t.TempDir(), "none", "out.yaml"))
	if got.code != exitFailed || got.stdout != "" {
		t.Errorf("exit code %d, output %q", got.code, got.stdout)
	}
}

func TestConvertsUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"an argument without a flag": {"x.yaml"},
		"a file without a name":      {"-f", ""},
		"no file to write to":        {"--output-file", ""},
		"standard input, twice":      {"-f", "-", "-f", "-"},
		"a flag of the others":       {"--timeout", "1m"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := convertWith(t, oldCluster, args...); got.code != exitUsage || got.stdout != "" {
				t.Errorf("exit code %d, output %q", got.code, got.stdout)
			}
		})
	}
	if got := convertWith(t, "", "--help"); got.code != exitOK || !strings.Contains(got.stdout, "--allow-loss") {
		t.Errorf("help has exit code %d: %s", got.code, got.stdout)
	}
}
