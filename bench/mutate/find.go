package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// mutant replaces the bytes from start to end of a file.
type mutant struct {
	file       string
	original   []byte
	line       int
	start, end int
	text       string
}

func (m mutant) source() []byte {
	return bytes.Join([][]byte{m.original[:m.start], []byte(m.text), m.original[m.end:]}, nil)
}

// excerpt returns the changed lines, in one line, before or after the mutation.
func (m mutant) excerpt(mutated bool) string {
	first := bytes.LastIndexByte(m.original[:m.start], '\n') + 1
	last := len(m.original)
	if i := bytes.IndexByte(m.original[m.end:], '\n'); i >= 0 {
		last = m.end + i
	}
	middle := string(m.original[m.start:m.end])
	if mutated {
		middle = m.text
	}
	s := string(m.original[first:m.start]) + middle + string(m.original[m.end:last])
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 160 {
		s = string(r[:160]) + " …"
	}
	return s
}

// find returns every mutant of the files of p that are neither tests nor generated.
func find(p pkg) ([]mutant, error) {
	var all []mutant
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if ast.IsGenerated(f) {
			continue
		}
		v := finder{path: path, source: source, file: fset.File(f.Pos())}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "main" && f.Name.Name == "main" {
				continue
			}
			v.walk(d, nil)
		}
		all = append(all, v.found...)
	}
	return all, nil
}

type finder struct {
	path   string
	source []byte
	file   *token.File
	found  []mutant
}

func (v *finder) add(from, to token.Pos, text string) {
	m := mutant{file: v.path, original: v.source, line: v.file.Line(from), text: text}
	m.start, m.end = v.file.Offset(from), v.file.Offset(to)
	v.found = append(v.found, m)
}

func (v *finder) text(n ast.Node) string {
	return string(v.source[v.file.Offset(n.Pos()):v.file.Offset(n.End())])
}

// operators lists what replaces an operator. Where the types do not allow it, the mutant does not compile.
var operators = map[token.Token][]string{
	token.EQL: {"!="}, token.NEQ: {"=="},
	token.LSS: {"<=", ">="}, token.LEQ: {"<", ">"}, token.GTR: {">=", "<="}, token.GEQ: {">", "<"},
	token.LAND: {"||"}, token.LOR: {"&&"},
	token.ADD: {"-"}, token.SUB: {"+"}, token.MUL: {"/"}, token.QUO: {"*"}, token.REM: {"*"},
	token.AND: {"|"}, token.OR: {"&"}, token.XOR: {"&"}, token.AND_NOT: {"&"}, token.SHL: {">>"}, token.SHR: {"<<"},
	token.INC: {"--"}, token.DEC: {"++"}, token.ADD_ASSIGN: {"-="}, token.SUB_ASSIGN: {"+="},
	token.AND_ASSIGN: {"|="}, token.OR_ASSIGN: {"&="},
}

func (v *finder) operator(t token.Token, pos token.Pos) {
	for _, text := range operators[t] {
		v.add(pos, pos+token.Pos(len(t.String())), text)
	}
}

// walk adds the mutants of n. results are those of the innermost function around n.
func (v *finder) walk(n ast.Node, results *ast.FieldList) {
	ast.Inspect(n, func(c ast.Node) bool {
		switch c := c.(type) {
		case *ast.FuncDecl:
			if c.Body != nil {
				v.walk(c.Body, c.Type.Results)
			}
			return false
		case *ast.FuncLit:
			v.walk(c.Body, c.Type.Results)
			return false
		case *ast.ImportSpec:
			return false
		case *ast.ReturnStmt:
			return v.returned(c, results)
		case ast.Stmt:
			v.statement(c)
		case ast.Expr:
			return v.expression(c)
		}
		return true
	})
}

// returned replaces an error by nil and removes an early return. It reports whether the results are to be mutated
// too: a number that is returned with an error means nothing.
func (v *finder) returned(s *ast.ReturnStmt, results *ast.FieldList) bool {
	if len(s.Results) == 0 {
		v.add(s.Pos(), s.End(), "")
		return true
	}
	last := s.Results[len(s.Results)-1]
	if results == nil || v.text(last) == "nil" || len(s.Results) != results.NumFields() {
		return true
	}
	if t, ok := results.List[len(results.List)-1].Type.(*ast.Ident); !ok || t.Name != "error" {
		return true
	}
	v.add(last.Pos(), last.End(), "nil")
	for _, result := range s.Results {
		if _, ok := result.(*ast.BasicLit); !ok {
			v.walk(result, results)
		}
	}
	return false
}

// statement removes a statement or a body, and negates a condition.
func (v *finder) statement(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.AssignStmt:
		v.operator(s.Tok, s.TokPos)
		if s.Tok != token.DEFINE {
			v.add(s.Pos(), s.End(), "")
		}
	case *ast.IncDecStmt:
		v.operator(s.Tok, s.TokPos)
		v.add(s.Pos(), s.End(), "")
	case *ast.ExprStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt, *ast.BranchStmt:
		v.add(s.Pos(), s.End(), "")
	case *ast.IfStmt:
		v.negate(s.Cond)
	case *ast.ForStmt:
		if s.Cond != nil {
			v.negate(s.Cond)
		}
	case *ast.CaseClause:
		v.body(s.Body)
	case *ast.CommClause:
		v.body(s.Body)
	}
}

func (v *finder) negate(cond ast.Expr) {
	v.add(cond.Pos(), cond.End(), "!("+v.text(cond)+")")
}

func (v *finder) body(list []ast.Stmt) {
	if len(list) > 0 {
		v.add(list[0].Pos(), list[len(list)-1].End(), "")
	}
}

// expression reports whether the parts of e are to be mutated too.
func (v *finder) expression(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		v.operator(e.Op, e.OpPos)
		// A second more or less in a timeout is no fault.
		return e.Op != token.MUL || !strings.HasPrefix(v.text(e.Y), "time.")
	case *ast.BasicLit:
		if e.Kind == token.INT {
			v.add(e.Pos(), e.End(), "("+e.Value+" + 1)")
			v.add(e.Pos(), e.End(), "("+e.Value+" - 1)")
		}
	case *ast.Ident:
		if e.Name == "true" {
			v.add(e.Pos(), e.End(), "false")
		} else if e.Name == "false" {
			v.add(e.Pos(), e.End(), "true")
		}
	}
	return true
}
