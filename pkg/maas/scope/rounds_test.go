// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

func regionAt(address string) *Region { return &Region{server: guard.ServerAt(address, nil)} }

// A MAAS of a tenant hangs. The others are asked in each round, as often as without it, and it is asked once at a time.
func TestAMAASThatHangsTakesNoRoundFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rounds Rounds[string]
		hangs, good := regionAt("hangs"), regionAt("good")
		var mu sync.Mutex
		asked := map[guard.Server]int{}
		release := make(chan struct{})
		round := func(regions ...*Region) map[guard.Server]string {
			return rounds.Ask(t.Context(), regions, func(ctx context.Context, of []*Region) string {
				mu.Lock()
				asked[of[0].Server()]++
				mu.Unlock()
				if of[0] == hangs {
					select {
					case <-release:
					case <-ctx.Done():
						return "too late"
					}
				}
				return fmt.Sprint(len(of))
			})
		}
		for n := range 3 {
			began := time.Now()
			answers := round(hangs, good, regionAt("good"))
			if answers[good.Server()] != "2" || len(answers) != 1 {
				t.Fatalf("round %d: the answers are %v, want that of the good MAAS, with its two identities", n, answers)
			}
			if took := time.Since(began); took > roundPatience { // On the fake clock.
				t.Errorf("round %d took %s", n, took)
			}
		}
		if asked[hangs.Server()] != 1 || asked[good.Server()] != 3 {
			t.Errorf("the MAASes were asked %v times", asked)
		}
		close(release)
		synctest.Wait()
		if answers := round(hangs, good); answers[hangs.Server()] != "1" || answers[good.Server()] != "1" {
			t.Errorf("when it answered late, the answers are %v", answers)
		}
		if round(good); len(rounds.underWay) != 0 {
			t.Errorf("%d MAASes are remembered, and none is asked", len(rounds.underWay))
		}
	})
}

// What hangs for ever ends in time, and is tried again.
func TestARoundThatHangsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context, of []*Region) error {
			if of[0].server.Address() == "hangs" {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		hangs, good := regionAt("hangs"), regionAt("good")
		answers := AskAll(t.Context(), []*Region{hangs, good}, hang)
		if answers[hangs.Server()] == nil || answers[good.Server()] != nil || len(answers) != 2 {
			t.Errorf("the answers are %v, want an error of the MAAS that hangs alone", answers)
		}
		var rounds Rounds[error]
		rounds.Ask(t.Context(), []*Region{hangs}, hang)
		<-time.After(roundLimit)
		synctest.Wait()
		if answers := rounds.Ask(t.Context(), []*Region{hangs}, hang); answers[hangs.Server()] == nil {
			t.Error("the MAAS that hangs is waited for without end")
		}
	})
}
