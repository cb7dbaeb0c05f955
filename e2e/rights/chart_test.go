// SPDX-License-Identifier: Apache-2.0

package rights_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/charts"
	"github.com/capmaas/cluster-api-provider-maas/e2e/rights"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/ipam"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
)

const (
	startTimeout = 10 * time.Minute
	shortTimeout = 5 * time.Minute
	// checkPod is the pod of helm test.
	checkPod = sandbox.Release + "-check"
)

var (
	manager     = client.ObjectKey{Namespace: sandbox.Namespace, Name: sandbox.Release + "-manager"}
	initializer = client.ObjectKey{Namespace: sandbox.Namespace, Name: charts.InitializerName}
)

// unusedByManager are rights that the chart grants and that these lives don't need, with the reason why they are
// granted.
var unusedByManager = map[string]string{
	"adopt maasclusters.infrastructure.cluster.x-k8s.io":      "the policy for owner ids asks for it: the manager's request is a patch",
	"delete maasclusters.infrastructure.cluster.x-k8s.io":     "the API server asks for it when the manager makes a Cluster a MaasCluster's owner: the manager's request is a patch",
	"patch events.events.k8s.io":                              "an event that happens again is patched: here each tells of something else",
	"create secrets":                                          "the API server asks for it when server-side apply makes an object: the manager's request is a patch",
	"patch ipaddressclaims.ipam.cluster.x-k8s.io":             "the claim of a VM that may run on a host which can't be asked is patched: here each host can be asked",
	"get machinesets.cluster.x-k8s.io":                        "a machine is kept if its owner lacks one, and the owner here is a MachineDeployment",
	"get ck8scontrolplanes.controlplane.cluster.x-k8s.io":     "a cluster's control plane may be of this kind, which is not in the sandbox",
	"get microk8scontrolplanes.controlplane.cluster.x-k8s.io": "a cluster's control plane may be of this kind, which is not in the sandbox",
	"get kthreescontrolplanes.controlplane.cluster.x-k8s.io":  "a cluster's control plane may be of this kind, which is not in the sandbox",
	"get rke2controlplanes.controlplane.cluster.x-k8s.io":     "a cluster's control plane may be of this kind, which is not in the sandbox",
}

// unusedByInitializer are the same of the initializer.
var unusedByInitializer = map[string]string{
	"patch events in default": "an event that happens again is patched: the initializer tells of failures, and looks at its node once a minute",
}

// The rights of the chart's ServiceAccounts are enough for a cluster with all that the manager asks Kubernetes for and
// for host clusters, with VM hosts of MAAS and without, and nothing is granted that these don't need; so are those for
// emptying hosts, where that is enabled. That they are enough for clusters of all kinds is
// seen in e2e/flows and e2e/hosts. On the way, helm test proves good credentials.
func TestTheChartGrantsJustWhatIsUsed(t *testing.T) {
	lxdtest.Require(t) // A host cluster alone needs all rights.
	box := start(t)
	log := rights.Open(box.AuditLog())
	granted := grantedTo(t, box.Client, box.RESTConfig, manager)
	life.Together(t, box, map[string]func(*life.Life){"own": leadOwn, "host": leadHost})
	t.Run("Metrics", func(t *testing.T) { askForMetrics(t, box) })
	t.Run("HelmTest", func(t *testing.T) {
		if err := box.Manager.Test(); err != nil {
			t.Errorf("%v: %s", err, whatTheCheckSaid(t, box))
		}
	})
	uses := usesOf(t, log, manager)

	t.Run("Evacuation", func(t *testing.T) { leadEvacuation(t, box, log) })
	t.Run("OneNamespace", func(t *testing.T) {
		upgrade(t, box, map[string]any{"watchNamespace": life.Namespace})
		narrow := life.Begin(t, box, "narrow")
		makeOwn(narrow)
		removeOwn(narrow)
		usesOf(t, log, manager)
	})
	t.Run("WithoutVMHosts", func(t *testing.T) {
		leadHostWithoutVMHosts(t, box)
		uses = append(uses, usesOf(t, log, manager)...)
	})
	check(t, manager, granted, uses, unusedByManager)
}

