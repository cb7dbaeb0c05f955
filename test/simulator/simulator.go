// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
)

// Options are the version of MAAS and the speed of its time.
type Options struct {
	// Version is that of MAAS, as ParseVersion takes it. Empty: DefaultVersion.
	Version string
	// TimeScale is how fast the region's timings pass: at 60 a minute passes in a second. Default 1.
	TimeScale float64
	// Seed determines system ids, made-up hostnames, MAC addresses and the chances of faults.
	Seed int64
	// Dial connects the region to LXD hosts. A VM host whose power address is not in the region description is a real
	// LXD: it is driven over HTTPS as MAAS's LXD driver does it. Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// PatchedLXDDriver has MAAS ask for what LXD 6.7 took away by API extension. The driver of MAAS up to 3.8 does not,
	// and can't use a newer LXD.
	PatchedLXDDriver bool
	// Logger gets one line per request (V(1)) and per change of a machine (V(1)); the zero Logger is silent.
	Logger logr.Logger
}

// Simulator is a running region. Its methods are safe for concurrent use.
type Simulator struct {
	opts    Options
	log     logr.Logger
	version maas.Version
	timings Timings

	// acquiring is MAAS's lock for acquiring machines. It is taken without mu, and mu may be unlocked while it is held.
	acquiring sync.Mutex
	// workers has an item for each call that a worker handles; nil: there are as many as are needed.
	workers chan struct{}

	mu       sync.Mutex // guards everything down to failNext
	db       *store
	lab      map[string]*simulatedHost // the real VM hosts, by power address
	links    map[string]*hostLink      // the connections to real hosts, by power address
	closed   bool
	time     *regionTime
	timers   timerHeap
	timerSeq int
	rng      *rand.Rand
	nonces   map[nonceKey]int64

	nonceSweep int64
	failNext   map[string]string // operations that must fail on the next machine that does them

	calls  callRecorder
	faults faultSet
	hook   hookHolder
	events dispatcher

	observers observers

	// ctx ends with the region: calls to real hosts end then.
	ctx     context.Context //nolint:containedctx // it is the region's life
	cancel  context.CancelFunc
	wake    chan struct{}
	stop    chan struct{}
	closing sync.Once
	running sync.WaitGroup
}

// New starts a region. The caller ends it with Close.
func New(region *Region, opts Options) (*Simulator, error) {
	return newSimulator(region, opts, clock.RealClock{})
}

func newSimulator(region *Region, opts Options, c clock.Clock) (*Simulator, error) {
	described := *region
	described.setDefaults()
	region = &described
	version, err := ParseVersion(opts.Version)
	if err != nil {
		return nil, err
	}
	if opts.TimeScale == 0 {
		opts.TimeScale = 1
	}
	if opts.Dial == nil {
		opts.Dial = new(net.Dialer).DialContext
	}
	if opts.TimeScale < 0 {
		return nil, fmt.Errorf("time scale %v: time does not run backwards", opts.TimeScale)
	}
	s := blank(opts, version, region.Timings, c)
	if err := s.build(region); err != nil {
		s.cancel()
		return nil, err
	}
	s.start()
	return s, nil
}

// blank is a region without a database, in which nothing runs yet.
func blank(opts Options, version maas.Version, timings Timings, c clock.Clock) *Simulator {
	s := &Simulator{
		opts: opts, log: opts.Logger, version: version, timings: timings,
		lab:      map[string]*simulatedHost{},
		links:    map[string]*hostLink{},
		time:     newRegionTime(c, opts.TimeScale),
		rng:      rand.New(rand.NewPCG(uint64(opts.Seed), 0x6d616173)),
		nonces:   map[nonceKey]int64{},
		failNext: map[string]string{},
		wake:     make(chan struct{}, 1),
		stop:     make(chan struct{}),
	}
	if timings.Workers > 0 {
		s.workers = make(chan struct{}, timings.Workers)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.calls.init(c)
	s.events.init()
	return s
}

// start begins the region's time.
func (s *Simulator) start() {
	s.mu.Lock()
	// A copy asks at once: what its database says of a machine's power can be old, and MAAS clears addresses with it.
	s.pollAll()
	s.mu.Unlock()
	s.running.Add(2)
	go s.schedule()
	go func() { defer s.running.Done(); s.events.run() }()
}

// Close stops the region's time, ends its calls to LXD hosts and waits until nothing of it runs any more. Subscribers
// still get earlier changes. It must not be called from a subscriber.
func (s *Simulator) Close() {
	s.closing.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.cancel()
		close(s.stop)
		s.events.close()
	})
	s.running.Wait()
}

// SetTimeScale changes the speed of the region's time, also for what is under way.
func (s *Simulator) SetTimeScale(scale float64) error {
	if scale <= 0 {
		return fmt.Errorf("time scale %v is not positive", scale)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.time.setScale(scale)
	s.wakeScheduler()
	return nil
}
