// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/capmaas/cluster-api-provider-maas/internal/list"
	"github.com/capmaas/cluster-api-provider-maas/internal/text"
	"github.com/capmaas/cluster-api-provider-maas/pkg/guard"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas"
	"github.com/capmaas/cluster-api-provider-maas/pkg/maas/cooldown"
)

const (
	// Tag keeps the machines that have it from being allocated, whoever put it on them.
	Tag = "capmaas-quarantine"
	// ExcludeTag keeps the machines that have it from being allocated until something on them is undone.
	ExcludeTag = "capmaas-excluded"
)

// NotTags are the tags of machines that must not be allocated.
func NotTags() []string { return []string{Tag, ExcludeTag} }

// kind is a tag of machines with its comment. The tag that is named by it and a system id has the machine's Note as its
// comment; no machine has that one.
type kind struct{ tag, about string }

var (
	quarantined = kind{Tag, "CAPMAAS does not allocate machines that have this tag. Managers put it on machines that " +
		"failed, and take it off when the time in the comment of the tag " + Tag + "-SYSTEM_ID is over. To lift a " +
		"quarantine, take the tag off the machine, or run: capmaasctl machines lift NAME"}
	excluded = kind{ExcludeTag, "CAPMAAS does not allocate machines that have this tag. Managers put it on machines " +
		"that they are about to take or release, and take it off when they have them, or when their network and storage " +
		"are as before, or when the time in the comment of the tag " + ExcludeTag + "-SYSTEM_ID is over"}
)

// Limits bound how long machines are avoided once they are back in the pool. MAAS's allocate takes the smallest
// machine that fits, so it would return the same one again and again. The image may have been bad, and not the machine:
// then a pool that failed as a whole is used again soon enough. A failed attempt takes MAAS half an hour at least.
var Limits = cooldown.Limits{First: 10 * time.Minute, Longest: 2 * time.Hour, Remembered: 24 * time.Hour}

// heldAtMost ends the quarantine of a machine that no manager gives back to the pool, or whose manager is gone.
const heldAtMost = 24 * time.Hour

// excludedAtMost ends an exclusion whose manager is gone. Erasing large disks takes days.
const excludedAtMost = 7 * 24 * time.Hour

// notedAtMost keeps the note on a machine that is changed for as long as the machine may be used.
const notedAtMost = 20 * 365 * 24 * time.Hour

// Note says why a machine is quarantined, and until when. Managers share it through MAAS: it is the comment of a tag.
type Note struct {
	Since time.Time
	// Until is when a manager lifts the quarantine; if it is zero, a person does.
	Until time.Time
	// Pause is how long the quarantine lasts once the machine is back in the pool; 0: it is, and Until is the end.
	Pause time.Duration
	// Failures is how often the machine failed in a row; 0: a person quarantined it.
	Failures int
	// By is who had the machine, by its mark: see ownership.AgentName. It has no spaces.
	By string
	// Checks is the template whose checks the machine failed, and Set the set of test results that had them; "" if it was
	// something else. A manager lifts it when later sets show that the machine passed all that it had not passed then.
	Checks string
	Set    int
	// Why is one line for people.
	Why string
}

// Cause is why a machine is to be quarantined.
type Cause struct {
	// By is the mark of the MaasMachine that has the machine, which outlives its object: repeated reports of one
	// MaasMachine count as one failure, and it ends what it began, also after it was moved to another management
	// cluster.
	By string
	// Checks and Set are those of the Note.
	Checks string
	Set    int
	// Why is one line for people.
	Why string
}

// why comes last: the text may contain anything.
const why = "why="

func oneLine(reason string) string { return text.OneLine(reason, len(reason)) }

// String returns the comment for a note. It holds whole seconds.
func (n Note) String() string {
	words := []string{"Quarantined"}
	word := func(is bool, key, value string) {
		if is {
			words = append(words, key+"="+value)
		}
	}
	word(!n.Since.IsZero(), "since", n.Since.UTC().Format(time.RFC3339))
	word(!n.Until.IsZero(), "until", n.Until.UTC().Format(time.RFC3339))
	word(n.Pause > 0, "pause", n.Pause.String())
	word(n.Failures > 0, "failures", strconv.Itoa(n.Failures))
	word(n.By != "", "by", n.By)
	word(n.Checks != "", "checks", n.Checks)
	word(n.Set > 0, "set", strconv.Itoa(n.Set))
	return strings.Join(append(words, why+oneLine(n.Why)), " ")
}

