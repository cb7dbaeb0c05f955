// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Flavor fills in the cluster template of a flavor; "" is the one without a flavor's name. As clusterctl would, it
// replaces ${NAME} by the variable's value, and ${NAME:=default} by the default where the variable has none or an empty
// one.
func (s *Sandbox) Flavor(flavor string, variables map[string]string) (manifest string, err error) {
	name := strings.TrimSuffix("cluster-template-"+flavor, "-") + ".yaml"
	template, err := os.ReadFile(filepath.Join(s.root, "templates", name))
	if err != nil {
		return "", fmt.Errorf("reading the flavor %q: %w", flavor, err)
	}
	if manifest, err = substitute(string(template), variables); err != nil {
		return "", fmt.Errorf("filling in %s: %w", name, err)
	}
	return manifest, nil
}

// variable is a reference that holds no other one: a default may be a reference.
var variable = regexp.MustCompile(`\$\{(\w+)(:=([^${}]*))?\}`)

// errNoValue is returned for variables that have neither a value nor a default.
var errNoValue = errors.New("variables without a value")

func substitute(text string, values map[string]string) (string, error) {
	var missing, inserted []string
	// The text has a mark in place of a value until the end: braces of a value are none of the template.
	mark := func(i int) string { return fmt.Sprintf("\x00%d\x00", i) }
	for variable.MatchString(text) {
		text = variable.ReplaceAllStringFunc(text, func(found string) string {
			parts := variable.FindStringSubmatch(found)
			value, known := values[parts[1]]
			switch {
			case known && (value != "" || parts[2] == ""):
				inserted = append(inserted, value)
				return mark(len(inserted) - 1)
			case parts[2] == "" && !slices.Contains(missing, parts[1]):
				missing = append(missing, parts[1])
			}
			return parts[3]
		})
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("%w: %s", errNoValue, strings.Join(missing, ", "))
	}
	for i, value := range inserted {
		text = strings.ReplaceAll(text, mark(i), value)
	}
	return text, nil
}
