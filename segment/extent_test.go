package segment

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/vfs"
)

// everything is a retention that keeps nothing sealed.
func everything(l *Log) Retention {
	return Retention{Bytes: 0, Age: -1, BelowIndex: l.LastIndex() + 1, Now: testTime}
}

// TestExtentUnderRetention deletes all segments while they are pulled. They are gone from the log at once, and from the disk when no extent has
// them any more, the first one first.
func TestExtentUnderRetention(t *testing.T) {
	m := vfs.NewMem()
	o := logOptions(m)
	l, f := mixedLog(t, o)
	first, err := l.Extent(l.LastIndex())
	must(t, err)
	var want [][]byte
	for n := range first.Info().Segments {
		want = append(want, streamOf(t, first, n))
	}
	_, err = l.DeleteBelow(l.Segments()[1].EndOffset, l.LastIndex())
	must(t, err)
	second := extentOf(t, l)
	mustAppend(t, l, f.data(1, 3000), f.data(1, 3000))
	d, err := l.Retain(everything(l))
	must(t, err)
	if len(l.Segments()) != 1 || d.FirstIndex != l.LastIndex() || d.Segments == 0 {
		t.Fatalf("deleted %+v", d)
	}
	if _, err := l.NewCursor().Read(nil, 0, l.EndOffset(), 1); !errors.Is(err, ErrCompacted) {
		t.Fatalf("read: %v", err)
	}
	files := logFiles(t, m, o.Dir)
	for n, b := range want {
		if !bytes.Equal(streamOf(t, first, n), b) {
			t.Fatalf("segment %d is another one", n)
		}
	}
	reader, err := first.Open(0, 0, 10)
	must(t, err)
	must(t, first.Close())
	must(t, first.Close())
	if now := logFiles(t, m, o.Dir); now != files-2 {
		t.Fatalf("%d files after %d", now, files)
	}
	if b, err := io.ReadAll(reader); err != nil || !bytes.Equal(b, want[0][:10]) {
		t.Fatalf("%v, %v", b, err)
	}
	must(t, reader.Close())
	for n := range second.Info().Segments {
		streamOf(t, second, n)
	}
	must(t, second.Close())
	if now := logFiles(t, m, o.Dir); now != 1 {
		t.Fatalf("%d files", now)
	}
	must(t, l.Close(true))
	// What was deleted does not come back.
	o.FS = m.CrashClone(vfs.CrashOptions{})
	l, _ = openLog(t, o, OpenHints{DurableIndex: l.LastIndex()})
	if len(l.Segments()) != 1 {
		t.Fatalf("%d segments", len(l.Segments()))
	}
	must(t, l.Close(false))
}

func logFiles(tb tester, fs vfs.FS, dir string) int {
	tb.Helper()
	names, err := fs.List(dir)
	must(tb, err)
	n := 0
	for _, name := range names {
		if _, ok := parseName(name, logSuffix); ok {
			n++
		}
	}
	return n
}

// TestExtentOutlivesLog closes the log, and opens it again, under an extent: the files that were to be deleted are the new log's business.
func TestExtentOutlivesLog(t *testing.T) {
	m := vfs.NewMem()
	o := logOptions(m)
	l, _ := mixedLog(t, o)
	e := extentOf(t, l)
	n := len(l.Segments())
	_, err := l.Retain(everything(l))
	must(t, err)
	must(t, l.Close(true))
	again, _ := openLog(t, o, OpenHints{})
	if len(again.Segments()) != n {
		t.Fatalf("%d segments, there were %d", len(again.Segments()), n)
	}
	streamOf(t, e, 0)
	must(t, e.Close())
	must(t, again.Verify(t.Context(), nil))
	must(t, again.Close(false))
	if _, err := l.Extent(1); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}

// TestExtentLeavesNoHole pins the first segment alone. Those behind it stay with it, or a crash would leave a hole.
func TestExtentLeavesNoHole(t *testing.T) {
	m := vfs.NewMem()
	o := logOptions(m)
	l, _ := mixedLog(t, o)
	must(t, l.Sync())
	segments := l.Segments()
	e, err := l.Extent(segments[0].LastIndex)
	must(t, err)
	d, err := l.Retain(everything(l))
	must(t, err)
	if len(e.Info().Segments) != 1 || d.Segments != len(segments)-1 {
		t.Fatalf("extent %+v, deleted %+v", e.Info(), d)
	}
	crashed := o
	crashed.FS = m.CrashClone(vfs.CrashOptions{KeepUnsynced: 1})
	again, _ := openLog(t, crashed, OpenHints{DurableIndex: l.LastIndex()})
	must(t, again.Verify(t.Context(), nil))
	must(t, again.Close(false))
	must(t, e.Close())
	if now := logFiles(t, m, o.Dir); now != 1 {
		t.Fatalf("%d files", now)
	}
	must(t, l.Close(false))
}

// TestExtentRemoval lets removals fail that waited for an extent: they are tried again.
func TestExtentRemoval(t *testing.T) {
	m := vfs.NewMem()
	failing := false
	o := logOptions(vfs.Inject(m, func(op vfs.Op, name string, _ int64, _ int) error {
		if failing && op == vfs.OpRemove && strings.HasSuffix(name, logSuffix) {
			return vfs.ErrInjected
		}
		return nil
	}))
	l, f := mixedLog(t, o)
	e := extentOf(t, l)
	_, err := l.Retain(everything(l))
	must(t, err)
	files := logFiles(t, m, o.Dir)
	failing = true
	if err := e.Close(); !errors.Is(err, vfs.ErrInjected) {
		t.Fatal(err)
	}
	mustAppend(t, l, f.data(1, 3000), f.data(1, 30))
	if _, err := l.Retain(everything(l)); !errors.Is(err, vfs.ErrInjected) {
		t.Fatal(err)
	}
	failing = false
	must(t, l.Failed())
	_, err = l.Retain(everything(l))
	must(t, err)
	if now := logFiles(t, m, o.Dir); now != 1 || files < 3 {
		t.Fatalf("%d files, there were %d", now, files)
	}
	must(t, l.Close(true))
}

