package segment

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/billetlog/billet/internal/vfs"
)

// announce is the info of whoever sends the frames that b begins with, in two segments if there is a place to part them behind frame part.
func announce(first ExtentSegment, b []byte, part int) ExtentInfo {
	info := ExtentInfo{StartOffset: first.BaseOffset, Segments: []ExtentSegment{first}}
	at := info.start(0)
	last := &info.Segments[0]
	last.Bytes = 0
	for n := 0; ; n++ {
		f, err := decodeHead(b[:min(len(b), headSize)], maxFrameSize)
		if err != nil || at.follows(&f) != nil || f.size > len(b) {
			break
		}
		if n == part && at.offset > first.BaseOffset && len(info.Segments) == 1 {
			info.Segments = append(info.Segments, ExtentSegment{BaseOffset: at.offset, FirstIndex: at.index, PrevTerm: at.term})
			last = &info.Segments[1]
		}
		at, b = at.after(&f), b[f.size:]
		last.Bytes += int64(f.size)
	}
	info.LastIndex, info.LastTerm, info.EndOffset = at.index-1, at.term, at.offset
	return info
}

// FuzzImport gives any bytes as what an extent sends, with or without checksums made right, and an extent that says what they are or anything
// else. What is kept can be opened.
func FuzzImport(f *testing.F) {
	info, stream := smallStream(f)
	f.Add(stream, false, 0, uint64(0), uint64(0), int64(0), int64(0))
	f.Add(stream, true, 3, uint64(0), uint64(0), int64(0), int64(0))
	f.Add(stream[:len(stream)-1], false, 2, uint64(1), uint64(0), int64(2), int64(30))
	f.Add(stream, false, 1, uint64(1), uint64(0), int64(0), int64(-28))
	f.Fuzz(func(t *testing.T, stream []byte, repair bool, part int, index, term uint64, offset, size int64) {
		if stream = bytes.Clone(stream); repair {
			repairSums(stream)
		}
		offer := announce(info.Segments[0], stream, part)
		offer.LastIndex += index
		offer.LastTerm += term
		offer.EndOffset += offset
		offer.Segments[len(offer.Segments)-1].Bytes += size
		m := vfs.NewMem()
		must(t, m.MkdirAll("/replica"))
		importAnything(t, importOptions(m), offer, bytes.NewReader(stream))
	})
}

// importAnything imports what may be anything.
func importAnything(t *testing.T, o Options, info ExtentInfo, r io.Reader) {
	im, err := OpenImporter(o, info, nil, 0)
	if err != nil {
		if !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
		return
	}
	defer func() { _ = im.Close() }()
	for {
		if _, _, _, ok := im.Next(); !ok {
			break
		}
		if _, err := im.ReadFrom(r); err != nil {
			if !errors.Is(err, ErrCorrupt) && err != io.ErrUnexpectedEOF {
				t.Fatal(err)
			}
			if err := im.Finish(checkpointOf(info)); err == nil {
				t.Fatal("finished with bytes missing")
			}
			return
		}
	}
	must(t, im.Finish(checkpointOf(info)))
	l, found, err := Open(o, OpenHints{DurableIndex: info.LastIndex})
	must(t, err)
	defer func() { _ = l.Close(false) }()
	if l.LastIndex() != info.LastIndex || l.LastTerm() != info.LastTerm || l.EndOffset() != info.EndOffset || l.StartOffset() != info.StartOffset {
		t.Fatalf("opened %+v, announced %+v", found, info)
	}
	must(t, l.Verify(t.Context(), nil))
}
