package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// lineBytesMax bounds a line. The standard library's longest has 1.4 MB: the time
// zones of the world, as one string.
const lineBytesMax = 8 << 20

// source is where lines come from.
type source interface {
	// describe says for people what it is.
	describe() string
	// each calls do with every file's name and lines, once.
	each(do func(file string, lines *lineReader) error) error
	// again opens a file once more, to compare. It is nil, without an error,
	// for a source that can be read only once: there sum is compared.
	again(file string) (io.ReadCloser, error)
	// sum is a checksum of all lines, known when each has returned, of a source
	// that can be read only once.
	sum() uint64
}

// openSource returns the source that -in names. A source that waits for input
// fails when ctx ends.
func openSource(ctx context.Context, in string) (source, error) {
	if in == "" {
		return findTree()
	}
	if in == "-" {
		return newStream(ctx, "standard input", os.Stdin), nil
	}
	file, err := os.Open(in)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, errors.Join(err, file.Close())
	case info.IsDir():
		return nil, errors.Join(fmt.Errorf("-in %s is a directory, want a file", in), file.Close())
	case !info.Mode().IsRegular():
		return newStream(ctx, in, file), nil // a pipe, say
	}
	return oneFile(in), file.Close()
}

// tree is the source files below a folder.
type tree struct {
	root  string
	names []string // with slashes, from root
}

// findTree returns the standard library's source.
func findTree() (source, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	root := strings.TrimSpace(string(out))
	if err != nil || root == "" {
		return nil, fmt.Errorf("cannot find Go's source by \"go env GOROOT\" (%w); give a file with -in", err)
	}
	// Some systems make src a symbolic link, which a walk does not follow.
	root, err = filepath.EvalSymlinks(filepath.Join(root, "src"))
	if err != nil {
		return nil, fmt.Errorf("this Go came without its source (%w); give a file with -in", err)
	}
	t := tree{root: root}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		switch filepath.Ext(path) {
		case ".go", ".s", ".c", ".h":
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			t.names = append(t.names, filepath.ToSlash(name))
		}
		return nil
	})
	return t, err
}

func (t tree) describe() string {
	return fmt.Sprintf("the standard library's source, %s files in %s", count(int64(len(t.names))), t.root)
}

func (t tree) again(file string) (io.ReadCloser, error) {
	return os.Open(filepath.Join(t.root, filepath.FromSlash(file)))
}

func (t tree) sum() uint64 { return 0 }

func (t tree) each(do func(string, *lineReader) error) error {
	var lines lineReader
	for _, name := range t.names {
		if err := eachLineOf(t, name, &lines, do); err != nil {
			return err
		}
	}
	return nil
}

// oneFile is a single regular file.
type oneFile string

func (f oneFile) describe() string { return "the lines of " + string(f) }

func (f oneFile) again(string) (io.ReadCloser, error) { return os.Open(string(f)) }

func (f oneFile) sum() uint64 { return 0 }

func (f oneFile) each(do func(string, *lineReader) error) error {
	return eachLineOf(f, string(f), &lineReader{}, do)
}

// eachLineOf opens a file of a source, calls do and closes it.
func eachLineOf(src source, name string, lines *lineReader, do func(string, *lineReader) error) error {
	file, err := src.again(name)
	if err != nil {
		return err
	}
	lines.reset(name, file)
	return errors.Join(do(name, lines), file.Close())
}

// stream is input that can be read once.
type stream struct {
	name  string
	input io.Reader
	hash  lineHash
}

// newStream reads input on a goroutine of its own, which a read that waits for
// ever keeps until the program ends.
func newStream(ctx context.Context, name string, input io.Reader) *stream {
	out, in := io.Pipe()
	context.AfterFunc(ctx, func() { in.CloseWithError(context.Cause(ctx)) })
	go func() {
		_, err := io.Copy(in, input)
		in.CloseWithError(err)
	}()
	return &stream{name: name, input: out, hash: newLineHash()}
}

func (s *stream) describe() string { return "the lines of " + s.name }

func (s *stream) again(string) (io.ReadCloser, error) { return nil, nil }

func (s *stream) sum() uint64 { return s.hash.Sum64() }

func (s *stream) each(do func(string, *lineReader) error) error {
	lines := lineReader{hash: &s.hash}
	lines.reset(s.name, s.input)
	return do(s.name, &lines)
}

// lineHash is a checksum of lines.
type lineHash struct{ maphash.Hash }

// lineSeed makes checksums comparable within this process.
var lineSeed = maphash.MakeSeed()

func newLineHash() (h lineHash) {
	h.SetSeed(lineSeed)
	return h
}

func (h *lineHash) add(line []byte) {
	h.Write(line)
	h.WriteByte('\n')
}

// lineReader takes lines out of a file.
type lineReader struct {
	name string
	line int64
	in   *bufio.Reader
	long []byte    // a line longer than in's buffer
	hash *lineHash // of the lines, or nil
}

func (r *lineReader) reset(name string, input io.Reader) {
	r.name, r.line = name, 0
	if r.in == nil {
		r.in = bufio.NewReaderSize(input, 64<<10)
		return
	}
	r.in.Reset(input)
}

// next returns a line without its newline, valid until the next call, or io.EOF.
// A last line may lack the newline.
func (r *lineReader) next() ([]byte, error) {
	text, err := r.in.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		r.long = r.long[:0]
		for err == bufio.ErrBufferFull && len(r.long) <= lineBytesMax {
			r.long = append(r.long, text...)
			text, err = r.in.ReadSlice('\n')
		}
		r.long = append(r.long, text...)
		text = r.long
	}
	if len(text) > lineBytesMax {
		return nil, fmt.Errorf("line %d of %s is longer than %d bytes", r.line+1, r.name, lineBytesMax)
	}
	if err == io.EOF && len(text) > 0 {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	r.line++
	text = bytes.TrimSuffix(text, []byte("\n"))
	if r.hash != nil {
		r.hash.add(text)
	}
	return text, nil
}

// atEnd tells whether no line is left.
func (r *lineReader) atEnd() (bool, error) {
	_, err := r.in.Peek(1)
	if err == io.EOF {
		return true, nil
	}
	return false, err
}
