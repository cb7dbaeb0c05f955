// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"sync"
	"time"
)

// steps shows the current step before there are machines to show.
type steps struct {
	out *screen

	mutex   sync.Mutex
	what    string
	started time.Time
	stop    func()
}

// begin shows that one step is done and the next begins.
func (s *steps) begin(what string) {
	s.end()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.what, s.started = what, time.Now()
	if !s.out.terminal {
		s.out.print(what)
		return
	}
	s.stop = s.repaint(what, s.started)
}

// repaint shows the time that passes until it is stopped.
func (s *steps) repaint(what string, started time.Time) (stop func()) {
	end := make(chan struct{})
	var painting sync.WaitGroup
	painting.Go(func() {
		tick := time.NewTicker(repaintInterval)
		defer tick.Stop()
		for {
			s.out.paint([]line{{{"... ", yellow}, {what, plain}, {"  " + clockTime(time.Since(started)), dim}}})
			select {
			case <-end:
				return
			case <-tick.C:
			}
		}
	})
	return func() { close(end); painting.Wait() }
}

// end shows that the last step is done.
func (s *steps) end() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.stop == nil {
		return
	}
	s.stop()
	s.stop = nil
	s.out.paint(nil)
	s.out.print(fmt.Sprintf("    %s  %s", s.what, clockTime(time.Since(s.started))))
}
