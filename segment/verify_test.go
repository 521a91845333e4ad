package segment

import (
	"context"
	"errors"
	"testing"

	"github.com/billetlog/billet/internal/vfs"
)

// TestVerifyEveryByte changes each byte of a log's files while it is open: Verify says so, with the place, and nothing else stops.
func TestVerifyEveryByte(t *testing.T) {
	content, w := closedLog(t, true)
	m := content.write(t, "/log")
	o := logOptions(m)
	l, _ := openLog(t, o, OpenHints{})
	f := &feeder{tb: t, index: w.last() + 1, term: w.lastTerm(), offset: w.end()}
	defer func() { must(t, l.Close(false)) }()
	for _, s := range l.Segments() {
		path := pathOf(o.Dir, s.BaseOffset, logSuffix)
		file, err := m.Open(path)
		must(t, err)
		b, err := vfs.ReadFile(m, path)
		must(t, err)
		for pos := range s.Size {
			_, err := file.WriteAt([]byte{b[pos] ^ 0x10}, pos)
			must(t, err)
			var damage *CorruptionError
			if err := l.Verify(t.Context(), nil); !errors.As(err, &damage) || damage.File != path || damage.Pos > pos {
				t.Fatalf("%s, byte %d: %v", path, pos, err)
			}
			_, err = file.WriteAt(b[pos:pos+1], pos)
			must(t, err)
		}
		if s.Active {
			must(t, file.Close())
			continue
		}
		for _, size := range []int64{s.Size - 1, s.Size + 1, segmentHeaderSize, 0} {
			must(t, file.Truncate(size))
			var damage *CorruptionError
			if err := l.Verify(t.Context(), nil); !errors.As(err, &damage) || damage.File != path {
				t.Fatalf("%s, %d bytes: %v", path, size, err)
			}
			must(t, file.Truncate(s.Size))
			_, err := file.WriteAt(b, 0)
			must(t, err)
		}
		must(t, file.Close())
	}
	must(t, l.Verify(t.Context(), nil))
	mustAppend(t, l, f.data(1, 10))
	must(t, l.Failed())
}

// TestVerifyBudget counts what is read, ends with the budget's error and with the context, and holds no lock while the budget waits.
func TestVerifyBudget(t *testing.T) {
	o := logOptions(vfs.NewMem())
	o.SegmentBytes = 8 << 20
	l := createLog(t, o)
	f := newFeeder(t)
	mustAppend(t, l, f.noop(1))
	for range 40 {
		mustAppend(t, l, f.data(1, 100_000), f.data(2, 10))
	}
	mustAppend(t, l, f.data(1, 3*scanChunk), f.data(1, 7<<20), f.data(1, 10))
	want := int64(0)
	for _, s := range l.Segments() {
		want += s.Size - segmentHeaderSize
	}
	if len(l.Segments()) < 2 {
		t.Fatal("one segment")
	}
	read, calls := int64(0), 0
	must(t, l.Verify(t.Context(), func(n int) error {
		read += int64(n)
		calls++
		return nil
	}))
	if read != want || calls < 4 || calls > 20 {
		t.Errorf("%d bytes in %d calls, there are %d", read, calls, want)
	}
	enough := errors.New("enough")
	if err := l.Verify(t.Context(), func(int) error { return enough }); err != enough {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	calls = 0
	err := l.Verify(ctx, func(int) error {
		calls++
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
	// All that changes a log goes on beside it.
	calls = 0
	must(t, l.Verify(t.Context(), func(int) error {
		calls++
		switch calls {
		case 1:
			must(t, l.Truncate(l.LastIndex()))
			f.index, f.offset = l.LastIndex()+1, l.EndOffset()
			mustAppend(t, l, f.data(1, 50))
		case 2:
			must(t, l.Roll())
			_, err := l.Retain(everything(l))
			must(t, err)
			mustAppend(t, l, f.data(1, 50))
		}
		return nil
	}))
	must(t, l.Close(false))
	if err := l.Verify(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// TestVerifySegment finds damage in the segment that it is asked about, and in no other.
func TestVerifySegment(t *testing.T) {
	content, _ := closedLog(t, false)
	m := content.write(t, "/log")
	o := logOptions(m)
	l, _ := openLog(t, o, OpenHints{})
	defer func() { must(t, l.Close(false)) }()
	segments := l.Segments()
	bad := segments[1]
	file, err := m.Open(pathOf(o.Dir, bad.BaseOffset, logSuffix))
	must(t, err)
	b := make([]byte, 1)
	_, err = file.ReadAt(b, bad.Size/2)
	must(t, err)
	b[0] ^= 1
	_, err = file.WriteAt(b, bad.Size/2)
	must(t, errors.Join(err, file.Close()))
	for offset := int64(-1); offset < l.EndOffset()+2; offset++ {
		inside := offset >= bad.BaseOffset && offset < segments[2].BaseOffset
		if err := l.VerifySegment(t.Context(), offset, nil); errors.Is(err, ErrCorrupt) != inside || !inside && err != nil {
			t.Errorf("offset %d: %v", offset, err)
		}
	}
}
