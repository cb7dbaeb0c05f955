// SPDX-License-Identifier: Apache-2.0

package real_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/directhost"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/lxdtest"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	// directHost is the LXDHost, and directPoolGB the size of its storage pool, which takes only what is written.
	directHost   = "direct"
	directPoolGB = 100
	// realTimes has a VM be installed by MAAS in real time, too.
	realTimes = "CAPMAAS_REAL_TIMES"
)

// MAAS is upgraded to a version without VM hosts, so this is the last test. LXD makes the control plane of a cluster from
// an image, on a direct host, and its Node is as any other. The stages from the Machine to the Node are printed, and with
// CAPMAAS_REAL_TIMES=1 those of a VM that MAAS composes and installs in real time.
func TestDirectHost(t *testing.T) {
	_, version := box.NodeVersions()
	byMAAS := timeByMAAS(t, version)
	if err := box.MAAS.Upgrade("4.0"); err != nil {
		t.Fatal(err)
	}
	asked := &requests{}
	addDirectHost(t, asked.between, sandbox.NodeImageOf(version))
	c := create(t, "image", "lxd", version, nil)
	c.checkNodes()
	c.checkGuests()
	c.checkPods()
	vm := c.controlPlanes()[0]
	if !vm.Device || vm.VMHost != directHost {
		t.Errorf("the control plane is %+v, want a VM on %s for which MAAS has a device", vm, directHost)
	}
	if source := c.run(vm, "cloud-init query v1.platform"); source != "nocloud\n" {
		t.Errorf("cloud-init has its data from %q, want those of LXD", source)
	}
	took := c.way(vm, stage{"placement", asked.clone}, stage{"clone", asked.start}, stage{name: "start"})
	if byMAAS > 0 {
		t.Logf("MAAS's VM took %.1f times as long, and boots firmware and a kernel in that time, which the other does not", byMAAS.Seconds()/took.Seconds())
	}
	c.delete()
}

// timeByMAAS is how long it takes until a VM is a Node that MAAS composes and installs; 0 if that is not asked for.
func timeByMAAS(t *testing.T, version string) (took time.Duration) {
	t.Helper()
	if os.Getenv(realTimes) != "1" {
		return 0
	}
	if err := box.MAAS.Upgrade("3.8"); err != nil {
		t.Fatal(err)
	}
	pace := func(scale float64) {
		if err := box.MAAS.SetTimeScale(scale); err != nil {
			t.Fatal(err)
		}
	}
	pace(1)
	defer pace(timeScale)
	c := begin(t, "installed")
	c.machines = 1
	c.apply(c.manifest("lxd", version, map[string]string{"WORKER_MACHINE_COUNT": "0"}))
	vm := c.controlPlanes()[0]
	took = c.way(vm, stage{"placement", called(vm, "compose")}, stage{"compose", called(vm, "deploy")}, stage{name: "installation"})
	pace(timeScale)
	c.delete()
	return took
}

// called is when MAAS got a call for a machine.
func called(m simulator.MachineSnapshot, op string) (at time.Time) {
	for _, call := range box.MAAS.Calls().Log {
		if call.SystemID == m.SystemID && call.Op == op {
			at = call.Time
		}
	}
	return at
}

// requests are when an LXD was first asked to make a VM, and to start one.
type requests struct {
	mutex        sync.Mutex
	clone, start time.Time
}

func (q *requests) between(lxd http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q.mutex.Lock()
		switch {
		case q.clone.IsZero() && r.Method == http.MethodPost && r.URL.Path == "/1.0/instances":
			q.clone = time.Now()
		case q.start.IsZero() && r.Method == http.MethodPut && path.Base(r.URL.Path) == "state":
			q.start = time.Now()
		}
		q.mutex.Unlock()
		lxd.ServeHTTP(w, r)
	})
}

