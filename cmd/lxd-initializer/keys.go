// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdnode"
)

const (
	// secretPrefix and the node's name make up the name of the Secret, and of LXD's client.
	secretPrefix = infrav1.LXDKeysPrefix
	// renewBefore is how long before its expiry a certificate is replaced: LXD refuses an expired one.
	renewBefore = 30 * 24 * time.Hour
)

func (a *agent) secrets() typedcorev1.SecretInterface {
	return a.kube.CoreV1().Secrets(a.options.namespace)
}

func (a *agent) keysName() string { return secretPrefix + a.options.nodeName }

// keepKeys reads the node's key pair from its Secret, or makes one and stores it there. A Secret that is unusable, or
// of another machine that had the Node's name, is replaced.
func (p *pass) keepKeys(ctx context.Context) error {
	secret, err := p.secrets().Get(ctx, p.keysName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return p.createKeys(ctx)
	}
	if err != nil {
		return fmt.Errorf("reading the Secret %s: %w", p.keysName(), err)
	}
	p.secret, p.keys = secret, lxdnode.Keys{Certificate: secret.Data[corev1.TLSCertKey],
		Key: secret.Data[corev1.TLSPrivateKeyKey]}
	if secret.Type != corev1.SecretTypeTLS || !usable(p.keys) {
		return p.replaceKeys(ctx, "can't be used")
	}
	if p.owned(secret) {
		return nil
	}
	isHere, err := p.lxd.Trusts(ctx, p.keys.Certificate)
	if err != nil {
		return err
	}
	if !isHere {
		return p.replaceKeys(ctx, "is another machine's, whose Node had this name,")
	}
	secret.OwnerReferences = []metav1.OwnerReference{p.owner()}
	return p.updateSecret(ctx)
}

func (p *pass) replaceKeys(ctx context.Context, why string) error {
	p.event(corev1.EventTypeWarning, "KeyPairReplaced", "The key pair in Secret %s %s and is replaced", p.keysName(), why)
	if err := p.deleteSecret(ctx, p.secret); err != nil {
		return err
	}
	return p.createKeys(ctx)
}

func (p *pass) updateSecret(ctx context.Context) (err error) {
	if p.secret, err = p.secrets().Update(ctx, p.secret, metav1.UpdateOptions{FieldManager: component}); err != nil {
		return fmt.Errorf("updating the Secret %s: %w", p.keysName(), err)
	}
	return nil
}

// offer stores beside the key pair what else the manager needs in order to make VMs through LXD's own API.
func (p *pass) offer(ctx context.Context) (err error) {
	if p.offered, err = p.lxd.ServerCertificate(ctx); err != nil {
		return err
	}
	changed := false
	for key, value := range map[string][]byte{
		infrav1.LXDServerCertificateKey: p.offered,
		infrav1.LXDAddressKey:           []byte(p.options.powerAddress(p.address)),
	} {
		if !bytes.Equal(p.secret.Data[key], value) {
			p.secret.Data[key], changed = value, true
		}
	}
	if !changed {
		return nil
	}
	return p.updateSecret(ctx)
}

func (p *pass) createKeys(ctx context.Context) (err error) {
	if p.keys, err = lxdnode.NewKeys(p.keysName()); err != nil {
		return err
	}
	p.secret, err = p.secrets().Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: p.keysName(), OwnerReferences: []metav1.OwnerReference{p.owner()}},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{corev1.TLSCertKey: p.keys.Certificate, corev1.TLSPrivateKeyKey: p.keys.Key},
	}, metav1.CreateOptions{FieldManager: component})
	if err != nil {
		return fmt.Errorf("creating the Secret %s: %w", p.keysName(), err)
	}
	return nil
}

// usable reports whether LXD accepts a pair, and will for a while.
func usable(keys lxdnode.Keys) bool { return keys.ValidFor(renewBefore) }

// owner makes Kubernetes delete the Secret with the Node.
func (p *pass) owner() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: p.node.Name, UID: p.node.UID}
}

// owned reports whether the Secret belongs to this Node, and not to an earlier one of the same name.
func (p *pass) owned(secret *corev1.Secret) bool {
	return len(secret.OwnerReferences) == 1 && secret.OwnerReferences[0].UID == p.node.UID
}

// deleteKeys is the last step of retirement.
func (p *pass) deleteKeys(ctx context.Context) error {
	secret, err := p.secrets().Get(ctx, p.keysName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the Secret %s: %w", p.keysName(), err)
	}
	return p.deleteSecret(ctx, secret)
}

// deleteSecret deletes this Secret, and not one that replaced it.
func (p *pass) deleteSecret(ctx context.Context, secret *corev1.Secret) error {
	err := p.secrets().Delete(ctx, secret.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(
		secret.UID))})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the Secret %s: %w", secret.Name, err)
	}
	return nil
}
