// SPDX-License-Identifier: Apache-2.0

package real_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox"
)

// manyVariables is a cluster of the ClusterClass with each variable that reaches kubeadm and cloud-init.
const manyVariables = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: many, namespace: default}
spec:
  clusterNetwork: {pods: {cidrBlocks: [10.244.0.0/16]}, services: {cidrBlocks: [10.96.0.0/12]}, serviceDomain: cluster.local}
  topology:
    classRef: {name: capmaas}
    version: %s
    controlPlane: {replicas: 1}
    workers: {machineDeployments: [{class: bare-metal-worker, name: md-0, replicas: 1}]}
    variables:
    - {name: dnsDomain, value: maas.sim}
    - {name: image, value: "` + sandbox.NodeImage + `"}
    - {name: virtualIP, value: {subnet: 10.77.0.0/24}}
    - {name: apiServerPort, value: 8443}
    - {name: apiServerCertSANs, value: [api.example.com, 192.0.2.7]}
    - {name: controlPlane, value: {resourcePool: capi}}
    - {name: worker, value: {resourcePool: capi}}
`

// kubeadm and kubelet take what each variable of the ClusterClass puts into user data, and the certificate has the names.
func TestVariablesThatReachUserData(t *testing.T) {
	_, version := box.NodeVersions()
	c := begin(t, "many")
	c.apply(fmt.Sprintf(manyVariables, version))
	c.checkNodes()
	c.checkGuests()
	c.checkPods()
	object := &clusterv1.Cluster{}
	if err := box.Client.Get(t.Context(), c.key, object); err != nil {
		t.Fatal(err)
	}
	endpoint := object.Spec.ControlPlaneEndpoint
	if endpoint.Port != 8443 || !strings.HasPrefix(endpoint.Host, "10.77.0.") {
		t.Errorf("the endpoint is %v, want a virtual IP and the port of the variable", endpoint)
	}
	for node, m := range c.nodes() {
		if _, control := node.Labels["node-role.kubernetes.io/control-plane"]; !control {
			continue
		}
		names, err := box.RunOnNode(within(t, scriptTimeout), m.SystemID, "openssl x509 -in /etc/kubernetes/pki/apiserver.crt -noout -ext subjectAltName")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"DNS:localhost", "IP Address:127.0.0.1", "DNS:api.example.com", "IP Address:192.0.2.7", "IP Address:" + endpoint.Host, "DNS:" + m.Hostname} {
			if !strings.Contains(string(names), name) {
				t.Errorf("the API server's certificate has no %s: %s", name, names)
			}
		}
	}
	c.delete()
}

// One line upgrades a cluster: kubeadm and kubelet of the version before make way for the next, and pods of both sides
// reach each other afterwards as before.
func TestUpgrade(t *testing.T) {
	previous, current := box.NodeVersions()
	c := create(t, "upgraded", "lxd-topology", previous, map[string]string{"MAAS_IMAGE": sandbox.NodeImage})
	c.checkVersion(previous)
	c.greet()
	began := time.Now()
	c.change(`{"spec":{"topology":{"version":"` + current + `"}}}`)
	ctx := within(t, createTimeout)
	if err := c.box.WaitUpgraded(ctx, c.key, c.machines, current); err != nil {
		t.Fatal(err)
	}
	t.Logf("upgraded after %s", time.Since(began).Round(time.Second))
	c.checkVersion(current)
	c.checkNodes()
	c.checkGuests()
	c.checkPods()
	c.greet()
	c.delete()
}

// greet checks that pods on both nodes reach each other through a Service.
func (c *cluster) greet() {
	c.Helper()
	if err := c.box.Greet(within(c.T, podsTimeout), c.key); err != nil {
		c.Error(err)
	}
}

// checkVersion compares the version of everything that has one with what is wanted.
func (c *cluster) checkVersion(want string) {
	c.Helper()
	there := sets.New[string]()
	for node, m := range c.nodes() {
		there.Insert(node.Name)
		if got := node.Status.NodeInfo.KubeletVersion; got != want {
			c.Errorf("kubelet on %s is %s, want %s", node.Name, got, want)
		}
		if m.Image != "custom/"+sandbox.NodeImageOf(want) {
			c.Errorf("the machine %s has the image %s", m.Hostname, m.Image)
		}
	}
	// The control plane's last act is to have kube-proxy rolled out.
	c.wait(podsTimeout, "the pods of Kubernetes to be of "+want, func() (bool, string, error) {
		pods := &corev1.PodList{}
		if err := c.workload.List(c.Context(), pods, client.InNamespace("kube-system")); err != nil {
			return false, err.Error(), nil //nolint:nilerr // the API server may be away for a moment
		}
		var others []string
		seen := sets.New[string]() // kube-proxy, and the three of a control plane
		for _, pod := range pods.Items {
			if !there.Has(pod.Spec.NodeName) {
				continue // Its node has left, and Kubernetes has not collected it yet.
			}
			name, version, _ := strings.Cut(pod.Spec.Containers[0].Image, ":")
			if name = name[strings.LastIndex(name, "/")+1:]; strings.HasPrefix(name, "kube-") && name != "kube-vip" {
				seen.Insert(name)
				if version != want {
					others = append(others, pod.Name+" "+version)
				}
			}
		}
		return seen.Len() == 4 && len(others) == 0, fmt.Sprintf("there are %v, and of other versions %v", sets.List(seen), others), nil
	})
}
