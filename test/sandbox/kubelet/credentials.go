// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// serviceAccountDir is where every pod finds its token; the API server's admission mounts it there.
const serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// token is a pod's ServiceAccount token, renewed in time.
type token struct {
	mutex sync.Mutex
	value []byte
	renew time.Time
}

// serviceAccountToken asks the API server for a token that is bound to the pod, once per most of its lifetime.
func (p *pod) serviceAccountToken(ctx context.Context, projection *corev1.ServiceAccountTokenProjection) ([]byte, error) {
	p.token.mutex.Lock()
	defer p.token.mutex.Unlock()
	if time.Now().Before(p.token.renew) {
		return p.token.value, nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: projection.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.spec.Name, UID: p.spec.UID},
	}}
	if projection.Audience != "" {
		request.Spec.Audiences = []string{projection.Audience}
	}
	accounts := p.kubelet.client.CoreV1().ServiceAccounts(p.spec.Namespace)
	asked := time.Now()
	answer, err := accounts.CreateToken(ctx, p.spec.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("asking for a token of ServiceAccount %s: %w", p.spec.Spec.ServiceAccountName, err)
	}
	lifetime := answer.Status.ExpirationTimestamp.Sub(asked)
	p.token.value, p.token.renew = []byte(answer.Status.Token), asked.Add(lifetime*4/5)
	return p.token.value, nil
}

// accountContainer is the container that has the pod's token mounted; all of them have, or none.
func (p *pod) accountContainer() *container {
	for _, c := range p.containers {
		for _, mount := range c.spec.VolumeMounts {
			if mount.MountPath == serviceAccountDir {
				return c
			}
		}
	}
	return nil
}

func (p *pod) kubeconfigFile() string { return filepath.Join(p.dir, "kubeconfig") }

// writeKubeconfig replaces the fixed path of the token in a pod. The file names the token's file, which changes, and so
// never changes itself. A pod without a token gets none.
func (p *pod) writeKubeconfig() error {
	c := p.accountContainer()
	if c == nil {
		return nil
	}
	if _, err := os.Stat(p.kubeconfigFile()); err == nil {
		return nil
	}
	const name = "in-cluster"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: p.kubelet.options.Config.Host, CertificateAuthorityData: p.kubelet.options.CA}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: filepath.Join(c.rootDir(), serviceAccountDir, "token")}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: p.spec.Namespace}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, p.kubeconfigFile()); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return nil
}

// ambient are the variables that every container has, and KUBECONFIG.
func (p *pod) ambient() []string {
	variables := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOSTNAME=" + p.spec.Name,
		"HOME=" + p.dir,
	}
	if ptr.Deref(p.spec.Spec.EnableServiceLinks, true) {
		if host, err := url.Parse(p.kubelet.options.Config.Host); err == nil {
			variables = append(variables, "KUBERNETES_SERVICE_HOST="+host.Hostname(), "KUBERNETES_SERVICE_PORT="+host.Port())
		}
	}
	if p.accountContainer() != nil {
		variables = append(variables, "KUBECONFIG="+p.kubeconfigFile())
	}
	return variables
}
