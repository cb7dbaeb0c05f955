// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// code is a package with one mutant of each end, and with a line that does not compile with its points.
const code = `package shop

type open bool

type till struct{ coins, paid int }

func (t *till) pay(price int) bool {
	if price < 0 || price > 9 {
		return false
	}
	t.coins += price
	t.paid++
	return true
}

func (t *till) isEmpty() open {
	var is open = t.coins == 0
	return t.coins == 0 && is
}

func (t *till) empty() { t.coins = 0 }
`

// tests are of some value, of none, or fail alone.
const tests = `package shop

import "testing"

func TestPay(t *testing.T) {
	var c till
	if !c.pay(3) || c.coins != 3 || c.pay(-1) || bool(c.isEmpty()) {
		t.Error("not paid")
	}
}

func TestPayAgain(t *testing.T) {
	var c till
	c.pay(3)
}

func TestPayTooMuch(t *testing.T) {
	if new(till).pay(10) {
		t.Error("paid")
	}
}

func TestEmpty(t *testing.T) {
	if !new(till).isEmpty() {
		t.Error("not empty")
	}
}

func TestBroken(t *testing.T) { t.Error("always") }
`

// Each test has the mutants that it alone kills; what another one kills as well counts for neither.
func TestWhatATestIsWorth(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module shop\n\ngo 1.26\n", "shop.go": code, "shop_test.go": tests} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	p, err := build(t.Context(), t.TempDir(), ".")
	if err != nil {
		t.Fatal(err)
	}
	measured, mutants, err := p.measure(t.Context(), 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	type worth struct {
		Kills  int
		Failed bool
	}
	got := map[string]worth{}
	for _, m := range measured {
		got[m.name] = worth{m.kills, m.failed}
	}
	want := map[string]worth{
		"TestPay":        {Kills: 2}, // The upper limit inverted has TestPayTooMuch fail as well.
		"TestPayAgain":   {},
		"TestPayTooMuch": {},
		"TestEmpty":      {},
		"TestBroken":     {Failed: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the tests (-want +got):\n%s", diff)
	}
	lives := map[string]bool{} // Whether it is reached.
	for _, m := range mutants {
		if len(m.killers) == 0 {
			lives[p.points[m.number-1].String()] = m.reached
		}
	}
	if diff := cmp.Diff(map[string]bool{
		"shop.go:12: left out: t.paid++": true, "shop.go:21: left out: t.coins = 0": false,
	}, lives); diff != "" {
		t.Errorf("the mutants that live on (-want +got):\n%s", diff)
	}
}
