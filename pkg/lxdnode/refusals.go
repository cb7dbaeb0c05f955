// SPDX-License-Identifier: Apache-2.0

package lxdnode

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/pkg/lxdapi"
)

// askAgain is how long LXD is not asked again for what it refused to make: it may take half a minute to find out that
// it can't.
const askAgain = 10 * time.Minute

// Refusals remembers from pass to pass what LXD refused to make. Something else is asked for at once, and an LXD that
// was restarted is asked again. The zero value is ready; it is safe for concurrent use.
type Refusals struct {
	mu  sync.Mutex
	all map[string]refusal
}

type refusal struct {
	err error
	at  time.Time
}

// Remember has the node use what is known from earlier passes, and add to it. Without it LXD is always asked.
func (n *Node) Remember(refusals *Refusals) { n.refusals = refusals }

// create asks LXD for something that it does not have, unless it has just refused that.
func (p *pass) create(client *lxdapi.Client, target *api.URL, body any) error {
	if p.refusals == nil {
		return client.Post(target, body)
	}
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	key := fmt.Sprintf("%d %s %s", p.server.Environment.ServerPid, target, content)
	if known := p.refusals.get(key); known != nil {
		return known
	}
	err = client.Post(target, body)
	if lxdapi.IsRefused(err) {
		p.refusals.add(key, err)
	}
	return err
}

func (r *Refusals) get(key string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.all[key]; time.Since(known.at) < askAgain {
		return known.err
	}
	return nil
}

func (r *Refusals) add(key string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other, known := range r.all {
		if time.Since(known.at) >= askAgain {
			delete(r.all, other)
		}
	}
	if r.all == nil {
		r.all = map[string]refusal{}
	}
	r.all[key] = refusal{err, time.Now()}
}
