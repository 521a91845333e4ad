package lint

import (
	"fmt"
	"go/ast"
	"strings"
	"testing"
)

// Bounds on size, in lines. A long function hides what it does; a long file
// hides what is in it.
const (
	functionLinesMax = 70
	fileLinesMax     = 600
	testLinesMax     = 1000
)

// longFunctions are those that are longer than functionLinesMax, with the length
// they have. It may only sink: a function that got longer fails, and one that got
// shorter must be entered as what it is now.
var longFunctions = []struct {
	where  string // "file: function"
	lines  int
	reason string
}{}

// checkFunctionLength looks at every function outside of tests.
func checkFunctionLength(s *source) []finding {
	if !s.isGo() || s.isTest() {
		return nil
	}
	var found []finding
	for _, decl := range s.file.Decls {
		d, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		lines := s.fset.Position(d.End()).Line - s.fset.Position(d.Pos()).Line + 1
		ceiling := functionCeiling(s.path + ": " + funcName(d))
		switch {
		case ceiling == 0 && lines > functionLinesMax:
			found = append(found, s.at(d.Pos(), "%s has %d lines, at most %d are allowed: split it", funcName(d), lines, functionLinesMax))
		case ceiling != 0 && lines > ceiling:
			found = append(found, s.at(d.Pos(), "%s grew from %d to %d lines: split it", funcName(d), ceiling, lines))
		case ceiling != 0 && lines < ceiling:
			found = append(found, s.at(d.Pos(), "%s has only %d lines: lower its ceiling of %d or, up to %d, take it out", funcName(d), lines, ceiling, functionLinesMax))
		}
	}
	return found
}

// functionCeiling returns the length in longFunctions, or 0.
func functionCeiling(where string) int {
	for _, f := range longFunctions {
		if f.where == where {
			return f.lines
		}
	}
	return 0
}

// checkFileLength looks at every Go file.
func checkFileLength(s *source) []finding {
	if !s.isGo() {
		return nil
	}
	lines, most := strings.Count(s.text, "\n"), fileLinesMax
	if s.isTest() {
		most = testLinesMax
	}
	if lines <= most {
		return nil
	}
	return []finding{{s.path, most + 1, fmt.Sprintf("the file has %d lines, at most %d are allowed: split it by noun", lines, most)}}
}

func TestFunctionLength(t *testing.T) {
	var found []finding
	there := map[string]bool{}
	for _, s := range sources(t) {
		found = append(found, checkFunctionLength(s)...)
		if !s.isGo() {
			continue
		}
		for _, decl := range s.file.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok {
				there[s.path+": "+funcName(d)] = true
			}
		}
	}
	for _, f := range longFunctions {
		if !there[f.where] || f.reason == "" {
			found = append(found, finding{"internal/lint/size_test.go", 0, f.where + " does not exist or has no reason"})
		}
	}
	report(t, found)
}

func TestFunctionLengthCanFail(t *testing.T) {
	function := func(lines int) string {
		return "package p\n\nfunc f() {\n" + strings.Repeat("\tg()\n", lines-2) + "}\n"
	}
	kept := longFunctions
	defer func() { longFunctions = kept }()
	longFunctions = append(longFunctions, longFunctions[:0]...)
	longFunctions = append(longFunctions, struct {
		where  string
		lines  int
		reason string
	}{"long.go: f", 80, "an example"})
	try(t, checkFunctionLength, []example{
		{"longest", "a.go", function(70), nil},
		{"too long", "a.go", function(71), []string{"a.go:3: f has 71 lines"}},
		{"test", "a_test.go", function(71), nil},
		{"at the ceiling", "long.go", function(80), nil},
		{"above the ceiling", "long.go", function(81), []string{"grew from 80 to 81"}},
		{"below the ceiling", "long.go", function(79), []string{"lower its ceiling"}},
	})
}

func TestFileLength(t *testing.T) {
	var found []finding
	for _, s := range sources(t) {
		found = append(found, checkFileLength(s)...)
	}
	report(t, found)
}

func TestFileLengthCanFail(t *testing.T) {
	file := func(lines int) string { return "package p\n" + strings.Repeat("\n", lines-1) }
	try(t, checkFileLength, []example{
		{"longest", "a.go", file(600), nil},
		{"too long", "a.go", file(601), []string{"601 lines"}},
		{"longest test", "a_test.go", file(1000), nil},
		{"too long a test", "a_test.go", file(1001), []string{"1001 lines"}},
	})
}
