// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// WriteKubeconfig writes the administrator's kubeconfig.
func (c *ControlPlane) WriteKubeconfig(file string) error {
	if err := os.WriteFile(file, c.mustKubeconfig(), 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return nil
}

// mustKubeconfig panics where an object made of strings alone can't be encoded, which never happens.
func (c *ControlPlane) mustKubeconfig() []byte {
	const name = "sandbox"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.host, CertificateAuthorityData: c.CA()}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: c.credentials.token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	data, err := clientcmd.Write(*config)
	if err != nil {
		panic(err)
	}
	return data
}
