// SPDX-License-Identifier: Apache-2.0

package flows_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/document"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
)

// drain empties the only host of a zone, with the commands of the document, and returns it into service. The manager dies
// meanwhile. At no moment does more than one control plane lack.
func drain(l *life.Life) {
	const name = "lxd-b1"
	controlPlanes, _ := l.MaasMachines()
	at := slices.IndexFunc(controlPlanes, func(m infrav1.MaasMachine) bool { return m.Status.LXDHost == name })
	if at < 0 {
		l.Fatal("no control plane is on " + name)
	}
	was := controlPlanes[at]
	shell := maintenance(l.T)
	shell.Rename("lxd-a", name)
	shell.Run(l.T, "enable")

	endWatch := life.WatchQuorum(l.T, life.Replicas{Life: l, ControlPlanes: len(controlPlanes)})
	command := shell.Command(l.Within(document.StepTimeout), l.T, "drain")
	drained := make(chan error, 1)
	go func() {
		out, err := command.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		drained <- err
	}()
	l.Wait("the control plane to leave", func() (bool, string, error) {
		leaving := slices.ContainsFunc(l.Machines(), func(m clusterv1.Machine) bool { return !m.DeletionTimestamp.IsZero() })
		return leaving, "", nil
	})
	if err := l.Box.Manager.Kill(); err != nil {
		l.Fatal(err)
	}
	if err := <-drained; err != nil {
		l.Fatal(err)
	}
	l.Available(len(controlPlanes))
	endWatch()
	now, _ := l.MaasMachines()
	if slices.ContainsFunc(now, func(m infrav1.MaasMachine) bool { return m.Name == was.Name || m.Status.LXDHost == name }) {
		l.Error("it is not another control plane elsewhere")
	}
	shell.Run(l.T, "kubectl")
	shell.Run(l.T, "why")
	shell.Write(l.T, "ssh", []byte("#!/bin/sh\necho \"$@\" > \"$HOME/rebooted\"\n"), 0o700) // The operator's part.
	shell.Run(l.T, "reboot")
	if rebooted, err := os.ReadFile(filepath.Join(shell.Home, "rebooted")); string(rebooted) != name+" sudo reboot\n" {
		l.Errorf("rebooted: %q, %v", rebooted, err)
	}
	shell.Run(l.T, "refresh")
	l.Wait("control planes to be wanted in its zone again", func() (bool, string, error) {
		cluster := &clusterv1.Cluster{}
		err := l.Box.Client.Get(l.Context(), l.Key, cluster)
		wanted := slices.ContainsFunc(cluster.Status.FailureDomains, func(d clusterv1.FailureDomain) bool {
			return d.Name == was.Status.FailureDomain && d.ControlPlane != nil && *d.ControlPlane
		})
		return wanted, fmt.Sprint(cluster.Status.FailureDomains), err
	})
}

// maintenance opens the document about hosts.
func maintenance(t *testing.T) *document.Shell {
	t.Helper()
	shell := document.Open(t, "../../docs/maintenance.md", "KUBECONFIG="+box.KubeconfigPath)
	if shell.Unmarked != 0 {
		t.Errorf("%d of the document's commands are not run", shell.Unmarked)
	}
	charts, err := filepath.Abs("../../charts")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(charts, filepath.Join(shell.Dir, "charts")); err != nil {
		t.Fatal(err)
	}
	return shell
}