func TestExtentBounds(t *testing.T) {
	o := logOptions(vfs.NewMem())
	l, _ := mixedLog(t, o)
	defer func() { must(t, l.Close(false)) }()
	if _, err := l.Extent(l.LastIndex() + 1); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
	_, err := l.DeleteBelow(l.Segments()[0].EndOffset, l.LastIndex())
	must(t, err)
	if _, err := l.Extent(l.FirstIndex() - 2); !errors.Is(err, ErrCompacted) {
		t.Error(err)
	}
	e, err := l.Extent(l.FirstIndex() - 1)
	must(t, err)
	if i := e.Info(); len(i.Segments) != 1 || i.Segments[0].Bytes != 0 || i.EndOffset != l.StartOffset() || i.LastIndex != l.FirstIndex()-1 {
		t.Errorf("%+v", i)
	}
	must(t, e.Close())
	e = extentOf(t, l)
	defer e.Close()
	size := e.Info().Segments[0].Bytes
	for _, c := range []struct {
		segment        int
		offset, length int64
	}{{-1, 0, 1}, {len(e.Info().Segments), 0, 1}, {0, -1, 1}, {0, 0, -1}, {0, size, 1}, {0, 1, size}, {0, 1, math.MaxInt64}, {0, math.MaxInt64, 1}} {
		if _, err := e.Open(c.segment, c.offset, c.length); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	r, err := e.Open(0, size, 0)
	must(t, err)
	if b, err := io.ReadAll(r); err != nil || len(b) > 0 {
		t.Errorf("%v, %v", b, err)
	}
	if f, _, _ := r.File(); f != nil {
		t.Error("a file in memory has a descriptor")
	}
	must(t, r.Close())
	b, err := json.Marshal(e.Info())
	must(t, err)
	var back ExtentInfo
	must(t, json.Unmarshal(b, &back))
	if !reflect.DeepEqual(back, e.Info()) {
		t.Errorf("%+v became %s", e.Info(), b)
	}
}

// TestExtentFile reads through the system's file, which has a position of its own.
func TestExtentFile(t *testing.T) {
	o := logOptions(vfs.Count(vfs.OS))
	o.Dir = t.TempDir() + "/log"
	l := createLog(t, o)
	defer func() { must(t, l.Close(false)) }()
	f := newFeeder(t)
	mustAppend(t, l, f.noop(1), f.data(3, 100))
	e := extentOf(t, l)
	want := streamOf(t, e, 0)
	a, err := e.Open(0, 5, 20)
	must(t, err)
	b, err := e.Open(0, 30, 40)
	must(t, err)
	for _, c := range []struct {
		r    *ExtentReader
		want []byte
	}{{a, want[5:25]}, {b, want[30:70]}} {
		file, pos, length := c.r.File()
		if file == nil {
			t.Fatal("no file")
		}
		_, err := file.Seek(pos, io.SeekStart)
		must(t, err)
		got, err := io.ReadAll(io.LimitReader(file, length))
		if err != nil || !bytes.Equal(got, c.want) {
			t.Errorf("%x, %v", got, err)
		}
	}
	must(t, a.Close())
	file, _, _ := b.File()
	must(t, file.Close())
	if err := b.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Error(err)
	}
	must(t, e.Close())
}

// TestExtentBesideTruncation cuts entries behind an extent, which makes a sealed segment the active one again, and seals and deletes it.
func TestExtentBesideTruncation(t *testing.T) {
	m := vfs.NewMem()
	o := logOptions(m)
	l, f := mixedLog(t, o)
	s := l.Segments()[1]
	e, err := l.Extent(s.FirstIndex)
	must(t, err)
	want := streamOf(t, e, 1)
	must(t, l.Truncate(s.FirstIndex+1))
	f.index, f.offset = l.LastIndex()+1, l.EndOffset()
	mustAppend(t, l, f.noop(f.term+1), f.data(1, 3000), f.data(1, 3000), f.data(1, 10))
	_, err = l.Retain(everything(l))
	must(t, err)
	if !bytes.Equal(streamOf(t, e, 1), want) {
		t.Fatal("another segment")
	}
	must(t, e.Close())
	if now := logFiles(t, m, o.Dir); now != 1 {
		t.Fatalf("%d files", now)
	}
	must(t, l.Close(false))
}

// TestExtentBesideAppends pulls while the log is appended to and cut short at the front.
func TestExtentBesideAppends(t *testing.T) {
	o := logOptions(vfs.NewMem())
	l, f := mixedLog(t, o)
	defer func() { must(t, l.Close(false)) }()
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			_, err := l.Append([]Entry{f.data(1, 700)})
			if err == nil {
				_, err = l.Retain(Retention{Bytes: 6000, Age: -1, BelowIndex: l.LastIndex(), Now: time.Now()})
			}
			if err != nil {
				stopped <- err
				return
			}
		}
	}()
	for range 30 {
		e, err := l.Extent(l.LastIndex())
		for errors.Is(err, ErrCompacted) { // it was appended to and cut short in between
			e, err = l.Extent(l.LastIndex())
		}
		must(t, err)
		m := vfs.NewMem()
		must(t, m.MkdirAll("/replica"))
		got, err := importAll(importOptions(m), e, nil, 0)
		must(t, err)
		must(t, got.Verify(t.Context(), nil))
		must(t, errors.Join(got.Close(false), e.Close()))
	}
	close(stop)
	must(t, <-stopped)
}
