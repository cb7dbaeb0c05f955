// SPDX-License-Identifier: Apache-2.0

package text

import (
	"errors"
	"testing"
)

func TestOneLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                 "",
		"a\n\tb\x00 c\r\n": "a b c",
		"12345678901":      "1234567890...",
		"123456789\u00e4x": "123456789...",
		"a\xffb":           "a?b",
	} {
		if got := OneLine(text, 10); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	if got := Lines(errors.Join(errors.New("a"), errors.New("b"))); got != "a; b" {
		t.Errorf("got %q", got)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c"}
	for atMost, want := range map[int]string{3: "a, b, c", 2: "a, b and 1 more"} {
		if got := List(names, atMost); got != want {
			t.Errorf("%d: got %q, want %q", atMost, got, want)
		}
	}
}

func TestParts(t *testing.T) {
	t.Parallel()
	parts := []string{"a", "b, c", "d"}
	for atMost, want := range map[int]string{3: "a; b, c; d", 2: "a; b, c; and 1 more"} {
		if got := Parts(parts, atMost); got != want {
			t.Errorf("%d: got %q, want %q", atMost, got, want)
		}
	}
}
