// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

const (
	// keepSecrets is how long a Secret is kept at most, and maxSecrets how many are.
	keepSecrets = time.Minute
	maxSecrets  = 1024
	// maxSecretBytes bounds what is kept of one.
	maxSecretBytes = 32 << 10
	// trustKey is how long MAAS's word for a key of an LXDHost counts, and doubtKey how long its refusal.
	trustKey = 10 * time.Minute
	doubtKey = time.Minute
)

// usedKeys are what is kept of a Secret.
var usedKeys = []string{EndpointKey, APIKeyKey, CABundleKey, corev1.TLSCertKey, corev1.TLSPrivateKeyKey}

// secrets are the Secrets of LXDHosts as they were read last, for a short while: many look at the same hosts. The zero
// value is ready.
type secrets struct {
	mu   sync.Mutex
	kept map[client.ObjectKey]kept[map[string][]byte]
}

// kept is something with its age.
type kept[T any] struct {
	value T
	err   error
	at    time.Time
}

// isOld reports whether it is too old for everybody.
func (k kept[T]) isOld(than time.Duration) bool { return time.Since(k.at) > than }

// read returns a Secret that was read at most maxAge ago; see readSecret. What is not there is kept, too.
func (s *secrets) read(
	ctx context.Context, from client.Reader, field string, key client.ObjectKey, maxAge time.Duration,
) (map[string][]byte, error) {
	if has, found := s.get(key); found && maxAge > 0 && !has.isOld(maxAge) {
		return has.value, has.err
	}
	data, err := readSecret(ctx, from, field, key)
	if err == nil || guard.Is[*CredentialsError](err) {
		s.keep(key, data, err)
	}
	return data, err
}

func (s *secrets) get(key client.ObjectKey) (kept[map[string][]byte], bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	has, found := s.kept[key]
	return has, found
}

func (s *secrets) keep(key client.ObjectKey, data map[string][]byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size, used := 0, map[string][]byte{}
	for _, name := range usedKeys {
		used[name] = data[name]
		size += len(data[name])
	}
	maps.DeleteFunc(s.kept, func(_ client.ObjectKey, k kept[map[string][]byte]) bool { return k.isOld(keepSecrets) })
	delete(s.kept, key)
	if size > maxSecretBytes || len(s.kept) >= maxSecrets {
		return
	}
	if s.kept == nil {
		s.kept = map[client.ObjectKey]kept[map[string][]byte]{}
	}
	s.kept[key] = kept[map[string][]byte]{used, err, time.Now()}
}

// accepted returns an error unless MAAS accepts the key of an LXDHost, or did so lately.
func (f *Factory) accepted(ctx context.Context, host *infrav1.LXDHost, config maas.Config) error {
	f.mu.Lock()
	maps.DeleteFunc(f.verdicts, func(_ string, v kept[struct{}]) bool {
		return v.isOld(trustKey) || (v.err != nil && v.isOld(doubtKey))
	})
	verdict, known := f.verdicts[config.ID()]
	f.mu.Unlock()
	if known {
		return verdict.err
	}
	region, err := f.useForHost(host, config)
	if err == nil {
		_, err = region.Inventory.Zones(ctx, trustKey)
	}
	if ctx.Err() != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.verdicts == nil {
		f.verdicts = map[string]kept[struct{}]{}
	}
	f.verdicts[config.ID()] = kept[struct{}]{err: err, at: time.Now()}
	return err
}
