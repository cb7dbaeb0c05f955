// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// maxClockSkew is by how much the clocks of two managers may differ at most: MAAS accepts no request that is 5 minutes off its own.
const maxClockSkew = 10 * time.Minute

// settling measures for how long notes have been standing. It counts from when this process first saw a note: the one that wrote it may have
// another clock. It is safe for concurrent use; the zero value is ready.
type settling struct {
	mu    sync.Mutex
	first map[note]time.Time
}

// note is one annotation of one object.
type note struct {
	uid        types.UID
	key, value string
}

// left is for how long something may still happen in MAAS that it was asked for, or 0: what was asked for may turn up, or a machine be changed.
func (s *settling) left(object client.Object, settleTime time.Duration) (left time.Duration) {
	for _, key := range []string{infrav1.AcquireStartedAnnotation, infrav1.ChangeStartedAnnotation} {
		value := object.GetAnnotations()[key]
		written, err := time.Parse(time.RFC3339, value)
		if err != nil || time.Since(written) > settleTime+maxClockSkew {
			continue
		}
		left = max(left, settleTime-time.Since(s.firstSeen(note{object.GetUID(), key, value}, settleTime)))
	}
	return left
}

func (s *settling) firstSeen(n note, settleTime time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, known := s.first[n]; known {
		return at
	}
	if s.first == nil {
		s.first = map[note]time.Time{}
	}
	now := time.Now()
	for other, at := range s.first {
		if now.Sub(at) > settleTime+2*maxClockSkew {
			delete(s.first, other) // It counts no more by what it says itself.
		}
	}
	s.first[n] = now
	return now
}
