// SPDX-License-Identifier: Apache-2.0

package life

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/capi"
)

const (
	dumpTimeout = time.Minute
	logTail     = 6000
	lastCalls   = 40
)

// Dump shows how everything is.
func Dump(t *testing.T, box *sandbox.Sandbox) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), dumpTimeout)
	defer cancel()
	var out strings.Builder
	dumpObjects(ctx, box, &out)
	out.WriteString("\nMachines in MAAS, and VMs that LXD alone has:\n")
	for _, m := range box.Machines() {
		fmt.Fprintf(&out, "  %s %s %s power=%s zone=%s host=%s agent=%s addresses=%v\n",
			m.SystemID, m.Hostname, m.Status, m.Power, m.Zone, m.VMHost, m.AgentName, m.Addresses)
	}
	out.WriteString("\nThe last calls to MAAS:\n")
	calls := box.MAAS.Calls().Log
	for _, call := range calls[max(0, len(calls)-lastCalls):] {
		fmt.Fprintf(&out, "  %s %s %s op=%s ?%s %s -> %d\n", call.Time.Format(time.TimeOnly), call.Method, call.Endpoint, call.Op, call.Query, call.SystemID, call.Status)
	}
	logs, _ := filepath.Glob(filepath.Join(box.LogDir, "*.log"))
	for _, name := range logs {
		wanted := slices.ContainsFunc([]string{sandbox.ManagerContainer, sandbox.InitializerContainer, capi.ExternalLog}, func(part string) bool {
			return strings.Contains(filepath.Base(name), part)
		})
		if data, err := os.ReadFile(name); err == nil && wanted {
			fmt.Fprintf(&out, "\nThe end of %s:\n%s\n", filepath.Base(name), data[max(0, len(data)-logTail):])
		}
	}
	t.Log(out.String())
}

func dumpObjects(ctx context.Context, box *sandbox.Sandbox, out *strings.Builder) {
	show := func(kind, name string, conditions []metav1.Condition, more string) {
		fmt.Fprintf(out, "%s %s %s\n  %s\n", kind, name, more, strings.ReplaceAll(sandbox.Conditions(conditions), "; ", "\n  "))
	}
	clusters, maasClusters := &clusterv1.ClusterList{}, &infrav1.MaasClusterList{}
	controlPlanes := &controlplanev1.KubeadmControlPlaneList{}
	machines, maasMachines := &clusterv1.MachineList{}, &infrav1.MaasMachineList{}
	for _, list := range []client.ObjectList{clusters, maasClusters, controlPlanes, machines, maasMachines} {
		if err := box.Client.List(ctx, list); err != nil {
			fmt.Fprintln(out, err)
		}
	}
	for _, o := range clusters.Items {
		show("Cluster", o.Name, o.Status.Conditions, fmt.Sprint(o.Spec.ControlPlaneEndpoint.Host, " ", box.MAAS.Lookup(o.Spec.ControlPlaneEndpoint.Host)))
	}
	for _, o := range maasClusters.Items {
		show("MaasCluster", o.Name, o.Status.Conditions, "")
	}
	for _, o := range controlPlanes.Items {
		show("KubeadmControlPlane", o.Name, o.Status.Conditions, "")
	}
	for _, o := range machines.Items {
		show("Machine", o.Name, o.Status.Conditions, o.Status.Phase)
	}
	for _, o := range maasMachines.Items {
		show("MaasMachine", o.Name, o.Status.Conditions, fmt.Sprintf("%s %s %v %v", o.Spec.SystemID, o.Status.MachineState, o.Finalizers, o.Annotations))
	}
}
