// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"sync"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Registry keeps one inventory per identity, for as long as it has users.
type Registry struct {
	opts Options

	mu    sync.Mutex
	ctx   context.Context // The context of the inventories, set by Start.
	ready chan struct{}
	users map[string]string // user -> identity
	kept  map[string]*kept  // identity -> inventory
	group sync.WaitGroup
}

type kept struct {
	*Inventory
	stop context.CancelFunc
}

// NewRegistry makes an empty registry. Its inventories run after Start.
func NewRegistry(opts Options) *Registry {
	return &Registry{opts: opts, ready: make(chan struct{}), users: map[string]string{}, kept: map[string]*kept{}}
}

// Start runs the inventories until the context ends, and waits for them.
func (r *Registry) Start(ctx context.Context) error {
	r.mu.Lock()
	r.ctx = ctx
	r.mu.Unlock()
	close(r.ready)
	<-ctx.Done()
	r.group.Wait()
	return nil
}

// For returns the inventory for a user (a cluster). The user's previous inventory ends when it has no other user.
// Errors are those of maas.NewClient.
func (r *Registry) For(user string, config maas.Config) (*Inventory, error) {
	<-r.ready
	r.mu.Lock()
	defer r.mu.Unlock()
	id := config.ID()
	if k := r.kept[id]; k != nil && r.users[user] == id {
		return k.Inventory, nil
	}
	if r.kept[id] == nil {
		client, err := maas.NewClient(config)
		if err != nil {
			return nil, err
		}
		r.kept[id] = r.run(client)
	}
	r.leave(user)
	r.users[user] = id
	return r.kept[id].Inventory, nil
}

// Release stops polling for a user.
func (r *Registry) Release(user string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leave(user)
}

// UsersOf returns the users of an inventory, in no order.
func (r *Registry) UsersOf(inventory *Inventory) (users []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for user, id := range r.users {
		if k := r.kept[id]; k != nil && k.Inventory == inventory {
			users = append(users, user)
		}
	}
	return users
}

// Keeps reports whether an inventory still has a user.
func (r *Registry) Keeps(inventory *Inventory) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.kept {
		if k.Inventory == inventory {
			return true
		}
	}
	return false
}

func (r *Registry) run(client *maas.Client) *kept {
	ctx, stop := context.WithCancel(r.ctx)
	inventory := New(client, r.opts)
	r.group.Go(func() {
		inventory.Run(ctx)
		if r.ctx.Err() == nil {
			inventory.handOver()
		}
	})
	return &kept{Inventory: inventory, stop: stop}
}

// leave drops the user's inventory unless it has another user.
func (r *Registry) leave(user string) {
	id, had := r.users[user]
	delete(r.users, user)
	if !had {
		return
	}
	for _, other := range r.users {
		if other == id {
			return
		}
	}
	r.kept[id].stop()
	delete(r.kept, id)
}
