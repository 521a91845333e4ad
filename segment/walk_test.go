package segment

import (
	"errors"
	"strings"
	"testing"

	"github.com/billetlog/billet/internal/vfs"
)

// TestFollows has frames that may and may not stand behind offset 10, term 3.
func TestFollows(t *testing.T) {
	p := place{offset: 10, term: 3}
	for _, c := range []struct {
		f    frame
		want string
	}{
		{frame{kind: KindData, base: 10, term: 3}, ""},
		{frame{kind: KindVoid, base: 10, term: 3}, ""},
		{frame{kind: KindConfigChange, base: 10, term: 3}, ""},
		{frame{kind: KindNoOp, base: 10, term: 3}, ""},
		{frame{kind: KindNoOp, base: 10, term: 9}, ""},
		{frame{kind: KindNoOp, base: 10, term: 2}, "term"},
		{frame{kind: KindNoOp, base: 11, term: 3}, "base offset"},
		{frame{kind: KindData, base: 9, term: 3}, "base offset"},
		{frame{kind: KindData, base: 11, term: 3}, "base offset"},
		{frame{kind: KindData, base: 10, term: 4}, "term"},
		{frame{kind: KindData, base: 10, term: 2}, "term"},
		{frame{kind: KindVoid, base: 10, term: 4}, "term"},
		{frame{kind: KindConfigChange, base: 10, term: 4}, "term"},
		{frame{kind: KindHeader, base: 10, term: 3}, "header"},
	} {
		err := p.follows(&c.f)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.f, err, c.want)
		}
	}
}

// TestDamageUnderReaders changes single bytes under an open log. A cursor notices
// those outside the record batches' CRC by itself.
func TestDamageUnderReaders(t *testing.T) {
	m := vfs.NewMem()
	o := wide(m)
	l := createLog(t, o)
	defer l.Close(false)
	f := newFeeder(t)
	mustAppend(t, l, f.noop(1), f.data(1, 100), f.config("members"), f.data(2, 100), f.data(1, 100))
	file, err := m.Open(o.Dir + "/" + fileName(0, logSuffix))
	must(t, err)
	defer file.Close()
	config, err := l.Frame(3)
	must(t, err)
	second, err := l.Frame(4)
	must(t, err)
	for _, c := range []struct {
		name string
		pos  int64
	}{
		{"payload of an internal frame", config.Pos + internalHeaderSize},
		{"checksum of an internal frame", config.Pos + 20},
		{"kind", config.Pos + 17},
		{"base offset", second.Pos + 7},
		{"length", second.Pos + 11},
		{"epoch", second.Pos + 15},
		{"magic", second.Pos + 16},
		{"last offset delta", second.Pos + 26},
	} {
		old := make([]byte, 1)
		must(t, readFull(file, old, c.pos))
		_, err := file.WriteAt([]byte{old[0] ^ 0x04}, c.pos)
		must(t, err)
		cursor := l.NewCursor()
		var b []byte
		for offset := int64(0); offset < l.EndOffset() && err == nil; offset = nextOffset(b) {
			b, err = cursor.Read(b, offset, l.EndOffset(), 1<<20)
		}
		var damage *CorruptionError
		if !errors.As(err, &damage) || damage.Pos < config.Pos {
			t.Errorf("%s: cursor says %v", c.name, err)
		}
		cursor.Close()
		_, thirdErr := l.storedFrame(3)
		_, fourthErr := l.storedFrame(4)
		if !errors.Is(errors.Join(thirdErr, fourthErr), ErrCorrupt) {
			t.Errorf("%s: frames say %v, %v", c.name, thirdErr, fourthErr)
		}
		if err := l.Verify(t.Context(), nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: Verify says %v", c.name, err)
		}
		_, err = file.WriteAt(old, c.pos)
		must(t, err)
	}
	must(t, l.Verify(t.Context(), nil))
}

// TestSyncDuringTruncation cuts the log while a sync runs: what was written when it
// began is not there any more, and must not count as durable.
func TestSyncDuringTruncation(t *testing.T) {
	m := vfs.NewMem()
	var l *Log
	cutting := false
	o := wide(vfs.Inject(m, func(op vfs.Op, _ string, _ int64, _ int) error {
		if op == vfs.OpSync && cutting {
			cutting = false
			l.lowerEnd(cut{segments: l.segments(), end: place{pos: segmentHeaderSize + internalHeaderSize, index: 2, term: 1}})
			mustAppend(t, l, Entry{Index: 2, Term: 1, Kind: KindVoid}, Entry{Index: 3, Term: 1, Kind: KindVoid})
		}
		return nil
	}))
	l = createLog(t, o)
	defer l.Close(false)
	mustAppend(t, l, Entry{Index: 1, Term: 1, Kind: KindNoOp})
	must(t, l.Sync())
	f := &feeder{tb: t, index: 2, term: 1}
	mustAppend(t, l, f.data(1, 10), f.data(1, 10))
	cutting = true
	must(t, l.Sync())
	if cutting || l.DurableIndex() != 1 {
		t.Fatalf("durable %d", l.DurableIndex())
	}
}
