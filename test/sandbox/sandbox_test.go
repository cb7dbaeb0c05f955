// SPDX-License-Identifier: Apache-2.0

package sandbox_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// start starts a sandbox for one test, and shows the ends of its logs when the test fails.
func start(t *testing.T, options sandbox.Options) *sandbox.Sandbox {
	t.Helper()
	options.Progress = func(phase string) { t.Log(phase) }
	s, err := sandbox.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			showLogs(t, s.LogDir)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func showLogs(t *testing.T, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Log(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Log(err)
			continue
		}
		const most = 4000
		t.Logf("%s:\n%s", file, data[max(0, len(data)-most):])
	}
}

func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func TestClusterAPIStartsAndStops(t *testing.T) {
	children, listeners := childProcesses(t), listening(t)
	s := start(t, sandbox.Options{Parts: sandbox.ClusterAPI})
	if err := s.Client.List(t.Context(), &clusterv1.ClusterList{}); err != nil {
		t.Error(err)
	}
	if err := s.ApplyYAML(within(t, eventually.Limit), strings.NewReader(invalidCluster)); err == nil {
		t.Error("the webhooks accept a Cluster without anything in it")
	}
	if got := childProcesses(t); len(got) != len(children)+3 {
		t.Errorf("%d child processes, want 3 more than %d", len(got), len(children))
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(children, childProcesses(t)); diff != "" {
		t.Errorf("child processes (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(listeners, listening(t)); diff != "" {
		t.Errorf("listeners (-before +after):\n%s", diff)
	}
	if _, err := os.Stat(s.WorkDir()); !os.IsNotExist(err) {
		t.Errorf("%s is still there (%v)", s.WorkDir(), err)
	}
}

// invalidCluster refers to its infrastructure in another namespace, which the webhook refuses.
const invalidCluster = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: invalid}
spec:
  topology: {classRef: {name: missing}, version: not-a-version}
`

// childProcesses are the commands of this process's children, by process id.
func childProcesses(t *testing.T) map[int]string {
	t.Helper()
	children := map[int]string{}
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		data, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for word := range strings.FieldsSeq(string(data)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			name, _ := os.ReadFile(filepath.Join("/proc", word, "comm"))
			children[pid] = strings.TrimSpace(string(name))
		}
	}
	return children
}

// listening are the local addresses that this process listens on.
func listening(t *testing.T) []string {
	t.Helper()
	mine := map[string]bool{}
	descriptors, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, descriptor := range descriptors {
		if target, err := os.Readlink(descriptor); err == nil && strings.HasPrefix(target, "socket:[") {
			mine[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")] = true
		}
	}
	var addresses []string
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		data, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			const stateListen = "0A"
			if f := strings.Fields(line); len(f) > 9 && f[3] == stateListen && mine[f[9]] {
				addresses = append(addresses, f[1])
			}
		}
	}
	return addresses
}
