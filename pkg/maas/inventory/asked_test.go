// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// What takes effect while MAAS lists machines may not show: the time of an observation is that of the question.
func TestAnObservationHasTheTimeOfTheQuestion(t *testing.T) {
	t.Parallel()
	i, s := newScript(t)
	s.perItem = 2 * time.Second
	s.deploy(i, Changing, 1)
	s.polls(i, 2)
	began := s.clock
	s.polls(i, 1)
	if seen := i.Observe("m0000", Changing); !seen.At.Equal(began) || s.clock.Equal(began) {
		t.Errorf("it was asked for at %s, want %s; it is %s", seen.At, began, s.clock)
	}
	began = s.clock // The same is shown again.
	s.polls(i, 1)
	if seen := i.Observe("m0000", Changing); !seen.At.Equal(began) {
		t.Errorf("it was asked for at %s, want %s", seen.At, began)
	}

	began = s.clock
	_, err := i.Change("m0000", func(*maas.Client) (*maas.Machine, error) {
		s.clock = s.clock.Add(time.Minute)
		return s.machines["m0000"], nil
	})
	if seen := i.Observe("m0000", Changing); err != nil || !seen.At.Equal(began) {
		t.Errorf("it was asked for at %s, want %s: %v", seen.At, began, err)
	}
	i.Track(s.machines["m0000"])
	if seen := i.Observe("m0000", Changing); !seen.At.IsZero() {
		t.Errorf("it was asked for at %s, which is not known", seen.At)
	}
}
