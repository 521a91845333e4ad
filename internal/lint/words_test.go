package lint

import (
	"regexp"
	"strings"
	"testing"
)

// phrase is something that must not be written. The hint is a part of it in lower
// case: looking for that first saves most of the time.
type phrase struct {
	hint    string
	pattern *regexp.Regexp
}

// word matches a whole word as it is written.
func word(w string) phrase {
	return phrase{strings.ToLower(w), regexp.MustCompile(`\b` + regexp.QuoteMeta(w) + `\b`)}
}

// words matches words however they are written.
func words(w string) phrase {
	return phrase{w, regexp.MustCompile(`(?i)\b` + regexp.QuoteMeta(w) + `\b`)}
}

// folder matches a path from the root of a machine's file system.
func folder(w string) phrase {
	return phrase{strings.ToLower(w), regexp.MustCompile(`(?m)(^|[^\w.~/-])` + regexp.QuoteMeta(w) + `[\w.-]`)}
}

// promises are words that leave work to somebody later. An issue is the place
// for that.
var promises = []phrase{
	word("TODO"), word("FIXME"), word("HACK"), {"xxx", regexp.MustCompile(`//.*\bXXX\b`)},
	words("for now"), words("not implemented"), words("not yet implemented"), words("unimplemented"), words("coming soon"),
}

// places are paths that exist on one machine and hosts that a machine is set up
// to reach.
var places = []phrase{
	folder("/work/"), folder("/root/"), folder("/mnt/"), folder("/workspace/"), folder("/home/"), folder("/Users/"),
	folder("/usr/local/go/"), words(`c:\users`),
	words("proxy.golang.org"), words("sum.golang.org"), words("index.golang.org"), words("goproxy.io"), words("goproxy.cn"),
	words("registry.npmjs.org"), words("files.pythonhosted.org"), words("pypi.org/simple"), words("static.crates.io"),
	words("index.crates.io"), words("repo.maven.apache.org"), words("repo1.maven.org"), words("deb.debian.org"),
}

// isOwn tells this file, which has to name what it looks for.
func isOwn(s *source) bool { return s.path == "internal/lint/words_test.go" }

func checkPromises(s *source) []finding {
	if isOwn(s) || under(s.path, "docs/design") || s.path == "LICENSE" || strings.HasSuffix(s.path, ".sum") {
		return nil // a dated note may tell what was so at its date
	}
	return match(s, promises, "%q promises something for later: do it, or file an issue and leave the words out")
}

func checkPlaces(s *source) []finding {
	if isOwn(s) {
		return nil
	}
	return match(s, places, "%q is a place of one machine or its set-up: leave it out")
}

func match(s *source, phrases []phrase, message string) []finding {
	var found []finding
	lower := strings.ToLower(s.text)
	for _, p := range phrases {
		if !strings.Contains(lower, p.hint) {
			continue
		}
		for _, at := range p.pattern.FindAllStringIndex(s.text, -1) {
			line := 1 + strings.Count(s.text[:at[0]], "\n")
			if s.text[at[0]] == '\n' {
				line++ // what comes before the words may be the end of a line
			}
			what := strings.Replace(message, "%q", `"`+strings.TrimSpace(s.text[at[0]:at[1]])+`"`, 1)
			found = append(found, finding{s.path, line, what})
		}
	}
	return found
}

func TestPromises(t *testing.T) {
	var found []finding
	for _, s := range sources(t) {
		found = append(found, checkPromises(s)...)
	}
	report(t, found)
}

func TestPromisesCanFail(t *testing.T) {
	try(t, checkPromises, []example{
		{"good", "a.go", "package p\n// Done. To do it twice is harmless; for nowadays' disks.\n", nil},
		{"comment", "a.go", "package p\n// TODO: more\n// FIXME\n// XXX\nvar x = \"XXX\"\n", []string{"a.go:2: ", "a.go:3: ", "a.go:4: "}},
		{"error", "a.go", "package p\nvar e = \"Not implemented\"\n", []string{"promises"}},
		{"words", "README.md", "Good enough for now.\n", []string{"for now"}},
		{"note", "docs/design/0001-a.md", "Good enough for now.\n", nil},
	})
}

func TestPlaces(t *testing.T) {
	var found []finding
	for _, s := range sources(t) {
		found = append(found, checkPlaces(s)...)
	}
	report(t, found)
}

func TestPlacesCanFail(t *testing.T) {
	try(t, checkPlaces, []example{
		{"good", "README.md", "Run ./work/a and docs/root/x; https://example.org/home/page, ~/data/x, /tmp/out, /dev/null.\n", nil},
		{"home", "README.md", "cd /home/anna/billet\n", []string{"README.md:1: "}},
		{"mac", "a.md", "`/Users/anna`\n", []string{"/Users/a"}},
		{"root", "x.sh", "export PATH=/usr/local/go/bin\ncd /root/x\n", []string{"x.sh:2", "x.sh:1"}},
		{"host", "a.txt", "GOPROXY=https://proxy.golang.org\n", []string{"golang"}},
	})
}
