// SPDX-License-Identifier: Apache-2.0

package real_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// eventful is a cluster with a virtual IP, whose unhealthy machines are switched off and on before they are replaced, and
// whose worker keeps the only server that has a disk for data.
const eventful = `
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: MaasRemediationTemplate
metadata: {name: restart-first, namespace: default, labels: {clusterctl.cluster.x-k8s.io/move: ""}}
spec: {template: {spec: {powerCycle: {tries: 1, timeoutSeconds: 180}}}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: eventful, namespace: default}
spec:
  clusterNetwork: {pods: {cidrBlocks: [10.244.0.0/16]}, services: {cidrBlocks: [10.96.0.0/12]}, serviceDomain: cluster.local}
  topology:
    classRef: {name: capmaas}
    version: %s
    controlPlane:
      replicas: 1
      healthCheck:
        checks: &checks
          nodeStartupTimeoutSeconds: 3600
          unhealthyNodeConditions: [{type: Ready, status: Unknown, timeoutSeconds: 40}]
        remediation: &restartFirst
          templateRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: MaasRemediationTemplate, name: restart-first}
    workers:
      machineDeployments:
      - class: bare-metal-worker
        name: md-0
        replicas: 1
        rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}}
        healthCheck: {checks: *checks, remediation: *restartFirst}
    variables:
    - {name: dnsDomain, value: maas.sim}
    - {name: image, value: "` + sandbox.NodeImage + `"}
    - {name: virtualIP, value: {subnet: 10.77.0.0/24}}
    - {name: lxdConfig, value: {}}
    - {name: controlPlane, value: {resourcePool: capi}}
    - {name: worker, value: {resourcePool: capi, tags: [` + dataTag + `], release: {keep: {}}}}
`

const (
	// moveTimeout is for the address, and remedyTimeout for a remediation: Kubernetes finds out after a minute that a node is
	// silent, and a power cycle that does not help is given three more.
	moveTimeout, remedyTimeout = 5 * time.Minute, 12 * time.Minute
	// dataFile is on the disk for data, and rootFile is not.
	dataFile, rootFile = "/srv/" + dataDisk + "/kept", "/root/lost"
)

