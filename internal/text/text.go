// SPDX-License-Identifier: Apache-2.0

// Package text makes short lines of what others say, for conditions, events and errors.
package text

import (
	"fmt"
	"strings"
	"unicode"
)

// OneLine returns a text as one line of printable characters, with at most so many bytes of it. What comes from others may be long, and may hold
// anything.
func OneLine(text string, maxBytes int) string {
	words := strings.FieldsFunc(strings.ToValidUTF8(text, "?"), func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) })
	text = strings.Join(words, " ")
	if len(text) > maxBytes {
		text = strings.ToValidUTF8(text[:maxBytes], "") + "..."
	}
	return text
}

// Lines returns the lines of an error on one line. Errors that are joined have a line each.
func Lines(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}

// List returns the first of some names, at most so many, and says how many more there are.
func List(names []string, atMost int) string {
	if len(names) <= atMost {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:atMost], ", "), len(names)-atMost)
}
