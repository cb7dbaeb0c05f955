// SPDX-License-Identifier: Apache-2.0

// Package scope joins one MaasCluster or MaasMachine with its credentials and its view of MAAS, for one reconcile.
package scope

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Keys of the Secret that MaasCluster.spec.credentialsRef names.
const (
	EndpointKey = "endpoint"
	APIKeyKey   = "apiKey"
	CABundleKey = "caBundle"
)

// maxKeys bounds the list of a Secret's keys in a message, in bytes.
const maxKeys = 100

// CredentialsError means that a cluster has no usable credentials.
type CredentialsError struct {
	// Source is the Secret, or the manager's own credentials.
	Source string
	cause  error
}

// Error names the source and its problem, never a value.
func (e *CredentialsError) Error() string { return fmt.Sprintf("%s: %v", e.Source, e.cause) }

// Unwrap returns the cause.
func (e *CredentialsError) Unwrap() error { return e.cause }

// SourceError says where the credentials are from that MAAS refuses, or that lead to no MAAS.
type SourceError struct {
	// Source is the Secret, or the manager's own credentials.
	Source string
	cause  error
}

// Error names the source and its problem, never a value.
func (e *SourceError) Error() string { return fmt.Sprintf("%s: %v", e.Source, e.cause) }

// Unwrap returns MAAS's error.
func (e *SourceError) Unwrap() error { return e.cause }

// from returns a *SourceError if an error may be due to the credentials, or else the error itself.
func from(source string, err error) error {
	if errors.Is(err, maas.Unauthorized) || errors.Is(err, maas.Untrusted) || maas.IsElsewhere(err) {
		return &SourceError{Source: source, cause: err}
	}
	return err
}

// From returns the error of a call to the cluster's MAAS, as a *SourceError if it may be due to the credentials.
func (c *Cluster) From(err error) error { return from(c.source, err) }

// FromLXDHost is Cluster.From for the MAAS of an LXDHost.
func FromLXDHost(host *infrav1.LXDHost, err error) error { return from(lxdHostSource(host), err) }

// ManagerCredentials are the manager's own, in a directory: config/maasEndpoint, credentials/apiKey and, optionally,
// credentials/caBundle. They are read each time, so that a rotated key is used at once.
type ManagerCredentials struct {
	Dir string
	// Namespaces are those whose MaasClusters and LXDHosts may use them: whoever may create MaasClusters there can take
	// any machine with them, and, through a host cluster, read them. EveryNamespace is all, but for host clusters: these
	// copy the key, so their namespaces are named. Nil: a program's own, without any limit.
	Namespaces []string
	// Given are used instead of those in Dir, if it is not nil: a program may have them from its user.
	Given *maas.Config
}

// EveryNamespace is all namespaces in ManagerCredentials.
const EveryNamespace = "*"

// config returns the credentials for an object in a namespace, which may name others in a field.
func (m ManagerCredentials) config(namespace, field string) (maas.Config, error) {
	if m.Namespaces != nil && !slices.Contains(m.Namespaces, namespace) && !slices.Contains(m.Namespaces, EveryNamespace) {
		return maas.Config{}, &CredentialsError{
			Source: field,
			cause: fmt.Errorf("the manager's own MAAS credentials are not for namespace %s: name a Secret of this namespace, "+
				"or add the namespace to the chart's value maas.namespaces", namespace),
		}
	}
	return m.Read()
}

// mayBeCopied returns an error if the credentials may not be copied into a host cluster of a namespace: whoever
// administers that one reads them.
func (m ManagerCredentials) mayBeCopied(namespace string) error {
	if m.Namespaces == nil || slices.Contains(m.Namespaces, namespace) {
		return nil
	}
	return &CredentialsError{
		Source: "spec.lxdConfig.credentialsRef",
		cause: fmt.Errorf("the manager's own MAAS credentials are copied into no host cluster of namespace %s: name a "+
			"Secret of this namespace, or add the namespace itself to the chart's value maas.namespaces", namespace),
	}
}

// Read reads the credentials. *CredentialsError: one can't be read; the others are returned.
func (m ManagerCredentials) Read() (maas.Config, error) {
	if m.Given != nil {
		return *m.Given, nil
	}
	config, err := maas.ReadConfig(m.Dir, maas.Config{})
	if err != nil {
		return config, &CredentialsError{
			Source: "the manager has no MAAS credentials of its own; set spec.credentialsRef, or maas.endpoint and " +
				"maas.apiKey of the chart",
			cause: oneLine(err),
		}
	}
	return config, nil
}

// oneLine makes joined errors fit into a condition.
func oneLine(err error) error {
	return errors.New(text.Lines(err))
}

