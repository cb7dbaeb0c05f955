// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kubeconfigs reads the kubeconfig Secrets of workload clusters, and refuses kubeconfigs that name files: the files
// would be the manager's. Anyone who may write a Secret could otherwise make the manager send its token or MAAS's API
// key, as a bearer token, to a server of their choice.
type kubeconfigs struct {
	client.Reader
}

// Get reads one Secret.
func (k kubeconfigs) Get(
	ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption,
) error {
	if err := k.Reader.Get(ctx, key, object, options...); err != nil {
		return err
	}
	if s, ok := object.(*corev1.Secret); ok {
		return selfContained(s)
	}
	return nil
}

// errNotSelfContained is for a kubeconfig that names a file or a program.
var errNotSelfContained = errors.New("kubeconfigs that name files or programs are not used")

// selfContained refuses a kubeconfig that refers to a file or a program.
func selfContained(s *corev1.Secret) error {
	config, err := clientcmd.Load(s.Data[secret.KubeconfigDataName])
	if err != nil {
		return fmt.Errorf("reading the kubeconfig in Secret %s: %w", client.ObjectKeyFromObject(s), err)
	}
	var fields []string
	note := func(field string, is bool) {
		if is {
			fields = append(fields, field)
		}
	}
	for _, cluster := range config.Clusters {
		note("certificate-authority", cluster.CertificateAuthority != "")
	}
	for _, user := range config.AuthInfos {
		note("client-certificate", user.ClientCertificate != "")
		note("client-key", user.ClientKey != "")
		note("exec", user.Exec != nil)
		note("tokenFile", user.TokenFile != "")
	}
	if len(fields) > 0 {
		return fmt.Errorf("the kubeconfig in Secret %s has the field %s: %w", client.ObjectKeyFromObject(s),
			slices.Min(fields), errNotSelfContained)
	}
	return nil
}
