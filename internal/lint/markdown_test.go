package lint

import (
	"encoding/json"
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// snippet is a block of Go code in a Markdown file.
type snippet struct {
	path string
	line int // of its first line of code
	text string
}

// isProgram tells code that can be compiled as it stands.
func (p snippet) isProgram() bool { return strings.HasPrefix(p.text, "package ") }

// snippets returns the blocks between ```go and ```.
func snippets(s *source) []snippet {
	if !strings.HasSuffix(s.path, ".md") {
		return nil
	}
	var out []snippet
	var open *snippet
	line := 0
	for text := range strings.Lines(s.text) {
		line++
		switch trimmed := strings.TrimSpace(text); {
		case open == nil && trimmed == "```go":
			open = &snippet{path: s.path, line: line + 1}
		case open != nil && trimmed == "```":
			out = append(out, *open)
			open = nil
		case open != nil:
			open.text += text
		}
	}
	return out
}

// checkSnippets wants Go code in Markdown files that parses: as a file, as
// declarations or as statements. Notes may be loose.
func checkSnippets(s *source) []finding {
	if under(s.path, designFolder) {
		return nil
	}
	var found []finding
	for _, p := range snippets(s) {
		forms := []string{p.text, "package p; " + p.text, "package p; func _() { " + p.text + "\n}"}
		if p.isProgram() {
			forms = forms[:1]
		}
		var err error
		for _, form := range forms {
			if _, err = parser.ParseFile(token.NewFileSet(), "", form, parser.SkipObjectResolution); err == nil {
				break
			}
		}
		if err != nil {
			found = append(found, finding{p.path, p.line, "Go code that does not parse: " + err.Error()})
			continue
		}
		if formatted, err := format.Source([]byte(p.text)); err == nil && string(formatted) != p.text {
			found = append(found, finding{p.path, p.line, "Go code that is not as gofmt writes it"})
		}
	}
	return found
}

// compile builds programs as if each stood in a folder of the module.
func compile(t *testing.T, programs []snippet) error {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	args := []string{"build", "-o", filepath.Join(dir, "out") + string(filepath.Separator), "-overlay", filepath.Join(dir, "overlay.json")}
	for i, p := range programs {
		file := filepath.Join(dir, fmt.Sprintf("snippet%d.go", i))
		if err := os.WriteFile(file, []byte(p.text), 0o644); err != nil {
			t.Fatal(err)
		}
		folder := fmt.Sprintf("snippet%d", i)
		overlay.Replace[filepath.Join(root, "examples", folder, "main.go")] = file
		args = append(args, "./examples/"+folder)
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "out"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

func TestSnippetsParse(t *testing.T) {
	var found []finding
	for _, s := range sources(t) {
		found = append(found, checkSnippets(s)...)
	}
	report(t, found)
}

func TestSnippetsParseCanFail(t *testing.T) {
	block := func(code string) string { return "Text.\n\n```go\n" + code + "```\n\n    x := ]\n\n```sh\nls ]\n```\n" }
	try(t, checkSnippets, []example{
		{"program", "README.md", block("package main\n\nfunc main() {}\n"), nil},
		{"declaration", "README.md", block("func f() {}\n\ntype t int\n"), nil},
		{"statements", "README.md", block("x := 1\nf(x)\n"), nil},
		{"bad", "README.md", block("x := \n"), []string{"README.md:4: Go code"}},
		{"bad program", "README.md", block("package main\n\nx := 1\n"), []string{"README.md:4: Go code"}},
		{"not formatted", "README.md", block("x :=  1\n"), []string{"README.md:4: Go code that is not"}},
		{"note", "docs/design/0001-a.md", block("f(...)\n"), nil},
		{"other", "a.txt", block("x := \n"), nil},
	})
}

// TestReadmeCompiles builds the programs in README.md against this checkout.
func TestReadmeCompiles(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	var programs []snippet
	for _, s := range sources(t) {
		if s.path != "README.md" {
			continue
		}
		for _, p := range snippets(s) {
			if p.isProgram() {
				programs = append(programs, p)
			}
		}
	}
	if len(programs) == 0 {
		t.Fatal("README.md shows no program")
	}
	if err := compile(t, programs); err != nil {
		t.Error(err)
	}
}

func TestCompileCanFail(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	if err := compile(t, []snippet{{text: "package main\n\nfunc main() {}\n"}}); err != nil {
		t.Error(err)
	}
	err := compile(t, []snippet{{text: "package main\n\nfunc main() { gone() }\n"}})
	if err == nil || !strings.Contains(err.Error(), "undefined: gone") {
		t.Errorf("a program that does not compile: %v", err)
	}
}
