package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// outcome names an error so that the ones of OS and of Mem can be compared.
func outcome(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, fs.ErrClosed):
		return "closed"
	case errors.Is(err, io.EOF):
		return "eof"
	case errors.Is(err, ErrLocked):
		return "locked"
	}
	return "other: " + err.Error()
}

// eachFS runs test on the file system of the machine, in memory, and through the
// wrappers. dir is an empty directory.
func eachFS(t *testing.T, test func(t *testing.T, fsys FS, dir string)) {
	pass := func(Op, string, int64, int) error { return nil }
	for name, fsys := range map[string]FS{
		"os":       OS,
		"mem":      NewMem(),
		"injected": Inject(NewMem(), pass),
		"counted":  Count(OS),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, fsys.MkdirAll(dir))
			test(t, fsys, dir)
		})
	}
}

// failer is what the helpers need of a *testing.T or a *rapid.T.
type failer interface {
	Helper()
	Fatal(args ...any)
}

func must(t failer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t failer, fsys FS, name, content string) File {
	t.Helper()
	f, err := fsys.Create(name)
	must(t, err)
	_, err = f.WriteAt([]byte(content), 0)
	must(t, err)
	return f
}

func content(t failer, fsys FS, name string) string {
	t.Helper()
	data, err := ReadFile(fsys, name)
	must(t, err)
	return string(data)
}

