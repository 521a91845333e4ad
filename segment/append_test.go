package segment

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/vfs"
)

// TestRefusedEntries appends what cannot follow the log. It must be told before
// anything is written, and the log must go on.
func TestRefusedEntries(t *testing.T) {
	o := logOptions(vfs.NewMem())
	o.MaxFrameBytes = 4096
	l := createLog(t, o)
	defer l.Close(false)
	f := newFeeder(t)
	mustAppend(t, l, f.noop(2), f.data(1, 10))
	must(t, l.Close(true))
	l, _ = openLog(t, o, OpenHints{}) // the rules hold for what was read from disk, too
	batchOf := func(term uint64) []byte { return makeBatch(t, 1, term, 1, 10, 0) }
	for name, entries := range map[string][]Entry{
		"hole":                  {{Index: 4, Term: 2, Kind: KindNoOp}},
		"below the first":       {{Index: 0, Term: 2, Kind: KindNoOp}},
		"hole inside":           {{Index: 3, Term: 2, Kind: KindNoOp}, {Index: 5, Term: 2, Kind: KindNoOp}},
		"term falls":            {{Index: 3, Term: 1, Kind: KindNoOp}},
		"term falls inside":     {{Index: 3, Term: 4, Kind: KindNoOp}, {Index: 4, Term: 3, Kind: KindNoOp}},
		"data without no-op":    {{Index: 3, Term: 3, Kind: KindData, Data: batchOf(3)}},
		"config without no-op":  {{Index: 3, Term: 3, Kind: KindConfigChange}},
		"void without no-op":    {{Index: 3, Term: 3, Kind: KindVoid}},
		"term zero":             {{Index: 3, Term: 0, Kind: KindNoOp}},
		"term no int32":         {{Index: 3, Term: 1 << 31, Kind: KindNoOp}},
		"header":                {{Index: 3, Term: 2, Kind: KindHeader}},
		"no kind":               {{Index: 3, Term: 2}},
		"too large":             {{Index: 3, Term: 2, Kind: KindConfigChange, Data: make([]byte, 5000)}},
		"conflict without noop": {{Index: 1, Term: 2, Kind: KindData, Data: batchOf(2)}},
	} {
		if _, err := l.Append(entries); !errors.Is(err, ErrGap) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if l.LastIndex() != 2 || l.EndOffset() != 1 || l.Failed() != nil {
		t.Fatalf("last %d, end %d, failed %v", l.LastIndex(), l.EndOffset(), l.Failed())
	}
	mustAppend(t, l, Entry{Index: 3, Term: 2, Kind: KindData, Data: batchOf(2)})
	if l.EndOffset() != 2 {
		t.Fatalf("end %d", l.EndOffset())
	}
}

// TestVoidness has batches that take effect and those that do not.
func TestVoidness(t *testing.T) {
	l := createLog(t, logOptions(vfs.NewMem()))
	defer l.Close(false)
	mustAppend(t, l, Entry{Index: 1, Term: 5, Kind: KindNoOp})
	whole := makeBatch(t, 0, 5, 3, 20, 0)
	change := func(pos int, value byte) []byte {
		b := append([]byte(nil), whole...)
		b[pos] = value
		return b
	}
	for name, data := range map[string][]byte{
		"offset too high": makeBatch(t, 1, 5, 1, 10, 0),
		"epoch too low":   makeBatch(t, 0, 4, 1, 10, 0),
		"epoch too high":  makeBatch(t, 0, 6, 1, 10, 0),
		"no epoch":        change(12, 0xff),
		"nothing":         nil,
		"short":           whole[:60],
		"cut":             whole[:len(whole)-1],
		"longer":          append(append([]byte(nil), whole...), 0),
		"magic 1":         change(16, 1),
		"internal magic":  change(16, internalMagic),
		"negative delta":  change(23, 0x80),
		"negative offset": change(0, 0x80),
	} {
		a := mustAppend(t, l, Entry{Index: l.LastIndex() + 1, Term: 5, Kind: KindData, Data: data})
		f, err := l.Frame(a.LastIndex)
		if a.Voids != 1 || a.EndOffset != 0 || err != nil || f.Kind != KindVoid || f.NextOffset != 0 {
			t.Errorf("%s: %+v, frame %+v, %v", name, a, f, err)
		}
	}
	a := mustAppend(t, l, Entry{Index: l.LastIndex() + 1, Term: 5, Kind: KindData, Data: whole})
	if a.Voids != 0 || a.EndOffset != 3 {
		t.Fatalf("%+v", a)
	}
	// The same batch again finds another end.
	a = mustAppend(t, l, Entry{Index: l.LastIndex() + 1, Term: 5, Kind: KindData, Data: whole})
	if a.Voids != 1 || a.EndOffset != 3 {
		t.Fatalf("%+v", a)
	}
}

// TestFullDisk fills the disk in the middle of an append.
func TestFullDisk(t *testing.T) {
	for _, keep := range []vfs.ByteCount{0, 1, 27, 28, 90, 200} {
		m := vfs.NewMem()
		trigger := vfs.TornWrite(3, keep, nil, syscall.ENOSPC) // after the header and the first append
		o := logOptions(vfs.Inject(m, trigger.Fault))
		l := createLog(t, o)
		f := newFeeder(t)
		mustAppend(t, l, f.noop(1), f.data(1, 10))
		end := l.EndOffset()
		_, err := l.Append([]Entry{f.noop(2), f.data(1, 10), f.data(1, 10)})
		if !errors.Is(err, syscall.ENOSPC) || !errors.Is(err, ErrFailed) {
			t.Fatalf("error %v", err)
		}
		if l.LastIndex() != 2 || l.EndOffset() != end {
			t.Fatalf("the end moved to %d, %d", l.LastIndex(), l.EndOffset())
		}
		for name, again := range map[string]func() error{
			"append":     func() error { _, err := l.Append([]Entry{{Index: 3, Term: 1, Kind: KindNoOp}}); return err },
			"truncate":   func() error { return l.Truncate(2) },
			"sync":       l.Sync,
			"roll":       l.Roll,
			"checkpoint": func() error { return l.SaveCheckpoint(Checkpoint{}, false) },
			"retain":     func() error { _, err := l.Retain(Retention{}); return err },
		} {
			if err := again(); !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("%s after a failure: %v", name, err)
			}
		}
		if got, err := readAll(l); err != nil || got.last() != 2 {
			t.Fatalf("reading after a failure: %v", err)
		}
		must(t, l.Close(true))
		o.FS = m
		l, _ = openLog(t, o, OpenHints{})
		if l.LastIndex() != 2 {
			t.Fatalf("keep %d: last %d after opening again", keep, l.LastIndex())
		}
		must(t, l.Close(true))
	}
}

