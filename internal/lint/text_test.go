package lint

import (
	"fmt"
	"go/format"
	"path"
	"regexp"
	"strings"
	"testing"
)

// checkFormat wants what gofmt writes.
func checkFormat(s *source) []finding {
	if !s.isGo() {
		return nil
	}
	want, err := format.Source([]byte(s.text))
	if err != nil {
		return []finding{{s.path, 0, err.Error()}}
	}
	if string(want) == s.text {
		return nil
	}
	have := strings.Split(s.text, "\n")
	line := 0
	for i, text := range strings.Split(string(want), "\n") {
		line = i + 1
		if i >= len(have) || have[i] != text {
			break
		}
	}
	return []finding{{s.path, line, "not as gofmt writes it"}}
}

const designFolder = "docs/design"

var (
	noteName = regexp.MustCompile(`^(\d{4})-[a-z0-9]+(-[a-z0-9]+)*\.md$`)
	noteHead = regexp.MustCompile(`^# (\d{4}): \S.*\n\n(\d{4}-\d{2}-\d{2})\. Status: (draft|accepted|superseded by \d{4}|withdrawn)\.`)
)

// checkNote wants a design note's name, number, title, date and status.
func checkNote(s *source) []finding {
	if path.Dir(s.path) != designFolder {
		return nil
	}
	name := noteName.FindStringSubmatch(path.Base(s.path))
	if name == nil {
		return []finding{{s.path, 0, "a design note is named NNNN-title.md, in lower case with hyphens"}}
	}
	head := noteHead.FindStringSubmatch(s.text)
	if head == nil {
		return []finding{{s.path, 1, "a design note begins with \"# NNNN: title\", an empty line, and \"YYYY-MM-DD. Status: draft|accepted|superseded by NNNN|withdrawn.\""}}
	}
	if head[1] != name[1] {
		return []finding{{s.path, 1, "the number in the title is not that in the name"}}
	}
	return nil
}

// checkNoteNumbers wants numbers from 0001 without gap or repetition. The
// sources are sorted by path.
func checkNoteNumbers(all []*source) []finding {
	var found []finding
	next := 1
	for _, s := range all {
		name := noteName.FindStringSubmatch(path.Base(s.path))
		if path.Dir(s.path) != designFolder || name == nil {
			continue
		}
		if want := fmt.Sprintf("%04d", next); name[1] != want {
			found = append(found, finding{s.path, 0, "the next note's number is " + want})
		}
		next++
	}
	return found
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)\s]*)?\)`)

// checkLinks wants files behind relative links of Markdown files. files has every
// path and folder of the checkout.
func checkLinks(s *source, files map[string]bool) []finding {
	if !strings.HasSuffix(s.path, ".md") {
		return nil
	}
	var found []finding
	line := 0
	for text := range strings.Lines(s.text) {
		line++
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target := m[1]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if !files[path.Join(s.dir(), target)] {
				found = append(found, finding{s.path, line, "the link to " + target + " leads nowhere"})
			}
		}
	}
	return found
}

// everything returns all paths and folders.
func everything(all []*source) map[string]bool {
	files := map[string]bool{}
	for _, s := range all {
		for p := s.path; p != "."; p = path.Dir(p) {
			files[p] = true
		}
	}
	return files
}

func TestFormat(t *testing.T) {
	var found []finding
	for _, s := range sources(t) {
		found = append(found, checkFormat(s)...)
	}
	report(t, found)
}

func TestFormatCanFail(t *testing.T) {
	try(t, checkFormat, []example{
		{"good", "a.go", "package p\n\nvar a = 1\n", nil},
		{"bad", "a.go", "package p\n\nvar  a = 1\n", []string{"a.go:3: not as gofmt"}},
		{"end", "a.go", "package p\n\n\n", []string{"a.go:2: not as gofmt"}},
	})
}

func TestNotes(t *testing.T) {
	all := sources(t)
	found := checkNoteNumbers(all)
	for _, s := range all {
		found = append(found, checkNote(s)...)
	}
	report(t, found)
}

func TestNotesCanFail(t *testing.T) {
	const good = "# 0001: a title\n\n2026-11-29. Status: accepted.\n"
	try(t, checkNote, []example{
		{"good", "docs/design/0001-a-title.md", good, nil},
		{"elsewhere", "docs/format.md", "# The format\n", nil},
		{"name", "docs/design/0001_A.md", good, []string{"is named"}},
		{"number", "docs/design/0002-a-title.md", good, []string{"number in the title"}},
		{"date", "docs/design/0001-a-title.md", "# 0001: a title\n\nStatus: accepted.\n", []string{"begins with"}},
		{"status", "docs/design/0001-a-title.md", "# 0001: a title\n\n2026-11-29.\n", []string{"begins with"}},
	})
	expect(t, checkNoteNumbers([]*source{{path: "docs/design/0001-a.md"}, {path: "docs/design/0003-b.md"}, {path: "docs/format.md"}}), []string{"number is 0002"})
	expect(t, checkNoteNumbers([]*source{{path: "docs/design/0001-a.md"}, {path: "docs/design/0001-b.md"}}), []string{"number is 0002"})
}

func TestLinks(t *testing.T) {
	all := sources(t)
	files := everything(all)
	var found []finding
	for _, s := range all {
		found = append(found, checkLinks(s, files)...)
	}
	report(t, found)
}

func TestLinksCanFail(t *testing.T) {
	files := everything([]*source{{path: "docs/format.md"}, {path: "README.md"}})
	rule := func(s *source) []finding { return checkLinks(s, files) }
	try(t, rule, []example{
		{"good", "README.md", "[a](docs/format.md), [b](docs), [c](https://example.org/x), [d](#part), [e](docs/format.md#part)\n", nil},
		{"relative", "docs/format.md", "[a](../README.md)\n", nil},
		{"bad", "README.md", "\n[a](docs/other.md)\n", []string{"README.md:2: the link to docs/other.md"}},
	})
}
