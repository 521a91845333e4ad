package lint

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// globalExceptions are package variables that change and may: "file: name", and
// "file: linkname" for all those of other packages that the file names so.
var globalExceptions = newExceptions([]exception{
	{"replication/link.go: linkname", "dragonboat's own variables: it offers no other way, and they are set once to constants"},
	{"replication/raftlog.go: raftSink", "dragonboat has one logger for the process; this one holds only the hosts that are open"},
})

// checkGlobals looks for package variables that change: those that a function of
// the package assigns to, counts up or sends to, and those of types that exist to
// be changed. Sentinel errors, tables, pools and values computed once are none of
// them. Two Logs in one process must not meet in a variable.
func checkGlobals(group []*source) []finding {
	type variable struct {
		s   *source
		pos token.Pos
		why string
	}
	globals := map[string]*variable{}
	var library []*source
	for _, s := range group {
		if !s.isLibrary() {
			continue
		}
		library = append(library, s)
		for _, spec := range globalSpecs(s) {
			if isLinked(s, spec) && globalExceptions.allow(s.path+": linkname") {
				continue
			}
			for _, name := range spec.Names {
				if name.Name != "_" {
					globals[name.Name] = &variable{s, name.Pos(), changingType(s, spec)}
				}
			}
		}
	}
	for _, s := range library {
		for _, target := range targets(s) {
			id := rootName(target)
			// The parser resolves names within a file; a name of another
			// file stays open.
			if id == nil || globals[id.Name] == nil || id.Obj != nil && s.file.Scope.Lookup(id.Name) != id.Obj {
				continue
			}
			globals[id.Name].why = "is changed at " + s.fset.Position(id.Pos()).String()
		}
	}
	var found []finding
	for name, v := range globals {
		if v.why != "" && !globalExceptions.allow(v.s.path+": "+name) {
			found = append(found, v.s.at(v.pos, "package variable %s %s: keep it in a value that somebody owns", name, v.why))
		}
	}
	return found
}

// globalSpecs returns the var specs outside of functions.
func globalSpecs(s *source) []*ast.ValueSpec {
	var specs []*ast.ValueSpec
	for _, decl := range s.file.Decls {
		d, ok := decl.(*ast.GenDecl)
		if !ok || d.Tok != token.VAR {
			continue
		}
		for _, spec := range d.Specs {
			specs = append(specs, spec.(*ast.ValueSpec))
		}
	}
	return specs
}

// isLinked tells a variable of another package, reached by its name. The
// directive stands in the line above.
func isLinked(s *source, spec *ast.ValueSpec) bool {
	line := s.fset.Position(spec.Pos()).Line
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//go:linkname ") && s.fset.Position(c.Pos()).Line == line-1 {
				return true
			}
		}
	}
	return false
}

// changingType says why a variable's type is meant for change, or "".
func changingType(s *source, spec *ast.ValueSpec) string {
	imports := s.imports()
	for _, e := range append([]ast.Expr{spec.Type}, spec.Values...) {
		switch x := e.(type) {
		case *ast.CompositeLit:
			e = x.Type
		case *ast.UnaryExpr:
			if lit, ok := x.X.(*ast.CompositeLit); ok {
				e = lit.Type
			}
		}
		switch x := e.(type) {
		case *ast.ChanType:
			return "is a channel"
		case *ast.IndexExpr:
			e = x.X
		}
		sel, ok := e.(*ast.SelectorExpr)
		if !ok {
			continue
		}
		id, ok := sel.X.(*ast.Ident)
		if !ok {
			continue
		}
		name := imports[id.Name] + "." + sel.Sel.Name
		switch name {
		case "sync.Mutex", "sync.RWMutex", "sync.Map", "sync.WaitGroup", "sync.Cond",
			"sync/atomic.Bool", "sync/atomic.Int32", "sync/atomic.Int64", "sync/atomic.Uint32",
			"sync/atomic.Uint64", "sync/atomic.Pointer", "sync/atomic.Value":
			return "is a " + name
		}
	}
	return ""
}

