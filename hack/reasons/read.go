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

// block is a block of constants: a section of the page, or the conditions of a kind.
type block struct {
	title, intro string
	reasons      []reason
	conditions   []condition
}

// condition is a constant with its comment: when it is true, and what else there is to know.
type condition struct{ name, becomes, more string }

// reason is a constant with its comment, in Markdown.
type reason struct{ name, means, provider, you, stays string }

// progress is the title of the block of the reasons that need no action.
const progress = "Reasons of progress"

var (
	comment  = regexp.MustCompile(`^(\w+): (.*?)(?: - Provider: (.*?))?(?: - You: (.*?))?(?: - If it stays: (.*?))?$`)
	isTrue   = regexp.MustCompile(`^(\w+)Condition is true (?:while|once) (.*?)\.(?: (.*))?$`)
	isReason = regexp.MustCompile(`^(?:reason[A-Z]\w*|[A-Z]\w*Reason)$`)
	title    = regexp.MustCompile(`(?s)^# ([^\n]+)\n\n?(.*)$`)
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
			if len(b.reasons)+len(b.conditions) > 0 {
				blocks = append(blocks, b)
			}
		}
	}
	if len(blocks) == 0 {
		errs = append(errs, fmt.Errorf("no reason was found in %s", dir))
	}
	return blocks, errors.Join(errs...)
}

// blockOf reads a block of constants. It has nothing if these constants are neither reasons nor conditions.
func blockOf(constants *ast.GenDecl) (b block, err error) {
	var errs []error
	found := title.FindStringSubmatch(constants.Doc.Text())
	if found != nil {
		b.title, b.intro = found[1], strings.TrimSpace(found[2])
	}
	for _, spec := range constants.Specs {
		value := spec.(*ast.ValueSpec)
		switch name := value.Names[0].Name; {
		case isReason.MatchString(name):
			r, err := reasonOf(value)
			if found == nil || (b.title == progress) != (r.you == "") || (r.stays != "" && r.you != "") {
				err = errors.Join(err, fmt.Errorf("%s: a reason is in a block with a title, and says what is left to you or is among the %q", name, progress))
			}
			b.reasons, errs = append(b.reasons, r), append(errs, err)
		case strings.HasSuffix(name, "Condition") && found != nil:
			c := isTrue.FindStringSubmatch(strings.Join(strings.Fields(value.Doc.Text()), " "))
			if c == nil || c[1]+"Condition" != name {
				errs = append(errs, fmt.Errorf("%s: its comment does not say when it is true", name))
				continue
			}
			b.conditions = append(b.conditions, condition{c[1], c[2], c[3]})
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