// nameCases each do one thing to a tree of the file "f" with "one", the file "g"
// with "two", the directory "d" with the file "d/x", and the empty directory "e".
var nameCases = []struct {
	name string
	do   func(fsys FS, at func(string) string) error
	want string
	tree string
}{
	{"create", func(s FS, at func(string) string) error { return closed(s.Create(at("n"))) }, "ok", "d/ d/x=x e/ f=one g=two n="},
	{"create taken", func(s FS, at func(string) string) error { return closed(s.Create(at("f"))) }, syscall.EEXIST.Error(), ""},
	{"create on dir", func(s FS, at func(string) string) error { return closed(s.Create(at("d"))) }, syscall.EEXIST.Error(), ""},
	{"create in nothing", func(s FS, at func(string) string) error { return closed(s.Create(at("no/n"))) }, syscall.ENOENT.Error(), ""},
	{"create in file", func(s FS, at func(string) string) error { return closed(s.Create(at("f/n"))) }, syscall.ENOTDIR.Error(), ""},
	{"open missing", func(s FS, at func(string) string) error { return closed(s.Open(at("n"))) }, syscall.ENOENT.Error(), ""},
	{"open dir", func(s FS, at func(string) string) error { return closed(s.Open(at("d"))) }, syscall.EISDIR.Error(), ""},
	{"open dir for reading", func(s FS, at func(string) string) error { return closed(s.OpenReadOnly(at("d"))) }, syscall.EISDIR.Error(), ""},
	{"remove file", func(s FS, at func(string) string) error { return s.Remove(at("f")) }, "ok", "d/ d/x=x e/ g=two"},
	{"remove empty dir", func(s FS, at func(string) string) error { return s.Remove(at("e")) }, "ok", "d/ d/x=x f=one g=two"},
	{"remove full dir", func(s FS, at func(string) string) error { return s.Remove(at("d")) }, syscall.ENOTEMPTY.Error(), ""},
	{"remove missing", func(s FS, at func(string) string) error { return s.Remove(at("n")) }, syscall.ENOENT.Error(), ""},
	{"remove in file", func(s FS, at func(string) string) error { return s.Remove(at("f/n")) }, syscall.ENOTDIR.Error(), ""},
	{"remove all", func(s FS, at func(string) string) error { return s.RemoveAll(at("d")) }, "ok", "e/ f=one g=two"},
	{"remove all of a file", func(s FS, at func(string) string) error { return s.RemoveAll(at("f")) }, "ok", "d/ d/x=x e/ g=two"},
	{"remove all missing", func(s FS, at func(string) string) error { return s.RemoveAll(at("no/n")) }, "ok", ""},
	{"rename", func(s FS, at func(string) string) error { return s.Rename(at("f"), at("d/n")) }, "ok", "d/ d/n=one d/x=x e/ g=two"},
	{"rename over file", func(s FS, at func(string) string) error { return s.Rename(at("f"), at("g")) }, "ok", "d/ d/x=x e/ g=one"},
	{"rename to itself", func(s FS, at func(string) string) error { return s.Rename(at("f"), at("f")) }, "ok", ""},
	{"rename over dir", func(s FS, at func(string) string) error { return s.Rename(at("f"), at("e")) }, syscall.EEXIST.Error(), ""},
	{"rename dir", func(s FS, at func(string) string) error { return s.Rename(at("d"), at("e/n")) }, "ok", "e/ e/n/ e/n/x=x f=one g=two"},
	{"rename dir over dir", func(s FS, at func(string) string) error { return s.Rename(at("d"), at("e")) }, syscall.EEXIST.Error(), ""},
	{"rename dir over file", func(s FS, at func(string) string) error { return s.Rename(at("d"), at("f")) }, syscall.ENOTDIR.Error(), ""},
	{"rename dir into itself", func(s FS, at func(string) string) error { return s.Rename(at("d"), at("d/n")) }, syscall.EINVAL.Error(), ""},
	{"rename missing", func(s FS, at func(string) string) error { return s.Rename(at("n"), at("m")) }, syscall.ENOENT.Error(), ""},
	{"link", func(s FS, at func(string) string) error { return s.Link(at("f"), at("d/n")) }, "ok", "d/ d/n=one d/x=x e/ f=one g=two"},
	{"link taken", func(s FS, at func(string) string) error { return s.Link(at("f"), at("g")) }, syscall.EEXIST.Error(), ""},
	{"link missing", func(s FS, at func(string) string) error { return s.Link(at("n"), at("m")) }, syscall.ENOENT.Error(), ""},
	{"link dir", func(s FS, at func(string) string) error { return s.Link(at("d"), at("m")) }, syscall.EPERM.Error(), ""},
	{"mkdir", func(s FS, at func(string) string) error { return s.MkdirAll(at("d/m/n")) }, "ok", "d/ d/m/ d/m/n/ d/x=x e/ f=one g=two"},
	{"mkdir there", func(s FS, at func(string) string) error { return s.MkdirAll(at("d")) }, "ok", ""},
	{"mkdir on file", func(s FS, at func(string) string) error { return s.MkdirAll(at("f")) }, syscall.ENOTDIR.Error(), ""},
	{"mkdir in file", func(s FS, at func(string) string) error { return s.MkdirAll(at("f/n")) }, syscall.ENOTDIR.Error(), ""},
	{"list missing", func(s FS, at func(string) string) error { _, err := s.List(at("n")); return err }, syscall.ENOENT.Error(), ""},
	{"list file", func(s FS, at func(string) string) error { _, err := s.List(at("f")); return err }, syscall.ENOTDIR.Error(), ""},
	{"stat missing", func(s FS, at func(string) string) error { _, err := s.Stat(at("n")); return err }, syscall.ENOENT.Error(), ""},
	{"sync dir", func(s FS, at func(string) string) error { return s.SyncDir(at("d")) }, "ok", ""},
	{"sync dir of file", func(s FS, at func(string) string) error { return s.SyncDir(at("f")) }, syscall.ENOTDIR.Error(), ""},
	{"sync missing dir", func(s FS, at func(string) string) error { return s.SyncDir(at("n")) }, syscall.ENOENT.Error(), ""},
	{"free", func(s FS, at func(string) string) error { _, err := s.Free(at("d")); return err }, "ok", ""},
	{"free missing", func(s FS, at func(string) string) error { _, err := s.Free(at("n")); return err }, syscall.ENOENT.Error(), ""},
	{"lock dir", func(s FS, at func(string) string) error { _, err := s.Lock(at("d"), "me"); return err }, syscall.EISDIR.Error(), ""},
	{"write atomic", func(s FS, at func(string) string) error { return WriteFileAtomic(s, at("f"), []byte("new")) }, "ok", "d/ d/x=x e/ f=new g=two"},
	{"write atomic new", func(s FS, at func(string) string) error { return WriteFileAtomic(s, at("n"), []byte("new")) }, "ok", "d/ d/x=x e/ f=one g=two n=new"},
	{"write atomic on dir", func(s FS, at func(string) string) error { return WriteFileAtomic(s, at("e"), []byte("new")) }, syscall.EEXIST.Error(), ""},
}

// TestNameOperations prepares a small tree and does one thing to it; the result
// is the same on every FS.
func TestNameOperations(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		for i, c := range nameCases {
			t.Run(c.name, func(t *testing.T) {
				root := filepath.Join(dir, fmt.Sprint(i))
				at := func(name string) string { return filepath.Join(root, name) }
				must(t, fsys.MkdirAll(at("d")))
				must(t, fsys.MkdirAll(at("e")))
				must(t, create(t, fsys, at("f"), "one").Close())
				must(t, create(t, fsys, at("g"), "two").Close())
				must(t, create(t, fsys, at("d/x"), "x").Close())
				if got := outcome(c.do(fsys, at)); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
				if c.tree == "" {
					c.tree = "d/ d/x=x e/ f=one g=two"
				}
				if got := tree(t, fsys, root, ""); got != c.tree {
					t.Errorf("left %s\nwant %s", got, c.tree)
				}
			})
		}
	})
}

