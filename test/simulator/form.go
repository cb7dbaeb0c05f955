// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"math"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// maxBody bounds a request. MAAS's own web server accepts images in pieces of any size that its memory takes.
const maxBody = 32 << 20

// form is the data of a request: values by key, and keys in the order in which they came, which MAAS repeats in
// messages.
type form struct {
	order  []string
	values map[string][]string
}

func newForm() form { return form{values: map[string][]string{}} }

func (f *form) add(key, value string) {
	if _, ok := f.values[key]; !ok {
		f.order = append(f.order, key)
	}
	f.values[key] = append(f.values[key], value)
}

// has reports whether the key was sent, with any value.
func (f form) has(key string) bool { return len(f.values[key]) > 0 }

// get returns the key's last value, as Django's QueryDict does, or "".
func (f form) get(key string) string {
	values := f.values[key]
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// list returns all the key's values.
func (f form) list(key string) []string { return f.values[key] }

// without returns the form without some keys.
func (f form) without(keys ...string) form {
	out := newForm()
	for _, key := range f.order {
		if !slices.Contains(keys, key) {
			for _, value := range f.values[key] {
				out.add(key, value)
			}
		}
	}
	return out
}

// boolean parses an optional parameter as formencode's StringBool does; a wrong value is a 400.
func (f form) boolean(key string, fallback bool) (bool, error) {
	if !f.has(key) {
		return fallback, nil
	}
	switch strings.ToLower(strings.TrimSpace(f.get(key))) {
	case "true", "t", "yes", "y", "on", "1":
		return true, nil
	case "false", "f", "no", "n", "off", "0":
		return false, nil
	}
	return false, badRequest("Invalid %s: Value should be 'true' or 'false'", key)
}

// checkbox parses a value as the fields of Django's forms do: everything is true except an empty text or a word for
// false.
func (f form) checkbox(key string, fallback bool) bool {
	if f.get(key) == "" {
		return fallback
	}
	return f.get(key) != "0" && !strings.EqualFold(f.get(key), "false")
}

// integer parses a number for a form's field; complaints are added to errs.
func (f form) integer(key string, fallback int, errs formErrors) int {
	if f.get(key) == "" {
		return fallback
	}
	n, err := strconv.Atoi(strings.TrimSpace(f.get(key)))
	if err != nil {
		errs.add(key, "Enter a whole number.")
		return fallback
	}
	return n
}

// number parses a float for a form's field; complaints are added to errs.
func (f form) number(key string, fallback float64, errs formErrors) float64 {
	if f.get(key) == "" {
		return fallback
	}
	n, ok := parseFloat(f.get(key))
	if !ok {
		errs.add(key, "Enter a number.")
		return fallback
	}
	return n
}

// parseFloat parses a finite number.
func parseFloat(text string) (float64, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	return n, err == nil && !math.IsNaN(n) && !math.IsInf(n, 0)
}

// parseQuery parses application/x-www-form-urlencoded text and keeps the order. Like Django, it skips what it can't
// parse.
func parseQuery(text string) form {
	out := newForm()
	for part := range strings.SplitSeq(text, "&") {
		if part == "" {
			continue
		}
		key, value, _ := strings.Cut(part, "=")
		k, err1 := url.QueryUnescape(key)
		v, err2 := url.QueryUnescape(value)
		if err1 == nil && err2 == nil {
			out.add(k, v)
		}
	}
	return out
}

// parseBody reads a form; the body of anything else is none.
func parseBody(contentType string, raw []byte) form {
	if kind, _, err := mime.ParseMediaType(contentType); err != nil || kind != "application/x-www-form-urlencoded" {
		return newForm()
	}
	return parseQuery(string(raw))
}

// firstPart returns the text before the separator, or all of it.
func firstPart(text string, separator byte) string {
	if i := strings.IndexByte(text, separator); i >= 0 {
		return text[:i]
	}
	return text
}

// splitList splits "a,b c" as MAAS does for lists in one field.
func splitList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' })
}
