// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"bufio"
	"bytes"
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
	dumpTimeout = 10 * time.Second
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
	out.WriteString(managerLog(cluster + "-"))
	return out.String()
}

// managerLog are the last lines of the manager's log that have a text in them.
func managerLog(text string) string {
	names, err := filepath.Glob(filepath.Join(box.LogDir, "*"+sandbox.ManagerContainer+"*.log"))
	if err != nil {
		return err.Error()
	}
	var lines []string
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return err.Error()
		}
		for scanner := bufio.NewScanner(bytes.NewReader(data)); scanner.Scan(); {
			if strings.Contains(scanner.Text(), text) {
				lines = append(lines, scanner.Text())
			}
		}
	}
	return strings.Join(lines[max(0, len(lines)-lastLines):], "\n")
}
