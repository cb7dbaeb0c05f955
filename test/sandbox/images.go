// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdhost"
	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd/emptyimage"
)

// UploadImage gives the LXD of an LXDHost an image, as `capmaasctl image upload --lxd-host` does: one whose disk is
// empty, because the sandbox plays what a VM runs.
func (s *Sandbox) UploadImage(ctx context.Context, to client.ObjectKey, name string) error {
	image, err := emptyimage.New(ctx, name)
	if err != nil {
		return err
	}
	options, err := s.lxdOptions(ctx, to)
	if err != nil {
		return fmt.Errorf("uploading the image %s: %w", name, err)
	}
	host, err := lxdhost.Connect(ctx, options)
	if err != nil {
		return err
	}
	defer host.Close()
	return host.Upload(ctx, name, image, func(int64) {})
}

// lxdOptions are how an LXDHost says that its LXD is reached.
func (s *Sandbox) lxdOptions(ctx context.Context, key client.ObjectKey) (lxdhost.Options, error) {
	host, keys := &infrav1.LXDHost{}, &corev1.Secret{}
	if err := s.Client.Get(ctx, key, host); err != nil {
		return lxdhost.Options{}, err
	}
	name := client.ObjectKey{Namespace: key.Namespace, Name: host.Spec.CredentialsRef.Name}
	if err := s.Client.Get(ctx, name, keys); err != nil {
		return lxdhost.Options{}, err
	}
	return lxdhost.Options{
		Address: host.Spec.Address, ServerCertificate: []byte(host.Spec.ServerCertificate), Project: host.Spec.Project,
		ClientCertificate: keys.Data[corev1.TLSCertKey], ClientKey: keys.Data[corev1.TLSPrivateKeyKey], Dial: s.dialMachine,
	}, nil
}

// SetSubnets tells the LXDHosts that lack it which subnet of MAAS their VMs are in.
func (s *Sandbox) SetSubnets(ctx context.Context, subnet string) error {
	hosts := &infrav1.LXDHostList{}
	if err := s.Client.List(ctx, hosts); err != nil {
		return fmt.Errorf("listing the LXDHosts: %w", err)
	}
	for i := range hosts.Items {
		host := &hosts.Items[i]
		if host.Spec.Subnet != "" || host.Spec.CredentialsRef == nil {
			continue
		}
		before := host.DeepCopy()
		host.Spec.Subnet = subnet
		if err := s.Client.Patch(ctx, host, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("setting the subnet of LXDHost %s: %w", host.Name, err)
		}
	}
	return nil
}
