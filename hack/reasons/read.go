// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// block is a block of constants, and a section of the page.
type block struct {
	title, intro string
	reasons      []reason
}

// reason is a constant with its comment, in Markdown.
type reason struct{ name, means, provider, you, stays string }

// progress is the title of the block of the reasons that need no action.
const progress = "Reasons of progress"

var (
	comment = regexp.MustCompile(`^(\w+): (.*?)(?: - Provider: (.*?))?(?: - You: (.*?))?(?: - If it stays: (.*?))?$`)
	title   = regexp.MustCompile(`(?s)^# ([^\n]+)\n\n?(.*)$`)
)

// read reads the reasons of a package.
func read(dir string) (blocks []block, err error) {
	sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, source := range sources {
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			constants, ok := decl.(*ast.GenDecl)
			if !ok || constants.Tok != token.CONST {
				continue
			}
			b, err := blockOf(constants)
			errs = append(errs, err)
			if len(b.reasons) > 0 {
				blocks = append(blocks, b)
			}
		}
	}
	if len(blocks) == 0 {
		errs = append(errs, fmt.Errorf("no reason was found in %s", dir))
	}
	return blocks, errors.Join(errs...)
}

// blockOf reads a block of constants. It has no reasons if these constants are none.
func blockOf(constants *ast.GenDecl) (b block, err error) {
	var errs []error
	for _, spec := range constants.Specs {
		value := spec.(*ast.ValueSpec)
		if name := value.Names[0]; !name.IsExported() || !strings.HasSuffix(name.Name, "Reason") {
			continue
		}
		r, err := reasonOf(value)
		b.reasons, errs = append(b.reasons, r), append(errs, err)
	}
	if len(b.reasons) == 0 {
		return b, nil
	}
	found := title.FindStringSubmatch(constants.Doc.Text())
	if found == nil {
		return b, errors.Join(append(errs, fmt.Errorf("the block of %s has no title", b.reasons[0].name))...)
	}
	b.title, b.intro = found[1], strings.TrimSpace(found[2])
	for _, r := range b.reasons {
		if (b.title == progress) != (r.you == "") || (r.stays != "" && r.you != "") {
			errs = append(errs, fmt.Errorf("%s: a reason says what is left to you, or is among the %q", r.name, progress))
		}
	}
	return b, errors.Join(errs...)
}

// reasonOf reads a constant.
func reasonOf(value *ast.ValueSpec) (r reason, err error) {
	literal, ok := value.Values[0].(*ast.BasicLit)
	if !ok {
		return r, fmt.Errorf("%s is no literal", value.Names[0].Name)
	}
	name, err := strconv.Unquote(literal.Value)
	if err != nil {
		return r, err
	}
	found := comment.FindStringSubmatch(strings.Join(strings.Fields(value.Doc.Text()), " "))
	if found == nil || found[1] != value.Names[0].Name {
		return r, fmt.Errorf("%s: its comment is not as the others", value.Names[0].Name)
	}
	return reason{name, found[2], found[3], found[4], found[5]}, nil
}
