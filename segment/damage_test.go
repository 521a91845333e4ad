package segment

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/billetlog/billet/internal/vfs"
)

// files are the contents of a folder by name.
type files map[string][]byte

func readFiles(tb tester, fs vfs.FS, dir string) files {
	tb.Helper()
	names, err := fs.List(dir)
	must(tb, err)
	all := files{}
	for _, name := range names {
		all[name], err = vfs.ReadFile(fs, filepath.Join(dir, name))
		must(tb, err)
	}
	return all
}

func (f files) write(tb tester, dir string) *vfs.Mem {
	tb.Helper()
	m := vfs.NewMem()
	must(tb, m.MkdirAll(dir))
	for name, data := range f {
		file, err := m.Create(filepath.Join(dir, name))
		must(tb, err)
		_, err = file.WriteAt(data, 0)
		must(tb, errors.Join(err, file.Close()))
	}
	m.SyncAll()
	return m
}

func (f files) with(name string, data []byte) files {
	c := files{}
	for n, d := range f {
		c[n] = d
	}
	c[name] = data
	return c
}

// closedLog makes a small log with three segments and a checkpoint in the middle
// one, or none.
func closedLog(tb tester, withCheckpoint bool) (files, *twin) {
	tb.Helper()
	m := vfs.NewMem()
	o := logOptions(m)
	o.SegmentBytes, o.IndexIntervalBytes = 800, 200
	l := createLog(tb, o)
	f := newFeeder(tb)
	w := &twin{first: 1}
	add := func(entries ...Entry) {
		mustAppend(tb, l, entries...)
		w.append(entries)
	}
	add(f.noop(1), f.data(2, 60), f.void(), f.data(1, 90), f.config("members"))
	add(f.data(1, 300), f.data(1, 100), f.noop(2), f.data(2, 30))
	if withCheckpoint {
		must(tb, l.SaveCheckpoint(Checkpoint{Index: w.last(), Term: w.lastTerm(), Offset: w.end(), Payload: []byte("fold")}, true))
	}
	add(f.data(1, 250), f.void(), f.data(1, 100), f.data(1, 120))
	if n := len(l.Segments()); n < 3 {
		tb.Fatalf("%d segments", n)
	}
	must(tb, l.Close(true))
	return readFiles(tb, m, o.Dir), w
}

// readAll reads a log by every way there is and returns what it says, or the first
// error.
func readAll(l *Log) (*twin, error) {
	w := &twin{first: l.FirstIndex(), start: l.StartOffset()}
	var err error
	if w.entries, err = l.Entries(nil, w.first, l.LastIndex()+1, 1<<40); err != nil {
		return nil, err
	}
	for i, e := range w.entries {
		f, err := l.storedFrame(w.first + uint64(i))
		if err != nil {
			return nil, err
		}
		if f.Kind == KindData {
			if head, err := decodeHead(e.Data, maxFrameSize); err != nil || head.base != f.BaseOffset || head.next != f.NextOffset {
				return nil, fmt.Errorf("frame %+v contradicts its data", f)
			}
		}
	}
	c := l.NewCursor()
	defer c.Close()
	c.VerifyCRC = true
	var got, want []byte
	for offset := w.start; offset < l.EndOffset(); offset = nextOffset(got) {
		if got, err = c.Read(got, offset, l.EndOffset(), 200); err != nil {
			return nil, err
		}
	}
	for _, e := range w.entries {
		if e.Kind == KindData {
			want = append(want, e.Data...)
		}
	}
	if !bytes.Equal(got, want) {
		return nil, errors.New("cursor and entries differ")
	}
	for ts := int64(0); ts < l.EndOffset()*10; ts += 7 {
		offset, at, ok, err := l.OffsetForTime(ts, 0, l.EndOffset())
		if err != nil {
			return nil, err
		}
		if wantOffset, wantAt, wantOK := w.offsetForTime(ts); ok != wantOK || offset != wantOffset || at != wantAt {
			return nil, fmt.Errorf("time %d: offset %d at %d %v, want %d at %d %v", ts, offset, at, ok, wantOffset, wantAt, wantOK)
		}
	}
	return w, nil
}

