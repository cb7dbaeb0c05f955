// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// installer is one run of what makes a machine a node, with all it reads from the user data: kubeadm, or the service
// of another Kubernetes distribution. It either founds a cluster or joins one.
type installer interface {
	// String is the command, for logs and errors.
	String() string
	// controlPlane reports whether the machine becomes one.
	controlPlane() bool
	registration() nodeRegistration
	// ports of a control plane are where its API server listens, and where machines join the cluster.
	ports() (api, join uint16)
	// version of the node's kubelet. A cluster that is founded has no other members.
	version(ctx context.Context, image string, c *cluster) (string, error)

	// founds reports whether the run makes a cluster.
	founds() bool
	// plan is the cluster that it makes.
	plan() (clusterPlan, error)
	// foundation are the objects that it puts into that cluster, apart from namespaces.
	foundation(version string) []client.Object

	// endpoint is where a run that joins finds the cluster.
	endpoint() string
	// admit refuses what the cluster would not let join, or what would not join that cluster.
	admit(ctx context.Context, c *cluster) error
}

// nodeReactor is an installer whose clusters do something when a Node was changed.
type nodeReactor interface {
	nodeChanged(c *cluster, node *corev1.Node) error
}

// embedder is an installer whose control planes run all components in one process, so that there are no static pods.
type embedder interface {
	// etcdMember names the etcd member of a node.
	etcdMember(node string) string
	// nodeAnnotations of a new Node.
	nodeAnnotations(m *member) map[string]string
	// pods of a control plane. The in-memory etcd has one more, which stands for the member.
	pods(m *member) []*corev1.Pod
}

// clusterPlan is what a new cluster is made of.
type clusterPlan struct {
	name string
	// endpoint that kubelets register at, or "" where they need none, because each has a list of all API servers.
	endpoint string
	// sans are more names in the API server's certificate.
	sans []string
	// cloud is the scheme of the provider IDs that the cluster's own cloud controller gives to Nodes, or "" without one.
	cloud string
	// ca signs what servers show, clientCA what clients of the API server show, etcdCA what etcd and its clients do.
	ca, clientCA, etcdCA *authority
}

// nodeRegistration is how a node registers.
type nodeRegistration struct {
	Name             string          `json:"name"`
	Taints           *[]corev1.Taint `json:"taints"`
	KubeletExtraArgs kubeletArgs     `json:"kubeletExtraArgs"`
	// roles are the labels of a control plane.
	roles map[string]string
}

// errNoInstaller is returned by the reader of a distribution whose installer the user data does not run.
var errNoInstaller = errors.New("no Kubernetes is installed")

// readers are those of all distributions.
var readers = []func(*userData) (installer, error){readKubeadm, readRKE2, readK3s}

// readInstaller finds the installer that the user data runs.
func readInstaller(data *userData) (installer, error) {
	for _, read := range readers {
		run, err := read(data)
		if !errors.Is(err, errNoInstaller) {
			return run, err
		}
	}
	return nil, errNoInstaller
}
