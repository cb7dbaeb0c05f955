// SPDX-License-Identifier: Apache-2.0

package load_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/test/simulator"
)

const (
	herdSize  = 40
	herdHosts = 4
	// herdScale is how many seconds pass in MAAS in one of the run. The manager's times that have a flag are as much
	// shorter.
	herdScale = 10
	// herdLimit bounds the time to create the herd, and the time to delete it.
	herdLimit = 10 * time.Minute
)

// herdFlags are the chart's settings, in the time of the run.
var herdFlags = []string{"--poll-active=500ms", "--poll-idle=6s", "--settle-time=24s", "--power-settle-time=0", "--sync-period=1m"}

// BenchmarkHerd makes many VMs at once on a few hosts, each of which takes 20 s for a VM and makes one after the other,
// and deletes them, with a MAAS that needs no time itself and with one that needs more, the more it has to do. It
// reports seconds of MAAS's time: ten of them pass in one second of the run.
func BenchmarkHerd(b *testing.B) {
	for _, speed := range []string{"fast", "slow"} {
		for _, workers := range []int{2, 10} {
			b.Run(fmt.Sprintf("region=%s/workers=%d", speed, workers), func(b *testing.B) {
				herd(b, workers, regionSpeeds[speed])
			})
		}
	}
}

// regionSpeeds are how long a MAAS needs for its work. The slow one handles one call that changes something after the
// other.
var regionSpeeds = map[string]string{
	"fast": "timings: {compose: 20s}\n",
	"slow": "timings: {compose: 20s, workers: 1, write: 3s}\n",
}

func herdRegion(speed string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "users: [{name: admin, admin: true, keys: [%q]}]\n", apiKey)
	out.WriteString(`
zones: [{name: zone-a}]
domains: [{name: maas.sim, default: true}]
subnets: [{cidr: 10.64.0.0/16, gateway: 10.64.0.1, dns_servers: [10.64.0.2], dhcp: true, dynamic_ranges: [{start: 10.64.200.0, end: 10.64.250.0}]}]
images: [{name: ubuntu/noble}]
`)
	out.WriteString(speed + "vm_hosts:\n")
	for i := range herdHosts {
		fmt.Fprintf(&out, "- {name: lxd-%d, zone: zone-a, cores: 64, memory: 262144, serial: true, storage_pools: [{name: default, type: zfs, size: 2000}]}\n", i)
	}
	return out.String()
}

func herd(b *testing.B, workers int, speed string) {
	w := startWorld(b, stage{region: herdRegion(speed), timeScale: herdScale, playInterval: playInterval / herdScale})
	w.startManager(b, append([]string{fmt.Sprintf("--concurrency=%d", workers)}, herdFlags...)...)
	ctx, cancel := context.WithTimeout(b.Context(), herdLimit)
	defer cancel()
	if err := w.makeCluster(ctx, "herd"); err != nil {
		b.Fatal(err)
	}
	seen := watchHerd(w.maas)
	defer seen.cancel()
	began := time.Now()
	for i := range herdSize {
		if err := w.makeMachine(ctx, "herd", fmt.Sprintf("herd-%d", i), false, true); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.await(ctx, herdSize); err != nil {
		w.reportCalls(b, herdSize, "calls/machine-made")
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op") // Left out.
	b.ReportMetric(inMAAS(time.Since(began)), "s-to-last-ready")
	seen.reportMade(b, began)
	w.reportCalls(b, herdSize, "calls/machine-made")

	w.maas.ResetCalls()
	limited, cancelDeletion := context.WithTimeout(b.Context(), herdLimit)
	defer cancelDeletion()
	began = time.Now()
	err := w.clear(limited)
	w.reportCalls(b, herdSize, "calls/machine-deleted")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(inMAAS(time.Since(began)), "s-to-last-gone")
	b.ReportMetric(pace(seen.deleted), "deleted/min/host")
}

// inMAAS is how many seconds pass in MAAS.
func inMAAS(d time.Duration) float64 { return d.Seconds() * herdScale }

// herdSeen is when what happened to the VMs of the herd, by system id.
type herdSeen struct {
	cancel func()

	mutex                                  sync.Mutex
	composed, deploying, deployed, deleted map[string]time.Time
}

func watchHerd(maas *simulator.Simulator) *herdSeen {
	s := &herdSeen{composed: map[string]time.Time{}, deploying: map[string]time.Time{}, deployed: map[string]time.Time{}, deleted: map[string]time.Time{}}
	s.cancel = maas.Subscribe(s.record)
	return s
}

func (s *herdSeen) record(m simulator.MachineSnapshot, change simulator.Change) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch {
	case m.VMHost == "":
	case change.Kind == simulator.ChangeCreated:
		s.composed[m.SystemID] = time.Now()
	case change.Kind == simulator.ChangeDeleted:
		s.deleted[m.SystemID] = time.Now()
	case change.Kind == simulator.ChangeStatus && change.To == "Deploying":
		s.deploying[m.SystemID] = time.Now()
	case change.Kind == simulator.ChangeStatus && change.To == "Deployed":
		s.deployed[m.SystemID] = time.Now()
	}
}

// reportMade reports how long VMs waited to be deployed after they were made, and how fast they were made.
func (s *herdSeen) reportMade(b *testing.B, began time.Time) {
	b.Helper()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	first, worst, sum := "", time.Duration(0), time.Duration(0)
	for id, at := range s.composed {
		waited := s.deploying[id].Sub(at)
		worst, sum = max(worst, waited), sum+waited
		if first == "" || at.Before(s.composed[first]) {
			first = id
		}
	}
	b.Logf("%d VMs were made for %d machines; the first was made after %.0f s, to be deployed %.0f s later, and was deployed %.0f s after it was made",
		len(s.composed), herdSize, inMAAS(s.composed[first].Sub(began)), inMAAS(s.deploying[first].Sub(s.composed[first])), inMAAS(s.deployed[first].Sub(s.composed[first])))
	b.ReportMetric(inMAAS(s.deployed[first].Sub(s.composed[first])), "s-first-made-to-deployed")
	b.ReportMetric(inMAAS(sum)/float64(len(s.composed)), "s-made-to-deploy-mean")
	b.ReportMetric(inMAAS(worst), "s-made-to-deploy-most")
	b.ReportMetric(pace(s.composed), "made/min/host")
}

// pace is how many VMs a host made or deleted in a minute of MAAS, from the first to the last.
func pace(times map[string]time.Time) float64 {
	var first, last time.Time
	for _, at := range times {
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	return float64(len(times)-1) / herdHosts / (inMAAS(last.Sub(first)) / time.Minute.Seconds())
}