// damaged opens a log of which one file was changed. What comes out must be right
// and whole, or an error that names the file, or (above mark) a shorter log.
func damaged(tb tester, f files, name string, want *twin, mark uint64) {
	tb.Helper()
	m := f.write(tb, "/log")
	o := logOptions(m)
	o.SegmentBytes, o.IndexIntervalBytes = 800, 200
	l, r, err := Open(o, OpenHints{DurableIndex: mark})
	var got *twin
	if err == nil {
		got, err = readAll(l)
		must(tb, l.Close(false))
	} else if after := readFiles(tb, m, "/log"); !sameFiles(f, after) {
		tb.Fatalf("%v, and files changed", err)
	}
	cache := !strings.HasSuffix(name, logSuffix)
	var damage *CorruptionError
	switch {
	case err == nil && got.isPrefixOf(want) && got.last() == want.last():
	case err == nil && got.isPrefixOf(want) && got.last() >= mark:
	case err == nil:
		tb.Fatalf("wrong or fewer entries: [%d, %d], durable are %d: %+v", got.first, got.last(), mark, r)
	case cache:
		tb.Fatalf("only a cache is damaged: %v", err)
	case !errors.As(err, &damage):
		tb.Fatalf("not a CorruptionError: %v", err)
	case filepath.Base(damage.File) != name && !strings.Contains(damage.Reason, "missing"):
		tb.Fatalf("blames %s: %v", damage.File, err)
	}
}

func sameFiles(a, b files) bool {
	for name, data := range a {
		if !bytes.Equal(data, b[name]) {
			return false
		}
	}
	return len(a) == len(b)
}

// eachDamage calls do for a log with and without a checkpoint, and with all of it
// durable or only half.
func eachDamage(t *testing.T, do func(t *testing.T, f files, name string, want *twin, mark uint64)) {
	for _, checkpoint := range []bool{true, false} {
		for _, half := range []bool{false, true} {
			t.Run(fmt.Sprintf("checkpoint=%v/half=%v", checkpoint, half), func(t *testing.T) {
				f, want := closedLog(t, checkpoint)
				mark := want.last()
				if half {
					mark = want.last() - 2
				}
				for _, name := range sortedNames(f) {
					do(t, f, name, want, mark)
				}
			})
		}
	}
}

func sortedNames(f files) []string {
	var names []string
	for name := range f {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestEveryByteFlipped(t *testing.T) {
	eachDamage(t, func(t *testing.T, f files, name string, want *twin, mark uint64) {
		for i := range f[name] {
			for _, mask := range []byte{0x01, 0x80, 0xff} {
				b := bytes.Clone(f[name])
				b[i] ^= mask
				damaged(explained{t, fmt.Sprintf("%s byte %d ^ %#x", name, i, mask)}, f.with(name, b), name, want, mark)
			}
		}
	})
}

func TestEveryCutLength(t *testing.T) {
	eachDamage(t, func(t *testing.T, f files, name string, want *twin, mark uint64) {
		for n := range f[name] {
			damaged(explained{t, fmt.Sprintf("%s cut to %d", name, n)}, f.with(name, f[name][:n]), name, want, mark)
		}
		for _, more := range []int{1, 28, 100, 600} {
			b := append(bytes.Clone(f[name]), make([]byte, more)...)
			damaged(explained{t, fmt.Sprintf("%s with %d zeros more", name, more)}, f.with(name, b), name, want, mark)
		}
	})
}

func TestEveryFileMissing(t *testing.T) {
	eachDamage(t, func(t *testing.T, f files, name string, want *twin, mark uint64) {
		c := f.with(name, nil)
		delete(c, name)
		if name == fileName(0, logSuffix) {
			return // retention could have deleted it
		}
		tb := explained{t, name + " missing"}
		m := c.write(t, "/log")
		o := logOptions(m)
		l, _, err := Open(o, OpenHints{DurableIndex: mark})
		if strings.HasSuffix(name, logSuffix) && errors.Is(err, ErrCorrupt) {
			return
		}
		must(tb, err)
		got, err := readAll(l)
		must(tb, err)
		if !got.isPrefixOf(want) || got.last() < mark {
			tb.Fatalf("entries [%d, %d], durable are %d", got.first, got.last(), mark)
		}
		must(tb, l.Close(false))
	})
}
