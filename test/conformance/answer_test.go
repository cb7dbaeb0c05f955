// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// answer is MAAS's response to a request.
type answer struct {
	request request
	status  int
	header  http.Header
	body    []byte
}

func (a *answer) excerpt() string {
	const most = 800
	if len(a.body) > most {
		return string(a.body[:most]) + " …"
	}
	return string(a.body)
}

// wants ends the case unless the response has the status.
func (a *answer) wants(t *testing.T, status int) *answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("%s: status %d, want %d; body: %s", a.request, a.status, status, a.excerpt())
	}
	return a
}

// ok ends the case unless the response is 200 with a JSON document.
func (a *answer) ok(t *testing.T) *answer {
	t.Helper()
	a.wants(t, http.StatusOK)
	if kind := a.header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") {
		t.Errorf("%s: Content-Type %q, want application/json", a.request, kind)
	}
	return a
}

// object is the JSON object of a 200.
func (a *answer) object(t *testing.T) object {
	t.Helper()
	var o object
	a.ok(t).into(t, &o)
	return o
}

// list is the JSON array of objects of a 200.
func (a *answer) list(t *testing.T) []object {
	t.Helper()
	var list []object
	a.ok(t).into(t, &list)
	return list
}

func (a *answer) into(t *testing.T, v any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(string(a.body)))
	decoder.UseNumber() // 107374.1824 and 100 must stay apart
	if err := decoder.Decode(v); err != nil {
		t.Fatalf("%s: reading the response: %v; body: %s", a.request, err, a.excerpt())
	}
}

// refuses checks a refusal whose body is text: the status, and that the text has all the parts.
func (a *answer) refuses(t *testing.T, status int, parts ...string) {
	t.Helper()
	a.wants(t, status)
	if kind := a.header.Get("Content-Type"); !strings.HasPrefix(kind, "text/") {
		t.Errorf("%s: %d with Content-Type %q, want text", a.request, status, kind)
	}
	for _, part := range parts {
		if !strings.Contains(string(a.body), part) {
			t.Errorf("%s: %d %q, want it to contain %q", a.request, status, a.excerpt(), part)
		}
	}
}

// refusesSilently checks a refusal without a body.
func (a *answer) refusesSilently(t *testing.T, status int) {
	t.Helper()
	a.wants(t, status)
	if len(a.body) != 0 {
		t.Errorf("%s: %d %q, want an empty body", a.request, status, a.excerpt())
	}
}

// refusesField checks the refusal of a form: 400 with a JSON object that has, for the field, a list of messages, the
// parts among them.
func (a *answer) refusesField(t *testing.T, field string, parts ...string) {
	t.Helper()
	a.wants(t, http.StatusBadRequest)
	if kind := a.header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") {
		t.Errorf("%s: 400 with Content-Type %q, want application/json; body: %s", a.request, kind, a.excerpt())
	}
	fields := map[string][]string{}
	a.into(t, &fields)
	messages := strings.Join(fields[field], "\n")
	if messages == "" {
		t.Fatalf("%s: 400 %s, want it to name %q", a.request, a.excerpt(), field)
	}
	for _, part := range parts {
		if !strings.Contains(messages, part) {
			t.Errorf("%s: %s is refused with %q, want %q", a.request, field, messages, part)
		}
	}
}

// gone checks the response to a deletion: 204 without a body.
func (a *answer) gone(t *testing.T) {
	t.Helper()
	a.refusesSilently(t, http.StatusNoContent)
}

// object is a JSON object of MAAS.
type object map[string]any

// at follows keys into the object; nil if there is nothing.
func (o object) at(keys ...string) any {
	var value any = map[string]any(o)
	for _, key := range keys {
		inner, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = inner[key]
	}
	return value
}

// str returns the string at the keys, or "".
func (o object) str(keys ...string) string {
	text, _ := o.at(keys...).(string)
	return text
}

// num returns the number at the keys, or -1; numbers that may be negative are compared as ids.
func (o object) num(keys ...string) float64 {
	number, ok := o.at(keys...).(json.Number)
	if !ok {
		return -1
	}
	value, err := number.Float64()
	if err != nil {
		return -1
	}
	return value
}

// int is the number at the keys, as MAAS's ids are used in paths and forms.
func (o object) int(keys ...string) int { return int(o.num(keys...)) }

// id is the number at the keys as text.
func (o object) id(keys ...string) string {
	number, ok := o.at(keys...).(json.Number)
	if !ok {
		return ""
	}
	return number.String()
}

// flag is the boolean at the keys.
func (o object) flag(keys ...string) bool {
	value, _ := o.at(keys...).(bool)
	return value
}

// part returns the object at the keys, or nil.
func (o object) part(keys ...string) object {
	inner, _ := o.at(keys...).(map[string]any)
	return inner
}

// objects are the objects of the array at the keys.
func (o object) objects(keys ...string) []object {
	items, _ := o.at(keys...).([]any)
	var out []object
	for _, item := range items {
		if inner, ok := item.(map[string]any); ok {
			out = append(out, inner)
		}
	}
	return out
}

// strings are the strings of the array at the keys.
func (o object) strings(keys ...string) []string {
	items, _ := o.at(keys...).([]any)
	out := []string{}
	for _, item := range items {
		if text, ok := item.(string); ok {
			out = append(out, text)
		}
	}
	return out
}

// find is the first of the objects that the condition holds for, nil if none.
func find(list []object, condition func(object) bool) object {
	for _, o := range list {
		if condition(o) {
			return o
		}
	}
	return nil
}

// has reports whether one of the objects has the text at the key.
func has(list []object, key, text string) bool {
	return find(list, func(o object) bool { return o.str(key) == text }) != nil
}