func closed(f File, err error) error {
	if err != nil {
		return err
	}
	return f.Close()
}

// tree describes all that is below dir.
func tree(t failer, fsys FS, dir, prefix string) string {
	t.Helper()
	names, err := fsys.List(dir)
	must(t, err)
	var parts []string
	for _, name := range names {
		full := filepath.Join(dir, name)
		info, err := fsys.Stat(full)
		must(t, err)
		if !info.IsDir {
			parts = append(parts, prefix+name+"="+content(t, fsys, full))
			continue
		}
		parts = append(parts, prefix+name+"/")
		if below := tree(t, fsys, full, prefix+name+"/"); below != "" {
			parts = append(parts, below)
		}
	}
	return strings.Join(parts, " ")
}

func TestFileContent(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		f := create(t, fsys, filepath.Join(dir, "f"), "hello")
		_, err := f.WriteAt([]byte("end"), 10)
		must(t, err)
		must(t, f.SyncData())
		if got := content(t, fsys, filepath.Join(dir, "f")); got != "hello\x00\x00\x00\x00\x00end" {
			t.Errorf("gap: %q", got)
		}
		must(t, f.Truncate(3))
		must(t, f.Truncate(5))
		if got := content(t, fsys, filepath.Join(dir, "f")); got != "hel\x00\x00" {
			t.Errorf("after truncation: %q", got)
		}
		must(t, f.Preallocate(0, 1<<16))
		if size, err := f.Size(); size != 5 || err != nil {
			t.Errorf("size %d, %v", size, err)
		}
		buf := make([]byte, 4)
		if n, err := f.ReadAt(buf, 2); n != 3 || err != io.EOF {
			t.Errorf("read over the end: %d, %v", n, err)
		}
		if n, err := f.ReadAt(buf, 5); n != 0 || err != io.EOF {
			t.Errorf("read at the end: %d, %v", n, err)
		}
		if n, err := f.ReadAt(nil, 5); n != 0 || err != nil {
			t.Errorf("read of nothing: %d, %v", n, err)
		}
		must(t, f.Close())
	})
}

func TestWritevAt(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		f, err := fsys.Create(filepath.Join(dir, "f"))
		must(t, err)
		defer f.Close()
		var bufs [][]byte
		var want []byte
		for i := range 3000 { // more than one call takes
			b := bytes.Repeat([]byte{byte(i)}, i%5)
			bufs = append(bufs, b)
			want = append(want, b...)
		}
		lengths := len(bufs)
		n, err := f.WritevAt(bufs, 7)
		if n != len(want) || err != nil {
			t.Fatalf("wrote %d of %d, %v", n, len(want), err)
		}
		if len(bufs) != lengths || len(bufs[4]) != 4 {
			t.Error("the list was changed")
		}
		got := content(t, fsys, filepath.Join(dir, "f"))
		if got[7:] != string(want) {
			t.Error("content differs")
		}
		for _, none := range [][][]byte{nil, {}, {nil, {}}} {
			if n, err := f.WritevAt(none, 100); n != 0 || err != nil {
				t.Errorf("writing nothing: %d, %v", n, err)
			}
		}
	})
}

func TestFileErrors(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		name := filepath.Join(dir, "f")
		rw := create(t, fsys, name, "data")
		ro, err := fsys.OpenReadOnly(name)
		must(t, err)
		buf := make([]byte, 4)
		check := func(what, want string, err error) {
			t.Helper()
			if got := outcome(err); got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		write := func(f File) error { _, err := f.WriteAt(buf, 0); return err }
		writev := func(f File) error { _, err := f.WritevAt([][]byte{buf}, 0); return err }
		read := func(f File) error { _, err := f.ReadAt(buf, 0); return err }
		size := func(f File) error { _, err := f.Size(); return err }

		check("write read-only", syscall.EBADF.Error(), write(ro))
		check("writev read-only", syscall.EBADF.Error(), writev(ro))
		check("preallocate read-only", syscall.EBADF.Error(), ro.Preallocate(0, 10))
		check("truncate read-only", syscall.EINVAL.Error(), ro.Truncate(0))
		check("sync read-only", "ok", ro.SyncData())
		check("truncate below zero", syscall.EINVAL.Error(), rw.Truncate(-1))
		check("preallocate nothing", syscall.EINVAL.Error(), rw.Preallocate(0, 0))
		_, err = rw.WritevAt([][]byte{buf}, -1)
		check("writev below zero", syscall.EINVAL.Error(), err)

		must(t, rw.Close())
		check("close", "closed", rw.Close())
		check("write", "closed", write(rw))
		check("writev", "closed", writev(rw))
		check("read", "closed", read(rw))
		check("size", "closed", size(rw))
		check("truncate", "closed", rw.Truncate(0))
		check("sync", "closed", rw.SyncData())
		check("preallocate", "closed", rw.Preallocate(0, 10))
		must(t, ro.Close())
	})
}

