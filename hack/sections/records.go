// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// title is how a decision record begins.
var title = regexp.MustCompile(`^# (\d+)\. (.+)\n`)

// index returns the table of the decision records.
func index(docs string) ([]byte, error) {
	records, err := filepath.Glob(filepath.Join(docs, "adr", "[0-9]*.md"))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("| | Decision |\n|---|---|\n")
	for _, record := range records {
		text, err := os.ReadFile(record)
		if err != nil {
			return nil, err
		}
		named := title.FindSubmatch(text)
		if named == nil {
			return nil, fmt.Errorf("%s does not begin with %s", record, title)
		}
		fmt.Fprintf(&b, "| %s | [%s](%s) |\n", named[1], named[2], filepath.Base(record))
	}
	return b.Bytes(), nil
}