// addDirectHost runs an LXD with an image, and makes it a direct host until the test ends. It returns when the manager
// knows that MAAS's VM hosts are none any more.
func addDirectHost(t *testing.T, between lxdtest.Middleware, image string) {
	t.Helper()
	ctx := within(t, podsTimeout)
	server := directhost.StartWith(t, directhost.Options{
		LXD: lxd.Options{Address: netip.MustParsePrefix("10.77.0.180/24")}, PoolGB: directPoolGB,
	})
	box.AddLXD(directHost, server.Daemon)
	if err := server.AddImage(ctx, image); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKey{Namespace: sandbox.Namespace, Name: directHost}
	host, secret := server.Behind(t, between).Objects(key, "zone-a")
	host.Spec.ResourcePool, host.Spec.AllowedNamespaces = "capi", []string{"*"}
	// The VM in LXD does nothing.
	host.Spec.OverCommit = infrav1.LXDOverCommit{CPUPercent: 1000, MemoryPercent: 1000}
	for _, object := range []client.Object{secret, host} {
		if err := box.Client.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { removeDirectHost(t, key) })
	err := eventually.Wait(ctx, "it to be the only host", func() (bool, string, error) {
		hosts, ready := &infrav1.LXDHostList{}, []string{}
		err := box.Client.List(ctx, hosts)
		for i := range hosts.Items {
			if conditions.IsTrue(&hosts.Items[i], infrav1.ReadyCondition) {
				ready = append(ready, hosts.Items[i].Name)
			}
		}
		return slices.Equal(ready, []string{directHost}), fmt.Sprintf("ready are %q", ready), err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func removeDirectHost(t *testing.T, key client.ObjectKey) {
	ctx := within(t, deleteTimeout)
	host := &infrav1.LXDHost{}
	host.Namespace, host.Name = key.Namespace, key.Name
	if err := box.Client.Delete(ctx, host); err != nil {
		t.Error(err)
	}
	err := eventually.Wait(ctx, "the LXDHost to be gone", func() (bool, string, error) {
		err := box.Client.Get(ctx, key, host)
		return apierrors.IsNotFound(err), sandbox.Conditions(host.Status.Conditions), client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Error(err)
	}
}

// stage is a part of the way from a Machine to its Node.
type stage struct {
	name string
	end  time.Time
}

// milestones prints, in microseconds, when a system began, when cloud-init began with the commands of the user data, and
// when kubeadm was done.
const milestones = `
busctl get-property org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager UserspaceTimestamp | cut -d' ' -f2
date --reference=/var/lib/cloud/instance/sem/config_scripts_user +%s%6N
date --reference=/run/cluster-api/bootstrap-success.complete +%s%6N`

// way logs how long each stage took from a Machine to its Node that is Ready, and returns the sum. The stages until its
// system began are given; the last one of them ends there. Kubernetes's own times are of whole seconds.
func (c *cluster) way(m simulator.MachineSnapshot, until ...stage) time.Duration {
	c.Helper()
	machine := c.machine(c.machineOf(m.SystemID))
	data := &corev1.Secret{}
	if err := c.box.Client.Get(c.Context(), client.ObjectKey{Namespace: c.key.Namespace, Name: *machine.Spec.Bootstrap.DataSecretName}, data); err != nil {
		c.Fatal(err)
	}
	var inGuest []time.Time
	for _, micro := range strings.Fields(c.run(m, milestones)) {
		since, err := strconv.ParseInt(micro, 10, 64)
		if err != nil {
			c.Fatal(err)
		}
		inGuest = append(inGuest, time.UnixMicro(since))
	}
	if len(inGuest) != 3 {
		c.Fatalf("%s came to %v", m.Hostname, inGuest)
	}
	until[len(until)-1].end = inGuest[0]
	stages := append([]stage{{"bootstrap data", data.CreationTimestamp.Time}}, until...)
	stages = append(stages, stage{"cloud-init", inGuest[1]}, stage{"kubeadm", inGuest[2]}, stage{"Node Ready", c.readySince(m.Hostname)})
	began := machine.CreationTimestamp.Time
	said, last := "", began
	for _, s := range stages {
		said += fmt.Sprintf("\n%-16s %7.1f s", s.name, s.end.Sub(last).Seconds())
		last = s.end
	}
	c.Logf("From the Machine of %s to its Node%s\n%-16s %7.1f s", m.Hostname, said, "together", last.Sub(began).Seconds())
	return last.Sub(began)
}

// readySince is since when a Node is Ready.
func (c *cluster) readySince(name string) time.Time {
	c.Helper()
	for node := range c.nodes() {
		for _, condition := range node.Status.Conditions {
			if node.Name == name && condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return condition.LastTransitionTime.Time
			}
		}
	}
	c.Fatalf("the Node %s is not Ready", name)
	return time.Time{}
}
