// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"

	capmaas "github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

// exampleRegion describes the region that the simulator shows.
const exampleRegion = "../sandbox/region.yaml"

// While a case waits for something, the simulator's minutes pass in a tenth of a second. While it checks an operation
// under way they take seconds, so that it is still under way then, however slow this machine is.
const waitingScale, checkingScale = 600, 3

// maas is a MAAS region that the cases run against.
type maas struct {
	name  string // the name of the cases' runs
	url   string // ends in /MAAS
	key   apiKey // an administrator's
	plain *apiKey
	// lxdAddress and lxdPassword are of an LXD host that is not registered yet.
	lxdAddress, lxdPassword string
	// deadline is how long a machine may take to change its state; poll is how often its state is read.
	deadline, poll time.Duration
	facts          facts
	real           bool
	// pace changes the speed of the region's time, not of a real one's.
	pace  func(scale float64)
	close func()
	*seen
}

// seen is what earlier cases found out about a region, for the later ones.
type seen struct {
	// reachesNowhere: its rack controllers find an LXD even if there is none, as simulated ones may.
	reachesNowhere atomic.Bool
	// lent are the machines of the region that cases use, by system id.
	lent sync.Map
	// stuck has what machines of this region were waited for in vain to be.
	stuck sync.Map
}

// regions are the targets of the cases: one real MAAS, or the simulator in all its versions.
var regions []*maas

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx := context.Background()
	var err error
	regions, err = openRegions(ctx)
	defer func() {
		for _, region := range regions {
			region.close()
		}
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	for _, region := range regions {
		for _, left := range region.leftBehind(ctx) {
			fmt.Fprintf(os.Stderr, "%s: left behind: %s\n", region.name, left)
			code = 1
		}
	}
	if cases.report(os.Stdout) {
		code = max(code, 1)
	}
	return code
}

func openRegions(ctx context.Context) ([]*maas, error) {
	if url := os.Getenv("MAAS_CONFORMANCE_URL"); url != "" {
		region, err := openReal(ctx, url)
		if err != nil {
			return nil, err
		}
		return []*maas{region}, nil
	}
	var opened []*maas
	for _, version := range simulator.Versions {
		region, err := openSimulator(ctx, version)
		if err != nil {
			return opened, fmt.Errorf("simulator %s: %w", version, err)
		}
		opened = append(opened, region)
	}
	return opened, nil
}

func openReal(ctx context.Context, url string) (*maas, error) {
	region := &maas{
		name: "real", real: true, close: func() {}, seen: &seen{}, pace: func(float64) {},
		url:         strings.TrimSuffix(strings.TrimSuffix(url, "/"), "/api/2.0"),
		lxdAddress:  os.Getenv("MAAS_CONFORMANCE_LXD_ADDRESS"),
		lxdPassword: os.Getenv("MAAS_CONFORMANCE_LXD_PASSWORD"),
		deadline:    15 * time.Minute,
		poll:        time.Second,
	}
	var err error
	if region.key, err = parseKey(os.Getenv("MAAS_CONFORMANCE_KEY")); err != nil {
		return nil, fmt.Errorf("MAAS_CONFORMANCE_KEY: %w", err)
	}
	if text := os.Getenv("MAAS_CONFORMANCE_USER_KEY"); text != "" {
		plain, err := parseKey(text)
		if err != nil {
			return nil, fmt.Errorf("MAAS_CONFORMANCE_USER_KEY: %w", err)
		}
		region.plain = &plain
	}
	if text := os.Getenv("MAAS_CONFORMANCE_DEADLINE"); text != "" {
		if region.deadline, err = time.ParseDuration(text); err != nil {
			return nil, fmt.Errorf("MAAS_CONFORMANCE_DEADLINE: %w", err)
		}
	}
	region.facts, err = region.probe(ctx)
	return region, err
}

