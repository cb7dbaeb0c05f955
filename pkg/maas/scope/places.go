// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// Places are where the LXDHosts of MAAS's VM hosts belong, as MAAS has proven it. No other object of a VM host counts.
// The zero value knows none.
type Places struct {
	mu    sync.RWMutex
	known map[place]client.ObjectKey
}

type place struct {
	where string
	id    int64
}

// Put tells which LXDHost is that of its VM host in the MAAS at where.
func (p *Places) Put(where string, host *infrav1.LXDHost) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[place]client.ObjectKey{}
	}
	p.known[place{where, host.Spec.VMHost.ID}] = client.ObjectKeyFromObject(host)
}

// Has reports whether an LXDHost is in its place: it is no VM host's, it is that of its VM host, or it is not known yet
// which one that is. Whoever claims a VM host then has the right to adopt one.
func (p *Places) Has(host *infrav1.LXDHost) bool {
	if host.Spec.VMHost == nil {
		return true
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	key, known := p.known[place{host.Annotations[infrav1.MAASAnnotation], host.Spec.VMHost.ID}]
	return !known || key == client.ObjectKeyFromObject(host)
}