// Parse reads the comment of a note's tag. People may have edited it: what can't be read is left out. Without a
// readable end, only a person lifts the quarantine.
func Parse(comment string) Note {
	head, reason, _ := strings.Cut(comment, why)
	n := Note{Why: oneLine(reason)}
	for word := range strings.FieldsSeq(head) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "since":
			n.Since = parseTime(value)
		case "until":
			n.Until = parseTime(value)
		case "pause":
			n.Pause, _ = time.ParseDuration(value)
			n.Pause = max(0, n.Pause)
		case "failures":
			n.Failures, _ = strconv.Atoi(value)
			n.Failures = max(0, n.Failures)
		case "by":
			n.By = value
		case "checks":
			n.Checks = value
		case "set":
			n.Set, _ = strconv.Atoi(value)
			n.Set = max(0, n.Set)
		}
	}
	return n
}

// parseTime returns zero for what is no time. Years with more than four digits can't be written again.
func parseTime(value string) time.Time {
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return time.Time{}
	}
	if at = at.UTC(); at.Year() < 1970 || at.Year() > 9998 {
		return time.Time{}
	}
	return at.Truncate(time.Second)
}

// after returns the note for a failure, given the machine's last note; the zero Note is none.
func after(last Note, c Cause, now time.Time) Note {
	isSame := last.By == c.By && last.Checks == c.Checks && (last.Pause > 0 || last.Checks != "")
	isWorse := last.Checks != "" && c.Checks == "" // It has no end.
	if (isSame || isWorse) && !last.isOver(now) {
		return last
	}
	failures := 1
	if last.Failures > 0 && !last.isForgotten(now) {
		failures = last.Failures + 1
	}
	if c.Checks != "" {
		return Note{Since: now, Failures: failures, By: c.By, Checks: c.Checks, Set: c.Set, Why: c.Why}
	}
	return Note{
		Since: now, Until: now.Add(heldAtMost), Pause: guard.Doubled(Limits.First, Limits.Longest, failures),
		Failures: failures, By: c.By, Why: c.Why,
	}
}

// inPool returns the note of a machine that is back in the pool: from now on the pause counts.
func (n Note) inPool(now time.Time) Note {
	n.Until, n.Pause = now.Add(n.Pause), 0
	return n
}

// isOver reports whether a manager may lift the quarantine.
func (n Note) isOver(now time.Time) bool { return !n.Until.IsZero() && !now.Before(n.Until) }

// isForgotten reports whether a further failure would be the first one again.
func (n Note) isForgotten(now time.Time) bool {
	end := n.Until
	if n.Since.After(end) {
		end = n.Since
	}
	return now.Sub(end) > Limits.Remembered
}

// mayHavePassed reports whether a machine that failed its checks may have passed them later: MAAS counts no result
// as bad. But it leaves out those that were aborted.
func (n Note) mayHavePassed(m *maas.Machine) bool {
	return n.Checks != "" && m.Tests.Set > n.Set && m.Tests.All == maas.TestsPassed && isInPool(m)
}

// isPassed reports whether a machine that failed its checks has passed later, by its test results: each script of the
// set that it failed, on each device, when it was run the last time.
func (n Note) isPassed(results []maas.TestResult) bool {
	since := list.Where(results, func(r maas.TestResult) bool { return r.Set >= n.Set })
	isLater := func(r maas.TestResult) bool { return r.Set > n.Set }
	isBad := func(r maas.TestResult) bool { return !r.IsGood() }
	return slices.ContainsFunc(since, isLater) && !slices.ContainsFunc(maas.LastResults(since), isBad)
}

// Ends says when the quarantine ends, for people.
func (n Note) Ends() string {
	switch {
	case n.Until.IsZero() && n.Checks != "":
		return "until it is lifted, or later tests in MAAS have passed what it had not"
	case n.Until.IsZero():
		return "until it is lifted"
	case n.Pause > 0:
		return fmt.Sprintf("until %s after its release", n.Pause)
	}
	return "until " + n.Until.UTC().Format(time.RFC3339)
}

// IsExcluded reports whether a machine has the tag of an exclusion.
func IsExcluded(m *maas.Machine) bool { return slices.Contains(m.Tags, ExcludeTag) }

// Included returns a machine without the tag of an exclusion.
func Included(m *maas.Machine) *maas.Machine {
	without := *m
	without.Tags = slices.DeleteFunc(slices.Clone(m.Tags), func(tag string) bool { return tag == ExcludeTag })
	return &without
}

// Has reports whether a machine is quarantined.
func Has(m *maas.Machine) bool { return slices.Contains(m.Tags, Tag) }

func (k kind) noteName(systemID string) string { return k.tag + "-" + systemID }

// notes returns the notes of this kind among MAAS's tags, by system id.
func (k kind) notes(tags []maas.Tag) map[string]Note {
	found := map[string]Note{}
	for _, tag := range tags {
		if id, is := strings.CutPrefix(tag.Name, k.noteName("")); is && id != "" {
			found[id] = Parse(tag.Comment)
		}
	}
	return found
}
