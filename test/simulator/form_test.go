// SPDX-License-Identifier: Apache-2.0

package simulator

import "testing"

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