// openSimulator starts a simulator of the example region, with optional objects that the cases can use: users of their
// own and an LXD host that MAAS does not know yet.
func openSimulator(ctx context.Context, version capmaas.Version) (*maas, error) {
	file, err := os.Open(exampleRegion)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	described, err := simulator.LoadRegion(file)
	if err != nil {
		return nil, err
	}
	admin := apiKey{consumer: "conformance-admin", token: "admin", secret: randomHex(8)}
	plain := apiKey{consumer: "conformance-plain", token: "plain", secret: randomHex(8)}
	const lxdAddress = "192.0.2.77:8443"
	described.Users = append(described.Users,
		simulator.RegionUser{Name: "conformance-admin", Admin: true, Keys: []string{admin.String()}},
		simulator.RegionUser{Name: "conformance-plain", Keys: []string{plain.String()}})
	described.VMHosts = append(described.VMHosts, simulator.RegionVMHost{
		Name: "conformance-lxd", Cores: 8, Memory: 16384, Unregistered: true, Address: lxdAddress,
		StoragePools: []simulator.RegionStoragePool{{Name: "default", Type: "zfs", Size: 200}}})
	// Calls are not observed while they are under way.
	moment := simulator.Duration(100 * time.Millisecond)
	described.Timings.Compose, described.Timings.Decompose, described.Timings.Refresh = &moment, &moment, &moment
	sim, err := simulator.New(described, simulator.Options{
		Version: version.String(), TimeScale: checkingScale, Seed: 1, Logger: logr.Discard()})
	if err != nil {
		return nil, err
	}
	server := httptest.NewServer(sim.Handler())
	region := &maas{
		name: version.Series(), url: server.URL + "/MAAS", key: admin, plain: &plain, lxdAddress: lxdAddress,
		deadline: eventually.Limit, poll: 5 * time.Millisecond, seen: &seen{},
		close: func() { server.Close(); sim.Close() },
		pace:  func(scale float64) { _ = sim.SetTimeScale(scale) }, // It is positive.
	}
	region.facts, err = region.probe(ctx)
	if err != nil {
		region.close()
		return nil, err
	}
	return region, nil
}

func (k apiKey) String() string { return k.consumer + ":" + k.token + ":" + k.secret }

// each runs a case against every region.
func each(t *testing.T, run func(t *testing.T, m *maas)) {
	t.Helper()
	eachWith(t, nil, run)
}

// eachWith runs a case against the regions that have what it needs.
func eachWith(t *testing.T, needs []need, run func(t *testing.T, m *maas)) {
	t.Helper()
	for _, region := range regions {
		t.Run(region.name, func(t *testing.T) {
			cases.count(t)
			region.needs(t, needs...)
			if !region.real {
				t.Parallel() // each version is a region of its own
			}
			run(t, region)
		})
	}
}

// as is the same MAAS, used with another key.
func (m *maas) as(key apiKey) *maas {
	other := *m
	other.key = key
	return &other
}

// unhurried is the same MAAS, whose time does not hurry while a case waits: between two looks at a machine that
// commissions, the simulator's commissioning would be over.
func (m *maas) unhurried() *maas {
	other := *m
	other.pace = func(float64) {}
	return &other
}

// asPlainUser is the same MAAS, used by a user without administrator rights.
func (m *maas) asPlainUser(t *testing.T) *maas {
	t.Helper()
	if m.plain == nil {
		needsVariable(t, "MAAS_CONFORMANCE_USER_KEY")
	}
	return m.as(*m.plain)
}

// await polls until the condition holds, and ends the case if it does not within the deadline. The condition also
// returns what it saw.
func (m *maas) await(t *testing.T, what string, condition func() (bool, string)) {
	t.Helper()
	if done, saw := m.awaited(condition); !done {
		t.Fatalf("waited %v for %s; last seen: %s", m.deadline, what, saw)
	}
}

// awaited polls until the condition holds or the deadline has passed.
func (m *maas) awaited(condition func() (bool, string)) (bool, string) {
	m.pace(waitingScale)
	defer m.pace(checkingScale)
	deadline := time.NewTimer(m.deadline)
	defer deadline.Stop()
	again := time.NewTicker(m.poll)
	defer again.Stop()
	for {
		done, saw := condition()
		if done {
			return true, saw
		}
		select {
		case <-deadline.C:
			return false, saw
		case <-again.C:
		}
	}
}
