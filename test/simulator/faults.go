// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
)

// Fault is a fault of calls to the API. Method, Endpoint and Op (empty: any) select the calls, the action fields what
// happens, and the last fields how often (none: every time).
type Fault struct {
	ID string

	Method   string
	Endpoint string // a pattern as Call.Endpoint shows it
	Op       string
	// NoOp matches only calls without an operation: plain reads, creations, updates and deletions.
	NoOp     bool
	SystemID string

	// Status, with Body and Headers, is the response; the call is not executed.
	Status  int
	Body    string
	Headers map[string]string
	// Late responds with Status after the call was executed, like a proxy before MAAS that timed out.
	Late bool
	// Delay passes before anything else, in real time.
	Delay Duration
	// DropBefore closes the connection before the call is executed, DropAfter afterwards.
	DropBefore bool
	DropAfter  bool
	// Truncate sends half of the body and closes the connection; Garbage sends a 200 with invalid JSON.
	Truncate bool
	Garbage  bool

	// First is the number of matching calls that it affects; Every affects each n-th.
	First int
	Every int

	// Seen and Done count the calls that matched and those it affected.
	Seen int
	Done int
}

// AddFault adds a fault; id is its ID, or one made up.
func (s *Simulator) AddFault(f Fault) (id string, err error) {
	if err := f.validate(); err != nil {
		return "", fmt.Errorf("fault: %w", err)
	}
	fs := &s.faults
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.next++
	if f.ID == "" {
		f.ID = fmt.Sprintf("fault-%d", fs.next)
	}
	for _, old := range fs.list {
		if old.ID == f.ID {
			return "", fmt.Errorf("fault: there is one called %s", f.ID)
		}
	}
	f.Seen, f.Done = 0, 0
	fs.list = append(fs.list, &f)
	return f.ID, nil
}

// ChooseFaults calls choose for each call that no fault of AddFault affects. Only the action fields of its result
// count. It returns nil for no fault. With nil instead of choose this ends. Concurrent calls call it concurrently.
func (s *Simulator) ChooseFaults(choose func(Call) *Fault) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.choose = choose
}

// ClearFaults removes all faults, and the function of ChooseFaults.
func (s *Simulator) ClearFaults() {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.list, s.faults.choose = nil, nil
}

// RemoveFault removes one fault; false if there is none with that id.
func (s *Simulator) RemoveFault(id string) bool {
	fs := &s.faults
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for i, f := range fs.list {
		if f.ID == id {
			fs.list = append(fs.list[:i:i], fs.list[i+1:]...)
			return true
		}
	}
	return false
}

// Faults returns those that may still happen, with their counts.
func (s *Simulator) Faults() []Fault {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	out := make([]Fault, 0, len(s.faults.list))
	for _, f := range s.faults.list {
		out = append(out, *f)
	}
	return out
}

func (f Fault) validate() error {
	if f.Status == 0 && f.Delay == 0 && !f.DropBefore && !f.DropAfter && !f.Truncate && !f.Garbage {
		return fmt.Errorf("it does nothing: give status, delay, drop_before, drop_after, truncate or garbage")
	}
	if f.Status != 0 && (f.Status < 200 || f.Status > 599) {
		return fmt.Errorf("status %d is no HTTP status of a reply", f.Status)
	}
	if f.Late && f.Status == 0 {
		return fmt.Errorf("late without a status")
	}
	if f.First < 0 || f.Every < 0 {
		return fmt.Errorf("first and every must not be negative")
	}
	if f.Op != "" && f.NoOp {
		return fmt.Errorf("op and no_op exclude each other")
	}
	return nil
}

type faultSet struct {
	mu   sync.Mutex
	next int
	list []*Fault
	// choose is called if no fault of the list happens.
	choose func(Call) *Fault
}

// match counts the call for each fault that it matches, and returns the first that happens, or nil.
func (fs *faultSet) match(call Call) *Fault {
	hit, choose := fs.listed(call)
	if hit == nil && choose != nil {
		return choose(call)
	}
	return hit
}

func (fs *faultSet) listed(call Call) (hit *Fault, choose func(Call) *Fault) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range fs.list {
		if !f.matches(call) {
			continue
		}
		f.Seen++
		if hit == nil && f.happens() {
			f.Done++
			once := *f
			hit = &once
		}
	}
	return hit, fs.choose
}

func (f *Fault) matches(call Call) bool {
	return (f.Method == "" || f.Method == call.Method) &&
		(f.Endpoint == "" || f.Endpoint == call.Endpoint) &&
		(f.Op == "" || f.Op == call.Op) &&
		(!f.NoOp || call.Op == "") &&
		(f.SystemID == "" || f.SystemID == call.SystemID)
}

func (f *Fault) happens() bool {
	if f.Every > 0 && f.Seen%f.Every != 0 {
		return false
	}
	return f.First == 0 || f.Done < f.First
}

// wait waits for the fault's delay, or until the simulator closes.
func (f *Fault) wait(s *Simulator) {
	if f == nil || f.Delay == 0 {
		return
	}
	t := s.time.clock.NewTimer(timeOf(f.Delay))
	defer t.Stop()
	select {
	case <-t.C():
	case <-s.stop:
	}
}

func (f *Fault) dropsBefore() bool { return f != nil && f.DropBefore }
func (f *Fault) dropsAfter() bool  { return f != nil && f.DropAfter }
func (f *Fault) cutsBody() bool    { return f != nil && f.Truncate }

// reply returns the response in place of MAAS's, or nil.
func (f *Fault) reply() *reply {
	if f == nil || f.Status == 0 || f.Late {
		return nil
	}
	return f.answer()
}

func (f *Fault) answer() *reply {
	out := &reply{status: f.Status, header: http.Header{"Content-Type": {contentText}}, body: []byte(f.Body)}
	for key, value := range f.Headers {
		out.header.Set(key, value)
	}
	return out
}

// spoil returns garbage or another response in place of MAAS's, if the fault says so.
func (f *Fault) spoil(r *reply) *reply {
	if f != nil && f.Late {
		return f.answer()
	}
	if f == nil || !f.Garbage {
		return r
	}
	return &reply{status: http.StatusOK, header: r.header, body: bytes.Repeat([]byte("{\x00\xff<html>"), 16)}
}
