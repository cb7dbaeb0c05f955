// SPDX-License-Identifier: Apache-2.0

package text

import (
	"strings"
	"testing"
)

func TestSteadyLeavesOutWhatVaries(t *testing.T) {
	t.Parallel()
	for name, tries := range map[string][2]string{
		"Go's certificates": {
			"tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026-11-26T16:21:31Z is after 2025-01-02T03:04:05Z",
			"tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026-11-26T16:22:32+01:00 is after 2025-01-02T03:04:05Z",
		},
		"Go's connections":      {"read tcp 10.0.0.5:43210->10.0.0.9:5240: read: connection reset by peer", "read tcp 10.0.0.5:50001->10.0.0.9:5240: read: connection reset by peer"},
		"connections by IPv6":   {"read tcp [fd00::5]:43210->[fd00::9]:5240: i/o timeout", "read tcp [fd00::5]:43211->[fd00::9]:5240: i/o timeout"},
		"Go's times":            {"at 2026-11-26 16:21:31.123456789 +0000 UTC m=+12.345", "at 2026-11-26 16:22:31.5 +0000 UTC m=+72.1"},
		"OAuth's times":         {"'Expired timestamp: given 1795710091 and now 1795710692 has a greater difference than threshold 300'", "'Expired timestamp: given 1795710095 and now 1795710699 has a greater difference than threshold 300'"},
		"Python's objects":      {"<Task pending coro=<f()> at 0x7f3c5c0d2a10>", "<Task pending coro=<f()> at 0x7f3c5c0ffff0>"},
		"durations":             {"gave up after 30.012s", "gave up after 30.5s"},
		"durations in words":    {"timed out after 30.01 seconds", "timed out after 31 seconds"},
		"Postgres":              {"Process 4711 waits for ShareLock on transaction 81516; blocked by process 4712.", "Process 4801 waits for ShareLock on transaction 81990; blocked by process 4802."},
		"UUIDs":                 {"operation 0f8fad5b-d9cb-469f-a165-70867728950e failed", "operation 7c9e6679-7425-40de-944b-e07fc1f90ae7 failed"},
		"request ids":           {"upstream error, request id: 4f5c1d2e3a4b5c6d7e8f9a0b", "upstream error, request id: 0a1b2c3d4e5f60718293a4b5"},
		"counted tries":         {"attempt 3 failed, retry #4", "attempt 4 failed, retry #5"},
		"times of day":          {"16:21:31,123 no lease", "16:21:36,456 no lease"},
		"dates of mail":         {"since Thu, 26 Nov 2026 12:08:02 GMT", "since Fri, 27 Nov 2026 00:00:09 GMT"},
		"times of syslog":       {"Nov 26 16:21:31 host failed", "Nov 27 06:01:02 host failed"},
		"dates of Go's default": {"on Thu Nov 26 16:21:31 2026", "on Thu Nov 26 16:21:39 2026"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := Steady(tries[0], 1000), Steady(tries[1], 1000)
			if first != second {
				t.Errorf("two tries read\n%s\n%s", first, second)
			}
			if again := Steady(first, 1000); again != first {
				t.Errorf("%q becomes %q when it is passed on", first, again)
			}
		})
	}
}

func TestSteadyKeepsWhatHelps(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"No more IPs available in subnet: 10.77.0.0/24.",
		"dial tcp 10.0.0.9:5240: connect: connection refused",
		"reserved for the MAC address 52:54:00:00:00:01",
		"on fd00:78:1:2::9, 52-54-00-12-34-56",
		"'custom/u-2204-2026-11-26' is not a valid distro_series",
		"No available machine matches constraints: [('cpu_count', ['64'])] (resolved to \"cpu_count=64.0 zone=zone-a\")",
		"CPU overcommit ratio is 1.0 and there are 14 available",
		"MAAS 3.6.5, Kubernetes v1.35.0, machine 4y3h7n, 503 Service Unavailable",
		"certificate " + strings.Repeat("ab12", 16),
	} {
		if got := Steady(text, 1000); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

func TestSteadyIsOneShortLine(t *testing.T) {
	t.Parallel()
	if got := Steady("a\n12345678901", 10); got != "a 12345678..." {
		t.Errorf("got %q", got)
	}
}