// One cluster lives through everything that happens to clusters, in turn, on real nodes. -run picks events.
func TestEvents(t *testing.T) {
	for _, m := range box.MAAS.Machines() {
		if slices.Contains(m.Tags, dataTag) && len(m.Disks) > 1 {
			if err := box.MAAS.HideDisk(m.SystemID, dataDisk); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := begin(t, "eventful")
	t.Cleanup(c.end)
	for _, event := range []struct {
		name string
		do   func(*cluster)
	}{
		{"Create", (*cluster).begin},
		{"Join", (*cluster).join},
		{"LosePower", (*cluster).losePower},
		{"LoseKubelet", (*cluster).loseKubelet},
		{"Upgrade", (*cluster).upgradeKeeping},
		{"Evacuate", (*cluster).evacuate},
		{"Move", (*cluster).move},
		{"Leave", (*cluster).leave},
		{"Delete", (*cluster).delete},
	} {
		began := time.Now()
		if !t.Run(event.name, func(t *testing.T) {
			now := *c
			now.T = t
			defer func() { c.box, c.machines, c.workload = now.box, now.machines, now.workload }()
			event.do(&now)
		}) {
			t.FailNow()
		}
		t.Logf("%s took %s", event.name, time.Since(began).Round(time.Second))
	}
}

// end leaves the machines to the next test, and ends a management cluster of its own.
func (c *cluster) end() {
	if c.Failed() {
		life.Dump(c.T, c.box)
		c.dump()
	}
	if err := c.box.DeleteCluster(within(c.T, deleteTimeout), c.key); err != nil {
		c.Error(err)
	}
	if c.box != box {
		if err := c.box.Stop(); err != nil {
			c.Error(err)
		}
	}
}

func (c *cluster) begin() {
	previous, _ := box.NodeVersions()
	c.apply(fmt.Sprintf(eventful, previous))
	c.check()
	c.checkKubeVIP()
}

// check checks what must hold after each event.
func (c *cluster) check() {
	c.Helper()
	c.checkNodes()
	c.checkGuests()
	c.checkPods()
	c.checkEtcd()
	if c.holder("").SystemID == "" {
		c.Error("nobody has the virtual IP")
	}
}

// available waits until the cluster has as many machines again, and none other.
func (c *cluster) available() {
	c.Helper()
	if err := c.box.WaitAvailable(within(c.T, createTimeout), c.key, c.machines); err != nil {
		c.Fatal(err)
	}
}

// join adds two control planes, whose etcd members join that of the first.
func (c *cluster) join() {
	c.change(`{"spec":{"topology":{"controlPlane":{"replicas":3}}}}`)
	c.machines += 2
	c.available()
	c.check()
}

// losePower takes the power of the control plane that has the virtual IP, and ends the kubelet of the worker. The address
// moves, and a power cycle mends both: their Machines and machines stay.
func (c *cluster) losePower() {
	worker, holder := c.worker(), c.holder("")
	before, calls, began := c.list(), box.MAAS.Calls().Total, time.Now()
	c.run(worker, "systemctl stop kubelet")
	if err := box.Control(c.Context(), "machines/"+holder.SystemID+"/power", `{"power": "off", "unnoticed": true}`); err != nil {
		c.Fatal(err)
	}
	var next simulator.MachineSnapshot
	c.wait(moveTimeout, "the virtual IP to move", func() (bool, string, error) {
		asking, cancel := context.WithTimeout(c.Context(), 5*time.Second)
		defer cancel()
		if err := c.workload.List(asking, &corev1.NodeList{}); err != nil {
			return false, err.Error(), nil
		}
		next = c.holder(holder.SystemID)
		return next.SystemID != "", "nobody has it", nil
	})
	c.Logf("the virtual IP moved from %s to %s after %s", holder.Hostname, next.Hostname, time.Since(began).Round(100*time.Millisecond))
	for _, m := range []simulator.MachineSnapshot{worker, holder} {
		name := c.machineOf(m.SystemID)
		c.wait(remedyTimeout, "the remediation of "+m.Hostname, func() (bool, string, error) {
			return poweredOn(m.SystemID, calls), fmt.Sprint(c.remediation(name)), nil
		})
		c.wait(remedyTimeout, "the remediation of "+m.Hostname+" to end", func() (bool, string, error) {
			r := c.remediation(name)
			return r == nil, fmt.Sprint(r), nil
		})
		c.Logf("%s is healthy again after %s", m.Hostname, time.Since(began).Round(time.Second))
	}
	c.available()
	if now := c.list(); !maps.Equal(before, now) {
		c.Errorf("the Machines were %v, and are %v", before, now)
	}
	c.check()
}

// poweredOn reports whether a person had MAAS switch a machine on since a number of calls.
func poweredOn(systemID string, since int) bool {
	return slices.ContainsFunc(box.MAAS.Calls().Log, func(call simulator.Call) bool {
		return call.Number > since && call.SystemID == systemID && call.Op == "power_on" && call.Status < http.StatusBadRequest
	})
}

// loseKubelet breaks a control plane so that a restart does not help: its Machine is replaced, and so is its etcd member.
func (c *cluster) loseKubelet() {
	holder := c.holder("")
	controls := c.controlPlanes()
	broken := controls[slices.IndexFunc(controls, func(m simulator.MachineSnapshot) bool { return m.SystemID != holder.SystemID })]
	name := c.machineOf(broken.SystemID)
	began := time.Now()
	c.run(broken, "systemctl disable --now kubelet")
	c.wait(remedyTimeout, name+" to be found beyond repair", func() (bool, string, error) {
		r, m := c.remediation(name), c.machine(name)
		return m.UID == "" || r != nil && r.Status.Step == infrav1.RemediationReplace, fmt.Sprint(r), nil
	})
	c.wait(remedyTimeout, name+" to be replaced", func() (bool, string, error) {
		_, there := c.list()[name]
		return !there, sandbox.Conditions(c.machine(name).Status.Conditions), nil
	})
	c.Logf("%s is gone after %s", name, time.Since(began).Round(time.Second))
	if _, there := box.MAAS.Machine(broken.SystemID); there {
		c.Errorf("the VM %s is there", broken.Hostname)
	}
	c.available()
	c.check()
}

// upgradeKeeping upgrades control planes and the worker, whose server is the same afterwards, with its data. A budget
// holds up the drain of a node until it allows that.
func (c *cluster) upgradeKeeping() {
	previous, current := box.NodeVersions()
	c.checkVersion(previous)
	c.greet()
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "greeter"}}
	budget.Spec = policyv1.PodDisruptionBudgetSpec{
		MinAvailable: ptr.To(intstr.FromInt32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "greeter"}},
	}
	if err := c.workload.Create(c.Context(), budget); err != nil {
		c.Fatal(err)
	}
	worker := c.worker()
	c.run(worker, "echo mine >"+dataFile+"; echo mine >"+rootFile)
	began := time.Now()
	c.change(`{"spec":{"topology":{"version":"` + current + `"}}}`)
	c.wait(createTimeout, "the budget to hold up a drain", c.heldUp)
	c.Logf("a drain is held up after %s", time.Since(began).Round(time.Second))
	if err := c.workload.Patch(c.Context(), budget, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"minAvailable":1}}`))); err != nil {
		c.Fatal(err)
	}
	if err := c.box.WaitUpgraded(within(c.T, 2*createTimeout), c.key, c.machines, current); err != nil {
		c.Fatal(err)
	}
	c.Logf("upgraded after %s", time.Since(began).Round(time.Second))
	c.checkVersion(current)
	c.check()
	c.greet()
	if now := c.worker(); now.SystemID != worker.SystemID {
		c.Errorf("the worker's server is %s, and was %s", now.Hostname, worker.Hostname)
	}
	if kept := c.run(worker, "cat "+dataFile+"; test ! -e "+rootFile); kept != "mine\n" {
		c.Errorf("the disk for data holds %q", kept)
	}
}

// heldUp reports whether a Machine is drained whose node has a pod that the budget keeps there.
func (c *cluster) heldUp() (done bool, status string, err error) {
	pods := &corev1.PodList{}
	if err := c.workload.List(c.Context(), pods, client.InNamespace("default"), client.MatchingLabels{"app": "greeter"}); err != nil {
		return false, err.Error(), nil //nolint:nilerr // the API server may be away for a moment
	}
	for name := range c.list() {
		m := c.machine(name)
		draining := conditions.Get(m, clusterv1.MachineDeletingCondition)
		if draining == nil || draining.Reason != clusterv1.MachineDeletingDrainingNodeReason {
			continue
		}
		status += draining.Message
		if slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool {
			return p.Spec.NodeName == m.Status.NodeRef.Name && p.DeletionTimestamp.IsZero() && strings.Contains(draining.Message, p.Name)
		}) {
			return true, "", nil
		}
	}
	return false, status, nil
}

// evacuate empties the VM host of the control plane that has the virtual IP, while the others keep their majority.
func (c *cluster) evacuate() {
	leaving := c.holder("")
	host := &infrav1.LXDHost{}
	host.Namespace, host.Name = sandbox.Namespace, leaving.VMHost
	empty := func(evacuate bool) {
		patch := fmt.Appendf(nil, `{"spec":{"evacuate":%t}}`, evacuate)
		if err := c.box.Client.Patch(c.Context(), host, client.RawPatch(types.MergePatchType, patch)); err != nil {
			c.Fatal(err)
		}
	}
	end := life.WatchQuorum(c.T, life.Replicas{Life: &life.Life{T: c.T, Box: c.box, Key: c.key}, ControlPlanes: len(c.controlPlanes())})
	empty(true)
	c.wait(createTimeout, "the host to be empty", func() (bool, string, error) {
		err := c.box.Client.Get(c.Context(), client.ObjectKeyFromObject(host), host)
		return conditions.IsTrue(host, infrav1.EvacuatedCondition), sandbox.Conditions(host.Status.Conditions), err
	})
	c.available()
	end()
	empty(false)
	if slices.ContainsFunc(c.controlPlanes(), func(m simulator.MachineSnapshot) bool { return m.VMHost == leaving.VMHost }) {
		c.Errorf("a control plane is on %s", leaving.VMHost)
	}
	c.check()
}

// move moves the cluster to another management cluster. Its machines don't notice.
func (c *cluster) move() {
	options, err := settings()
	if err != nil {
		c.Fatal(err)
	}
	started := c.started()
	east, err := box.Join(within(c.T, createTimeout), options)
	if err != nil {
		c.Fatal(err)
	}
	ctx := within(c.T, moveTimeout)
	program := filepath.Join(os.Getenv("CAPMAAS_BIN"), "clusterctl")
	clusterctl := exec.CommandContext(ctx, program, "move", "--namespace", c.key.Namespace,
		"--kubeconfig", box.KubeconfigPath, "--to-kubeconfig", east.KubeconfigPath)
	clusterctl.Env = append(os.Environ(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true")
	out, err := clusterctl.CombinedOutput()
	c.box = east
	if err != nil {
		c.Fatalf("%v: %s", err, out)
	}
	if err := life.ApplyClass(ctx, box); err != nil { // It went with the cluster, and the tests after this one need it.
		c.Fatal(err)
	}
	c.available()
	if left := (&infrav1.MaasMachineList{}); box.Client.List(ctx, left) != nil || len(left.Items) > 0 {
		c.Errorf("%d MaasMachines are left", len(left.Items))
	}
	c.check()
	if now := c.started(); now != started {
		c.Errorf("the kubelets started at\n%sand after the move at\n%s", started, now)
	}
}

// leave removes two control planes, and with them their etcd members.
func (c *cluster) leave() {
	c.change(`{"spec":{"topology":{"controlPlane":{"replicas":1}}}}`)
	c.machines -= 2
	c.available()
	c.check()
}

// wait waits for a condition.
func (c *cluster) wait(limit time.Duration, what string, check func() (bool, string, error)) {
	c.Helper()
	if err := eventually.Wait(within(c.T, limit), what, check); err != nil {
		c.Fatal(err)
	}
}

// run runs a script on a machine.
func (c *cluster) run(m simulator.MachineSnapshot, script string) string {
	c.Helper()
	out, err := box.RunOnNode(within(c.T, scriptTimeout), m.SystemID, script)
	if err != nil {
		c.Fatal(err)
	}
	return string(out)
}

// started is when each kubelet started.
func (c *cluster) started() string {
	c.Helper()
	var all []string
	for node, m := range c.nodes() {
		all = append(all, node.Name+" "+c.run(m, "systemctl show --property=ActiveEnterTimestamp kubelet"))
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

// list has the uids of the cluster's Machines, by name.
func (c *cluster) list() map[string]types.UID {
	c.Helper()
	list := &clusterv1.MachineList{}
	if err := c.box.Client.List(c.Context(), list, client.InNamespace(c.key.Namespace)); err != nil {
		c.Fatal(err)
	}
	all := map[string]types.UID{}
	for _, m := range list.Items {
		all[m.Name] = m.UID
	}
	return all
}

// machine is a Machine, which is empty if it is gone.
func (c *cluster) machine(name string) *clusterv1.Machine {
	c.Helper()
	m := &clusterv1.Machine{}
	if err := c.box.Client.Get(c.Context(), client.ObjectKey{Namespace: c.key.Namespace, Name: name}, m); client.IgnoreNotFound(err) != nil {
		c.Fatal(err)
	}
	return m
}

// machineOf names the Machine that a machine of MAAS is.
func (c *cluster) machineOf(systemID string) string {
	c.Helper()
	list := &infrav1.MaasMachineList{}
	if err := c.box.Client.List(c.Context(), list, client.InNamespace(c.key.Namespace)); err != nil {
		c.Fatal(err)
	}
	for _, m := range list.Items {
		if m.Spec.SystemID == systemID {
			return m.Name
		}
	}
	c.Fatalf("no MaasMachine is %s", systemID)
	return ""
}

// remediation is that of a Machine, or nil.
func (c *cluster) remediation(name string) *infrav1.MaasRemediation {
	c.Helper()
	r := &infrav1.MaasRemediation{}
	err := c.box.Client.Get(c.Context(), client.ObjectKey{Namespace: c.key.Namespace, Name: name}, r)
	if client.IgnoreNotFound(err) != nil {
		c.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return r
}

// split are the machines of the cluster's Nodes in MAAS.
func (c *cluster) split() (controlPlanes, workers []simulator.MachineSnapshot) {
	c.Helper()
	for node, m := range c.nodes() {
		if _, control := node.Labels["node-role.kubernetes.io/control-plane"]; control {
			controlPlanes = append(controlPlanes, m)
		} else {
			workers = append(workers, m)
		}
	}
	return controlPlanes, workers
}

func (c *cluster) controlPlanes() []simulator.MachineSnapshot {
	c.Helper()
	all, _ := c.split()
	return all
}

func (c *cluster) worker() simulator.MachineSnapshot {
	c.Helper()
	_, all := c.split()
	return all[0]
}

// endpoint is the cluster's virtual IP, or "".
func (c *cluster) endpoint() string {
	c.Helper()
	object := &clusterv1.Cluster{}
	if err := c.box.Client.Get(c.Context(), c.key, object); err != nil {
		c.Fatal(err)
	}
	if host := object.Spec.ControlPlaneEndpoint.Host; net.ParseIP(host) != nil {
		return host
	}
	return ""
}

// holder is the control plane that has the virtual IP, or none. Another than but is asked: that one is off.
func (c *cluster) holder(but string) simulator.MachineSnapshot {
	c.Helper()
	address := c.endpoint()
	for _, m := range c.controlPlanes() {
		if m.SystemID != but && strings.Contains(c.run(m, "ip -oneline address show"), " "+address+"/") {
			return m
		}
	}
	return simulator.MachineSnapshot{}
}

// checkEtcd checks that on each control plane etcd has the control planes as its voting members, and no other.
func (c *cluster) checkEtcd() {
	c.Helper()
	var want []string
	for _, m := range c.controlPlanes() {
		want = append(want, m.Hostname+" votes")
	}
	slices.Sort(want)
	for _, m := range c.controlPlanes() {
		said := c.run(m, `cd /etc/kubernetes/pki/etcd
