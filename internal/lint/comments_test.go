package lint

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// checkPackageComment wants a comment that the parser attaches to a package
// clause, in one file of the package that is not a test.
func checkPackageComment(group []*source) []finding {
	var first *source
	var docs []*source
	for _, s := range group {
		if s.isTest() {
			continue
		}
		if first == nil {
			first = s
		}
		if s.file.Doc != nil {
			docs = append(docs, s)
		}
	}
	if first == nil {
		return nil // only tests
	}
	if len(docs) == 0 {
		return []finding{first.at(first.file.Package, "package %s of %s has no package comment: write one directly above the package clause, in doc.go",
			first.file.Name.Name, first.dir())}
	}
	var found []finding
	for _, s := range docs {
		want := "Package " + s.file.Name.Name + " "
		if s.file.Name.Name != "main" && !strings.HasPrefix(s.file.Doc.Text(), want) {
			found = append(found, s.at(s.file.Doc.Pos(), "the package comment does not begin with %q: is it one?", want))
		}
	}
	if len(docs) > 1 {
		found = append(found, docs[1].at(docs[1].file.Doc.Pos(), "%s has a package comment in %s already: keep one, or detach this", docs[1].dir(), docs[0].path))
	}
	return found
}

// checkComments wants a comment at every exported name of a package that others
// can import, at every method of an exported interface, and at every field of
// structs that users fill in.
func checkComments(s *source) []finding {
	if !s.isLibrary() || under(s.path, "internal") {
		return nil
	}
	var found []finding
	for _, decl := range s.file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			exported := d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiverName(d)))
			if exported && d.Doc == nil && !isWellKnown(d) {
				found = append(found, s.at(d.Pos(), "%s has no comment", funcName(d)))
			}
		case *ast.GenDecl:
			found = append(found, checkSpecs(s, d)...)
		}
	}
	return found
}

// isWellKnown tells methods that say what they do by implementing an interface
// that every Go programmer knows.
func isWellKnown(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return false
	}
	switch d.Name.Name {
	case "Error", "String", "Unwrap", "Len", "Less", "Swap":
		return true
	}
	return false
}

func checkSpecs(s *source, d *ast.GenDecl) []finding {
	var found []finding
	for _, spec := range d.Specs {
		switch x := spec.(type) {
		case *ast.TypeSpec:
			if !x.Name.IsExported() {
				continue
			}
			if x.Doc == nil && (d.Doc == nil || d.Lparen.IsValid()) {
				found = append(found, s.at(x.Pos(), "type %s has no comment", x.Name.Name))
			}
			found = append(found, checkMembers(s, x)...)
		case *ast.ValueSpec:
			// A comment above a group serves all of it.
			if x.Doc != nil || x.Comment != nil || d.Doc != nil {
				continue
			}
			for _, name := range x.Names {
				if name.IsExported() {
					found = append(found, s.at(name.Pos(), "%s %s has no comment", d.Tok, name.Name))
				}
			}
		}
	}
	return found
}

// checkMembers looks at methods of interfaces and at fields of config structs. A
// comment serves those that follow without an empty line, too.
func checkMembers(s *source, x *ast.TypeSpec) []finding {
	var fields *ast.FieldList
	switch t := x.Type.(type) {
	case *ast.InterfaceType:
		fields = t.Methods
	case *ast.StructType:
		if strings.HasSuffix(x.Name.Name, "Config") || strings.HasSuffix(x.Name.Name, "Options") {
			fields = t.Fields
		}
	}
	if fields == nil {
		return nil
	}
	var found []finding
	served := 0 // the last line that a comment serves
	for _, field := range fields.List {
		first, last := s.fset.Position(field.Pos()).Line, s.fset.Position(field.End()).Line
		if field.Doc != nil || field.Comment != nil || first == served+1 {
			served = last
			continue
		}
		for _, name := range field.Names {
			if name.IsExported() {
				found = append(found, s.at(name.Pos(), "%s.%s has no comment", x.Name.Name, name.Name))
			}
		}
	}
	return found
}

