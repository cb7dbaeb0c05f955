// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"
	"net"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// defaultLXDPort is the port of LXD's HTTPS API.
const defaultLXDPort = "8443"

// LXDServer returns how the LXD of a host is reached. *CredentialsError: the Secret in spec.credentialsRef is missing or
// has no pair of certificate and key.
func (f *Factory) LXDServer(ctx context.Context, host *infrav1.LXDHost) (lxdhost.Options, error) {
	const field = "spec.credentialsRef"
	if host.Spec.CredentialsRef == nil {
		return lxdhost.Options{}, &CredentialsError{Source: field, cause: fmt.Errorf("name a Secret with tls.crt and tls.key, which LXD trusts")}
	}
	name, secret := host.Spec.CredentialsRef.Name, &corev1.Secret{}
	if err := f.Client.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: name}, secret); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return lxdhost.Options{}, fmt.Errorf("reading Secret %s: %w", name, err)
		}
		return lxdhost.Options{}, &CredentialsError{Source: field, cause: fmt.Errorf("there is no Secret %s in namespace %s", name, host.Namespace)}
	}
	options := lxdhost.Options{
		Address: withPort(host.Spec.Address), ServerCertificate: []byte(host.Spec.ServerCertificate), Project: host.Spec.Project,
		ClientCertificate: secret.Data[corev1.TLSCertKey], ClientKey: secret.Data[corev1.TLSPrivateKeyKey],
	}
	if len(options.ClientCertificate) == 0 || len(options.ClientKey) == 0 {
		return lxdhost.Options{}, &CredentialsError{Source: "Secret " + name, cause: fmt.Errorf("it lacks %s or %s", corev1.TLSCertKey, corev1.TLSPrivateKeyKey)}
	}
	return options, nil
}

// LXDHostMAAS returns the credentials of the MAAS whose clusters may use a host. The error is a *CredentialsError if
// there are none.
func (f *Factory) LXDHostMAAS(ctx context.Context, host *infrav1.LXDHost) (maas.Config, error) {
	if ref := host.Spec.MAASCredentialsRef; ref != nil {
		return secretConfig(ctx, f.Client, "spec.maasCredentialsRef", host.Namespace, ref.Name)
	}
	return f.Manager.config(host.Namespace)
}

// withPort returns an address with LXD's port, if it has none.
func withPort(address string) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	return net.JoinHostPort(strings.Trim(address, "[]"), defaultLXDPort)
}
