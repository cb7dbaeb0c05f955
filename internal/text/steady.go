// SPDX-License-Identifier: Apache-2.0

package text

import (
	"regexp"
	"strings"
)

// varying finds what differs from try to try in texts of others. A group that is kept comes first: an address looks
// like a time, and the name of an image may hold a date.
var varying = regexp.MustCompile(strings.Join([]string{
	// a MAC or IPv6 address
	`(?P<keep>\b[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5}\b|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){3,7})`,
	`(?P<time>\b\d{4}[-/]\d{2}[-/]\d{2}[T ]\d{2}:\d{2}(?::\d{2})?(?:[.,]\d+)?` +
		`(?: ?(?:Z|UTC|GMT|[+-]\d{2}:?\d{2}))*(?: m=[+-][\d.]+)?` +
		`|\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? )?(?:\d{1,2}[ -])?` +
		`(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?[ -]+\d{1,4}(?: \d{4})? ` +
		`\d{2}:\d{2}(?::\d{2})?(?:\.\d+)?(?: \d{4})?(?: (?:UTC|GMT))?` +
		`|\b\d{2}:\d{2}:\d{2}(?:[.,]\d+)?\b|\b1\d{9}(?:\.\d+|\d{3}|\d{6}|\d{9})?\b)`,
	`(?P<id>\b[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\b|\b0x[0-9A-Fa-f]+\b|\b[0-9a-f]{16,32}\b)`,
	`(?P<duration>\b(?:\d+h)?(?:\d+m)?\d+(?:\.\d+)?(?:ns|us|\x{b5}s|\x{3bc}s|ms|s)\b` +
		`|\b\d+(?:\.\d+)? ?(?:milli|micro|nano)?sec(?:ond)?s?\b)`,
	`(?P<port>:\d{1,5}->)`, // ours, which each connection has of its own
	`(?P<count>(?i:\b(?:attempts?|try|tries|retry|retries|request(?:[ _-]?id)?|nonce|pid|process|transaction)` +
		`(?: |=|: ?|#| #)\d+\b))`,
}, "|"))

// Steady returns OneLine without what differs from try to try: times, durations, ids of requests, own ports, counts of
// tries. A condition whose message changes each time would wake its own object each time.
func Steady(foreign string, maxBytes int) string {
	line := OneLine(foreign, len(foreign)+len("?")*len(foreign))
	line = varying.ReplaceAllStringFunc(line, func(found string) string {
		match := varying.FindStringSubmatch(found)
		for i, name := range varying.SubexpNames() {
			if name == "" || match == nil || match[i] == "" {
				continue
			}
			return replacement(name, found)
		}
		return found
	})
	return OneLine(line, maxBytes)
}

func replacement(kind, found string) string {
	switch kind {
	case "keep":
		return found
	case "port":
		return "->"
	case "count":
		return strings.TrimRight(found, "0123456789") + "(n)"
	}
	return "(" + kind + ")"
}
