// SPDX-License-Identifier: Apache-2.0

package flows_test

import (
	"sync"
	"testing"
	"time"
)

// recordInterval is how often the DNS record is looked at.
const recordInterval = 20 * time.Millisecond

// recordWatch looks at the DNS record of an API endpoint all the time: once it leads somewhere, it always must.
type recordWatch struct {
	t    *testing.T
	name string
	end  func()
	done sync.WaitGroup

	mutex sync.Mutex
	led   bool        // it led somewhere
	empty []time.Time // when it led nowhere after that
}

func watchRecord(t *testing.T, name string) *recordWatch {
	ended := make(chan struct{})
	w := &recordWatch{t: t, name: name, end: sync.OnceFunc(func() { close(ended) })}
	w.done.Go(func() {
		tick := time.NewTicker(recordInterval)
		defer tick.Stop()
		for {
			w.note()
			select {
			case <-ended:
				return
			case <-tick.C:
			}
		}
	})
	return w
}

func (w *recordWatch) note() {
	leads := len(box.MAAS.Lookup(w.name)) > 0
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.led && !leads {
		w.empty = append(w.empty, time.Now())
	}
	w.led = w.led || leads
}

// now is where the record leads, sorted as text.
func (w *recordWatch) now() []string { return lookup(w.name) }

// stop ends the watch.
func (w *recordWatch) stop() {
	w.end()
	w.done.Wait()
}

// check fails the test if the record has led nowhere.
func (w *recordWatch) check() {
	w.t.Helper()
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if !w.led {
		w.t.Errorf("%s has never led anywhere", w.name)
	}
	if len(w.empty) > 0 {
		w.t.Errorf("%s led nowhere %d times, first at %s", w.name, len(w.empty), w.empty[0].Format(time.RFC3339Nano))
		w.empty = nil
	}
}