curl --silent --show-error --fail --cacert ca.crt --cert healthcheck-client.crt --key healthcheck-client.key --data '{}' \
  https://127.0.0.1:2379/v3/cluster/member/list | jq --raw-output '.members[] | .name + (if .isLearner then " learns" else " votes" end)'`)
		got := strings.Split(strings.TrimSpace(said), "\n")
		slices.Sort(got)
		if !slices.Equal(got, want) {
			c.Errorf("the etcd of %s has the members %q, want %q", m.Hostname, got, want)
		}
	}
}

// checkKubeVIP checks that kube-vip started on the first control plane, and not again since cloud-init had finished.
func (c *cluster) checkKubeVIP() {
	c.Helper()
	const starts = ` --unit=containerd --no-pager --output=cat | grep --count "CreateContainer.*kube-vip" || true`
	for _, m := range c.controlPlanes() {
		if all := c.run(m, "journalctl"+starts); all == "0\n" {
			c.Errorf("nothing tells of kube-vip on %s", m.Hostname)
		}
		finished := `"$(date --date="@$(stat --format=%Y /var/lib/cloud/instance/boot-finished)" "+%F %T")"`
		if since := c.run(m, "journalctl --since="+finished+starts); since != "0\n" {
			c.Errorf("on %s, kube-vip started again after cloud-init had finished, this many times: %s", m.Hostname, since)
		}
	}
}
