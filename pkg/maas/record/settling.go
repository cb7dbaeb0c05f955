// SPDX-License-Identifier: Apache-2.0

package record

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// maxClockSkew bounds the difference between the clocks of two managers: MAAS accepts no request that is 5 minutes off
// its own clock.
const maxClockSkew = 10 * time.Minute

// Settling measures how long calls have been pending. It counts from when this process first saw them: the process that
// recorded them may have another clock. It is safe for concurrent use; the zero value is ready.
type Settling struct {
	mu    sync.Mutex
	first map[call]time.Time
}

// call is one pending call of one object.
type call struct {
	uid types.UID
	op  Op
	at  int64
}

// Left returns how much longer a pending call of the record may take effect in MAAS, or 0: a machine may still be
// acquired or changed. settleTime is how long MAAS may take for a call.
func (s *Settling) Left(r *Record, settleTime time.Duration) (left time.Duration) {
	for _, p := range r.Pending {
		if time.Since(p.At.Time) > settleTime+maxClockSkew {
			continue
		}
		left = max(left, settleTime-time.Since(s.firstSeen(call{r.object.GetUID(), p.Op, p.At.Unix()}, settleTime)))
	}
	return left
}

func (s *Settling) firstSeen(c call, settleTime time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, known := s.first[c]; known {
		return at
	}
	if s.first == nil {
		s.first = map[call]time.Time{}
	}
	now := time.Now()
	for other, at := range s.first {
		if now.Sub(at) > settleTime+2*maxClockSkew {
			delete(s.first, other) // The record's own time no longer counts.
		}
	}
	s.first[c] = now
	return now
}
