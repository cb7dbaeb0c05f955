// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// row is one of a table of fields: there, here, what differs.
var row = regexp.MustCompile("(?m)^\\| `([A-Za-z.]+)` \\| (?:`([A-Za-z.]+)`|-) \\| .+ \\|$")

func TestTheDocumentHasEachField(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "migrating.md"))
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.SplitN(string(text), "\n### ", 4)
	if len(sections) != 3 {
		t.Fatalf("%d parts, want two sections of fields", len(sections))
	}
	for i, fields := range [][]Field{ClusterFields, MachineFields} {
		var told []Field
		for _, found := range row.FindAllStringSubmatch(sections[i+1], -1) {
			told = append(told, Field{Name: found[1], Becomes: found[2]})
		}
		if diff := cmp.Diff(fields, told); diff != "" {
			t.Errorf("table %d (-code +document):\n%s", i+1, diff)
		}
	}
}

func TestFieldsBecomeFieldsThatThereAre(t *testing.T) {
	for _, tc := range []struct {
		fields []Field
		spec   reflect.Type
	}{
		{ClusterFields, reflect.TypeFor[infrav1.MaasClusterSpec]()},
		{MachineFields, reflect.TypeFor[infrav1.MaasMachineSpec]()},
	} {
		for _, field := range tc.fields {
			if field.Becomes != "" && !hasField(tc.spec, strings.Split(field.Becomes, ".")) {
				t.Errorf("%s becomes %s, which %s does not have", field.Name, field.Becomes, tc.spec.Name())
			}
		}
	}
}

// hasField reports whether a type has a field by its path in JSON.
func hasField(in reflect.Type, path []string) bool {
	if len(path) == 0 {
		return true
	}
	if in.Kind() == reflect.Pointer {
		in = in.Elem()
	}
	for i := range in.NumField() {
		if name, _, _ := strings.Cut(in.Field(i).Tag.Get("json"), ","); name == path[0] {
			return hasField(in.Field(i).Type, path[1:])
		}
	}
	return false
}
