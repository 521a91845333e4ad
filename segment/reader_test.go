package segment

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/vfs"
)

func TestReadBounds(t *testing.T) {
	l := createLog(t, logOptions(vfs.NewMem()))
	defer l.Close(false)
	f := newFeeder(t)
	first, second, void, third := f.noop(1), f.data(4, 100), f.void(), f.data(2, 100)
	mustAppend(t, l, first, second, void, third)
	both := append(bytes.Clone(second.Data), third.Data...)
	for _, c := range []struct {
		name          string
		offset, limit int64
		max           int
		want          []byte
		err           error
	}{
		{"all", 0, 6, 1 << 20, both, nil},
		{"no bytes allowed still gives one", 0, 6, 0, second.Data, nil},
		{"one byte too few for two", 0, 6, len(both) - 1, second.Data, nil},
		{"within a batch", 3, 6, 1, second.Data, nil},
		{"limit within the second", 0, 5, 1 << 20, second.Data, nil},
		{"limit within the first", 0, 3, 1 << 20, nil, nil},
		{"from the second", 4, 6, 1, third.Data, nil},
		{"at the limit", 6, 6, 100, nil, nil},
		{"at a limit in the middle", 4, 4, 100, nil, nil},
		{"above the limit", 5, 4, 100, nil, ErrUnavailable},
		{"above the end", 7, 7, 100, nil, ErrUnavailable},
		{"limit above the end", 0, 7, 100, nil, ErrUnavailable},
		{"below the start", -1, 6, 100, nil, ErrCompacted},
	} {
		c2 := l.NewCursor()
		got, err := c2.Read([]byte("x"), c.offset, c.limit, c.max)
		if !errors.Is(err, c.err) || string(got) != "x"+string(c.want) {
			t.Errorf("%s: %d bytes, %v; want %d, %v", c.name, len(got), err, len(c.want), c.err)
		}
		c2.Close()
		r, err := l.Ranges(c.offset, c.limit, c.max)
		if !errors.Is(err, c.err) || c.err == nil && r.Bytes > len(c.want) || len(c.want) > 0 && r.Bytes == 0 {
			t.Errorf("%s: ranges of %d bytes, %v; want %d, %v", c.name, r.Bytes, err, len(c.want), c.err)
		}
		r.Release()
	}
	// The void frame between the batches is in neither range.
	r, err := l.Ranges(0, 6, 1<<20)
	if err != nil || len(r.Ranges) != 2 || r.Bytes != len(both) || r.NextOffset != 6 {
		t.Fatalf("%+v, %v", r, err)
	}
	r.Release()
}

