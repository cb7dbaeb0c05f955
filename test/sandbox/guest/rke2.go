// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudv1 "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/cloud/api/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const (
	rke2ConfigFile   = "/etc/rancher/rke2/config.yaml"
	rke2Certificates = "/var/lib/rancher/rke2/server/tls/"
	// rke2JoinPort is where servers let machines join. It can't be changed.
	rke2JoinPort = 9345
)

// rke2Run is the first start of RKE2's service, as a server or an agent.
type rke2Run struct {
	server bool
	// install is the version that a command installs, or "" where the image has it.
	install string
	config  rke2Config
	// Of the first server.
	ca, clientCA, etcdCA *authority
}

// rke2Config is the part of RKE2's configuration that matters here.
type rke2Config struct {
	Server                 string   `json:"server"`
	Token                  string   `json:"token"`
	TLSSAN                 []string `json:"tls-san"`
	NodeName               string   `json:"node-name"`
	NodeLabels             []string `json:"node-label"`
	NodeTaints             []string `json:"node-taint"`
	KubeletArgs            []string `json:"kubelet-arg"`
	DisableCloudController bool     `json:"disable-cloud-controller"`
}

var (
	rke2Service = regexp.MustCompile(`\bsystemctl start rke2-(server|agent)\.service`)
	rke2Install = regexp.MustCompile(`\bINSTALL_RKE2_VERSION=(\S+)`)
)

// readRKE2 finds the service that the user data starts.
func readRKE2(data *userData) (installer, error) {
	run := &rke2Run{}
	started := false
	for _, command := range data.commands {
		if found := rke2Install.FindStringSubmatch(command); found != nil {
			run.install = found[1]
		}
		if found := rke2Service.FindStringSubmatch(command); found != nil {
			started, run.server = true, found[1] == "server"
		}
	}
	if !started {
		return nil, errNoInstaller
	}
	config, ok := data.files[rke2ConfigFile]
	if !ok {
		return nil, fmt.Errorf("%s: the user data has no file %s", run, rke2ConfigFile)
	}
	if err := yaml.Unmarshal([]byte(config), &run.config); err != nil {
		return nil, fmt.Errorf("reading %s: %w", rke2ConfigFile, err)
	}
	if run.founds() {
		return run, run.readAuthorities(data)
	}
	return run, nil
}

func (r *rke2Run) readAuthorities(data *userData) (err error) {
	for file, into := range map[string]**authority{"server-ca": &r.ca, "client-ca": &r.clientCA, "etcd/server-ca": &r.etcdCA} {
		if *into, err = readAuthority(data, rke2Certificates+file); err != nil {
			return err
		}
	}
	return nil
}

func (r *rke2Run) String() string {
	if r.server {
		return "rke2 server"
	}
	return "rke2 agent"
}

func (r *rke2Run) controlPlane() bool { return r.server }

// founds is true for the server that no other one is named to.
func (r *rke2Run) founds() bool { return r.server && r.config.Server == "" }

func (r *rke2Run) ports() (api, join uint16) { return defaultPort, rke2JoinPort }

// registration has no taints that are not configured: RKE2's servers run pods.
func (r *rke2Run) registration() nodeRegistration {
	taints := taintsOf(r.config.NodeTaints)
	registration := nodeRegistration{Name: r.config.NodeName, Taints: &taints, KubeletExtraArgs: kubeletArgs{}}
	for _, arg := range r.config.KubeletArgs {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		registration.KubeletExtraArgs[name] = value
	}
	registration.KubeletExtraArgs["node-labels"] = strings.Join(r.config.NodeLabels, ",")
	if r.server {
		registration.roles = map[string]string{controlPlaneLabel: "true", "node-role.kubernetes.io/etcd": "true", "node-role.kubernetes.io/master": "true"}
	}
	return registration
}

// taintsOf reads taints in the form KEY=VALUE:EFFECT.
func taintsOf(texts []string) []corev1.Taint {
	var taints []corev1.Taint
	for _, text := range texts {
		pair, effect, _ := strings.Cut(text, ":")
		key, value, _ := strings.Cut(pair, "=")
		taints = append(taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return taints
}

var errNoRKE2 = errors.New("no version of RKE2 is named")

// version is the one that is installed, or else the image's.
func (r *rke2Run) version(_ context.Context, image string, _ *cluster) (string, error) {
	if r.install != "" {
		return r.install, nil
	}
	if version := kubeletVersion(image, ""); version != "" {
		return version + "+rke2r1", nil
	}
	return "", fmt.Errorf("%w: neither by a command nor by the image %s", errNoRKE2, image)
}

// plan has no endpoint: agents and servers know all API servers.
func (r *rke2Run) plan() (clusterPlan, error) {
	plan := clusterPlan{sans: r.config.TLSSAN, ca: r.ca, clientCA: r.clientCA, etcdCA: r.etcdCA}
	if !r.config.DisableCloudController {
		plan.cloud = "rke2"
	}
	return plan, nil
}

// foundation is the certificate that servers share.
func (r *rke2Run) foundation(string) []client.Object {
	return []client.Object{&corev1.Secret{ObjectMeta: system("rke2-serving"), Type: corev1.SecretTypeTLS}}
}

func (r *rke2Run) endpoint() string {
	server, err := url.Parse(r.config.Server)
	if err != nil {
		return r.config.Server
	}
	return server.Host
}

// admit checks the token, with which a machine gets all it needs.
func (r *rke2Run) admit(_ context.Context, c *cluster) error {
	founder, ok := c.founder.(*rke2Run)
	if !ok {
		return fmt.Errorf("%s is no cluster of RKE2: %w", r.config.Server, errRefused)
	}
	if r.config.Token != founder.config.Token {
		return fmt.Errorf("the token is wrong: %w", errRefused)
	}
	return nil
}

const (
	rke2RemoveMember  = "etcd.rke2.cattle.io/remove"
	rke2RemovedMember = "etcd.rke2.cattle.io/removed-node-name"
)

// nodeChanged removes the etcd member of a node that is marked for that, and says so on the node.
func (r *rke2Run) nodeChanged(c *cluster, node *corev1.Node) error {
	if node.Annotations[rke2RemoveMember] != "true" || node.Annotations[rke2RemovedMember] != "" {
		return nil
	}
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = metav1.NamespaceSystem, "etcd-"+node.Name
	if err := change(c.pods, pod, func() { pod.Annotations[cloudv1.EtcdMemberRemoved] = "" }); err != nil {
		return fmt.Errorf("removing the etcd member of the node %s: %w", node.Name, err)
	}
	if err := change(c.objects, node, func() { node.Annotations[rke2RemovedMember] = node.Name }); err != nil {
		return fmt.Errorf("writing the annotations of the node %s: %w", node.Name, err)
	}
	return c.electLeader()
}