func start(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	region, err := regionWithNodesUser()
	if err != nil {
		t.Fatal(err)
	}
	box, err := sandbox.Start(ctx, sandbox.Options{
		Region: region,
		Audit:  true, Eager: true, NoDeprecated: true,
		// MAAS's durations don't matter here.
		TimeScale: 300, PollActive: 500 * time.Millisecond, PollIdle: 3 * time.Second,
		Values: map[string]any{"manager": map[string]any{"extraArgs": []any{
			"--leader-elect-lease-duration=20s", "--leader-elect-renew-deadline=15s", "--leader-elect-retry-period=500ms",
			"--workload-connect-retry=1s", "--settle-time=2s", "--power-settle-time=0", "--orphan-audit-interval=2s", "--poll-lxd-hosts=1s",
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Stop(); err != nil {
			t.Error(err)
		}
	})
	pools, err := ipam.Start(ctx, box.RESTConfig, life.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pools.Stop(); err != nil {
			t.Error(err)
		}
	})
	return box
}

func upgrade(t *testing.T, box *sandbox.Sandbox, values map[string]any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), shortTimeout)
	defer cancel()
	if err := box.UpgradeChart(ctx, values); err != nil {
		t.Fatal(err)
	}
}

// whatTheCheckSaid returns the termination message of helm test's pod.
func whatTheCheckSaid(t *testing.T, box *sandbox.Sandbox) string {
	t.Helper()
	pod := &corev1.Pod{}
	if err := box.Client.Get(t.Context(), client.ObjectKey{Namespace: sandbox.Namespace, Name: checkPod}, pod); err != nil {
		t.Fatal(err)
	}
	for _, status := range pod.Status.ContainerStatuses {
		if status.State.Terminated != nil {
			return status.State.Terminated.Message
		}
	}
	return "it has not ended: " + pod.Status.String()
}

// grantedTo are the rights of a ServiceAccount in a cluster.
func grantedTo(t *testing.T, c client.Reader, config *rest.Config, account client.ObjectKey) []rights.Right {
	t.Helper()
	api, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, served, err := api.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	granted, err := rights.Granted(t.Context(), c, account, served)
	if err != nil {
		t.Fatal(err)
	}
	if len(granted) == 0 {
		t.Fatalf("%s has no rights", account)
	}
	return granted
}

// usesOf are what an account has done since the log was read last. What was denied fails the test.
func usesOf(t *testing.T, log *rights.Log, account client.ObjectKey) []rights.Right {
	t.Helper()
	requests, err := log.Read()
	if err != nil {
		t.Fatal(err)
	}
	var uses []rights.Right
	for _, r := range requests {
		if r.User != "system:serviceaccount:"+account.Namespace+":"+account.Name {
			continue
		}
		uses = append(uses, r.Use)
		if r.Denied {
			t.Errorf("%s is denied to %s: %s", r.Use, account.Name, r.Why)
		}
	}
	if len(uses) == 0 {
		t.Fatalf("%s has asked for nothing: is it audited?", account)
	}
	return uses
}

// check compares the rights of an account with those that it used.
func check(t *testing.T, account client.ObjectKey, granted, uses []rights.Right, excused map[string]string) {
	t.Helper()
	unused, needless := rights.Unused(granted, uses, excused)
	for _, right := range unused {
		t.Errorf("%s may %s, and does not need to", account.Name, right)
	}
	for _, right := range needless {
		if strings.HasPrefix(right, "patch events") {
			continue // Whether an event happens again is a matter of time.
		}
		t.Errorf("%s is excused for %s, which it has used, or may not do", account.Name, right)
	}
	t.Logf("%s has %d rights and asked %d times", account.Name, len(granted), len(uses))
}
