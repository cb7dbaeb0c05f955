// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	lxdclient "github.com/canonical/lxd/client"
	"github.com/canonical/lxd/shared/api"

	"github.com/capmaas/cluster-api-provider-maas/test/sandbox/lxd"
)

// followInterval is how often new daemons are searched for.
const followInterval = 100 * time.Millisecond

// Event is an event of an LXD daemon: instance-created, and the instance's URL.
type Event struct{ Action, Source string }

// Daemons keeps what happens in LXD daemons, also of those that are gone with their machine.
type Daemons struct {
	sockets func() map[string]string
	end     func()
	done    sync.WaitGroup

	mutex  sync.Mutex
	active map[string]*lxdclient.EventListener // by socket
	events map[string][]Event                  // by node
}

// FollowDaemons follows the daemons that sockets returns: their unix sockets, by the names of their nodes. Objects that
// exist when a daemon is found count as made. The caller ends it with Close.
func FollowDaemons(sockets func() map[string]string) *Daemons {
	ctx, end := context.WithCancel(context.Background())
	d := &Daemons{sockets: sockets, end: end, active: map[string]*lxdclient.EventListener{}, events: map[string][]Event{}}
	d.done.Go(func() {
		tick := time.NewTicker(followInterval)
		defer tick.Stop()
		for {
			d.follow(ctx)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return d
}

// Close ends it.
func (d *Daemons) Close() {
	d.end()
	d.done.Wait()
	for _, listener := range d.active {
		listener.Disconnect()
	}
}

func (d *Daemons) follow(ctx context.Context) {
	now := d.sockets()
	for socket, listener := range d.active {
		if !listener.IsActive() || !slices.Contains(slices.Collect(maps.Values(now)), socket) {
			listener.Disconnect()
			delete(d.active, socket)
		}
	}
	for node, socket := range now {
		if d.active[socket] != nil {
			continue
		}
		if listener, err := d.listen(ctx, node, socket); err == nil { // else it is starting, or ending
			d.active[socket] = listener
		}
	}
}

// listen listens first, and then reads the existing objects: an object that is made in between is recorded twice, and
// not missed.
func (d *Daemons) listen(ctx context.Context, node, socket string) (*lxdclient.EventListener, error) {
	client, err := lxd.Connect(ctx, socket)
	if err != nil {
		return nil, err
	}
	listener, err := client.GetEventsAllProjects()
	if err != nil {
		return nil, fmt.Errorf("listening to the LXD of %s: %w", node, err)
	}
	_, err = listener.AddHandler([]string{api.EventTypeLifecycle}, func(event api.Event) {
		happened := api.EventLifecycle{}
		if err := json.Unmarshal(event.Metadata, &happened); err == nil { // LXD's own form
			d.record(node, Event{Action: happened.Action, Source: happened.Source})
		}
	})
	if err != nil {
		listener.Disconnect()
		return nil, fmt.Errorf("listening to the LXD of %s: %w", node, err)
	}
	if err := d.recordExisting(node, client); err != nil {
		listener.Disconnect()
		return nil, err
	}
	return listener, nil
}

func (d *Daemons) recordExisting(node string, client lxdclient.InstanceServer) error {
	certificates, err := client.GetCertificateFingerprints()
	if err != nil {
		return fmt.Errorf("listing the certificates of %s: %w", node, err)
	}
	for _, fingerprint := range certificates {
		d.record(node, Event{Action: api.EventLifecycleCertificateCreated, Source: "/1.0/certificates/" + fingerprint})
	}
	instances, err := client.GetInstancesAllProjects(api.InstanceTypeAny)
	if err != nil {
		return fmt.Errorf("listing the instances of %s: %w", node, err)
	}
	for _, instance := range instances {
		source := api.NewURL().Path("1.0", "instances", instance.Name).Project(instance.Project)
		d.record(node, Event{Action: api.EventLifecycleInstanceCreated, Source: source.String()})
	}
	return nil
}

func (d *Daemons) record(node string, event Event) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.events[node] = append(d.events[node], event)
}

// Events are what happened so far, by node.
func (d *Daemons) Events() map[string][]Event {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	all := map[string][]Event{}
	for node, events := range d.events {
		all[node] = slices.Clone(events)
	}
	return all
}

// Left returns the trusted certificates, instances and volumes that were made in a daemon and not removed, before it
// ended or until now: a line for each, with the node's name in front.
func (d *Daemons) Left() []string {
	var lines []string
	for node, events := range d.Events() {
		there := map[string]bool{}
		for _, event := range events {
			kind, what, _ := cutLast(event.Action, "-")
			if kind != "certificate" && kind != "instance" && kind != "storage-volume" {
				continue
			}
			switch what {
			case "created":
				there[event.Source] = true
			case "deleted":
				delete(there, event.Source)
			}
		}
		for source := range there {
			lines = append(lines, node+": "+strings.TrimPrefix(source, "/1.0/"))
		}
	}
	slices.Sort(lines)
	return lines
}

func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}
