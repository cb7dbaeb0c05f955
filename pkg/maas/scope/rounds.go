// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"maps"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
)

const (
	// roundPatience is how long a round waits for responses.
	roundPatience = 10 * time.Second
	// roundLimit is how long one MAAS may take: for a long list, and some calls.
	roundLimit = 3 * time.Minute
)

// Rounds ask every MAAS that is used, again and again, and all at the same time. One that takes long holds up no other:
// its response counts in the round in which it arrives, and it is not asked again before. The zero value is
// ready, and for one goroutine.
type Rounds[T any] struct {
	underWay map[guard.Server]chan T
}

// Ask calls ask for each MAAS, with the regions of all identities that are used there, and returns the responses
// so far. ask runs at the same time for several, and possibly after Ask has returned; its context ends in time.
func (r *Rounds[T]) Ask(
	ctx context.Context, regions []*Region, ask func(context.Context, []*Region) T,
) map[guard.Server]T {
	r.begin(ctx, regions, ask)
	return r.collect(ctx, roundPatience)
}

// AskAll is one round that waits for all responses. What does not come in time is missing.
func AskAll[T any](ctx context.Context, regions []*Region, ask func(context.Context, []*Region) T) map[guard.Server]T {
	r := &Rounds[T]{}
	r.begin(ctx, regions, ask)
	return r.collect(ctx, roundLimit+roundPatience) // An ask that ends with its context is a response, too.
}

func (r *Rounds[T]) begin(ctx context.Context, regions []*Region, ask func(context.Context, []*Region) T) {
	of := byServer(regions)
	maps.DeleteFunc(r.underWay, func(server guard.Server, _ chan T) bool { return of[server] == nil })
	if r.underWay == nil {
		r.underWay = map[guard.Server]chan T{}
	}
	for server, regions := range of {
		if r.underWay[server] != nil {
			continue
		}
		answer := make(chan T, 1)
		r.underWay[server] = answer
		go func() {
			limited, cancel := context.WithTimeout(ctx, roundLimit)
			defer cancel()
			answer <- ask(limited, regions)
		}()
	}
}

// collect returns the responses that come in time.
func (r *Rounds[T]) collect(ctx context.Context, within time.Duration) map[guard.Server]T {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	answers := map[guard.Server]T{}
	for server, answer := range r.underWay {
		select {
		case answers[server] = <-answer:
		case <-ctx.Done():
			select { // It may be there, too.
			case answers[server] = <-answer:
			default:
				continue
			}
		}
		delete(r.underWay, server)
	}
	return answers
}

// byServer returns the regions by their MAAS, each in the order of the list.
func byServer(regions []*Region) map[guard.Server][]*Region {
	of := map[guard.Server][]*Region{}
	for _, region := range regions {
		of[region.server] = append(of[region.server], region)
	}
	return of
}
