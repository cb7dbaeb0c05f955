// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"testing"
)

func TestSubstitute(t *testing.T) {
	values := map[string]string{"NAME": "one", "EMPTY": "", "BRACES": "k8s-{version}"}
	for text, want := range map[string]string{
		"${NAME}":                "one",
		"${NAME:=two}":           "one",
		"${EMPTY}-":              "-",
		"${EMPTY:=two}":          "two",
		"${OTHER:=two}":          "two",
		"${OTHER:=}":             "",
		"${OTHER:=${NAME}}":      "one",
		"${OTHER:=[]} ${NAME}":   "[] one",
		"${OTHER:=${BRACES}}":    "k8s-{version}",
		"$NAME {{ NAME }} $${X:": "$NAME {{ NAME }} $${X:",
	} {
		if got, err := substitute(text, values); got != want || err != nil {
			t.Errorf("substitute(%q) = %q, %v, want %q", text, got, err, want)
		}
	}
	if _, err := substitute("${NAME} ${MISSING} ${OTHER:=${ALSO_MISSING}}", values); !errors.Is(err, errNoValue) {
		t.Errorf("error %v, want %v", err, errNoValue)
	}
}
