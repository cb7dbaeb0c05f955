// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// refusedPause is how long a call that MAAS refused is not sent again, whatever wakes its object meanwhile. No retry
// that a person plans comes sooner.
const refusedPause = 30 * time.Second

// remembered is how long it is remembered after that pause that MAAS refused a call.
const remembered = 10 * time.Minute

// LostError is a call whose response was lost. It is not sent again before the settle time is over, or, if it was
// Publish, for a while; until then the error is *UnsettledError.
type LostError struct {
	Op Op
	// Remaining is how long it may still take effect.
	Remaining time.Duration
	cause     error
}

// Error says what is waited for, in the same words as the *UnsettledError that follow.
func (e *LostError) Error() string { return e.Op.lost(e.cause) }

// Unwrap returns the error of the call.
func (e *LostError) Unwrap() error { return e.cause }

// lost says that the response to an operation was lost.
func (o Op) lost(cause error) string {
	switch {
	case o == Reserve, o == Publish:
		return LostEndpoint
	case o.acquires(), o == Storage:
		return LostRequest
	}
	return fmt.Sprintf("the response to the call %s was lost (%s); "+
		"MAAS may still do it, so it is not repeated before the settle time is over", o, maas.Message(cause))
}

const (
	// LostRequest is why a machine that does not have a machine in MAAS yet waits.
	LostRequest = "the response to the request for a machine was lost; checking whether MAAS has it before retrying"
	// LostEndpoint is why a cluster waits for its virtual IP, or the name of its endpoint, or does not go.
	LostEndpoint = "the response to a request for the API endpoint was lost; checking whether MAAS did it before going on"
)

// attempt is a call of one object that failed.
type attempt struct {
	uid   types.UID
	about string
	op    Op
}

func (r *Record) attempt(op Op) attempt { return attempt{r.object.GetUID(), r.about, op} }

// About says which of the machines of its object the record is used for from now on. That a call failed for another one
// is no reason to wait with it.
func (r *Record) About(machine string) { r.about = machine }

// failure is how a call failed, and until when it is not sent again.
type failure struct {
	err   error
	until time.Time
}

// Try makes a call that needs no record, unless it is too soon after it failed: see Call.
func (r *Record) Try(op Op, do func() error) error {
	if err := r.tooSoon(op); err != nil {
		return err
	}
	return r.tried(op, do())
}

// tooSoon returns an error while a call that failed is not to be sent again: MAAS's last refusal, or *UnsettledError if
// the response was lost.
func (r *Record) tooSoon(op Op) error {
	f := r.records.failure(r.attempt(op))
	left := time.Until(f.until)
	switch {
	case left <= 0:
		return nil
	case !maas.HadNoEffect(f.err):
		return &UnsettledError{Op: op, Pending: op, Remaining: left, cause: f.err}
	}
	return f.err
}

// Again returns MAAS's refusal of a call when it was last tried; nil if it did not refuse it. err is that of Call if
// the call is not to be sent again yet: so whoever must ask MAAS before the call need not.
func (r *Record) Again(op Op) (refusal, err error) {
	refusal = r.records.failure(r.attempt(op)).err
	if refusal != nil && (!maas.HadNoEffect(refusal) || errors.Is(refusal, maas.Busy)) {
		refusal = nil
	}
	return refusal, r.tooSoon(op)
}

// tried remembers that a call failed, and returns its error.
func (r *Record) tried(op Op, err error) error {
	var answer *maas.Error
	this := r.attempt(op)
	switch {
	// Other credentials are used at once.
	case !errors.As(err, &answer), answer.NotSent, errors.Is(err, maas.Unauthorized):
		r.records.remember(this, err, 0)
	case !maas.HadNoEffect(err):
		if answer.Answered {
			r.calls.Ended(op)
		}
		r.see() // What is recorded settles from now on.
		pause := r.records.SettleTime
		if op == Publish {
			pause = min(pause, refusedPause)
		}
		_, left := r.unsettled(func(pending Op) bool { return pending == op })
		r.records.remember(this, err, pause)
		return &LostError{Op: op, Remaining: max(left, pause), cause: err}
	default:
		r.records.remember(this, err, cmp.Or(answer.RetryAfter, refusedPause))
	}
	return err
}

// remember stores how a call failed; a pause of 0 forgets it.
func (s *Records) remember(a attempt, err error, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.failures, func(_ attempt, f failure) bool { return now.After(f.until.Add(remembered)) })
	delete(s.failures, a)
	if pause == 0 {
		return
	}
	if s.failures == nil {
		s.failures = map[attempt]failure{}
	}
	s.failures[a] = failure{err, now.Add(pause)}
}

func (s *Records) failure(a attempt) failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failures[a]
}
