// SPDX-License-Identifier: Apache-2.0

package real_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/life"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// nodesMAAS is the Secret with MAAS's address in the machines' network.
const nodesMAAS = "nodes-maas"

// storage is the first setting of how hosts are prepared, in all flavors of host clusters.
var storage = regexp.MustCompile(`(?m)^( +)storageBackend:`)

// The nodes of a host cluster become VM hosts of MAAS: its machines have the bridge and install LXD, and the
// initializer runs there as containerd and kubelet confine it. MAAS reaches the LXD of each.
func TestHostCluster(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: life.Namespace, Name: nodesMAAS},
		StringData: map[string]string{"endpoint": sandbox.NodesMAAS, "apiKey": box.MAASAPIKey},
	}
	if err := box.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	for _, flavor := range slices.Sorted(maps.Keys(hostFlavors)) {
		t.Run("flavor-"+flavor, func(t *testing.T) { checkHostCluster(t, flavor) })
	}
	if err := box.Client.Delete(t.Context(), secret); err != nil {
		t.Error(err)
	}
}

func checkHostCluster(t *testing.T, flavor string) {
	t.Helper()
	previous, version := box.NodeVersions()
	variables, isClass := hostFlavors[flavor], strings.HasSuffix(flavor, "-topology")
	if isClass {
		variables = maps.Clone(variables)
		variables["MAAS_IMAGE"] = sandbox.NodeImage
		version = previous
	}
	c := begin(t, "hosts")
	manifest := c.manifest(flavor, version, variables)
	if !storage.MatchString(manifest) {
		t.Fatalf("the flavor has no storageBackend: %s", manifest)
	}
	c.apply(storage.ReplaceAllString(manifest, "${1}credentialsRef: {name: "+nodesMAAS+"}\n$0"))
	c.waitHosts()
	c.checkNodes()
	c.checkGuests()
	c.checkHosts()
	for node, m := range c.nodes() {
		c.checkConfined(m.SystemID)
		for other := range c.nodes() {
			if other.Name != node.Name {
				c.checkMayNot(m.SystemID, node.Name, other.Name)
			}
		}
	}
	if isClass {
		c.rollHosts()
	}
	c.delete()
}

// rollHosts upgrades the cluster by one line. Other machines become its hosts, one after the other, and MAAS forgets the
// former ones.
func (c *cluster) rollHosts() {
	c.Helper()
	_, version := box.NodeVersions()
	former := map[string]bool{}
	for _, m := range c.nodes() {
		former[m.SystemID] = true
	}
	c.change(`{"spec":{"topology":{"version":"` + version + `"}}}`)
	if err := c.box.WaitUpgraded(within(c.T, createTimeout), c.key, c.machines, version); err != nil {
		c.Fatal(err)
	}
	c.waitHosts()
	c.checkVersion(version)
	c.checkNodes()
	c.checkGuests()
	nodes := map[string]bool{}
	for _, m := range c.nodes() {
		nodes[m.SystemID] = true
	}
	for _, host := range c.checkHosts() {
		if id := host.Host.SystemID; former[id] && !nodes[id] {
			c.Errorf("MAAS still has the VM host %s on the former node %s", host.Name, id)
		}
	}
}

// waitHosts waits until the cluster reports that all its nodes are hosts.
func (c *cluster) waitHosts() {
	c.Helper()
	owner := &clusterv1.Cluster{}
	if err := box.Client.Get(c.Context(), c.key, owner); err != nil {
		c.Fatal(err)
	}
	key := client.ObjectKey{Namespace: c.key.Namespace, Name: owner.Spec.InfrastructureRef.Name}
	err := eventually.Wait(within(c.T, podsTimeout), "all nodes to be VM hosts", func() (bool, string, error) {
		object := &infrav1.MaasCluster{}
		if err := box.Client.Get(c.Context(), key, object); err != nil {
			return false, "", err
		}
		return conditions.IsTrue(object, infrav1.LXDReadyCondition), sandbox.Conditions(object.Status.Conditions), nil
	})
	if err != nil {
		c.Fatal(err)
	}
}

// checkHosts compares MAAS's VM hosts, which it returns, with the cluster's nodes, and with what their LXDs say.
func (c *cluster) checkHosts() []maas.VMHost {
	c.Helper()
	region, err := maas.NewClient(maas.Config{Endpoint: box.MAASURL, APIKey: box.MAASAPIKey})
	if err != nil {
		c.Fatal(err)
	}
	hosts, err := region.ListVMHosts(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	for node, m := range c.nodes() {
		known := false
		for _, host := range hosts {
			known = known || host.Host.SystemID == m.SystemID && host.ResourcesKnown()
		}
		if !known {
			c.Errorf("MAAS knows no VM host on %s", node.Name)
		}
		address := ""
		for _, a := range node.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				address = a.Address
			}
		}
		said, err := box.RunOnNode(within(c.T, scriptTimeout), m.SystemID, `
cd /
lxc=/snap/bin/lxc
$lxc config get core.https_address
$lxc storage show default | grep ^driver:
$lxc config trust list --format csv | wc -l
ip -oneline -4 address show dev br0 | awk '{print $4}'`)
		want := fmt.Sprintf("%s:8443\ndriver: btrfs\n1\n%s/24\n", address, address)
		if diff := cmp.Diff(want, string(said)); diff != "" || err != nil {
			c.Errorf("LXD on %s: %v (-want +got):\n%s", node.Name, err, diff)
		}
	}
	return hosts
}

// inPod finds the initializer's process on a machine, as $pid, and what its pod has of its ServiceAccount, as $account.
const inPod = `
pid=$(pgrep -x lxd-initializer)
account=/proc/$pid/root/var/run/secrets/kubernetes.io/serviceaccount
`

// checkConfined checks what the kernel lets the initializer do.
func (c *cluster) checkConfined(systemID string) {
	c.Helper()
	said, err := box.RunOnNode(within(c.T, scriptTimeout), systemID, inPod+`
grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/$pid/status | tr '\t' ' '
awk '$5 == "/" {print substr($6, 1, 2)}' /proc/$pid/mountinfo`)
	want := "CapEff: 0000000000000000\nCapBnd: 0000000000000000\nNoNewPrivs: 1\nSeccomp: 2\nro\n"
	if diff := cmp.Diff(want, string(said)); diff != "" || err != nil {
		c.Errorf("the initializer on %s: %v (-want +got):\n%s", systemID, err, diff)
	}
}

// checkMayNot tries, with the token that kubelet gave the initializer's pod on a node, what it is refused.
func (c *cluster) checkMayNot(systemID, own, other string) {
	c.Helper()
	for what, refusal := range map[string]string{
		"annotate node " + other + " x=y":                          "writes to that Node",
		"annotate node " + own + " x=y":                            "writes its label and its condition alone",
		"-n capmaas-system delete secret lxd-initializer-" + other: "writes to that Node and to Secret",
		"-n capmaas-system get secrets":                            "cannot list resource",
		"-n kube-system create configmap x":                        "cannot create resource",
	} {
		said, err := box.RunOnNode(within(c.T, scriptTimeout), systemID, inPod+`
server=$(awk '$1 == "server:" {print $2}' /etc/kubernetes/kubelet.conf)
! kubectl --kubeconfig=/dev/null --server="$server" --certificate-authority=$account/ca.crt --token="$(cat $account/token)" `+what+" 2>&1")
		if err != nil || !strings.Contains(string(said), refusal) {
			c.Errorf("kubectl %s as the initializer on %s: %v: %s", what, own, err, said)
		}
	}
}
