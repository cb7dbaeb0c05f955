// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/yaml"
)

const (
	commandInit = "init"
	commandJoin = "join"

	defaultPort = 6443
)

var (
	errRefused = errors.New("the cluster refuses")
)

// kubeadmRun is one run of kubeadm, with all it reads.
type kubeadmRun struct {
	command string
	cluster clusterConfiguration
	// clusterDocument is the original ClusterConfiguration.
	clusterDocument string
	init            initConfiguration
	join            joinConfiguration
	ca, etcdCA      *authority // of control planes
}

type clusterConfiguration struct {
	ClusterName          string `json:"clusterName"`
	KubernetesVersion    string `json:"kubernetesVersion"`
	ControlPlaneEndpoint string `json:"controlPlaneEndpoint"`
	APIServer            struct {
		CertSANs []string `json:"certSANs"`
	} `json:"apiServer"`
}

type localAPIEndpoint struct {
	BindPort uint16 `json:"bindPort"`
}

type initConfiguration struct {
	NodeRegistration nodeRegistration `json:"nodeRegistration"`
	LocalAPIEndpoint localAPIEndpoint `json:"localAPIEndpoint"`
}

type joinConfiguration struct {
	NodeRegistration nodeRegistration `json:"nodeRegistration"`
	Discovery        struct {
		BootstrapToken struct {
			APIServerEndpoint        string   `json:"apiServerEndpoint"`
			Token                    string   `json:"token"`
			CACertHashes             []string `json:"caCertHashes"`
			UnsafeSkipCAVerification bool     `json:"unsafeSkipCAVerification"`
		} `json:"bootstrapToken"`
	} `json:"discovery"`
	ControlPlane *struct {
		LocalAPIEndpoint localAPIEndpoint `json:"localAPIEndpoint"`
	} `json:"controlPlane"`
}

// kubeletArgs are a list of names and values since kubeadm's v1beta4, and a map before.
type kubeletArgs map[string]string

// UnmarshalJSON reads both forms.
func (a *kubeletArgs) UnmarshalJSON(data []byte) error {
	asMap := map[string]string{}
	if err := json.Unmarshal(data, &asMap); err == nil {
		*a = asMap
		return nil
	}
	asList := []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}{}
	if err := json.Unmarshal(data, &asList); err != nil {
		return err
	}
	*a = kubeletArgs{}
	for _, arg := range asList {
		(*a)[arg.Name] = arg.Value
	}
	return nil
}

var kubeadmCommand = regexp.MustCompile(`\bkubeadm (init|join) --config[= ](\S+)`)

// readKubeadm finds the command in the user data and reads the files that it would read.
func readKubeadm(data *userData) (installer, error) {
	for _, command := range data.commands {
		found := kubeadmCommand.FindStringSubmatch(command)
		if found == nil {
			continue
		}
		run := &kubeadmRun{command: found[1]}
		config, ok := data.files[found[2]]
		if !ok {
			return nil, fmt.Errorf("kubeadm %s: the user data has no file %s", found[1], found[2])
		}
		if err := run.readDocuments(config); err != nil {
			return nil, fmt.Errorf("reading %s: %w", found[2], err)
		}
		if run.controlPlane() {
			if err := run.readAuthorities(data); err != nil {
				return nil, err
			}
		}
		return run, nil
	}
	return nil, errNoInstaller
}

var documentSeparator = regexp.MustCompile(`(?m)^---\s*$`)

func (r *kubeadmRun) readDocuments(config string) error {
	for _, document := range documentSeparator.Split(config, -1) {
		header := struct {
			Kind string `json:"kind"`
		}{}
		if err := yaml.Unmarshal([]byte(document), &header); err != nil {
			return err
		}
		var into any
		switch header.Kind {
		case "ClusterConfiguration":
			into = &r.cluster
			r.clusterDocument = strings.TrimSpace(document) + "\n"
		case "InitConfiguration":
			into = &r.init
		case "JoinConfiguration":
			into = &r.join
		default:
			continue
		}
		if err := yaml.Unmarshal([]byte(document), into); err != nil {
			return fmt.Errorf("the %s: %w", header.Kind, err)
		}
	}
	return nil
}

func (r *kubeadmRun) String() string { return "kubeadm " + r.command }

func (r *kubeadmRun) founds() bool { return r.command == commandInit }

func (r *kubeadmRun) controlPlane() bool {
	return r.founds() || r.join.ControlPlane != nil
}

func (r *kubeadmRun) registration() nodeRegistration {
	registration := r.join.NodeRegistration
	if r.founds() {
		registration = r.init.NodeRegistration
	}
	if r.controlPlane() {
		registration.roles = map[string]string{controlPlaneLabel: ""}
		if registration.Taints == nil {
			registration.Taints = &[]corev1.Taint{{Key: controlPlaneLabel, Effect: corev1.TaintEffectNoSchedule}}
		}
	}
	return registration
}

// ports are the same: machines join through the API server.
func (r *kubeadmRun) ports() (api, join uint16) {
	port := r.port()
	return port, port
}

func (r *kubeadmRun) port() uint16 {
	port := r.init.LocalAPIEndpoint.BindPort
	if r.join.ControlPlane != nil {
		port = r.join.ControlPlane.LocalAPIEndpoint.BindPort
	}
	if port == 0 {
		return defaultPort
	}
	return port
}

