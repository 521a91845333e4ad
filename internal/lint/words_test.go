package lint

import (
	"regexp"
	"strings"
	"testing"
)

// promises are words that leave work to somebody later. An issue is the place
// for that.
var promises = []*regexp.Regexp{
	regexp.MustCompile(`\bTO` + `DO\b`),
	regexp.MustCompile(`\bFIX` + `ME\b`),
	regexp.MustCompile(`//.*\bX` + `XX\b`),
	regexp.MustCompile(`\bHA` + `CK\b`),
	regexp.MustCompile(`(?i)\bfor` + ` now\b`),
	regexp.MustCompile(`(?i)\bnot (yet )?implement` + `ed\b`),
	regexp.MustCompile(`(?i)\bunimplement` + `ed\b`),
	regexp.MustCompile(`(?i)\bcoming` + ` soon\b`),
}

// places are paths that exist on one machine and hosts that a machine is set up
// to reach.
var places = []*regexp.Regexp{
	regexp.MustCompile(`(^|[^\w.~/-])/(work|root|mnt|data|build|workspace)/[\w.-]`),
	regexp.MustCompile(`(^|[^\w.~/-])/(home|Users)/[a-z]`),
	regexp.MustCompile(`(^|[^\w.~/-])/usr/local/go\b`),
	regexp.MustCompile(`\b[A-Z]:\\Users\\`),
	regexp.MustCompile(`\b(proxy|sum|index)\.golang` + `\.org\b`),
	regexp.MustCompile(`\bgoproxy\.(io|cn|com)\b`),
	regexp.MustCompile(`\b(registry\.npmjs\.org|registry\.yarnpkg\.com)\b`),
	regexp.MustCompile(`\b(files\.pythonhosted\.org|pypi\.org/simple)\b`),
	regexp.MustCompile(`\b(static|index)\.crates\.io\b`),
	regexp.MustCompile(`\b(repo1?\.maven\.(apache\.)?org|deb\.debian\.org)\b`),
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

func match(s *source, patterns []*regexp.Regexp, message string) []finding {
	var found []finding
	line := 0
	for text := range strings.Lines(s.text) {
		line++
		for _, pattern := range patterns {
			if m := pattern.FindString(text); m != "" {
				what := strings.Replace(message, "%q", `"`+strings.TrimSpace(m)+`"`, 1)
				found = append(found, finding{s.path, line, what})
			}
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
		{"root", "x.sh", "export PATH=/usr/local/go/bin\ncd /root/x\n", []string{"x.sh:1", "x.sh:2"}},
		{"host", "a.txt", "GOPROXY=https://proxy.golang.org\n", []string{"golang"}},
	})
}
