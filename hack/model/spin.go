// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	// limit bounds one search, fullLimit one that `make model FULL=1` alone runs. They take seconds, and minutes.
	limit, fullLimit = 10 * time.Minute, time.Hour
	// memory bounds the states of one search, in MB.
	memory, fullMemory = 950, 6000
	// maxDepth bounds the depth of a search, in steps.
	maxDepth = 3_000_000
)

// result is what came of a search.
type result struct {
	search
	states, depth int
	megabytes     float64
	took          time.Duration
	complete      bool
	// broken is the sentence that does not hold, events how many events the trace has, which is in trace.
	broken string
	events int
	trace  []string
	// lines are all that Spin prints of it.
	lines []string
	// surprise is why it is not as expected; "" if it is.
	surprise string
}

// run generates a program from the model, compiles it and runs it, all in dir.
func (s *search) run(ctx context.Context, dir string, r *result) error {
	switches := s.flags()
	spin := append([]string{"-a"}, append(switches, s.Model+".pml")...)
	if out, err := output(ctx, dir, "spin", spin...); err != nil {
		return fmt.Errorf("spin can't read the model: %w: %s", err, last(out))
	}
	megabytes, bound := memory, limit
	if s.Full {
		megabytes, bound = fullMemory, fullLimit
	}
	flags := []string{"-w", "-DVECTORSZ=2048", "-DMEMLIM=" + strconv.Itoa(megabytes), "-o", "pan", "pan.c"}
	opts := []string{"-m" + strconv.Itoa(maxDepth)}
	switch {
	case s.Ends != "":
		flags = append(flags, "-O1", "-DCOLLAPSE", "-DNFAIR=4")
		opts = append(opts, "-a", "-f", "-N", s.Ends)
	case s.expects() && !s.Deep:
		flags = append(flags, "-O0", "-DSAFETY", "-DBFS") // A shortest trace; it takes less time than to compile it well.
	default:
		flags = append(flags, "-O1", "-DSAFETY", "-DCOLLAPSE")
	}
	if s.AnyEnd {
		opts = append(opts, "-E")
	}
	if out, err := output(ctx, dir, "gcc", flags...); err != nil {
		return fmt.Errorf("gcc can't compile what spin made: %w: %s", err, last(out))
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	began := time.Now()
	out, err := output(ctx, dir, "./pan", opts...)
	r.took = time.Since(began)
	if ctx.Err() != nil {
		return fmt.Errorf("it did not end within %s", bound)
	}
	r.read(out)
	if err != nil && r.states == 0 {
		return fmt.Errorf("the search failed: %w: %s", err, last(out))
	}
	if _, err := os.Stat(filepath.Join(dir, s.Model+".pml.trail")); err != nil {
		return nil
	}
	trail, err := output(ctx, dir, "spin", append([]string{"-t"}, append(switches, s.Model+".pml")...)...)
	if err != nil {
		return fmt.Errorf("spin can't replay the trace: %w", err)
	}
	r.replay(trail)
	return nil
}

// output runs a command, and returns what it prints.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	var out bytes.Buffer
	command := exec.CommandContext(ctx, name, args...)
	command.Dir, command.Stdout, command.Stderr = dir, &out, &out
	command.WaitDelay = 10 * time.Second
	err := command.Run()
	return out.String(), err
}

func last(out string) string {
	out = strings.TrimSpace(out)
	return out[max(strings.LastIndex(out, "\n")+1, len(out)-300):]
}

var (
	statesLine = regexp.MustCompile(`(?m)^\s*([0-9.e+]+) states, stored`)
	depthLine  = regexp.MustCompile(`depth reached (\d+)`)
	memoryLine = regexp.MustCompile(`(?m)^\s*([0-9.]+)\s+total actual memory usage`)
	errorLine  = regexp.MustCompile(`(?m)^pan:1: (.*) \(at depth`)
	cutShort   = regexp.MustCompile(`Search not completed|max search depth too small|out of memory|reached -DMEMLIM`)
	sentenceOf = regexp.MustCompile(`BROKEN (\w+)`)
)

// read reads what the search printed.
func (r *result) read(out string) {
	number := func(of *regexp.Regexp) float64 {
		found := of.FindStringSubmatch(out)
		if found == nil {
			return 0
		}
		n, _ := strconv.ParseFloat(found[1], 64) // The pattern is a number's.
		return n
	}
	r.states, r.depth, r.megabytes = int(number(statesLine)), int(number(depthLine)), number(memoryLine)
	r.complete = !cutShort.MatchString(out)
	if found := errorLine.FindStringSubmatch(out); found != nil {
		r.broken = found[1]
	}
}

// replay reads the trace of a counterexample.
func (r *result) replay(trail string) {
	for line := range strings.Lines(trail) {
		line = strings.TrimSpace(line)
		r.lines = append(r.lines, line)
		if event, is := strings.CutPrefix(line, "EV "); is {
			r.events++
			r.trace = append(r.trace, event)
		}
		if found := sentenceOf.FindStringSubmatch(line); found != nil {
			r.broken = found[1]
			r.trace = append(r.trace, line)
		}
	}
}

// judge says what is not as expected.
func (r *result) judge() {
	switch {
	case r.broken == r.Breaks && (r.broken != "" || r.complete):
	case r.broken == "" && !r.complete:
		r.surprise = "the search is not complete: it needs more memory, or depth"
	case r.broken == "":
		r.surprise = "nothing breaks: the guard is not needed, or the model is too weak"
	case r.Breaks == "":
		r.surprise = r.broken + " does not hold"
	default:
		r.surprise = fmt.Sprintf("%s does not hold, and %s was expected not to", r.broken, r.Breaks)
	}
}

// row returns the columns of the table.
func (r *result) row() []string {
	took := r.took.Round(100 * time.Millisecond).String()
	found := cmp.Or(r.broken, "nothing")
	if r.surprise != "" {
		found = "SURPRISE"
	}
	if r.part == partSearches {
		return []string{r.Model, strings.TrimSpace(r.Name + " " + bracketed(r.switches())), found, strconv.Itoa(r.states),
			strconv.Itoa(r.depth), strconv.Itoa(int(r.megabytes)), took}
	}
	return []string{r.Model, r.switches(), found, strconv.Itoa(r.events), strconv.Itoa(r.states), took,
		cmp.Or(r.Why, r.Unneeded)}
}

func bracketed(switches string) string {
	if switches == "" {
		return ""
	}
	return "(" + switches + ")"
}

func (r *result) progress() string {
	return fmt.Sprintf("%s %s: %s, %d states, %s", r.Model, cmp.Or(r.switches(), r.Name),
		cmp.Or(r.surprise, r.broken, "nothing found"), r.states, r.took.Round(100*time.Millisecond))
}
