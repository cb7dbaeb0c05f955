// SPDX-License-Identifier: Apache-2.0

// Package text shortens texts of others for conditions, events and errors.
package text

import (
	"fmt"
	"strings"
	"unicode"
)

// OneLine returns a text as one line of printable characters, with at most maxBytes of it. Texts of others may be long,
// and may hold anything.
func OneLine(text string, maxBytes int) string {
	words := strings.FieldsFunc(strings.ToValidUTF8(text, "?"),
		func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) })
	text = strings.Join(words, " ")
	if len(text) > maxBytes {
		text = strings.ToValidUTF8(text[:maxBytes], "") + "..."
	}
	return text
}

// Lines returns the lines of an error on one line. Joined errors have a line each.
func Lines(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}

// List returns the first atMost of some names, and the number of the others.
func List(names []string, atMost int) string { return joined(names, atMost, ", ", " and ") }

// Parts is List for parts of a message.
func Parts(parts []string, atMost int) string { return joined(parts, atMost, "; ", "; and ") }

func joined(parts []string, atMost int, separator, and string) string {
	if len(parts) <= atMost {
		return strings.Join(parts, separator)
	}
	return fmt.Sprintf("%s%s%d more", strings.Join(parts[:atMost], separator), and, len(parts)-atMost)
}
