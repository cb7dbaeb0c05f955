// SPDX-License-Identifier: Apache-2.0

package lxdhost

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestConnections(t *testing.T) {
	b := newBed(t)
	c := &Connections{}
	t.Cleanup(func() {
		for _, one := range c.hosts {
			one.close()
		}
	})
	read := func(t *testing.T, maxAge time.Duration) Reading {
		t.Helper()
		reading, err := c.Read(t.Context(), b.options, maxAge)
		b.in(t).must(err)
		return reading
	}

	t.Run("what was read is read once", func(t *testing.T) {
		first := read(t, 0)
		server, _, err := b.all.GetServer()
		b.in(t).must(err)
		if first.Version != server.Environment.ServerVersion || first.Cores == 0 || len(first.Pools) != 1 || len(first.VMs) != 0 || first.At.IsZero() {
			t.Errorf("it has %+v", first)
		}
		calls := b.between.during(func() {
			if diff := cmp.Diff(first, read(t, time.Hour)); diff != "" {
				t.Errorf("the second reading (-first +second):\n%s", diff)
			}
		})
		if len(calls) > 0 {
			t.Errorf("a recent reading took the calls %q", calls)
		}
	})
	t.Run("what is too old is read again", func(t *testing.T) {
		b.create(spec("vm1"))
		if reading := read(t, time.Hour); len(reading.VMs) != 0 {
			t.Errorf("the old reading has %+v", reading.VMs)
		}
		if reading := read(t, 0); len(reading.VMs) != 1 || reading.VMs[0].Name != "vm1" || reading.VMs[0].Marks != ours {
			t.Errorf("the new reading has %+v", reading.VMs)
		}
	})
	t.Run("what is older than the room that became free is read again", func(t *testing.T) {
		read(t, time.Hour)
		c.Freed(b.options)
		calls := b.between.during(func() { read(t, time.Hour) })
		if again := b.between.during(func() { read(t, time.Hour) }); len(calls) == 0 || len(again) > 0 {
			t.Errorf("the first reading since took the calls %q, the second %q", calls, again)
		}
	})
	t.Run("callers share a reading", func(t *testing.T) {
		one := c.get(b.options)
		one.reading = kept[Reading]{}
		var callers sync.WaitGroup
		calls := b.between.during(func() {
			for range 8 {
				callers.Go(func() { _, _ = c.Read(t.Context(), b.options, time.Minute) })
			}
			callers.Wait()
		})
		lists := 0
		for _, call := range calls {
			if call == "GET /1.0/instances" {
				lists++
			}
		}
		if lists != 1 {
			t.Errorf("eight callers made %d lists", lists)
		}
	})
	t.Run("a failure is not kept", func(t *testing.T) {
		b.between.set(answering(http.StatusForbidden))
		_, err := c.Read(t.Context(), b.options, 0)
		b.between.set(nil)
		wantKind(t, err, KindNotTrusted)
		read(t, 0)
	})
	t.Run("a connection is checked again after a while", func(t *testing.T) {
		one := c.get(b.options)
		host := one.host
		if same, err := c.Host(t.Context(), b.options); err != nil || same != host {
			t.Errorf("another connection: %v", err)
		}
		one.checked = time.Now().Add(-2 * checkAgain)
		b.between.set(environment("server_clustered", true))
		_, err := c.Host(t.Context(), b.options)
		b.between.set(nil)
		wantKind(t, err, KindCluster)
		if again, err := c.Host(t.Context(), b.options); err != nil || again == host {
			t.Errorf("the same connection: %v", err)
		}
	})
	t.Run("other keys are another host", func(t *testing.T) {
		read(t, time.Hour)
		other, keys := b.direct, newKeys(t)
		other.ClientCertificate, other.ClientKey = keys.Certificate, keys.Key
		_, err := c.Read(t.Context(), other, time.Hour)
		wantKind(t, err, KindNotTrusted)
		pinned := b.options
		pinned.ServerCertificate = keys.Certificate
		_, err = c.Read(t.Context(), pinned, time.Hour)
		wantKind(t, err, KindPin)
	})
	t.Run("one that nobody uses is forgotten", func(t *testing.T) {
		before := c.get(b.options)
		before.used = time.Now().Add(-2 * forgetAfter)
		other := b.options
		other.Project = elsewhere
		c.get(other)
		c.mu.Lock()
		_, kept := c.hosts[b.options.key()]
		c.mu.Unlock()
		if kept {
			t.Error("it is kept")
		}
	})
}

func TestKeysTellOptionsApart(t *testing.T) {
	base := Options{Address: "a:1", Project: "p", ServerCertificate: []byte("s"), ClientCertificate: []byte("c"), ClientKey: []byte("k")}
	changed := map[string]func(*Options){
		"address":            func(o *Options) { o.Address = "b:1" },
		"project":            func(o *Options) { o.Project = "q" },
		"server certificate": func(o *Options) { o.ServerCertificate = []byte("t") },
		"client certificate": func(o *Options) { o.ClientCertificate = []byte("d") },
		"key":                func(o *Options) { o.ClientKey = []byte("l") },
		"a moved border":     func(o *Options) { o.Address, o.Project = "a:1p", "" },
	}
	for name, change := range changed {
		other := base
		change(&other)
		if other.key() == base.key() {
			t.Errorf("%s: the same key", name)
		}
	}
}
