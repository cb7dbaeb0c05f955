// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"container/heap"
	"time"

	"k8s.io/utils/clock"
)

// regionTime is the region's own time: it runs scale times as fast as the clock, and the scale can change meanwhile.
// Users hold Simulator.mu.
type regionTime struct {
	clock clock.Clock
	scale float64
	// at and region are the same moment in both times.
	at     time.Time
	region time.Duration
}

func newRegionTime(c clock.Clock, scale float64) *regionTime {
	return &regionTime{clock: c, scale: scale, at: c.Now()}
}

// now returns how much of the region's time has passed.
func (rt *regionTime) now() time.Duration {
	return rt.region + time.Duration(float64(rt.clock.Since(rt.at))*rt.scale)
}

// real converts a span of the region's time to one of the clock's.
func (rt *regionTime) real(d time.Duration) time.Duration {
	return time.Duration(float64(d) / rt.scale)
}

func (rt *regionTime) setScale(scale float64) {
	rt.region, rt.at, rt.scale = rt.now(), rt.clock.Now(), scale
}

// timer is a scheduled call.
type timer struct {
	due time.Duration // in the region's time
	seq int
	fn  func() // runs with Simulator.mu held
}

type timerHeap []*timer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	if h[i].due != h[j].due {
		return h[i].due < h[j].due
	}
	return h[i].seq < h[j].seq
}
func (h timerHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *timerHeap) Push(x any)   { *h = append(*h, x.(*timer)) }
func (h *timerHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// in calls fn after d of the region's time. The caller holds s.mu, and so will fn.
func (s *Simulator) in(d time.Duration, fn func()) {
	s.timerSeq++
	heap.Push(&s.timers, &timer{due: s.time.now() + d, seq: s.timerSeq, fn: fn})
	s.wakeScheduler()
}

// later is in for an operation of the machine: fn is not called if the machine has another operation by then, or is
// gone.
func (s *Simulator) later(m *machine, d time.Duration, fn func()) {
	epoch := m.epoch
	s.in(d, func() {
		if !m.gone && m.epoch == epoch {
			fn()
		}
	})
}

func (s *Simulator) wakeScheduler() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// runDue calls everything that is due, in order, and returns how long to wait for the next (0: nothing is planned).
func (s *Simulator) runDue() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.timers) > 0 {
		if wait := s.timers[0].due - s.time.now(); wait > 0 {
			return max(s.time.real(wait), time.Microsecond)
		}
		heap.Pop(&s.timers).(*timer).fn()
	}
	return 0
}

// schedule runs until Close.
func (s *Simulator) schedule() {
	defer s.running.Done()
	for {
		wait := s.runDue()
		if wait == 0 {
			select {
			case <-s.wake:
			case <-s.stop:
				return
			}
			continue
		}
		next := s.time.clock.NewTimer(wait)
		select {
		case <-next.C():
		case <-s.wake:
		case <-s.stop:
			next.Stop()
			return
		}
		next.Stop()
	}
}

// sleep waits for d of the region's time inside a request. The caller does not hold s.mu.
func (s *Simulator) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	s.mu.Lock()
	wait := s.time.real(d)
	s.mu.Unlock()
	next := s.time.clock.NewTimer(wait)
	defer next.Stop()
	select {
	case <-next.C():
	case <-s.stop:
	}
}
