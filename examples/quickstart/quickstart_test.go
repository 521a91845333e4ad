package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/billetlog/billet"
)

// TestRunGoesOn logs a file twice into one directory.
func TestRunGoesOn(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in.txt")
	text := strings.Repeat("a line\r\n\n", 3000) + strings.Repeat("long", 50_000) + "\nno newline at the end"
	if err := os.WriteFile(in, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := run(t.Context(), []string{"-in", in, "-dir", filepath.Join(dir, "log"), "-fsync", "interval"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(t.Context(), []string{"-in", filepath.Join(dir, "missing")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if err := run(t.Context(), []string{"-in", dir}); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("directory: %v", err)
	}
	for _, args := range [][]string{{"extra"}, {"-fsync", "never"}, {"-what"}} {
		if err := run(t.Context(), args); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestStream logs input that cannot be read twice.
func TestStream(t *testing.T) {
	o := options{dir: t.TempDir(), fsync: billet.FsyncCommit}
	src := newStream(t.Context(), "a stream", strings.NewReader("one\ntwo\n\nfour"))
	f, err := fill(t.Context(), o, src)
	if err != nil {
		t.Fatal(err)
	}
	if f.records != 4 || f.files != 1 {
		t.Errorf("%d records of %d files, want 4 of 1", f.records, f.files)
	}
	if _, err := reopen(t.Context(), o, src, f); err != nil {
		t.Error(err)
	}
	src.hash.add(nil)
	if _, err := reopen(t.Context(), o, src, f); err == nil {
		t.Error("a reopened log with other records passes")
	}
}

func TestStreamEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in, _ := io.Pipe() // nothing ever comes
	defer in.Close()
	src := newStream(ctx, "a stream", in)
	cancel()
	err := src.each(func(_ string, lines *lineReader) error {
		_, err := lines.next()
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("reading: %v", err)
	}
}

// changing is a file that is another one when it is read again.
type changing struct {
	first, second string
	opened        int
}

func (c *changing) describe() string { return "a file that changes" }
func (c *changing) sum() uint64      { return 0 }

func (c *changing) again(string) (io.ReadCloser, error) {
	c.opened++
	return io.NopCloser(strings.NewReader(c.second)), nil
}

func (c *changing) each(do func(string, *lineReader) error) error {
	var lines lineReader
	lines.reset("file", strings.NewReader(c.first))
	return do("file", &lines)
}

// TestDifferenceFails shows that reading compares.
func TestDifferenceFails(t *testing.T) {
	for _, c := range []struct{ name, first, second, want string }{
		{"same", "a\nb\n", "a\nb\n", ""},
		{"text", "a\nb\n", "a\nc\n", `line 2 is "b" in the log and "c" in the source`},
		{"shorter", "a\nb\n", "a\nb\nc\n", "goes on in the source"},
		{"longer", "a\nb\nc\n", "a\nb\n", "line 3, want line 1"}, // c begins the file anew
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := fill(t.Context(), options{dir: t.TempDir(), fsync: billet.FsyncInterval},
				&changing{first: c.first, second: c.second})
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	var lines lineReader
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"\n", []string{""}},
		{"a", []string{"a"}},
		{"a\r\n\nb\n", []string{"a\r", "", "b"}},
		{long + "\n" + long, []string{long, long}},
	} {
		lines.reset("text", strings.NewReader(c.text))
		var got []string
		for {
			line, err := lines.next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(line))
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) || lines.line != int64(len(c.want)) {
			t.Errorf("lines of %.20q: %.60q, want %.60q", c.text, got, c.want)
		}
	}
	lines.reset("text", bytes.NewReader(make([]byte, lineBytesMax+100)))
	if _, err := lines.next(); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("endless line: %v", err)
	}
}

func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		count(0): "0", count(999): "999", count(1000): "1,000", count(1234567): "1,234,567",
		size(1): "1 byte", size(2500): "2.5 kB", size(93_600_000): "93.6 MB", size(3_000_000_000): "3.00 GB",
		span(5, 5): "none", span(0, 10): "0 to 9",
		quote("/a/b-1.txt"): "/a/b-1.txt", quote("a b"): "'a b'", quote("it's"): `'it'\''s'`,
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