// targets returns what functions of a file assign to, count, send to or delete
// from.
func targets(s *source) []ast.Expr {
	var out []ast.Expr
	for _, decl := range s.file.Decls {
		ast.Inspect(decl, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.AssignStmt:
				if x.Tok != token.DEFINE {
					out = append(out, x.Lhs...)
				}
			case *ast.IncDecStmt:
				out = append(out, x.X)
			case *ast.SendStmt:
				out = append(out, x.Chan)
			case *ast.RangeStmt:
				if x.Tok == token.ASSIGN {
					out = append(out, x.Key, x.Value)
				}
			case *ast.CallExpr:
				if id, ok := x.Fun.(*ast.Ident); ok && (id.Name == "delete" || id.Name == "clear") && len(x.Args) > 0 {
					out = append(out, x.Args[0])
				}
			}
			return true
		})
	}
	return out
}

// rootName is the variable that an assignment to e changes: x of x.f[i].
func rootName(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}

func TestGlobals(t *testing.T) {
	var found []finding
	for _, group := range packages(sources(t)) {
		found = append(found, checkGlobals(group)...)
	}
	report(t, append(found, globalExceptions.unused("internal/lint/globals_test.go")...))
}

func TestGlobalsCanFail(t *testing.T) {
	rule := func(s *source) []finding { return checkGlobals([]*source{s}) }
	try(t, rule, []example{
		{"good", "a.go", "package p\nimport (\n\"errors\"\n\"sync\"\n)\nvar ErrA = errors.New(\"a\")\nvar table = []int{1}\nvar pool = sync.Pool{}\nvar _ = 1\nfunc f() int { x := table; x[0] = 1; return x[0] }\n", nil},
		{"assigned", "a.go", "package p\nvar level = 1\nfunc f() { level = 2 }\n", []string{"a.go:2: package variable level is changed"}},
		{"counted", "a.go", "package p\nvar n int\nfunc f() { n++ }\n", []string{"variable n"}},
		{"element", "a.go", "package p\nvar m = map[int]int{}\nfunc f() { m[1] = 2 }\n", []string{"variable m"}},
		{"field", "a.go", "package p\nvar state struct{ n int }\nfunc f() { state.n += 2 }\n", []string{"variable state"}},
		{"deleted", "a.go", "package p\nvar m = map[int]int{}\nfunc f() { delete(m, 1) }\n", []string{"variable m"}},
		{"mutex", "a.go", "package p\nimport \"sync\"\nvar mu sync.Mutex\n", []string{"sync.Mutex"}},
		{"atomic", "a.go", "package p\nimport \"sync/atomic\"\nvar p atomic.Pointer[int]\nvar n = &atomic.Int64{}\n", []string{"atomic", "atomic"}},
		{"channel", "a.go", "package p\nvar c chan int\n", []string{"a channel"}},
		{"linked", "a.go", "package p\n//go:linkname n other.n\nvar n int\nfunc f() { n++ }\n", []string{"variable n"}},
		{"linked where it may", "replication/link.go", "package p\n//go:linkname n other.n\nvar n int\nvar m int\nfunc f() { n++; m++ }\n", []string{"variable m"}},
		{"shadowed", "a.go", "package p\nvar level = 1\nfunc f() { level := 1; level = 2; _ = level }\nfunc g(level int) { level++ }\n", nil},
		{"test", "a_test.go", "package p\nvar n int\nfunc f() { n++ }\n", nil},
		{"program", "examples/p/main.go", "package main\nvar n int\nfunc f() { n++ }\n", nil},
	})
}

func TestGlobalsAcrossFiles(t *testing.T) {
	a, err := parse("a.go", "package p\nvar level = 1\n")
	if err != nil {
		t.Fatal(err)
	}
	b, err := parse("b.go", "package p\nfunc f() { level = 2 }\nfunc g() { level := 1; level = 2; _ = level }\n")
	if err != nil {
		t.Fatal(err)
	}
	expect(t, checkGlobals([]*source{a, b}), []string{"variable level is changed"})
}