// authority is a CA that the user data brings.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func (r *kubeadmRun) readAuthorities(data *userData) (err error) {
	if r.ca, err = readAuthority(data, "/etc/kubernetes/pki/ca"); err != nil {
		return err
	}
	r.etcdCA, err = readAuthority(data, "/etc/kubernetes/pki/etcd/ca")
	return err
}

func readAuthority(data *userData, file string) (*authority, error) {
	cert, err := certs.DecodeCertPEM([]byte(data.files[file+".crt"]))
	if err != nil {
		return nil, fmt.Errorf("reading %s.crt of the user data: %w", file, err)
	}
	if cert == nil {
		return nil, fmt.Errorf("the user data has no certificate in %s.crt", file)
	}
	key, err := certs.DecodePrivateKeyPEM([]byte(data.files[file+".key"]))
	if err != nil {
		return nil, fmt.Errorf("reading %s.key of the user data: %w", file, err)
	}
	return &authority{cert: cert, key: key}, nil
}

// hash names a CA as kubeadm does.
func (a *authority) hash() string {
	sum := sha256.Sum256(a.cert.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// plan names the CA that signs everything but etcd's.
func (r *kubeadmRun) plan() (clusterPlan, error) {
	if r.cluster.ControlPlaneEndpoint == "" {
		return clusterPlan{}, errors.New("the ClusterConfiguration has no controlPlaneEndpoint")
	}
	return clusterPlan{
		name: r.cluster.ClusterName, endpoint: r.cluster.ControlPlaneEndpoint, sans: r.cluster.APIServer.CertSANs,
		ca: r.ca, clientCA: r.ca, etcdCA: r.etcdCA,
	}, nil
}

func (r *kubeadmRun) endpoint() string { return r.join.Discovery.BootstrapToken.APIServerEndpoint }

// admit does what kubeadm join does once it has reached the cluster: check it, and be checked.
func (r *kubeadmRun) admit(ctx context.Context, c *cluster) error {
	discovery := r.join.Discovery.BootstrapToken
	if !discovery.UnsafeSkipCAVerification && !slices.Contains(discovery.CACertHashes, c.ca.hash()) {
		return fmt.Errorf("the cluster at %s has another CA: %w", discovery.APIServerEndpoint, errRefused)
	}
	if err := c.checkToken(ctx, discovery.Token); err != nil {
		return err
	}
	if r.controlPlane() && r.ca.hash() != c.ca.hash() {
		return fmt.Errorf("the user data has the CA of another cluster: %w", errRefused)
	}
	return nil
}

func (r *kubeadmRun) version(ctx context.Context, image string, c *cluster) (string, error) {
	if r.founds() {
		return kubeletVersion(image, r.cluster.KubernetesVersion), nil
	}
	version, err := c.kubernetesVersion(ctx)
	return kubeletVersion(image, version), err
}

// checkToken accepts a bootstrap token that the cluster has and that has not expired.
func (c *cluster) checkToken(ctx context.Context, token string) error {
	id, secretPart, ok := strings.Cut(token, ".")
	if !ok {
		return fmt.Errorf("the token is malformed: %w", errRefused)
	}
	secret := &corev1.Secret{}
	if err := c.objects.Get(ctx, key("kube-system", "bootstrap-token-"+id), secret); err != nil {
		return fmt.Errorf("the token is not known: %w: %w", errRefused, err)
	}
	if string(secret.Data["token-secret"]) != secretPart {
		return fmt.Errorf("the token is wrong: %w", errRefused)
	}
	if text := string(secret.Data["expiration"]); text != "" {
		expiry, err := time.Parse(time.RFC3339, text)
		if err != nil || time.Now().After(expiry) {
			return fmt.Errorf("the token has expired: %w", errRefused)
		}
	}
	return nil
}

// kubernetesVersion returns the version in the cluster's ConfigMap kubeadm-config.
func (c *cluster) kubernetesVersion(ctx context.Context) (string, error) {
	config := &corev1.ConfigMap{}
	if err := c.objects.Get(ctx, key("kube-system", "kubeadm-config"), config); err != nil {
		return "", fmt.Errorf("reading kubeadm-config: %w", err)
	}
	cluster := clusterConfiguration{}
	if err := yaml.Unmarshal([]byte(config.Data["ClusterConfiguration"]), &cluster); err != nil {
		return "", fmt.Errorf("reading kubeadm-config: %w", err)
	}
	return cluster.KubernetesVersion, nil
}

// imageVersion finds a Kubernetes version in the name of an image, such as custom/u-2404-k8s-v1.35.0 or
// u-2204-k8s-1.35.
var imageVersion = regexp.MustCompile(`(?:^|[^0-9])(1\.\d{2})(\.\d{1,2})?(?:[^0-9]|$)`)

// kubeletVersion returns the version of the image, because a real image contains its kubelet. If the name has none, it
// is the cluster's.
func kubeletVersion(image, cluster string) string {
	found := imageVersion.FindStringSubmatch(image)
	switch {
	case found == nil:
		return cluster
	case found[2] != "":
		return "v" + found[1] + found[2]
	case strings.HasPrefix(cluster, "v"+found[1]+"."):
		return cluster
	default:
		return "v" + found[1] + ".0"
	}
}

func splitEndpoint(endpoint string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(endpoint)
	if err != nil {
		return "", 0, fmt.Errorf("the endpoint %q: %w", endpoint, err)
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("the endpoint %q: %w", endpoint, err)
	}
	return host, uint16(number), nil
}
