package vfs

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"
)

// pair does everything on the file system of the machine and in memory, and
// demands the same results.
type pair struct {
	t     *rapid.T
	roots [2]string
	fs    [2]FS
	files [][2]File
}

var pairNames = []string{"a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "d/e/f"}

// both runs do on each side.
func (p *pair) both(what string, do func(side int, at func(string) string) (string, error)) bool {
	var got [2]string
	var errs [2]error
	for side := range 2 {
		var result string
		result, errs[side] = do(side, func(name string) string {
			return filepath.Join(p.roots[side], name)
		})
		got[side] = result + " " + outcome(errs[side])
	}
	if got[0] != got[1] {
		p.t.Fatalf("%s: machine %q, memory %q", what, got[0], got[1])
	}
	return errs[0] == nil
}

func (p *pair) name(label string) string {
	return rapid.SampledFrom(pairNames).Draw(p.t, label)
}

// names does something to one or two names.
func (p *pair) names(op Op) {
	x, y := p.name("x"), p.name("y")
	p.both(fmt.Sprint(op, " ", x, " ", y), func(side int, at func(string) string) (string, error) {
		s := p.fs[side]
		switch op {
		case OpRemove:
			return "", s.Remove(at(x))
		case OpRename:
			return "", s.Rename(at(x), at(y))
		case OpLink:
			return "", s.Link(at(x), at(y))
		case OpMkdir:
			return "", s.MkdirAll(at(x))
		case OpSyncDir:
			return "", s.SyncDir(at(x))
		case OpList:
			names, err := s.List(at(x))
			return fmt.Sprint(names), err
		case OpStat:
			info, err := s.Stat(at(x))
			if info.IsDir {
				info.Size = 0
			}
			return fmt.Sprint(info.Size, info.IsDir), err
		}
		return "", s.RemoveAll(at(x))
	})
}

func (p *pair) open(op Op) {
	name := p.name("name")
	var files [2]File
	ok := p.both("open "+name, func(side int, at func(string) string) (string, error) {
		var err error
		if op == OpCreate {
			files[side], err = p.fs[side].Create(at(name))
		} else {
			files[side], err = p.fs[side].Open(at(name))
		}
		return "", err
	})
	if ok {
		p.files = append(p.files, files)
	}
}

// file does something to an open file.
func (p *pair) file(op Op) {
	if len(p.files) == 0 {
		return
	}
	i := rapid.IntRange(0, len(p.files)-1).Draw(p.t, "file")
	off := int64(rapid.IntRange(0, 3000).Draw(p.t, "off"))
	data := bytes.Repeat([]byte{byte(rapid.IntRange(1, 255).Draw(p.t, "byte"))}, rapid.IntRange(0, 1500).Draw(p.t, "n"))
	p.both(fmt.Sprint(op, " ", off, " ", len(data)), func(side int, _ func(string) string) (string, error) {
		f := p.files[i][side]
		switch op {
		case OpRead:
			n, err := f.ReadAt(data, off)
			return fmt.Sprint(n, data[:n]), err
		case OpWrite:
			n, err := f.WriteAt(data, off)
			return fmt.Sprint(n), err
		case OpTruncate:
			return "", f.Truncate(off)
		case OpSync:
			return "", f.SyncData()
		case OpPreallocate:
			return "", f.Preallocate(off, int64(len(data)))
		case OpClose:
			return "", f.Close()
		}
		n, err := f.WritevAt([][]byte{data[:len(data)/3], nil, data[len(data)/3:]}, off)
		return fmt.Sprint(n), err
	})
	if op == OpClose {
		p.files = append(p.files[:i], p.files[i+1:]...)
	}
}

// step does one operation picked at random.
func (p *pair) step() {
	switch op := Op(rapid.IntRange(0, opCount).Draw(p.t, "op")); op {
	case OpCreate, OpOpen:
		p.open(op)
	case OpRead, OpWrite, OpTruncate, OpSync, OpPreallocate, OpClose, OpSize:
		p.file(op)
	default:
		p.names(op)
	}
}

func TestMemIsLikeOS(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		must(t, err)
		defer os.RemoveAll(dir)
		m := NewMem()
		p := &pair{t: rt, roots: [2]string{dir, "/r"}, fs: [2]FS{OS, m}}
		must(t, m.MkdirAll("/r"))
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			p.step()
		}
		want := tree(t, OS, dir, "")
		if got := tree(t, m, "/r", ""); got != want {
			rt.Fatalf("machine %q\nmemory %q", want, got)
		}
		checkClones(rt, m, want)
		for _, f := range p.files {
			for side := range 2 {
				must(t, f[side].Close())
			}
		}
		must(t, m.RemoveAll("/r"))
		if m.mu.used != 0 {
			rt.Fatalf("%d bytes in use by nothing", m.mu.used)
		}
	})
}

// checkClones checks what holds of the crash clones of any m that contains want
// below /r.
func checkClones(t *rapid.T, m *Mem, want string) {
	if got := tree(t, m.CrashClone(CrashOptions{KeepUnsynced: 1}), "/r", ""); got != want {
		t.Fatalf("keeping all: %q\nwant %q", got, want)
	}
	seed := rapid.Uint64().Draw(t, "seed")
	clone := func() *Mem {
		return m.CrashClone(CrashOptions{KeepUnsynced: 0.5, Rand: rand.New(rand.NewPCG(seed, 0))})
	}
	torn := clone()
	once, twice := tree(t, torn, "/", ""), tree(t, clone(), "/", "")
	if once != twice {
		t.Fatalf("one seed, two states: %q\n%q", once, twice)
	}
	if got := tree(t, torn.CrashClone(CrashOptions{}), "/", ""); got != once {
		t.Fatalf("a clone is not stable: %q\n%q", once, got)
	}
	m.SyncAll()
	if got := tree(t, m.CrashClone(CrashOptions{}), "/r", ""); got != want {
		t.Fatalf("all synced: %q\nwant %q", got, want)
	}
}
