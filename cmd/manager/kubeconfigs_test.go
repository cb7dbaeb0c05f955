// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// Anyone who may write a Secret can give the cluster cache a kubeconfig, and its files would be the manager's.
func TestKubeconfigsThatNameFilesAreNotUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("the manager's own"), 0o600); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo){
		"certificate-authority": func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.CertificateAuthority = file },
		"client-certificate":    func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ClientCertificate = file },
		"client-key":            func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.ClientKey = file },
		"tokenFile":             func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.TokenFile = file },
		"exec": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{Command: file}
		},
		"": func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo) {},
	} {
		t.Run("field "+field, func(t *testing.T) {
			reader, cluster := withKubeconfig(t, change)
			content, err := kubeconfig.FromSecret(t.Context(), reader, cluster)
			if field == "" {
				if err != nil || len(content) == 0 {
					t.Errorf("one that has all it needs is refused: %v", err)
				}
				return
			}
			if !errors.Is(err, errNotSelfContained) {
				t.Errorf("it is given out, or refused for another reason: %v", err)
			}
		})
	}
	t.Run("their files would be read", func(t *testing.T) {
		reader, cluster := withKubeconfig(t, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.TokenFile = file })
		content, err := kubeconfig.FromSecret(t.Context(), reader.Reader, cluster)
		if err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(content)
		if err != nil || config.BearerToken != "the manager's own" {
			t.Errorf("client-go does not send the file's content (%v): this guard is needless", err)
		}
	})
}

// withKubeconfig returns a reader with the changed kubeconfig of a cluster.
func withKubeconfig(t *testing.T, change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) (kubeconfigs, client.ObjectKey) {
	t.Helper()
	server := &clientcmdapi.Cluster{Server: "https://192.0.2.1:6443", CertificateAuthorityData: []byte("PEM")}
	user := &clientcmdapi.AuthInfo{ClientCertificateData: []byte("PEM"), ClientKeyData: []byte("PEM")}
	change(server, user)
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": server}, AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": user},
		Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	})
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c1-kubeconfig"}, Data: map[string][]byte{"value": content},
	}
	return kubeconfigs{fake.NewClientBuilder().WithObjects(secret).Build()}, client.ObjectKey{Namespace: "ns", Name: "c1"}
}
