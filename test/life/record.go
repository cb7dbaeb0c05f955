// SPDX-License-Identifier: Apache-2.0

package life

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// recordInterval is how often the DNS record is read.
const recordInterval = 20 * time.Millisecond

// Record reads the DNS record of an API endpoint all the time: once it has an address, it must always have one.
type Record struct {
	t    *testing.T
	maas *simulator.Simulator
	name string
	end  func()
	done sync.WaitGroup

	mutex sync.Mutex
	led   bool        // it led somewhere
	empty []time.Time // when it led nowhere after that
}

// WatchRecord watches the record of a name until End, or until the test ends.
func WatchRecord(t *testing.T, maas *simulator.Simulator, name string) *Record {
	w := watchRecord(t, maas, name)
	t.Cleanup(w.End)
	return w
}

func watchRecord(t *testing.T, maas *simulator.Simulator, name string) *Record {
	ended := make(chan struct{})
	w := &Record{t: t, maas: maas, name: name, end: sync.OnceFunc(func() { close(ended) })}
	w.done.Go(func() {
		tick := time.NewTicker(recordInterval)
		defer tick.Stop()
		for {
			w.read()
			select {
			case <-ended:
				return
			case <-tick.C:
			}
		}
	})
	return w
}

func (w *Record) read() {
	leads := len(w.maas.Lookup(w.name)) > 0
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.led && !leads {
		w.empty = append(w.empty, time.Now())
	}
	w.led = w.led || leads
}

// Addresses are where the record leads now, sorted as text.
func (w *Record) Addresses() []string {
	var addresses []string
	for _, address := range w.maas.Lookup(w.name) {
		addresses = append(addresses, address.String())
	}
	slices.Sort(addresses)
	return addresses
}

// stop ends the watch.
func (w *Record) stop() {
	w.end()
	w.done.Wait()
}

// End ends the watch, and fails the test if the record has led nowhere after it had led somewhere.
func (w *Record) End() {
	w.t.Helper()
	w.stop()
	w.check()
}

// check fails the test if the record has led nowhere after it had led somewhere.
func (w *Record) check() {
	w.t.Helper()
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if len(w.empty) > 0 {
		w.t.Errorf("%s led nowhere %d times, first at %s", w.name, len(w.empty), w.empty[0].Format(time.RFC3339Nano))
		w.empty = nil
	}
}
