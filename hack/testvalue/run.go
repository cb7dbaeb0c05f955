// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// program is the test program of a package with its points.
type program struct {
	binary, dir string // where the package is
	points      []point
}

// test is one test of the package.
type test struct {
	name    string
	took    time.Duration
	failed  bool         // without any mutant
	reached map[int]bool // points
	blocks  int          // that it alone reaches
	kills   int          // mutants that it alone kills
}

// alone returns how many points no other test reaches.
func (t *test) alone(tests []*test) (n int) {
	for p := range t.reached {
		others := false
		for _, o := range tests {
			others = others || (o != t && o.reached[p])
		}
		if !others {
			n++
		}
	}
	return n
}

// mutant is the package with one point in effect.
type mutant struct {
	number  int
	reached bool
	killers []*test // at most two
}

// compilerError is where a point does not compile, such as in a comparison that becomes a named type.
var compilerError = regexp.MustCompile(`(?m)^(?:vet: )?([^\s:]+\.go):(\d+):\d+: `)

// build compiles the tests of a package. Lines whose points don't compile get none.
func build(ctx context.Context, dir, name string) (*program, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-json=Dir,GoFiles", name).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var pkg struct {
		Dir     string
		GoFiles []string
	}
	if err := json.Unmarshal(out, &pkg); err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	skip := map[string]map[int]bool{}
	for _, f := range pkg.GoFiles {
		skip[f] = map[int]bool{}
	}
	for range 10 {
		p := &program{binary: filepath.Join(dir, "tests"), dir: pkg.Dir}
		overlay, err := p.overlay(dir, pkg.GoFiles, skip)
		if err != nil {
			return nil, err
		}
		// #nosec G204 -- the package is the caller's.
		said, err := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", p.binary,
			name).CombinedOutput()
		if err == nil {
			return p, nil
		}
		found := false
		for _, m := range compilerError.FindAllStringSubmatch(string(said), -1) {
			line, _ := strconv.Atoi(m[2])
			if lines := skip[filepath.Base(m[1])]; lines != nil && !lines[line] {
				lines[line], found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("go test -c: %w: %s", err, said)
		}
	}
	return nil, errors.New("the points don't compile")
}

// overlay writes the files with their points, and returns the file that tells go of them.
func (p *program) overlay(dir string, files []string, skip map[string]map[int]bool) (string, error) {
	replace, of := map[string]string{}, ""
	for _, f := range files {
		text, pkg, err := instrument(filepath.Join(p.dir, f), skip[f], &p.points)
		if err != nil {
			return "", err
		}
		of, replace[filepath.Join(p.dir, f)] = pkg, filepath.Join(dir, f)
		if err := os.WriteFile(filepath.Join(dir, f), []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("writing the code: %w", err)
		}
	}
	points := filepath.Join(dir, "zz_points.go")
	replace[filepath.Join(p.dir, "zz_points.go")] = points
	if err := os.WriteFile(points, fmt.Appendf(nil, helper, of), 0o600); err != nil {
		return "", fmt.Errorf("writing the points: %w", err)
	}
	to := filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("writing the overlay: %w", err)
	}
	if err := os.WriteFile(to, text, 0o600); err != nil {
		return "", fmt.Errorf("writing the overlay: %w", err)
	}
	return to, nil
}

// measure returns the tests, with what each alone reaches and kills, and the mutants.
func (p *program) measure(ctx context.Context, every, jobs int) ([]*test, []*mutant, error) {
	tests, err := p.tests(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := forEach(jobs, tests, func(t *test) error { return p.reach(ctx, t) }); err != nil {
		return nil, nil, err
	}
	mutants := p.mutants(every)
	if err := forEach(jobs, mutants, func(m *mutant) error { return p.attack(ctx, m, tests) }); err != nil {
		return nil, nil, err
	}
	for _, t := range tests {
		t.blocks = t.alone(tests)
		for _, m := range mutants {
			if len(m.killers) == 1 && m.killers[0] == t {
				t.kills++
			}
		}
	}
	return tests, mutants, nil
}

// tests lists the tests.
func (p *program) tests(ctx context.Context) (tests []*test, err error) {
	out, err := p.command(ctx, "-test.list", "^Test").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the tests: %w", err)
	}
	for line := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(line, "Test") {
			tests = append(tests, &test{name: line, reached: map[int]bool{}})
		}
	}
	return tests, nil
}

func (p *program) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.binary, args...) // #nosec G204 -- it was built here.
	cmd.Dir, cmd.Env = p.dir, os.Environ()
	cmd.WaitDelay = time.Second
	return cmd
}

// reach runs a test alone, and notes what it reaches.
func (p *program) reach(ctx context.Context, t *test) error {
	f, err := os.CreateTemp(filepath.Dir(p.binary), "reached-")
	if err != nil {
		return fmt.Errorf("making a file: %w", err)
	}
	_ = f.Close()
	began := time.Now()
	cmd := p.command(ctx, "-test.run", "^"+t.name+"$", "-test.count=1", "-test.timeout=10m")
	cmd.Env = append(cmd.Env, "TESTVALUE_REACHED="+f.Name())
	t.failed, t.took = cmd.Run() != nil, time.Since(began)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("running %s: %w", t.name, err)
	}
	text, err := os.ReadFile(f.Name())
	if err != nil {
		return fmt.Errorf("reading what %s reaches: %w", t.name, err)
	}
	for line := range bytes.FieldsSeq(text) {
		n, _ := strconv.Atoi(string(line))
		t.reached[n] = true
	}
	return nil
}

// mutants returns each Nth mutant.
func (p *program) mutants(every int) (all []*mutant) {
	seen := 0
	for i := range p.points {
		if p.points[i].kind == block {
			continue
		}
		if seen++; seen%max(1, every) == 0 {
			all = append(all, &mutant{number: i + 1})
		}
	}
	return all
}

// attack looks for two tests that kill a mutant: then none is alone. A test that takes much longer than before kills it
// as well.
func (p *program) attack(ctx context.Context, m *mutant, tests []*test) error {
	for _, t := range tests {
		if !t.reached[m.number] {
			continue
		}
		m.reached = true
		if t.failed || len(m.killers) == 2 {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, 5*t.took+10*time.Second)
		cmd := p.command(limited, "-test.run", "^"+t.name+"$", "-test.count=1")
		cmd.Env = append(cmd.Env, "TESTVALUE_MUTANT="+strconv.Itoa(m.number))
		failed := cmd.Run() != nil
		cancel()
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("running %s: %w", t.name, err)
		}
		if failed {
			m.killers = append(m.killers, t)
		}
	}
	return nil
}

// forEach does something with each item, some at once.
func forEach[T any](jobs int, items []T, do func(T) error) error {
	var wg sync.WaitGroup
	errs, slots := make([]error, len(items)), make(chan struct{}, max(1, jobs))
	for i, item := range items {
		slots <- struct{}{}
		wg.Go(func() {
			errs[i] = do(item)
			<-slots
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
