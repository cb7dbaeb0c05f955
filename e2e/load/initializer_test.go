// SPDX-License-Identifier: Apache-2.0

package load_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/kubelet"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

// hostLimit bounds the time in which a host cluster comes up.
const hostLimit = 5 * time.Minute

// BenchmarkInitializer makes a host cluster of one machine in a sandbox, and reports what the LXD initializer needed to
// make the node a host, and what it needs afterwards. The chart makes it check its node once a minute.
func BenchmarkInitializer(b *testing.B) {
	lxdtest.Require(b)
	ctx, cancel := context.WithTimeout(b.Context(), hostLimit)
	defer cancel()
	region, err := sandbox.RegionWithoutVMHosts()
	if err != nil {
		b.Fatal(err)
	}
	box, err := sandbox.Start(ctx, sandbox.Options{Region: region, LXD: sandbox.LXDRequired, TimeScale: 300, Eager: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := box.Stop(); err != nil {
			b.Error(err)
		}
	})
	pid := makeHost(ctx, b, box)
	b.ReportMetric(usageOf(b, pid).cpu.Seconds(), "cpu-s-to-make")
	reportIdle(b, pid)
}

// makeHost makes a host cluster of one machine, and returns the process id of its initializer.
func makeHost(ctx context.Context, b *testing.B, box *sandbox.Sandbox) int {
	b.Helper()
	key := client.ObjectKey{Namespace: namespace, Name: "hosts"}
	manifest, err := box.Flavor("lxd-host", map[string]string{
		"NAMESPACE": key.Namespace, "CLUSTER_NAME": key.Name, "KUBERNETES_VERSION": "v1.35.0", "MAAS_DNS_DOMAIN": "maas.sim",
		"MAAS_IMAGE": "u-2204-k8s-1.35", "LXD_STORAGE_BACKEND": "dir", "WORKER_MACHINE_COUNT": "0",
		"CONTROL_PLANE_MACHINE_RESOURCEPOOL": "capi", "WORKER_MACHINE_RESOURCEPOOL": "capi",
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := box.ApplyYAML(ctx, strings.NewReader(manifest)); err != nil {
		b.Fatal(err)
	}
	if err := eventually.Wait(ctx, "the node to be a VM host", func() (bool, string, error) {
		cluster := &infrav1.MaasCluster{}
		err := box.Client.Get(ctx, key, cluster)
		return conditions.IsTrue(cluster, infrav1.LXDReadyCondition), sandbox.Conditions(cluster.Status.Conditions), err
	}); err != nil {
		b.Fatal(err)
	}
	containers := box.HostNodes()[0].Kubelet.Containers()
	at := slices.IndexFunc(containers, func(c kubelet.Container) bool { return c.Name == sandbox.InitializerContainer })
	return containers[at].PID
}
