// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// maxClockSkew bounds the difference between the clocks of two managers: MAAS accepts no request that is 5 minutes off
// its own clock.
const maxClockSkew = 10 * time.Minute

// The settle times of Records that are not given others: whoever looks for what is left goes by them, too.
const (
	DefaultSettleTime      = 4 * time.Minute
	DefaultPowerSettleTime = powerSettles * DefaultSettleTime
)

// powerSettles is how many settle times a call may take effect that switches power, unless it Ended. From MAAS 3.5 on,
// a BMC that does not respond is tried 3 times, for 5 minutes each, whatever becomes of the request (RetryPolicy and
// POWER_ACTION_ACTIVITY_TIMEOUT in maastemporalworker/workflow/power.py); before, once.
const powerSettles = 4

// Records opens the records of objects, measures how long their calls have been pending, and remembers which ones
// failed. It counts from when this process first saw them: the process that recorded them may have another clock. All
// reconcilers of a process share one. It is safe for concurrent use.
type Records struct {
	Client client.Client
	// SettleTime is how long MAAS may take for a call whose response was lost; if it switches power, powerSettles times
	// as long, and at least PowerSettleTime.
	SettleTime, PowerSettleTime time.Duration

	mu       sync.Mutex
	first    map[call]time.Time
	failures map[attempt]failure
}

// call is one pending call of one object.
type call struct {
	uid types.UID
	op  Op
	at  int64
}

// UnsettledError means that nothing was sent, because MAAS may still do what it was asked before.
type UnsettledError struct {
	// Op is the call that was not sent, "" if a finalizer was not removed; Pending is the earlier one.
	Op, Pending Op
	// Remaining is how much longer the earlier one may take effect.
	Remaining time.Duration
	// cause is the error of the earlier call, if this process has sent it.
	cause error
}

func (e *UnsettledError) Error() string {
	if e.cause != nil {
		return e.Pending.lost(e.cause)
	}
	return fmt.Sprintf("the response to an earlier call (%s) was lost, and it may still take effect: %s waits until that "+
		"is over", e.Pending, cmp.Or(string(e.Op), "the end of the deletion"))
}

// AsOf says that the reconcile goes by what MAAS, or a host, was asked for at a time; the zero time is not known.
//
// What takes effect after a question does not show in its response, even if it is settled when the response comes. So
// whether calls are settled is never asked as of now, but as of the earliest question that the reconcile goes by: no
// earlier than when the record was opened, unless AsOf says so. The order of the steps does not matter then.
func (r *Record) AsOf(asked time.Time) {
	if asked.Before(r.asOf) {
		r.asOf = asked
	}
}

// see begins to count for the calls that are pending.
func (r *Record) see() {
	for _, p := range r.calls.Pending {
		r.firstSeen(p)
	}
}

func (r *Record) firstSeen(p Pending) time.Time {
	return r.records.firstSeen(call{r.object.GetUID(), p.Op, p.At.Unix()})
}

// Unsettled returns how much longer a pending call, but one of these, may take effect in MAAS, or 0: a machine may
// still be acquired or changed. It counts from when MAAS was asked for what the reconcile knows: see AsOf.
func (r *Record) Unsettled(but ...Op) time.Duration {
	_, left := r.unsettled(func(op Op) bool { return !slices.Contains(but, op) })
	return left
}

// unsettled returns the pending operation, of those that count, which may take effect for the longest time, and that
// time.
func (r *Record) unsettled(counts func(Op) bool) (op Op, left time.Duration) {
	for _, p := range r.calls.Pending {
		settles := r.records.settleTime(p)
		if !counts(p.Op) || r.asOf.Sub(p.At.Time) > settles+maxClockSkew {
			continue
		}
		since := max(r.asOf.Sub(r.firstSeen(p)), 0)
		if more := settles - since; more > left {
			op, left = p.Op, more
		}
	}
	return op, left
}

// settled returns an error if an operation must wait for one of those that count.
func (r *Record) settled(op Op, counts func(Op) bool) error {
	if pending, left := r.unsettled(counts); left > 0 {
		unsettled := &UnsettledError{Op: op, Pending: pending, Remaining: left}
		if earlier := r.records.failure(r.attempt(pending)).err; earlier != nil && !maas.HadNoEffect(earlier) {
			unsettled.cause = earlier
		}
		return unsettled
	}
	return nil
}

// settleTime returns how long a pending call may take effect.
func (s *Records) settleTime(p Pending) time.Duration {
	if p.Op.switches() && !p.Ended && !p.idle {
		return max(powerSettles*s.SettleTime, s.PowerSettleTime)
	}
	return s.SettleTime
}

func (s *Records) firstSeen(c call) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, known := s.first[c]; known {
		return at
	}
	if s.first == nil {
		s.first = map[call]time.Time{}
	}
	now := time.Now()
	maps.DeleteFunc(s.first, func(_ call, at time.Time) bool {
		return now.Sub(at) > s.settleTime(Pending{Op: PowerOff})+2*maxClockSkew // The record's own time no longer counts.
	})
	s.first[c] = now
	return now
}

// mayRepeat reports whether a late call costs time, at worst: it sets a tag that keeps managers from allocating the
// machine, or writes what is read again until the call can't come any more.
func (o Op) mayRepeat() bool { return slices.Contains([]Op{Exclude, Quarantine, Publish}, o) }
