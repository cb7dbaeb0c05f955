// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"net/netip"
	"sync"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/simulator"
)

// names are MAAS with its DNS, and what operators keep beside it.
type names struct {
	*simulator.Simulator

	mutex   sync.Mutex
	outside map[string]func() []netip.Addr
}

// Lookup returns the addresses that a name leads to, or that a load balancer's address leads to.
func (n *names) Lookup(host string) []netip.Addr {
	n.mutex.Lock()
	leads := n.outside[host]
	n.mutex.Unlock()
	if leads != nil {
		return leads()
	}
	return n.Simulator.Lookup(host)
}

// Lead has a name or an address that MAAS knows nothing of lead to the addresses that to returns, as an operator's DNS
// or load balancer does, until end. to is called for each connection, by several goroutines.
func (s *Sandbox) Lead(host string, to func() []netip.Addr) (end func()) {
	s.names.mutex.Lock()
	defer s.names.mutex.Unlock()
	s.names.outside[host] = to
	return func() {
		s.names.mutex.Lock()
		defer s.names.mutex.Unlock()
		delete(s.names.outside, host)
	}
}