func TestPackageComments(t *testing.T) {
	var found []finding
	for _, group := range packages(sources(t)) {
		found = append(found, checkPackageComment(group)...)
	}
	report(t, found)
}

func TestPackageCommentsCanFail(t *testing.T) {
	for _, e := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"good", map[string]string{"p/doc.go": "// Package p is good.\npackage p\n", "p/a.go": "package p\n"}, nil},
		{"main", map[string]string{"p/main.go": "// Quickstart logs.\npackage main\n"}, nil},
		{"none", map[string]string{"p/a.go": "package p\n"}, []string{"no package comment"}},
		{"detached", map[string]string{"p/a.go": "// Package p is detached.\n\npackage p\n"}, []string{"no package comment"}},
		{"in a test", map[string]string{"p/a.go": "package p\n", "p/a_test.go": "// Package p is tested.\npackage p\n"}, []string{"no package comment"}},
		{"of the file", map[string]string{"p/a.go": "// a.go holds a.\npackage p\n"}, []string{"does not begin"}},
		{"two", map[string]string{"p/a.go": "// Package p is one.\npackage p\n", "p/b.go": "// Package p is two.\npackage p\n"}, []string{"already"}},
		{"only tests", map[string]string{"p/a_test.go": "package p\n"}, nil},
	} {
		t.Run(e.name, func(t *testing.T) {
			var group []*source
			for _, name := range []string{"p/a.go", "p/a_test.go", "p/b.go", "p/doc.go", "p/main.go"} {
				text, ok := e.files[name]
				if !ok {
					continue
				}
				s, err := parse(name, text)
				if err != nil {
					t.Fatal(err)
				}
				group = append(group, s)
			}
			expect(t, checkPackageComment(group), e.want)
		})
	}
}

func TestExportedComments(t *testing.T) {
	var found []finding
	for _, s := range sources(t) {
		found = append(found, checkComments(s)...)
	}
	report(t, found)
}

func TestExportedCommentsCanFail(t *testing.T) {
	if token.TYPE.String() != "type" {
		t.Fatal("the messages below name tokens")
	}
	try(t, checkComments, []example{
		{"good", "a.go", "package p\n// F does.\nfunc F() {}\n// T is.\ntype T struct{ A int }\n// M does.\nfunc (T) M() {}\nfunc (T) String() string { return \"\" }\n// All of them.\nconst (\n A = 1\n B = 2\n)\nvar (\n C = 1 // c\n)\nfunc f() {}\n", nil},
		{"func", "a.go", "package p\nfunc F() {}\n", []string{"a.go:2: F has"}},
		{"method", "a.go", "package p\n// T is.\ntype T[K any] struct{}\nfunc (t *T[K]) M() {}\nfunc (t *u) M() {}\ntype u int\n", []string{"T.M has"}},
		{"type", "a.go", "package p\ntype T int\n// These.\ntype (\n U int\n)\n", []string{"type T", "type U"}},
		{"value", "a.go", "package p\nvar A, b = 1, 2\nconst C = 1\n", []string{"var A", "const C"}},
		{"interface", "a.go", "package p\n// I is.\ntype I interface {\n M()\n // N does.\n N()\n m()\n}\n", []string{"I.M has"}},
		{"config", "a.go", "package p\n// Config is.\ntype Config struct {\n A int\n B int // b\n}\n", []string{"Config.A has"}},
		{"config in groups", "a.go", "package p\n// Config is.\ntype Config struct {\n // A and B are.\n A int\n B int\n\n C int\n}\n", []string{"Config.C has"}},
		{"not importable", "internal/p/a.go", "package p\nfunc F() {}\n", nil},
		{"program", "examples/p/main.go", "package main\nfunc F() {}\n", nil},
		{"test", "a_test.go", "package p\nfunc TestF() {}\n", nil},
	})
}
