// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

const (
	// checkAgain is how long a connection that was checked is trusted to have the same project and rights.
	checkAgain = 10 * time.Minute
	// forgetAfter is how long a connection is kept that is not used: that of each Secret that a host had.
	forgetAfter = 5 * time.Minute
)

// Connections keeps the hosts that several callers use, and what was last read of each. It is safe for concurrent use;
// the zero value is ready.
type Connections struct {
	mu    sync.Mutex
	hosts map[string]*connection
}

// connection is one host, by its options.
type connection struct {
	used, freed time.Time // guarded by Connections.mu

	circuit *guard.Circuit
	lock    guard.Lock // one caller connects or reads at a time; the others wait for its result

	// Of who has the lock.
	host    *Host
	checked time.Time
	reading kept[Reading]
	names   kept[[]string]
}

// kept is what was read last, and when that began; the zero value before the first time.
type kept[T any] struct {
	value T
	at    time.Time
}

// Reading is what a host has, and what is in the project there.
type Reading struct {
	Capacity
	// VMs are those that carry marks, by name.
	VMs []VM
	// MACs has the instance of each MAC address that is taken.
	MACs map[string]string
	// Disk is how many bytes the instances have been given in each storage pool.
	Disk map[string]int64
	// Images are those of virtual machines.
	Images []Image
	// At is when it was read.
	At time.Time
}

// Host returns a connected host: LXD is there, has the pinned certificate, trusts ours, has the project and can run
// VMs. Options with other certificates are another host. The error is an *Error: KindInvalid, KindUnreachable, KindPin,
// KindNotTrusted, KindProject, KindNoVMs, KindCluster or KindOther.
func (c *Connections) Host(ctx context.Context, o Options) (*Host, error) {
	one := c.get(o)
	release, err := one.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	return one.connect(ctx, o)
}

// Read returns what a host has, as read at most maxAge ago, and since Freed: GET /1.0, /1.0/networks, projects/P/state,
// resources, storage-pools, instances and images, and one more for each pool. The error is an *Error, or that of Host.
func (c *Connections) Read(ctx context.Context, o Options, maxAge time.Duration) (Reading, error) {
	since := time.Now().Add(-maxAge)
	if freed := c.freed(o); freed.After(since) {
		since = freed
	}
	return recent(ctx, c.get(o), o, since, func(one *connection) *kept[Reading] { return &one.reading }, (*Host).read)
}

// Freed notes that a host has more room than was read: an instance was just deleted.
func (c *Connections) Freed(o Options) {
	one := c.get(o)
	c.mu.Lock()
	defer c.mu.Unlock()
	one.freed = time.Now()
}

func (c *Connections) freed(o Options) time.Time {
	one := c.get(o)
	c.mu.Lock()
	defer c.mu.Unlock()
	return one.freed
}

// Names returns the names of all instances in the project, as read at most maxAge ago: GET /1.0/instances, without what
// they are. The error is that of Host or List.
func (c *Connections) Names(ctx context.Context, o Options, maxAge time.Duration) ([]string, error) {
	return recent(ctx, c.get(o), o, time.Now().Add(-maxAge), func(one *connection) *kept[[]string] { return &one.names },
		(*Host).names)
}

// recent returns what was read of a host since then, by another caller meanwhile, too, and reads it if it was not.
func recent[T any](
	ctx context.Context, one *connection, o Options, since time.Time, of func(*connection) *kept[T],
	read func(*Host, context.Context) (T, error),
) (none T, _ error) {
	release, err := one.acquire(ctx)
	if err != nil {
		return none, err
	}
	defer release()
	last := of(one)
	if !last.at.IsZero() && !last.at.Before(since) {
		return last.value, nil
	}
	host, err := one.connect(ctx, o)
	if err != nil {
		return none, err
	}
	now := kept[T]{at: time.Now()}
	if now.value, err = read(host, ctx); err != nil {
		return none, err
	}
	*last = now
	return now.value, nil
}

// read reads all of a host.
func (h *Host) read(ctx context.Context) (Reading, error) {
	r := Reading{At: time.Now()}
	err := h.in(ctx, "read", "reading the project", func(s *session) error {
		for _, read := range []func(*Capacity) error{
			s.readServer, s.readBridges, s.readProject, s.readResources, s.readPools,
		} {
			if err := read(&r.Capacity); err != nil {
				return err
			}
		}
		instances, err := s.client.GetInstances(api.InstanceTypeAny)
		if err != nil {
			return err
		}
		r.VMs, r.MACs, r.Disk = marked(instances), macAddresses(instances), allocatedDisk(instances)
		r.Images, err = s.images(instances)
		return err
	})
	return r, err
}

// acquire waits for the other callers, until the context ends.
func (one *connection) acquire(ctx context.Context) (release func(), err error) {
	if release, err = one.lock.Acquire(ctx); err != nil {
		return nil, &Error{Kind: KindUnreachable, Problem: "LXD keeps another call waiting: " + err.Error(), unsent: true,
			cause: err}
	}
	return release, nil
}

// connect connects, or checks the connection again after a while. The caller has the lock.
func (one *connection) connect(ctx context.Context, o Options) (*Host, error) {
	if one.host != nil && time.Since(one.checked) < checkAgain {
		return one.host, nil
	}
	host, err := connect(ctx, o, one.circuit)
	if err != nil {
		return nil, err
	}
	if one.host != nil {
		one.host.Close()
	}
	one.host, one.checked = host, time.Now()
	return host, nil
}

// get returns the connection for options, and drops those that have not been used for long.
func (c *Connections) get(o Options) *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, key := time.Now(), o.key()
	if c.hosts == nil {
		c.hosts = map[string]*connection{}
	}
	if c.hosts[key] == nil {
		c.hosts[key] = &connection{circuit: newCircuit(), lock: guard.NewLock()}
	}
	c.hosts[key].used = now
	for other, one := range c.hosts {
		if now.Sub(one.used) > forgetAfter {
			delete(c.hosts, other)
			go one.close()
		}
	}
	return c.hosts[key]
}

// close closes a connection that is not used any more.
func (one *connection) close() {
	release, err := one.lock.Acquire(context.Background()) // Who has it now ends with its timeout.
	if err != nil {
		return
	}
	defer release()
	if one.host != nil {
		one.host.Close()
	}
}

// key identifies options without revealing the key.
func (o Options) key() string {
	// Strings can be marshalled.
	parts, _ := json.Marshal([]string{o.Address, o.Project, string(o.ServerCertificate), string(o.ClientCertificate),
		string(o.ClientKey)})
	return fmt.Sprintf("%x", sha256.Sum256(parts))
}