func TestOpenFileOutlivesItsName(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		at := func(name string) string { return filepath.Join(dir, name) }
		removed := create(t, fsys, at("removed"), "abc")
		must(t, fsys.Remove(at("removed")))
		replaced := create(t, fsys, at("replaced"), "old")
		must(t, create(t, fsys, at("new"), "new").Close())
		must(t, fsys.Rename(at("new"), at("replaced")))
		linked := create(t, fsys, at("linked"), "one")
		must(t, fsys.Link(at("linked"), at("second")))
		must(t, fsys.Rename(at("linked"), at("moved")))
		for _, f := range []File{removed, replaced, linked} {
			_, err := f.WriteAt([]byte("X"), 1)
			must(t, err)
			must(t, f.SyncData())
		}
		buf := make([]byte, 3)
		_, err := removed.ReadAt(buf, 0)
		must(t, err)
		if string(buf) != "aXc" {
			t.Errorf("removed file reads %q", buf)
		}
		if got := tree(t, fsys, dir, ""); got != "moved=oXe replaced=new second=oXe" {
			t.Errorf("left %s", got)
		}
		for _, f := range []File{removed, replaced, linked} {
			must(t, f.Close())
		}
	})
}

func TestStatAndDescriptor(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		f := create(t, fsys, filepath.Join(dir, "f"), "1234")
		defer f.Close()
		info, err := fsys.Stat(filepath.Join(dir, "f"))
		must(t, err)
		if info.Size != 4 || info.IsDir || info.ModTime.IsZero() {
			t.Errorf("file: %+v", info)
		}
		info, err = fsys.Stat(dir)
		must(t, err)
		if !info.IsDir || info.ModTime.IsZero() {
			t.Errorf("directory: %+v", info)
		}
		if fsys == OS && f.Fd() == InvalidFd {
			t.Error("no descriptor")
		}
		if _, mem := f.(*memFile); mem && f.Fd() != InvalidFd {
			t.Error("a descriptor in memory")
		}
		space, err := fsys.Free(dir)
		must(t, err)
		if space.Free == 0 || space.Free > space.Total {
			t.Errorf("%+v", space)
		}
	})
}

// TestConcurrentUse is for the race detector: writers of ranges of their own, a
// reader, a syncer, and changes of names go on at once.
func TestConcurrentUse(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys FS, dir string) {
		f := create(t, fsys, filepath.Join(dir, "f"), "")
		var group errgroup
		for w := range 4 {
			group.run(func() error {
				data := bytes.Repeat([]byte{byte('a' + w)}, 700)
				_, err := f.WritevAt([][]byte{data[:300], data[300:]}, int64(w*700))
				own := filepath.Join(dir, fmt.Sprint(w))
				return errors.Join(err, f.SyncData(), WriteFileAtomic(fsys, own, data),
					fsys.Rename(own, own+"x"), fsys.Remove(own+"x"))
			})
		}
		group.run(func() error {
			_, err := f.ReadAt(make([]byte, 100), 0)
			if err == io.EOF {
				err = nil
			}
			if m, ok := fsys.(*Mem); ok {
				m.CrashClone(CrashOptions{KeepUnsynced: 0.5})
			}
			return err
		})
		must(t, group.wait())
		must(t, f.Close())
		want := strings.Repeat("a", 700) + strings.Repeat("b", 700) + strings.Repeat("c", 700) + strings.Repeat("d", 700)
		if got := tree(t, fsys, dir, ""); got != "f="+want {
			t.Errorf("left %.40q", got)
		}
	})
}

// errgroup runs functions at once and joins their errors.
type errgroup struct {
	wg   sync.WaitGroup
	mu   sync.Mutex
	errs error
}

func (g *errgroup) run(f func() error) {
	g.wg.Go(func() {
		err := f()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.errs = errors.Join(g.errs, err)
	})
}

func (g *errgroup) wait() error {
	g.wg.Wait()
	return g.errs
}
