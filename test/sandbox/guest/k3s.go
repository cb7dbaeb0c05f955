// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudv1 "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/cloud/api/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const (
	k3sConfigFile   = "/etc/rancher/k3s/config.yaml"
	k3sCertificates = "/var/lib/rancher/k3s/server/tls/"
	// k3sEtcdProxy is among the manifests that a server applies: cluster-api-k3s puts it there.
	k3sEtcdProxy = "/var/lib/rancher/k3s/server/manifests/etcd-proxy.yaml"
	k3sServer    = "server"
)

// k3sRun is one run of k3s's install script, with what its service reads.
type k3sRun struct {
	// release that is installed, with its suffix, and what runs of it: server or agent.
	release, command string
	config           k3sConfig
	// ca, clientCA and etcdCA are those of the server that makes the cluster. Others get them when they join.
	ca, clientCA, etcdCA *authority
	// etcdProxy is installed by the server that makes the cluster.
	etcdProxy *appsv1.DaemonSet
}

type k3sConfig struct {
	ClusterInit            bool     `json:"cluster-init"`
	Server                 string   `json:"server"`
	Token                  string   `json:"token"`
	NodeName               string   `json:"node-name"`
	NodeLabels             []string `json:"node-label"`
	NodeTaints             []string `json:"node-taint"`
	TLSSan                 []string `json:"tls-san"`
	KubeletArgs            []string `json:"kubelet-arg"`
	DisableCloudController bool     `json:"disable-cloud-controller"`
}

var k3sCommand = regexp.MustCompile(`\bINSTALL_K3S_VERSION=(\S+) sh -s - (server|agent)\b`)

// readK3s finds the install script in the user data and reads the files that k3s would read.
func readK3s(data *userData) (installer, error) {
	for _, command := range data.commands {
		found := k3sCommand.FindStringSubmatch(command)
		if found == nil {
			continue
		}
		run := &k3sRun{release: found[1], command: found[2]}
		if err := yaml.Unmarshal([]byte(data.files[k3sConfigFile]), &run.config); err != nil {
			return nil, fmt.Errorf("reading %s: %w", k3sConfigFile, err)
		}
		if !run.founds() {
			return run, nil
		}
		return run, run.readFoundation(data)
	}
	return nil, errNoInstaller
}

func (r *k3sRun) readFoundation(data *userData) (err error) {
	for file, into := range map[string]**authority{"server-ca": &r.ca, "client-ca": &r.clientCA, "etcd/server-ca": &r.etcdCA} {
		if *into, err = readAuthority(data, k3sCertificates+file); err != nil {
			return err
		}
	}
	r.etcdProxy = &appsv1.DaemonSet{}
	if err := yaml.UnmarshalStrict([]byte(data.files[k3sEtcdProxy]), r.etcdProxy); err != nil {
		return fmt.Errorf("reading %s: %w", k3sEtcdProxy, err)
	}
	return nil
}

func (r *k3sRun) String() string { return "k3s " + r.command }

func (r *k3sRun) founds() bool { return r.command == k3sServer && r.config.ClusterInit }

func (r *k3sRun) controlPlane() bool { return r.command == k3sServer }

// registration has no taints that are not configured: k3s's servers run pods.
func (r *k3sRun) registration() nodeRegistration {
	arguments := kubeletArgs{"node-labels": strings.Join(r.config.NodeLabels, ",")}
	for _, argument := range r.config.KubeletArgs {
		name, value, _ := strings.Cut(argument, "=")
		arguments[name] = value
	}
	taints := taintsOf(r.config.NodeTaints)
	registration := nodeRegistration{Name: r.config.NodeName, Taints: &taints, KubeletExtraArgs: arguments}
	if r.controlPlane() {
		registration.roles = map[string]string{controlPlaneLabel: "true", "node-role.kubernetes.io/etcd": "true"}
	}
	return registration
}

// ports are the same: machines join through the API server.
func (r *k3sRun) ports() (api, join uint16) { return defaultPort, defaultPort }

// version is what the script installs, whatever the image has.
func (r *k3sRun) version(context.Context, string, *cluster) (string, error) { return r.release, nil }

// plan has no endpoint: each kubelet has a list of all API servers.
func (r *k3sRun) plan() (clusterPlan, error) {
	plan := clusterPlan{sans: r.config.TLSSan, ca: r.ca, clientCA: r.clientCA, etcdCA: r.etcdCA}
	if !r.config.DisableCloudController {
		plan.cloud = "k3s"
	}
	return plan, nil
}

// foundation is what the control-plane provider looks for, and what it has servers apply.
func (r *k3sRun) foundation(string) []client.Object {
	return []client.Object{&corev1.Secret{ObjectMeta: system("k3s-serving")}, r.etcdProxy}
}

func (r *k3sRun) endpoint() string { return strings.TrimPrefix(r.config.Server, "https://") }

// admit compares the token, which is all that a server or an agent has of the cluster.
func (r *k3sRun) admit(_ context.Context, c *cluster) error {
	founder, ok := c.founder.(*k3sRun)
	if !ok {
		return fmt.Errorf("the cluster at %s is none of k3s: %w", r.endpoint(), errRefused)
	}
	if founder.config.Token != r.config.Token {
		return fmt.Errorf("the token is wrong: %w", errRefused)
	}
	return nil
}

// etcdMember is as k3s calls it: the node's name, and something that no other member has.
func (r *k3sRun) etcdMember(node string) string { return fmt.Sprintf("%s-%08x", node, rand.Uint32()) }

func (r *k3sRun) nodeAnnotations(m *member) map[string]string {
	annotations := map[string]string{"k3s.io/hostname": m.node}
	if m.controlPlane {
		annotations[k3sMember] = m.etcd
	}
	return annotations
}

// pods are the one of the DaemonSet through which etcd is reached. It starts only where pods may.
func (r *k3sRun) pods(m *member) []*corev1.Pod {
	if m.uninitialized() {
		return nil
	}
	template := r.etcdProxy.Spec.Template
	return []*corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: "etcd-proxy" + strings.TrimPrefix(m.etcd, m.node), Labels: template.Labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: r.etcdProxy.Name, UID: "etcd-proxy", Controller: new(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: m.node, Containers: template.Spec.Containers},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{podReady(true)}},
	}}
}

const (
	k3sMember        = "etcd.k3s.cattle.io/node-name"
	k3sRemoveMember  = "etcd.k3s.cattle.io/remove"
	k3sRemovedMember = "etcd.k3s.cattle.io/removed-node-name"
)

// nodeChanged removes the etcd member of a node that is marked for that, and says so on the node.
func (r *k3sRun) nodeChanged(c *cluster, node *corev1.Node) error {
	if node.Annotations[k3sRemoveMember] != "true" || node.Annotations[k3sRemovedMember] != "" {
		return nil
	}
	member := node.Annotations[k3sMember]
	pod := &corev1.Pod{ObjectMeta: system("etcd-" + member)}
	if err := change(c.pods, pod, func() { pod.Annotations[cloudv1.EtcdMemberRemoved] = "" }); err != nil {
		return fmt.Errorf("removing the etcd member %s: %w", member, err)
	}
	if err := change(c.objects, node, func() { node.Annotations[k3sRemovedMember] = member }); err != nil {
		return fmt.Errorf("writing the annotations of the node %s: %w", node.Name, err)
	}
	return c.electLeader()
}
