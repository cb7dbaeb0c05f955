// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// defaultVersion is the default version of MAAS.
const defaultVersion = "3.6.5"

// Options are the version of MAAS and the speed of its time.
type Options struct {
	// Version is "3.3" to "3.8", or a full one such as "3.4.10"; default "3.6.5". From 3.8 VM hosts are gone (410).
	Version string
	// TimeScale is how fast the region's timings pass: at 60 a minute passes in a second. Default 1.
	TimeScale float64
	// Seed determines system ids, made-up hostnames, MAC addresses and the chances of faults.
	Seed int64
	// Dial connects the region to LXD hosts. A VM host whose power address is not in the region description is a real
	// LXD: it is driven over HTTPS as MAAS's LXD driver does it. Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Logger gets one line per request (V(1)) and per change of a machine (V(1)); the zero Logger is silent.
	Logger logr.Logger
}

// Simulator is a running region. Its methods are safe for concurrent use.
type Simulator struct {
	opts    Options
	log     logr.Logger
	version maasVersion
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
	if err := described.validate(); err != nil {
		return nil, fmt.Errorf("region description: %w", err)
	}
	region = &described
	if opts.Version == "" {
		opts.Version = defaultVersion
	}
	version, err := parseVersion(opts.Version)
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
func blank(opts Options, version maasVersion, timings Timings, c clock.Clock) *Simulator {
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
	s.faults.init(opts.Seed)
	s.calls.init(c)
	s.events.init()
	return s
}

// start begins the region's time.
func (s *Simulator) start() {
	s.mu.Lock()
	s.in(s.timings.powerPoll(), s.pollAll)
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

// maasVersion is a MAAS release.
type maasVersion struct {
	major, minor, patch int
	full                string
}

// latestPatch completes versions without a patch level.
var latestPatch = map[string]string{
	"3.3": "3.3.11", "3.4": "3.4.10", "3.5": "3.5.12", "3.6": "3.6.5", "3.7": "3.7.3", "3.8": "3.8.0",
}

func parseVersion(text string) (maasVersion, error) {
	parts := strings.Split(text, ".")
	if len(parts) < 2 {
		return maasVersion{}, fmt.Errorf("MAAS version %q: want something like 3.6 or 3.6.5", text)
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	short := parts[0] + "." + parts[1]
	if err1 != nil || err2 != nil || latestPatch[short] == "" {
		return maasVersion{}, fmt.Errorf("MAAS version %q: known are 3.3 to 3.8", text)
	}
	if text == short {
		text = latestPatch[short]
	}
	_, patchText, _ := strings.Cut(text[len(parts[0])+1:], ".")
	digits := strings.IndexFunc(patchText+"-", func(r rune) bool { return r < '0' || r > '9' })
	patch, err := strconv.Atoi(patchText[:digits])
	if err != nil {
		return maasVersion{}, fmt.Errorf("MAAS version %q: %w", text, err)
	}
	return maasVersion{major, minor, patch, text}, nil
}

// atLeast reports whether this MAAS is 3.minor or newer.
func (v maasVersion) atLeast(minor int) bool { return v.major > 3 || v.minor >= minor }

// since reports whether this MAAS is 3.minor.patch or newer.
func (v maasVersion) since(minor, patch int) bool {
	return v.major > 3 || v.minor > minor || v.minor == minor && v.patch >= patch
}

// hasEntitlements reports whether this MAAS has groups of users with entitlements.
func (v maasVersion) hasEntitlements() bool { return v.atLeast(8) }

// hasVMHosts reports whether this MAAS still manages VM hosts.
func (v maasVersion) hasVMHosts() bool { return !v.atLeast(8) }