// TestRollBySize checks where segments end.
func TestRollBySize(t *testing.T) {
	o := logOptions(vfs.NewMem())
	o.SegmentBytes = 1000
	l := createLog(t, o)
	defer l.Close(false)
	f := newFeeder(t)
	mustAppend(t, l, f.noop(1), f.data(1, 5000), f.data(1, 100), f.data(1, 100), f.data(1, 700), f.data(1, 100))
	infos := l.Segments()
	if len(infos) != 4 {
		t.Fatalf("%+v", infos)
	}
	for i, s := range infos {
		if s.Size > o.SegmentBytes && s.LastIndex > s.FirstIndex+1 {
			t.Errorf("segment %d: %+v", i, s)
		}
		if s.Active != (i == len(infos)-1) {
			t.Errorf("segment %d: active %v", i, s.Active)
		}
	}
}

// TestRollNeedsRecords checks that a segment of internal frames alone is not
// sealed: the next one would have its name.
func TestRollNeedsRecords(t *testing.T) {
	o := logOptions(vfs.NewMem())
	o.SegmentBytes = 512
	l := createLog(t, o)
	defer l.Close(false)
	f := newFeeder(t)
	for term := range 50 {
		mustAppend(t, l, f.noop(uint64(term+1)))
		must(t, l.Roll())
	}
	if n := len(l.Segments()); n != 1 {
		t.Fatalf("%d segments", n)
	}
	mustAppend(t, l, f.data(1, 10), f.data(1, 10))
	if n := len(l.Segments()); n != 2 {
		t.Fatalf("%d segments", n)
	}
}

func TestRollByAge(t *testing.T) {
	now := testTime
	o := logOptions(vfs.NewMem())
	o.SegmentAge = time.Minute
	o.Now = func() time.Time { return now }
	l := createLog(t, o)
	defer l.Close(false)
	rolled := func(want bool) {
		t.Helper()
		if got, err := l.RollIfOld(); err != nil || got != want {
			t.Fatalf("rolled %v, %v", got, err)
		}
	}
	now = now.Add(time.Hour)
	rolled(false) // empty
	f := newFeeder(t)
	mustAppend(t, l, f.noop(1), f.data(1, 10))
	now = now.Add(50 * time.Second)
	mustAppend(t, l, f.data(1, 10))
	rolled(false)
	now = now.Add(20 * time.Second)
	rolled(true)
	rolled(false)
	mustAppend(t, l, f.data(1, 10))
	now = now.Add(2 * time.Minute)
	if a := mustAppend(t, l, f.data(1, 10)); a.Rolled != 1 {
		t.Fatalf("%+v", a)
	}
	if n := len(l.Segments()); n != 3 {
		t.Fatalf("%d segments", n)
	}
}