// secretConfig reads the Secret that a field of a MaasCluster names.
func (f *Factory) secretConfig(ctx context.Context, field, namespace, name string) (maas.Config, error) {
	data, err := f.secret(ctx, field, client.ObjectKey{Namespace: namespace, Name: name}, 0)
	if err != nil {
		return maas.Config{}, err
	}
	for _, key := range []string{EndpointKey, APIKeyKey} {
		if _, has := data[key]; !has {
			there := cmp.Or(strings.Join(slices.Sorted(maps.Keys(data)), ", "), "none")
			return maas.Config{}, &CredentialsError{Source: "Secret " + name,
				cause: fmt.Errorf("it has no key %s (it has %s): add it", key, text.OneLine(there, maxKeys))}
		}
	}
	return configOf(data), nil
}

// readSecret reads the Secret that a field names. *CredentialsError: there is none.
func readSecret(
	ctx context.Context, reader client.Reader, field string, key client.ObjectKey,
) (map[string][]byte, error) {
	secret := &corev1.Secret{}
	if err := reader.Get(ctx, key, secret); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading Secret %s: %w", key.Name, err)
		}
		return nil, &CredentialsError{Source: field, cause: fmt.Errorf("there is no Secret %s in namespace %s", key.Name,
			key.Namespace)}
	}
	return secret.Data, nil
}

// configOf returns the credentials in a Secret.
func configOf(data map[string][]byte) maas.Config {
	return maas.Config{
		Endpoint: strings.TrimSpace(string(data[EndpointKey])),
		APIKey:   strings.TrimSpace(string(data[APIKeyKey])),
		CABundle: data[CABundleKey],
	}
}

const (
	// keepSecrets is how long a Secret is kept at most, and maxSecrets how many are.
	keepSecrets = time.Minute
	maxSecrets  = 1024
	// maxSecretBytes bounds what is kept of one.
	maxSecretBytes = 32 << 10
	// trustKey is how long MAAS's word for a key of an LXDHost counts, and doubtKey how long its refusal.
	trustKey = 10 * time.Minute
	doubtKey = time.Minute
	// maxVerdicts is of how many keys MAAS's word is kept.
	maxVerdicts = 4096
)

// usedKeys are what is used of a Secret.
var usedKeys = []string{EndpointKey, APIKeyKey, CABundleKey, corev1.TLSCertKey, corev1.TLSPrivateKeyKey}

// secret is what is used of a Secret, or why there is none.
type secret struct {
	data    map[string][]byte
	missing error
}

// aSecret is a Secret as it is kept. The version is "" if it is not known which one that is.
type aSecret struct {
	client.ObjectKey
	version string
}

// secret returns a Secret that was read at most maxAge ago, or has not changed since: many look at the same ones. Of
// what nobody here uses only the names of its keys are there. See readSecret.
func (f *Factory) secret(
	ctx context.Context, field string, key client.ObjectKey, maxAge time.Duration,
) (map[string][]byte, error) {
	size, as := 0, aSecret{key, f.version(ctx, key)}
	if as.version != "" {
		maxAge = keepSecrets
	}
	cached := f.secrets.Within(as, keepSecrets, maxSecrets)
	found, err := cached.Get(ctx, maxAge, func(ctx context.Context) (secret, error) {
		data, err := readSecret(ctx, f.Client, field, key)
		if guard.Is[*CredentialsError](err) {
			return secret{missing: err}, nil
		}
		for name, value := range data {
			if !slices.Contains(usedKeys, name) {
				value = nil
			}
			data[name] = value
			size += len(name) + len(value)
		}
		return secret{data: data}, err
	})
	if size > maxSecretBytes {
		f.secrets.Drop(as)
	}
	if err != nil {
		return nil, err
	}
	return found.data, found.missing
}

// version returns which version of a Secret the watch has seen; "" if it has seen none.
func (f *Factory) version(ctx context.Context, key client.ObjectKey) string {
	if f.Watched == nil {
		return ""
	}
	seen := &metav1.PartialObjectMetadata{}
	seen.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if err := f.Watched.Get(ctx, key, seen); err != nil {
		return ""
	}
	return string(seen.UID) + "/" + seen.ResourceVersion
}

// accepted returns an error unless MAAS accepts the key of an LXDHost, or did so lately.
func (f *Factory) accepted(ctx context.Context, host *infrav1.LXDHost, config maas.Config) error {
	ask := func(ctx context.Context) (refusal, err error) {
		region, err := f.useForHost(host, config)
		if err == nil {
			_, err = region.Inventory.Zones(ctx, trustKey)
		}
		if ctx.Err() != nil {
			return nil, err
		}
		return err, nil
	}
	verdicts := f.verdicts.Within(config.ID(), trustKey, maxVerdicts)
	refusal, err := verdicts.Get(ctx, trustKey, ask)
	if err == nil && refusal != nil {
		refusal, err = verdicts.Get(ctx, doubtKey, ask)
	}
	return cmp.Or(err, refusal)
}
