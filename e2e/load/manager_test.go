// SPDX-License-Identifier: Apache-2.0

// Package load_test measures the resources that the programs need: the figures behind the chart's resources. Nothing is
// asserted.
//
//	go test ./e2e/load -run '^$' -bench . -benchtime 1x -timeout 120m
package load_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	machinesPerCluster = 5
	// timeScale makes ten minutes of MAAS pass in one second, and playInterval is how often the rest of Cluster API
	// acts.
	timeScale    = 600
	playInterval = 2 * time.Second
	// idleFor is how long the programs are watched while nothing happens.
	idleFor = time.Minute
	// growLimit bounds the time to make clusters that are created at once.
	growLimit = 40 * time.Minute
	// ticksPerSecond is the kernel's unit of CPU time.
	ticksPerSecond = 100
)

// BenchmarkManager makes clusters, each of a control plane in a VM and workers on bare metal, and reports what the
// manager needed while they were made, and what it needs while nothing happens. The rest of Cluster API is played: it
// would need more than the manager. The settings are the chart's, in a MAAS in which ten minutes pass in one second.
func BenchmarkManager(b *testing.B) {
	w := startWorld(b, stage{region: region(200), timeScale: timeScale, playInterval: playInterval})
	manager := w.startManager(b).PID()
	for _, clusters := range []int{0, 50, 100, 200} {
		b.Run(fmt.Sprintf("clusters=%d/machines=%d", clusters, clusters*machinesPerCluster), func(b *testing.B) {
			before, began := usageOf(b, manager), time.Now()
			ctx, cancel := context.WithTimeout(b.Context(), growLimit)
			defer cancel()
			if err := w.grow(ctx, clusters); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(time.Since(began).Seconds(), "s-to-make")
			b.ReportMetric((usageOf(b, manager).cpu - before.cpu).Seconds(), "cpu-s-to-make")
			reportIdle(b, manager)
		})
	}
}

// reportIdle reports what a process needs while nothing happens.
func reportIdle(b *testing.B, pid int) {
	b.Helper()
	before, began := usageOf(b, pid), time.Now()
	select {
	case <-time.After(idleFor):
	case <-b.Context().Done():
	}
	after := usageOf(b, pid)
	b.ReportMetric(0, "ns/op") // Left out.
	b.ReportMetric(float64((after.cpu-before.cpu).Milliseconds())/time.Since(began).Seconds(), "millicores-idle")
	b.ReportMetric(after.resident, "MiB")
	b.ReportMetric(after.most, "MiB-at-most")
}

// usage is what a process needs.
type usage struct {
	resident, most float64 // MiB
	cpu            time.Duration
}

func usageOf(b *testing.B, pid int) usage {
	b.Helper()
	if runtime.GOOS != "linux" {
		b.Skip("what a process needs is read from /proc")
	}
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		b.Fatal(err)
	}
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		b.Fatal(err)
	}
	u := usage{resident: kibibytes(string(status), "VmRSS:") / 1024, most: kibibytes(string(status), "VmHWM:") / 1024}
	// After the program's name, which may hold anything, the 12th and 13th fields are the time in the program and in
	// the kernel.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		u.cpu += time.Duration(ticks) * time.Second / ticksPerSecond
	}
	return u
}

func kibibytes(status, name string) float64 {
	_, rest, _ := strings.Cut(status, name)
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	n, _ := strconv.ParseFloat(fields[0], 64)
	return n
}
