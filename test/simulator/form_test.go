// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"bytes"
	"mime/multipart"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseBody(t *testing.T) {
	multi := &bytes.Buffer{}
	writer := multipart.NewWriter(multi)
	for _, pair := range [][2]string{{"zone", "z"}, {"tags", "a"}, {"tags", "b"}} {
		if err := writer.WriteField(pair[0], pair[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"zone": {"z"}, "tags": {"a", "b"}}
	order := []string{"zone", "tags"}
	tests := map[string]struct {
		contentType, raw string
		inPost           bool
	}{
		"urlencoded":              {"application/x-www-form-urlencoded", "zone=z&tags=a&tags=b", true},
		"urlencoded with charset": {"application/x-www-form-urlencoded; charset=utf-8", "zone=z&tags=a&tags=b", true},
		"multipart":               {writer.FormDataContentType(), multi.String(), true},
		"JSON":                    {"application/json", `{"zone": "z", "tags": ["a", "b"]}`, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseBody(test.contentType, []byte(test.raw))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.data.values); diff != "" {
				t.Errorf("data (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(order, got.data.order); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
			if got.post.has("zone") != test.inPost {
				t.Errorf("request.POST has it: %v, want %v", got.post.has("zone"), test.inPost)
			}
		})
	}
}

func TestParseBodyRefuses(t *testing.T) {
	for name, test := range map[string]struct{ contentType, raw string }{
		"JSON list":     {"application/json", `[1]`},
		"cut JSON":      {"application/json", `{"a": `},
		"cut multipart": {"multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parseBody(test.contentType, []byte(test.raw)); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestFormValues(t *testing.T) {
	f := parseQuery("yes=On&no=0&odd=maybe&empty=&n=7&twice=1&twice=2")
	for key, want := range map[string]bool{"yes": true, "no": false, "missing": true} {
		if got, err := f.boolean(key, true); err != nil || got != want {
			t.Errorf("boolean %s is %v, %v; want %v", key, got, err, want)
		}
	}
	if _, err := f.boolean("odd", false); err == nil {
		t.Error("maybe is a boolean")
	}
	for key, want := range map[string]bool{"yes": true, "no": false, "odd": true, "empty": false, "missing": false} {
		if got := f.checkbox(key, false); got != want {
			t.Errorf("checkbox %s is %v, want %v", key, got, want)
		}
	}
	if f.get("twice") != "2" {
		t.Errorf("the last of several values counts, got %s", f.get("twice"))
	}
	errs := formErrors{}
	if n := f.integer("n", 0, errs); n != 7 || len(errs) != 0 {
		t.Errorf("n is %d, %v", n, errs)
	}
	f.integer("odd", 0, errs)
	if len(errs["odd"]) != 1 {
		t.Errorf("complaints are %v, want one of odd", errs)
	}
}
