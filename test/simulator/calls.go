// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/json"
	"net"
	"net/http"
	"sort"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// maxCallLog bounds the log of calls; older ones are dropped and counted.
const maxCallLog = 20000

// Call is one request to the API.
type Call struct {
	// Number counts calls from 1; ResetCalls restarts it, but not Serial.
	Number   int       `json:"number"`
	Serial   int       `json:"-"`
	Time     time.Time `json:"time"`
	Method   string    `json:"method"`
	Path     string    `json:"path"`
	Query    string    `json:"query,omitempty"`
	Endpoint string    `json:"endpoint"` // such as "machines/{id}/"; empty if there is no such endpoint
	Op       string    `json:"op,omitempty"`
	// User is the user of the API key in the request, even if the signature is wrong.
	User string `json:"user,omitempty"`
	// UserAgent is the client's, AgentName what it wants MAAS to record of it, Asked the machine that it asks for.
	UserAgent string `json:"user_agent,omitempty"`
	AgentName string `json:"agent_name,omitempty"`
	Asked     string `json:"asked,omitempty"`
	// DryRun means that it only asks what MAAS would do.
	DryRun bool `json:"dry_run,omitempty"`
	// SystemID is the machine in the path, or the one that the call took or made.
	SystemID string `json:"system_id,omitempty"`
	// Status is the reply's; 0 before there is one, and when the connection was dropped.
	Status int `json:"status"`
}

// CallKey is the key by which calls are counted.
type CallKey struct {
	Method, Endpoint, Op string
	Status               int
}

// CallStats are the calls of the API since the beginning or the last ResetCalls.
type CallStats struct {
	ByKey map[CallKey]int
	Total int
	// Connections counts opened ones, if ConnState is in the http.Server.
	Connections int
	// Log has the newest calls, oldest first; Dropped is the number of older ones that are missing.
	Log     []Call
	Dropped int
}

// MarshalJSON writes the counts as a sorted list, since JSON has no structs as keys.
func (c CallStats) MarshalJSON() ([]byte, error) {
	type row struct {
		Method   string `json:"method"`
		Endpoint string `json:"endpoint"`
		Op       string `json:"op,omitempty"`
		Status   int    `json:"status"`
		Count    int    `json:"count"`
	}
	rows := make([]row, 0, len(c.ByKey))
	for key, count := range c.ByKey {
		rows = append(rows, row{key.Method, key.Endpoint, key.Op, key.Status, count})
	}
	sort.Slice(rows, func(i, j int) bool {
		a, b := rows[i], rows[j]
		if a.Endpoint != b.Endpoint {
			return a.Endpoint < b.Endpoint
		}
		if a.Method != b.Method {
			return a.Method < b.Method
		}
		if a.Op != b.Op {
			return a.Op < b.Op
		}
		return a.Status < b.Status
	})
	return json.Marshal(map[string]any{
		"counts": rows, "total": c.Total, "connections": c.Connections, "log": c.Log, "dropped": c.Dropped,
	})
}

type callRecorder struct {
	mu          sync.Mutex
	clock       clock.PassiveClock
	byKey       map[CallKey]int
	number      int
	serial      int
	connections int
	log         []Call
	dropped     int
}

func (c *callRecorder) init(now clock.PassiveClock) {
	c.clock = now
	c.byKey = map[CallKey]int{}
}

// begin gives a call its number and time.
func (c *callRecorder) begin(call *Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.number++
	c.serial++
	call.Number, call.Serial, call.Time = c.number, c.serial, c.clock.Now()
}

// end counts a finished call.
func (c *callRecorder) end(call Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byKey[CallKey{call.Method, call.Endpoint, call.Op, call.Status}]++
	c.log = append(c.log, call)
	if over := len(c.log) - maxCallLog; over > 0 {
		c.log = append([]Call(nil), c.log[over:]...)
		c.dropped += over
	}
}

// Calls returns the calls of the API so far, without requests that are under way.
func (s *Simulator) Calls() CallStats {
	c := &s.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	stats := CallStats{ByKey: map[CallKey]int{}, Connections: c.connections, Dropped: c.dropped}
	for key, count := range c.byKey {
		stats.ByKey[key] = count
		stats.Total += count
	}
	stats.Log = append([]Call{}, c.log...)
	return stats
}

// ResetCalls forgets the calls and connections counted so far.
func (s *Simulator) ResetCalls() {
	c := &s.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byKey, c.number, c.connections, c.log, c.dropped = map[CallKey]int{}, 0, 0, nil, 0
}

// ConnState counts connections: put it into the http.Server that serves Handler.
func (s *Simulator) ConnState(_ net.Conn, state http.ConnState) {
	if state != http.StateNew {
		return
	}
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	s.calls.connections++
}

// Phase is when in a call a hook runs.
type Phase string

// Before: the call has not been executed. After: it has, only the reply is missing.
const (
	Before Phase = "before"
	After  Phase = "after"
)

type hookHolder struct {
	mu sync.Mutex
	fn func(Call, Phase) error
}

// SetHook makes the simulator call fn in each request to the API, before and after its effect; nil ends that. If fn
// returns an error the connection is dropped without a reply: Before, nothing has happened; After, the effect stays.
// Concurrent requests call fn concurrently.
func (s *Simulator) SetHook(fn func(Call, Phase) error) {
	s.hook.mu.Lock()
	defer s.hook.mu.Unlock()
	s.hook.fn = fn
}

func (s *Simulator) runHook(call Call, phase Phase) error {
	s.hook.mu.Lock()
	fn := s.hook.fn
	s.hook.mu.Unlock()
	if fn == nil {
		return nil
	}
	return fn(call, phase)
}
