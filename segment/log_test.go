package segment

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"testing"

	"github.com/billetlog/billet/internal/vfs"
)

// stored is what must come back for an appended entry.
func stored(e Entry, void bool) Entry {
	if void || e.Kind == KindVoid {
		return Entry{Index: e.Index, Term: e.Term, Kind: KindVoid}
	}
	if e.Kind == KindNoOp {
		e.Data = nil
	}
	return e
}

func sameEntry(a, b Entry) bool {
	return a.Index == b.Index && a.Term == b.Term && a.Kind == b.Kind && bytes.Equal(a.Data, b.Data)
}

// fill appends n rounds of two batches, a void and now and then a config change,
// and returns what must come back.
func fill(tb tester, l *Log, f *feeder, n int) []Entry {
	tb.Helper()
	var want []Entry
	for i := range n {
		var entries []Entry
		add := func(e Entry, void bool) {
			entries = append(entries, e)
			want = append(want, stored(e, void))
		}
		if i%5 == 0 {
			add(f.noop(f.term+1), false)
		}
		add(f.data(1+i%3, 40), false)
		add(f.void(), true)
		add(f.data(1, 100), false)
		if i%7 == 3 {
			add(f.config("members"), false)
		}
		mustAppend(tb, l, entries...)
	}
	return want
}

// checkEntries compares all that l has with want, by several ways of reading.
func checkEntries(tb tester, l *Log, want []Entry) {
	tb.Helper()
	first, last := l.FirstIndex(), l.LastIndex()
	if int(last-first)+1 != len(want) {
		tb.Fatalf("stored are [%d, %d], want %d entries", first, last, len(want))
	}
	got, err := l.Entries(nil, first, last+1, 1<<30)
	must(tb, err)
	for i, e := range want {
		if !sameEntry(got[i], e) {
			tb.Fatalf("entry %d: got %+v, want %+v", e.Index, got[i], e)
		}
		one, err := l.Entries(nil, e.Index, e.Index+1, 1)
		must(tb, err)
		if len(one) != 1 || !sameEntry(one[0], e) {
			tb.Fatalf("entry %d alone: got %+v, want %+v", e.Index, one, e)
		}
		fr, err := l.Frame(e.Index)
		must(tb, err)
		disk, err := l.storedFrame(e.Index)
		must(tb, err)
		if fr != disk || fr.Term != e.Term || fr.Kind != e.Kind {
			tb.Fatalf("frame %d: got %+v and from disk %+v, want %+v", e.Index, fr, disk, e)
		}
		if term, err := l.Term(e.Index); err != nil || term != e.Term {
			tb.Fatalf("term of %d: got %d, %v, want %d", e.Index, term, err, e.Term)
		}
	}
	must(tb, l.Verify(context.Background(), nil))
	checkReads(tb, l, want)
}

// checkReads compares what consumers read with want.
func checkReads(tb tester, l *Log, want []Entry) {
	tb.Helper()
	var all []byte
	for _, e := range want {
		if e.Kind == KindData {
			all = append(all, e.Data...)
		}
	}
	for _, maxBytes := range []int{1, 300, 1 << 20} {
		c := l.NewCursor()
		c.VerifyCRC = true
		var got []byte
		end := l.EndOffset()
		for offset := l.StartOffset(); offset < end; {
			n := len(got)
			var err error
			got, err = c.Read(got, offset, end, maxBytes)
			must(tb, err)
			if len(got) == n {
				tb.Fatalf("nothing at offset %d, end is %d", offset, end)
			}
			r, err := l.Ranges(offset, end, maxBytes)
			must(tb, err)
			var ranged []byte
			for _, piece := range r.Ranges {
				b := make([]byte, piece.Len)
				must(tb, readFull(piece.File, b, piece.Pos))
				ranged = append(ranged, b...)
			}
			r.Release()
			if len(ranged) == 0 || !bytes.HasPrefix(all[n:], ranged) {
				tb.Fatalf("ranges at offset %d are wrong", offset)
			}
			offset = nextOffset(got)
		}
		c.Close()
		if !bytes.Equal(got, all) {
			tb.Fatalf("cursor with maxBytes %d: got %d bytes, want %d", maxBytes, len(got), len(all))
		}
	}
}

// nextOffset is the offset behind the last batch in b.
func nextOffset(b []byte) int64 {
	next := int64(-1)
	for len(b) > 0 {
		f, err := decodeHead(b, maxFrameSize)
		if err != nil {
			return -1
		}
		next, b = f.next, b[f.size:]
	}
	return next
}

func TestAppendReadReopen(t *testing.T) {
	for _, kind := range []string{"os", "mem"} {
		t.Run(kind, func(t *testing.T) {
			o := logOptions(vfs.NewMem())
			if kind == "os" {
				o.FS, o.Dir = vfs.OS, t.TempDir()
			}
			l := createLog(t, o)
			f := newFeeder(t)
			want := fill(t, l, f, 40)
			checkEntries(t, l, want)
			if n := len(l.Segments()); n < 3 {
				t.Fatalf("%d segments", n)
			}
			must(t, l.Sync())
			if l.DurableIndex() != l.LastIndex() {
				t.Fatalf("durable %d, last %d", l.DurableIndex(), l.LastIndex())
			}
			must(t, l.Close(true))
			l, r := openLog(t, o, OpenHints{DurableIndex: f.index - 1})
			if r.Frames != len(want) || r.CutBytes != 0 || r.IndexesRebuilt != 0 {
				t.Fatalf("recovery %+v", r)
			}
			checkEntries(t, l, want)
			want = append(want, fill(t, l, f, 10)...)
			checkEntries(t, l, want)
			must(t, l.Close(true))
			if err := l.Close(true); !errors.Is(err, ErrClosed) {
				t.Fatal(err)
			}
			if _, err := Create(o, Start{FirstIndex: 1}); !errors.Is(err, fs.ErrExist) {
				t.Fatal(err)
			}
		})
	}
}
