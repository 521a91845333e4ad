package lint

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const modulePath = "github.com/billetlog/billet"

// source is one text file of the checkout. Go files are parsed.
type source struct {
	path string // slashes, from the module's root
	text string
	fset *token.FileSet
	file *ast.File // nil for other files
}

// finding is a place where a rule does not hold.
type finding struct {
	path string
	line int
	what string
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.path, f.line, f.what) }

// parse makes a source of a text.
func parse(name, text string) (*source, error) {
	s := &source{path: name, text: text}
	if !strings.HasSuffix(name, ".go") {
		return s, nil
	}
	s.fset = token.NewFileSet()
	var err error
	s.file, err = parser.ParseFile(s.fset, name, text, parser.ParseComments)
	return s, err
}

// dir is the folder, "." for the root.
func (s *source) dir() string { return path.Dir(s.path) }

func (s *source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s *source) isGo() bool { return s.file != nil }

// isLibrary tells whether the file is compiled into programs of users.
func (s *source) isLibrary() bool {
	return s.isGo() && !s.isTest() && s.file.Name.Name != "main" &&
		!under(s.path, "bench") && !under(s.path, "examples")
}

func (s *source) at(pos token.Pos, format string, args ...any) finding {
	return finding{s.path, s.fset.Position(pos).Line, fmt.Sprintf(format, args...)}
}

// imports maps the names by which the file knows packages to their paths.
func (s *source) imports() map[string]string {
	names := map[string]string{}
	for _, spec := range s.file.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = p
	}
	return names
}

// under tells whether name is dir or below it. Both use slashes.
func under(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, dir+"/")
}

// checkout reads every text file that git has or would add, or without git every
// file that is not hidden, once for all tests.
var checkout = sync.OnceValues(func() ([]*source, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	names, err := list(root)
	if err != nil {
		return nil, err
	}
	var sources []*source
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // removed and not yet committed
		}
		if err != nil {
			return nil, err
		}
		if isBinary(name, string(text)) {
			continue
		}
		s, err := parse(name, string(text))
		if err != nil {
			return nil, err
		}
		sources = append(sources, s)
	}
	return sources, nil
})

func list(root string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	cmd.Dir = root
	if out, err := cmd.Output(); err == nil && len(out) > 0 {
		names := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		slices.Sort(names)
		return slices.Compact(names), nil
	}
	var names []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && p != root && d.Name() != ".ci" {
			return filepath.SkipDir
		}
		if d.Type().IsRegular() {
			name, err := filepath.Rel(root, p)
			if err != nil {
				return err
			}
			names = append(names, filepath.ToSlash(name))
		}
		return nil
	})
	return names, err
}

// isBinary tells files that are not text: those with a zero byte, and everything
// in testdata, which is what a program wrote.
func isBinary(name, text string) bool {
	return strings.Contains(text, "\x00") || strings.Contains("/"+name, "/testdata/")
}

// sources returns the checkout or fails the test.
func sources(t *testing.T) []*source {
	t.Helper()
	all, err := checkout()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("only %d files found: the rules would look at nothing", len(all))
	}
	return all
}

// packages groups Go files by folder and package clause.
func packages(all []*source) [][]*source {
	groups := map[string][]*source{}
	for _, s := range all {
		if s.isGo() {
			key := s.dir() + " " + s.file.Name.Name
			groups[key] = append(groups[key], s)
		}
	}
	var out [][]*source
	for _, group := range groups {
		out = append(out, group)
	}
	slices.SortFunc(out, func(a, b []*source) int { return cmp.Compare(a[0].path, b[0].path) })
	return out
}

// report fails the test with all findings, in order.
func report(t *testing.T, found []finding) {
	t.Helper()
	slices.SortFunc(found, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.line, b.line), cmp.Compare(a.what, b.what))
	})
	for _, f := range found {
		t.Error(f)
	}
}

// example is a small source and the words that must be in the findings about it,
// in order; none means that the rule is content.
type example struct {
	name, path, text string
	want             []string
}

// try runs a rule over examples, to show that it fails where it should and only
// there.
func try(t *testing.T, rule func(*source) []finding, examples []example) {
	t.Helper()
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			s, err := parse(e.path, e.text)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, rule(s), e.want)
		})
	}
}

func expect(t *testing.T, found []finding, want []string) {
	t.Helper()
	if len(found) != len(want) {
		t.Fatalf("findings %v, want %d like %q", found, len(want), want)
	}
	for i, f := range found {
		if !strings.Contains(f.String(), want[i]) {
			t.Errorf("finding %q, want %q in it", f, want[i])
		}
	}
}

// exception lets one place break a rule.
type exception struct {
	// where is "file: function", or what the rule says.
	where, reason string
}

// exceptions is a table of them that knows which were needed.
type exceptions struct {
	table []exception
	used  map[string]bool
}

func newExceptions(table []exception) *exceptions {
	return &exceptions{table: table, used: map[string]bool{}}
}

// allow tells whether there is an exception for the place.
func (e *exceptions) allow(where string) bool {
	for _, x := range e.table {
		if x.where == where {
			e.used[where] = true
			return true
		}
	}
	return false
}

// unused returns a finding for each exception that nothing needed or that has no
// reason.
func (e *exceptions) unused(file string) []finding {
	var found []finding
	for _, x := range e.table {
		if !e.used[x.where] {
			found = append(found, finding{file, 0, "nothing needs the exception for " + x.where + ": take it out"})
		}
		if x.reason == "" {
			found = append(found, finding{file, 0, "the exception for " + x.where + " has no reason"})
		}
	}
	return found
}

// funcName is the name of a function, with its receiver's type.
func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	return receiverName(d) + "." + d.Name.Name
}

// receiverName is the type of a method's receiver without pointer and type
// parameters.
func receiverName(d *ast.FuncDecl) string {
	e := d.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

func TestExceptionsAreUsedAndExplained(t *testing.T) {
	e := newExceptions([]exception{{"a.go: f", "because"}, {"a.go: g", "because"}, {"a.go: h", ""}})
	if !e.allow("a.go: f") || !e.allow("a.go: h") || e.allow("a.go: i") {
		t.Error("wrong places are allowed")
	}
	expect(t, e.unused("x_test.go"), []string{"a.go: g", "no reason"})
}

func TestListFindsFiles(t *testing.T) {
	all := sources(t)
	for _, name := range []string{"internal/lint/doc.go", "internal/lint/tree_test.go", "go.mod"} {
		if !slices.ContainsFunc(all, func(s *source) bool { return s.path == name }) {
			t.Errorf("%s is not among the files", name)
		}
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a", ".hidden"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a/b.go", "a/.hidden/c.go"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	names, err := list(dir)
	if err != nil || !slices.Equal(names, []string{"a/b.go"}) {
		t.Errorf("list without git: %q, %v", names, err)
	}
}
