// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	dumpTimeout = time.Minute
	// lastLines is how much of the manager's log about a cluster is shown.
	lastLines = 40
	// lastCalls is how many changing calls to MAAS are shown, of all clusters.
	lastCalls = 400
)

// dump shows how a cluster is.
func (a *assault) dump(ctx context.Context, cluster string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dumpTimeout)
	defer cancel()
	var out strings.Builder
	list := &infrav1.MaasMachineList{}
	if err := box.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		fmt.Fprintln(&out, err)
	}
	for _, m := range list.Items {
		if strings.HasPrefix(m.Name, cluster+"-") {
			fmt.Fprintf(&out, "%s %s %s deleted=%v %v\n  %s\n", m.Name, m.Spec.SystemID, m.Status.MachineState, m.DeletionTimestamp, m.Annotations,
				strings.ReplaceAll(sandbox.Conditions(m.Status.Conditions), "; ", "\n  "))
		}
	}
	for _, m := range slices.Concat(box.MAAS.Machines(), box.MAAS.Devices()) {
		fmt.Fprintf(&out, "in MAAS: %s %s %s power=%s host=%s agent=%s addresses=%v\n", m.SystemID, m.Hostname, m.Status, m.Power, m.VMHost, m.AgentName, m.Addresses)
	}
	calls := slices.DeleteFunc(box.MAAS.Calls().Log, func(call simulator.Call) bool { return call.Method == http.MethodGet })
	for _, call := range calls[max(0, len(calls)-lastCalls):] {
		fmt.Fprintf(&out, "%s %s: %s %s op=%s %s -> %d\n", call.Time.Format(time.TimeOnly), call.User, call.Method, call.Endpoint, call.Op, call.SystemID, call.Status)
	}
	logged, err := managerLog()
	if err != nil {
		fmt.Fprintln(&out, err)
	}
	about := slices.DeleteFunc(logged, func(line string) bool { return !strings.Contains(line, cluster+"-") })
	out.WriteString(strings.Join(last(about), "\n"))
	return out.String()
}

// managerLog returns the lines of the logs of all managers.
func managerLog() (lines []string, err error) {
	names, err := filepath.Glob(filepath.Join(box.LogDir, "*"+sandbox.ManagerContainer+"*.log"))
	if err != nil {
		return nil, fmt.Errorf("finding the manager's logs: %w", err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("reading the manager's log: %w", err)
		}
		lines = append(lines, strings.Split(strings.TrimSpace(string(data)), "\n")...)
	}
	return lines, nil
}