// TestCursorForgetsAfterTruncation stands a cursor behind internal frames that are
// then cut and replaced by something of another size.
func TestCursorForgetsAfterTruncation(t *testing.T) {
	l := createLog(t, logOptions(vfs.NewMem()))
	defer l.Close(false)
	f := newFeeder(t)
	mustAppend(t, l, f.noop(1), f.data(1, 10), f.config("a long list of members"), f.data(1, 10))
	c := l.NewCursor()
	defer c.Close()
	_, err := c.Read(nil, 0, 1, 1<<20)
	must(t, err)
	if c.at.pos != segmentHeaderSize+internalHeaderSize+int64(len(makeBatch(t, 0, 1, 1, 10, 0)))+internalHeaderSize+22 {
		t.Fatalf("cursor at %+v: not behind the internal frame", c.at)
	}
	f = &feeder{tb: t, index: 3, offset: 1}
	mustAppend(t, l, f.noop(2), f.data(1, 50), f.data(1, 10))
	got, err := c.Read(nil, 1, 2, 1<<20)
	if err != nil || nextOffset(got) != 2 {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
}

// TestReadersOutliveRetention deletes segments under a cursor and under ranges.
func TestReadersOutliveRetention(t *testing.T) {
	o := logOptions(vfs.NewMem())
	l := createLog(t, o)
	f := newFeeder(t)
	mustAppend(t, l, f.noop(1))
	for range 20 {
		mustAppend(t, l, f.data(1, 500))
	}
	end := l.EndOffset()
	c := l.NewCursor()
	c.VerifyCRC = true
	b, err := c.Read(nil, 0, end, 1)
	must(t, err)
	r, err := l.Ranges(0, end, 1<<20)
	must(t, err)
	firstEnd := l.Segments()[0].EndOffset
	d, err := l.DeleteBelow(end, l.LastIndex())
	must(t, err)
	if d.Segments < 3 || l.StartOffset() != d.StartOffset || d.StartOffset <= firstEnd || d.Bytes == 0 {
		t.Fatalf("deleted %+v, first segment ended at %d", d, firstEnd)
	}
	offset := nextOffset(b)
	for offset < firstEnd { // reads on in the deleted segment
		b, err = c.Read(nil, offset, end, 1)
		must(t, err)
		offset = nextOffset(b)
	}
	var compacted *CompactedError
	if _, err = c.Read(nil, offset, end, 1); !errors.As(err, &compacted) || compacted.StartOffset != d.StartOffset || compacted.FirstIndex != d.FirstIndex {
		t.Fatalf("error %v", err)
	}
	if _, err := c.Read(nil, 0, end, 1); !errors.Is(err, ErrCompacted) {
		t.Fatalf("error %v", err)
	}
	if b, err = c.Read(nil, d.StartOffset, end, 1<<20); err != nil || len(b) == 0 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	data := make([]byte, r.Ranges[0].Len)
	must(t, readFull(r.Ranges[0].File, data, r.Ranges[0].Pos))
	if nextOffset(data) < 1 {
		t.Fatal("a range of a deleted segment is not what it was")
	}
	r.Release()
	for _, index := range []uint64{1, d.FirstIndex - 1} {
		if _, err := l.Entries(nil, index, index+1, 100); !errors.Is(err, ErrCompacted) {
			t.Fatalf("entry %d: %v", index, err)
		}
	}
	must(t, l.Close(true))
	if _, err := c.Read(nil, d.StartOffset, end, 1); !errors.Is(err, ErrClosed) {
		t.Fatalf("error %v", err)
	}
	c.Close()
	l, _ = openLog(t, o, OpenHints{})
	defer l.Close(false)
	if l.StartOffset() != d.StartOffset || l.FirstIndex() != d.FirstIndex || l.EndOffset() != end {
		t.Fatalf("after opening again: %d, %d, %d", l.StartOffset(), l.FirstIndex(), l.EndOffset())
	}
}

func TestRetention(t *testing.T) {
	now := testTime
	o := logOptions(vfs.NewMem())
	o.Now = func() time.Time { return now }
	l := createLog(t, o)
	defer l.Close(false)
	f := newFeeder(t)
	mustAppend(t, l, f.noop(1))
	for i := range 5 { // five sealed segments, an hour between them
		ts := now.Add(time.Duration(i) * time.Hour).UnixMilli()
		mustAppend(t, l, Entry{Index: f.index, Term: 1, Kind: KindData, Data: makeBatch(t, f.offset, 1, 1, 200, ts)})
		f.index++
		f.offset++
		must(t, l.Roll())
	}
	now = now.Add(5 * time.Hour)
	size := l.Segments()[1].Size
	for _, c := range []struct {
		name string
		r    Retention
		want int
	}{
		{"none", Retention{Bytes: -1, Age: -1}, 0},
		{"age", Retention{Bytes: -1, Age: 3*time.Hour + time.Minute}, 2},
		{"age of all", Retention{Bytes: -1, Age: time.Minute}, 5},
		{"bytes", Retention{Bytes: 3*size + segmentHeaderSize, Age: -1}, 2},
		{"no bytes", Retention{Bytes: 0, Age: -1}, 5},
		{"either", Retention{Bytes: 4*size + segmentHeaderSize, Age: 3*time.Hour + time.Minute}, 2},
	} {
		c.r.Now = now
		if _, n := l.Expired(c.r); n != c.want {
			t.Errorf("%s: %d segments, want %d", c.name, n, c.want)
		}
	}
	r := Retention{Bytes: 0, Age: -1, Now: now}
	last, n := l.Expired(r)
	if n != 5 || last != 6 {
		t.Fatalf("%d segments up to index %d", n, last)
	}
	r.BelowIndex = 4
	d, err := l.Retain(r)
	if err != nil || d.Segments != 2 || d.FirstIndex != 4 || l.FirstIndex() != 4 || l.StartOffset() != 2 {
		t.Fatalf("%+v, %v", d, err)
	}
	if term, err := l.Term(3); err != nil || term != 1 {
		t.Fatalf("term before the first: %d, %v", term, err)
	}
	r.BelowIndex = 100
	if d, err = l.Retain(r); err != nil || d.Segments != 3 || len(l.Segments()) != 1 {
		t.Fatalf("%+v, %v", d, err)
	}
	if l.StartOffset() != l.EndOffset() || l.FirstIndex() != l.LastIndex()+1 || l.LastTerm() != 1 {
		t.Fatalf("start %d, end %d", l.StartOffset(), l.EndOffset())
	}
}

// TestEpochEnd compares with a walk over all entries.
func TestEpochEnd(t *testing.T) {
	o := logOptions(vfs.NewMem())
	o.SegmentBytes = 700
	l := createLog(t, o)
	defer l.Close(false)
	if _, _, ok, err := l.EpochEnd(3); ok || err != nil {
		t.Fatal(ok, err)
	}
	f := newFeeder(t)
	var all []Entry
	for _, term := range []uint64{2, 3, 7, 8, 20} {
		entries := []Entry{f.noop(term), f.data(2, 100), f.void(), f.data(1, 200)}
		if term == 7 {
			entries = entries[:1] // an epoch without records
			f.index, f.offset = f.index-3, f.offset-3
		}
		mustAppend(t, l, entries...)
		all = append(all, entries...)
	}
	for epoch := range int32(25) {
		wantEpoch, wantEnd, wantOK := int32(0), l.EndOffset(), false
		offset := int64(0)
		for _, e := range all {
			if e.Term > uint64(epoch) {
				wantEnd = offset
				break
			}
			wantEpoch, wantOK = int32(e.Term), true
			if fr, err := l.Frame(e.Index); err != nil {
				t.Fatal(err)
			} else {
				offset = fr.NextOffset
			}
		}
		gotEpoch, gotEnd, ok, err := l.EpochEnd(epoch)
		if err != nil || ok != wantOK || ok && (gotEpoch != wantEpoch || gotEnd != wantEnd) {
			t.Errorf("epoch %d: %d ends at %d %v %v, want %d at %d %v", epoch, gotEpoch, gotEnd, ok, err, wantEpoch, wantEnd, wantOK)
		}
	}
}
