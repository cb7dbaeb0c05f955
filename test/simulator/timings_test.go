// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

// takes returns the region's time until all of these concurrent requests have responses. It advances while a request is
// on its way to the region, so that it may be more than MAAS took.
func (b *bed) takes(requests ...func() (answer, error)) time.Duration {
	b.t.Helper()
	began := b.clock.Now()
	answered := make(chan error, len(requests))
	for _, send := range requests {
		go func() {
			got, err := send()
			if err == nil && got.status >= http.StatusBadRequest {
				err = fmt.Errorf("status %d: %s", got.status, got.body)
			}
			answered <- err
		}()
	}
	look, deadline := time.NewTicker(time.Millisecond), time.After(eventually.Limit)
	defer look.Stop()
	for range requests {
		for waiting := true; waiting; {
			select {
			case err := <-answered:
				if err != nil {
					b.t.Error(err)
				}
				waiting = false
			case <-look.C:
				b.pass(time.Second)
			case <-deadline:
				b.t.Fatal("no answer")
			}
		}
	}
	return b.clock.Since(began)
}

func TestAListTakesTimeForEachMachineInIt(t *testing.T) {
	b := newBedWith(t, testRegion+"  list_machine: 20s\n", Options{Seed: 1})
	list := func(pairs url.Values) func() (answer, error) {
		return func() (answer, error) { return b.send(adminKey, get, "machines/", pairs) }
	}
	// The third machine is that of the VM host.
	if took := b.takes(list(nil)); took < time.Minute {
		t.Errorf("a list of three machines took %s, want 1m0s", took)
	}
	if took := b.takes(list(url.Values{"hostname": {"big"}})); took < 20*time.Second {
		t.Errorf("a list of one machine took %s, want 20s", took)
	}
	before := b.clock.Now()
	if got := b.do(get, "machines/", "hostname", "none"); got.body != "[]" || b.clock.Now() != before {
		t.Errorf("a list of no machine: %s", got.body)
	}
}

func TestARegionWithOneWorkerChangesOneThingAfterTheOther(t *testing.T) {
	const least = time.Minute // for three of 20 s
	b := newBedWith(t, testRegion+"  write: 20s\n  workers: 1\n", Options{Seed: 1})
	var all []func() (answer, error)
	for _, name := range []string{"one", "two", "three"} {
		all = append(all, func() (answer, error) { return b.send(adminKey, post, "zones/", url.Values{"name": {name}}) })
	}
	if took := b.takes(all...); took < least {
		t.Errorf("three zones were made in %s, want %s", took, least)
	}
	before := b.clock.Now()
	if got := b.do(get, "zones/"); got.status != http.StatusOK || b.clock.Now() != before {
		t.Errorf("a read: %d", got.status)
	}
}

func TestASerialHostMakesAndDeletesOneVMAfterTheOther(t *testing.T) {
	const least = time.Minute // for three of 20 s
	b := newBedWith(t, strings.NewReplacer(
		"compose: 0s\n  decompose: 0s", "compose: 20s\n  decompose: 20s", "size: 500}]", "size: 500}], serial: true",
	).Replace(testRegion), Options{Seed: 1})
	var compositions, deletions []func() (answer, error)
	names := []string{"one", "two", "three"}
	for _, name := range names {
		compositions = append(compositions, func() (answer, error) {
			return b.send(adminKey, post, "vm-hosts/1/", url.Values{"op": {"compose"}, "hostname": {name}, "skip_commissioning": {"true"}})
		})
	}
	if took := b.takes(compositions...); took < least {
		t.Errorf("three VMs were made in %s, want %s", took, least)
	}
	for _, name := range names {
		id := b.named(name).SystemID
		deletions = append(deletions, func() (answer, error) { return b.send(adminKey, del, "machines/"+id+"/", nil) })
	}
	if took := b.takes(deletions...); took < least {
		t.Errorf("three VMs were deleted in %s, want %s", took, least)
	}
}

// MAAS waits no longer for a VM because its host was busy before.
func TestAComposeThatWaitsTooLongForItsTurnTimesOut(t *testing.T) {
	b := newBedWith(t, strings.NewReplacer("compose: 0s\n  decompose", "compose: 90s\n  decompose", "size: 500}]", "size: 500}], serial: true").Replace(testRegion),
		Options{Seed: 1})
	refused := make(chan answer, 2)
	compose := func(hostname string) func() (answer, error) {
		return func() (answer, error) {
			got, err := b.send(adminKey, post, "vm-hosts/1/", url.Values{"op": {"compose"}, "hostname": {hostname}, "skip_commissioning": {"true"}})
			if got.status == http.StatusServiceUnavailable {
				refused <- got
				got.status = http.StatusOK
			}
			return got, err
		}
	}
	b.takes(compose("a"), compose("b"))
	if len(refused) != 1 {
		t.Errorf("MAAS gave up on %d VMs of two, want one", len(refused))
	}
	b.pass(3 * time.Minute)
	if all, unknown := b.realVMs(); all != 2 || unknown != 1 {
		t.Errorf("%d VMs, %d of them unknown to MAAS; want two, the late one unknown", all, unknown)
	}
}
