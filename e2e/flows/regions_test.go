// SPDX-License-Identifier: Apache-2.0

package flows_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/e2e/ledger"
	"github.com/capmaas/cluster-api-provider-maas/e2e/life"
	"github.com/capmaas/cluster-api-provider-maas/e2e/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
)

const (
	elsewhereKey = "elsewhere:c9WmQ4tLzX2vBnRk:Zp8sDf3GhJ6kLqW1eRtY5uIoPaXcVb7N"

	elsewhere = `
users: [{name: admin, admin: true, keys: ["` + elsewhereKey + `"]}]
zones: [{name: cellar}]
domains: [{name: maas.sim, default: true}]
subnets: [{cidr: 10.88.0.0/24, gateway: 10.88.0.1, dhcp: true, dynamic_ranges: [{start: 10.88.0.200, end: 10.88.0.254}]}]
images: [{name: ubuntu/jammy}]
vm_hosts: [{name: lxd-cellar, zone: cellar, cores: 16, memory: 65536, storage_pools: [{name: default, type: zfs, size: 500}]}]
`

	// withCredentials is a cluster of one VM that boots into nothing: whether a cluster comes of it does not matter here.
	withCredentials = `
apiVersion: v1
kind: Secret
metadata: {name: NAME-maas, namespace: default}
stringData: {endpoint: ENDPOINT, apiKey: "KEY"}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: NAME, namespace: default}
spec:
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: MaasCluster, name: NAME}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: MaasCluster
metadata: {name: NAME, namespace: default}
spec: {dnsDomain: maas.sim, credentialsRef: {name: NAME-maas}}
---
apiVersion: v1
kind: Secret
metadata: {name: NAME, namespace: default, labels: {cluster.x-k8s.io/cluster-name: NAME}}
type: cluster.x-k8s.io/secret
stringData: {value: "#cloud-config\n{}\n", format: cloud-config}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: MaasMachine
metadata: {name: NAME, namespace: default, labels: {cluster.x-k8s.io/cluster-name: NAME, cluster.x-k8s.io/control-plane: ""}}
spec: {provisioningMode: lxd, image: ubuntu/jammy}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {name: NAME, namespace: default, labels: {cluster.x-k8s.io/cluster-name: NAME, cluster.x-k8s.io/control-plane: ""}}
spec:
  clusterName: NAME
  version: v1.35.0
  bootstrap: {dataSecretName: NAME}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: MaasMachine, name: NAME}
`
)

// anotherMAAS is a second region beside the sandbox's.
func anotherMAAS(t *testing.T) (region *simulator.Simulator, endpoint string) {
	t.Helper()
	description, err := simulator.LoadRegion(strings.NewReader(elsewhere))
	if err != nil {
		t.Fatal(err)
	}
	region, err = simulator.New(description, simulator.Options{TimeScale: 300})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: region.Handler(), ConnState: region.ConnState, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-done
		region.Close()
	})
	return region, "http://" + listener.Addr().String() + "/MAAS"
}

// Two clusters with credentials of their own, in two regions: each has what it has in its own region, and a key that is revoked harms no
// other cluster.
func TestCredentialsPerCluster(t *testing.T) {
	there, endpoint := anotherMAAS(t)
	before := there.State()
	manifest := func(name, endpoint, key string) string {
		return strings.NewReplacer("NAME", name, "ENDPOINT", endpoint, "KEY", key).Replace(withCredentials)
	}
	a := life.Begin(t, box, "here")
	a.Create(manifest("here", box.MAASURL, box.MAASAPIKey))
	key := client.ObjectKey{Namespace: life.Namespace, Name: "there"}
	if err := box.ApplyYAML(a.Within(time.Minute), strings.NewReader(manifest("there", endpoint, elsewhereKey))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.DeleteCluster(t.Context(), key); err != nil {
			t.Error(err)
		}
	})
	waitProvisioned(a, a.Key)
	waitProvisioned(a, key)
	for name, region := range map[string]*simulator.Simulator{"here": box.MAAS, "there": there} {
		for _, m := range region.Machines() {
			if m.VMHost != "" && !strings.HasPrefix(m.Hostname, name) {
				t.Errorf("the region of %s has the VM %s", name, m.Hostname)
			}
		}
	}

	// Somebody puts a wrong key into the Secret of one.
	if err := box.ApplyYAML(a.Within(time.Minute), strings.NewReader(manifest("there", endpoint, elsewhereKey+"0"))); err != nil {
		t.Fatal(err)
	}
	cluster := &infrav1.MaasCluster{}
	a.Wait("the cluster with the wrong key to say so", func() (bool, string, error) {
		err := box.Client.Get(t.Context(), key, cluster)
		return conditions.GetReason(cluster, infrav1.ReadyCondition) == infrav1.CredentialsInvalidReason, sandbox.Conditions(cluster.Status.Conditions), err
	})
	waitProvisioned(a, a.Key)
	if err := box.ApplyYAML(a.Within(time.Minute), strings.NewReader(manifest("there", endpoint, elsewhereKey))); err != nil {
		t.Fatal(err)
	}
	waitProvisioned(a, key)
	if err := box.DeleteCluster(a.Within(time.Minute), key); err != nil {
		t.Fatal(err)
	}
	left, err := ledger.Remains(before, there.State())
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("left in the other region (- before, + after):\n%s", strings.Join(left, "\n"))
	}
	a.Delete()
}

// waitProvisioned waits until the only machine of a cluster is Ready.
func waitProvisioned(l *life.Life, key client.ObjectKey) {
	l.Helper()
	machine := &infrav1.MaasMachine{}
	l.Wait(fmt.Sprintf("the machine %s to be provisioned", key.Name), func() (bool, string, error) {
		err := box.Client.Get(l.Context(), key, machine)
		done := ptr.Deref(machine.Status.Initialization.Provisioned, false) && conditions.IsTrue(machine, infrav1.ReadyCondition)
		return done, sandbox.Conditions(machine.Status.Conditions), client.IgnoreNotFound(err)
	})
}
