// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// kind is what a point of the code can do.
type kind int

const (
	block  kind = iota // It is reached.
	negate             // It is reached, and a condition can be inverted.
	omit               // It is reached, and a statement can be left out.
)

// point is a place in the code that reports that it is reached. Its number is its place in the list, from 1.
type point struct {
	kind kind
	file string // without its directory
	line int
	text string // what is there, in one line
}

func (p point) String() string {
	return fmt.Sprintf("%s:%d: %s %s", p.file, p.line, map[kind]string{negate: "inverted:", omit: "left out:"}[p.kind], p.text)
}

// helper has the functions that the points call. %s is the name of the package.
const helper = `package %s

import (
	"os"
	"strconv"
	"sync"
)

var (
	pointNow   = func() int { n, _ := strconv.Atoi(os.Getenv("TESTVALUE_MUTANT")); return n }()
	pointsFile = func() *os.File {
		f, _ := os.OpenFile(os.Getenv("TESTVALUE_REACHED"), os.O_APPEND|os.O_WRONLY, 0)
		return f
	}()
	pointsSeen sync.Map
)

func pointReached(n int) bool {
	if pointsFile != nil {
		if _, seen := pointsSeen.LoadOrStore(n, true); !seen {
			_, _ = pointsFile.WriteString(strconv.Itoa(n) + "\n")
		}
	}
	return n != pointNow
}

func pointOf[B ~bool](n int, b B) B {
	if pointReached(n) {
		return b
	}
	return !b
}
`

// edit is text that is put into a file.
type edit struct {
	at   int
	text string
	end  bool // it closes what began before, so it comes before what begins at the same place
}

// instrumented is a file while points are put into it.
type instrumented struct {
	name   string // its path
	source []byte
	files  *token.FileSet
	edits  []edit
	points *[]point
	skip   map[int]bool // lines without points
}

// instrument returns a Go file with points, and adds them to the list. Lines in skip get none.
func instrument(name string, skip map[int]bool, points *[]point) (text, pkg string, err error) {
	source, err := os.ReadFile(name)
	if err != nil {
		return "", "", fmt.Errorf("reading the code: %w", err)
	}
	f := &instrumented{name: name, source: source, files: token.NewFileSet(), points: points, skip: skip}
	tree, err := parser.ParseFile(f.files, name, source, parser.ParseComments)
	if err != nil {
		return "", "", fmt.Errorf("parsing the code: %w", err)
	}
	for _, d := range tree.Decls {
		if fn, is := d.(*ast.FuncDecl); is && fn.Body != nil {
			ast.Inspect(fn.Body, f.visit)
		}
	}
	return f.write(), tree.Name.Name, nil
}

// visit puts points into a node.
func (f *instrumented) visit(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.BlockStmt:
		f.statements(n.List)
	case *ast.CaseClause:
		f.statements(n.Body)
	case *ast.CommClause:
		f.statements(n.Body)
	case *ast.IfStmt:
		f.condition(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			f.condition(n.Cond)
		}
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, c := range n.Body.List {
				for _, e := range c.(*ast.CaseClause).List {
					f.condition(e)
				}
			}
		}
	case *ast.ReturnStmt:
		for _, e := range n.Results {
			if _, is := ast.Unparen(e).(*ast.BinaryExpr); is {
				f.condition(e)
			}
		}
	}
	return true
}

// statements puts a point where a block begins, and one around each statement that can be left out.
func (f *instrumented) statements(list []ast.Stmt) {
	if len(list) > 0 {
		if n := f.point(block, list[0]); n > 0 {
			f.put(list[0].Pos(), fmt.Sprintf("_ = pointReached(%d); ", n), false)
		}
	}
	for _, s := range list {
		if !canBeLeftOut(s) {
			continue
		}
		if n := f.point(omit, s); n > 0 {
			f.put(s.Pos(), fmt.Sprintf("if pointReached(%d) { ", n), false)
			f.put(s.End(), " }", true)
		}
	}
}

// canBeLeftOut reports whether a function compiles without the statement as well.
func canBeLeftOut(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, is := s.X.(*ast.CallExpr)
		name, _ := call.Fun.(*ast.Ident)
		return is && (name == nil || name.Name != "panic")
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE && !isBlank(s.Lhs)
	case *ast.IncDecStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt:
		return true
	}
	return false
}

func isBlank(to []ast.Expr) bool {
	return !slices.ContainsFunc(to, func(e ast.Expr) bool { name, is := e.(*ast.Ident); return !is || name.Name != "_" })
}

// condition puts points around each part of a condition.
func (f *instrumented) condition(e ast.Expr) {
	if b, is := ast.Unparen(e).(*ast.BinaryExpr); is {
		switch b.Op {
		case token.LAND, token.LOR:
			f.condition(b.X)
			f.condition(b.Y)
			return
		case token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ:
		default:
			return // Of a return statement: it may be a number.
		}
	}
	if n := f.point(negate, e); n > 0 {
		f.put(e.Pos(), fmt.Sprintf("pointOf(%d, ", n), false)
		f.put(e.End(), ")", true)
	}
}

// point adds a point, and returns its number; 0 on a line without points.
func (f *instrumented) point(k kind, node ast.Node) int {
	at := f.files.Position(node.Pos())
	if f.skip[at.Line] {
		return 0
	}
	text := strings.Join(strings.Fields(string(f.source[at.Offset:f.files.Position(node.End()).Offset])), " ")
	if len(text) > 80 {
		text = text[:80]
	}
	*f.points = append(*f.points, point{k, filepath.Base(f.name), at.Line, text})
	return len(*f.points)
}

func (f *instrumented) put(at token.Pos, text string, end bool) {
	f.edits = append(f.edits, edit{f.files.Position(at).Offset, text, end})
}

// write returns the file with its points. Lines stay where they are.
func (f *instrumented) write() string {
	slices.SortStableFunc(f.edits, func(a, b edit) int {
		switch {
		case a.at != b.at:
			return a.at - b.at
		case a.end == b.end:
			return 0
		case a.end:
			return -1
		}
		return 1
	})
	var out strings.Builder
	from := 0
	for _, e := range f.edits {
		out.Write(f.source[from:e.at])
		out.WriteString(e.text)
		from = e.at
	}
	out.Write(f.source[from:])
	return out.String()
}
