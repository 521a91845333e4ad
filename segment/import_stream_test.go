package segment

import (
	"bytes"
	"errors"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/billetlog/billet/internal/vfs"
)

// smallStream is a log of one segment with every kind of frame, and its frames.
func smallStream(tb tester) (ExtentInfo, []byte) {
	tb.Helper()
	o := logOptions(vfs.NewMem())
	l := createLog(tb, o)
	defer func() { _ = l.Close(false) }()
	f := newFeeder(tb)
	mustAppend(tb, l, f.noop(1), f.data(2, 10), f.void(), f.config("members"), f.noop(3), f.data(1, 0), f.data(1, 5))
	e := extentOf(tb, l)
	defer e.Close()
	return e.Info(), streamOf(tb, e, 0)
}

// streamOf reads the frames of one segment.
func streamOf(tb tester, e *Extent, segment int) []byte {
	tb.Helper()
	r, err := e.Open(segment, 0, e.Info().Segments[segment].Bytes)
	must(tb, err)
	defer r.Close()
	b, err := io.ReadAll(r)
	must(tb, err)
	return b
}

func newImporter(tb tester, info ExtentInfo) (*Importer, Options) {
	tb.Helper()
	m := vfs.NewMem()
	must(tb, m.MkdirAll("/replica"))
	o := importOptions(m)
	im, err := OpenImporter(o, info, nil, 0)
	must(tb, err)
	return im, o
}

// TestImportFlips changes each byte of a stream. What is before is kept, nothing else, and the right bytes then complete the log.
func TestImportFlips(t *testing.T) {
	info, stream := smallStream(t)
	var want []byte
	for pos := range stream {
		for _, flip := range []byte{0x01, 0x10, 0x80, 0xff} {
			im, o := newImporter(t, info)
			bad := bytes.Clone(stream)
			bad[pos] ^= flip
			kept, err := im.ReadFrom(bytes.NewReader(bad))
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("byte %d ^ %#x: kept %d, %v", pos, flip, kept, err)
			}
			_, offset, length, ok := im.Next()
			if !ok || offset != kept || offset > int64(pos) || offset+length != int64(len(stream)) {
				t.Fatalf("byte %d: next is %d, %d, %v, kept were %d", pos, offset, length, ok, kept)
			}
			if have, total := im.Progress(); have != kept || total != int64(len(stream)) {
				t.Fatalf("progress %d of %d", have, total)
			}
			if n, err := im.ReadFrom(bytes.NewReader(stream[offset:])); err != nil || n != length {
				t.Fatalf("byte %d: %d, %v", pos, n, err)
			}
			must(t, im.Finish(checkpointOf(info)))
			got, err := vfs.ReadFile(o.FS, pathOf(o.Dir, 0, logSuffix))
			must(t, err)
			if want == nil {
				want = got
			}
			if !bytes.Equal(got, want) || !bytes.Equal(got[segmentHeaderSize:], stream) {
				t.Fatalf("byte %d: another file", pos)
			}
		}
	}
}

// TestImportCuts ends the stream at each byte, gives it byte by byte, and lets it fail.
func TestImportCuts(t *testing.T) {
	info, stream := smallStream(t)
	broken := errors.New("connection reset")
	for cut := range stream {
		im, o := newImporter(t, info)
		kept, err := im.ReadFrom(iotest.OneByteReader(bytes.NewReader(stream[:cut])))
		if err != io.ErrUnexpectedEOF || kept > int64(cut) {
			t.Fatalf("cut at %d: %d, %v", cut, kept, err)
		}
		must(t, im.Close())
		if _, err := im.ReadFrom(bytes.NewReader(stream)); !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
		im, err = OpenImporter(o, info, nil, 0)
		must(t, err)
		if have, _ := im.Progress(); have != kept {
			t.Fatalf("cut at %d: kept %d, there are %d", cut, kept, have)
		}
		more, err := im.ReadFrom(io.MultiReader(bytes.NewReader(stream[kept:cut]), iotest.ErrReader(broken)))
		if err != broken || more != 0 {
			t.Fatalf("cut at %d: %d, %v", cut, more, err)
		}
		if err := im.Finish(checkpointOf(info)); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("finish: %v", err)
		}
		// It takes no byte beyond the range.
		rest := bytes.NewReader(append(bytes.Clone(stream[kept:]), "more"...))
		if _, err := im.ReadFrom(rest); err != nil || rest.Len() != 4 {
			t.Fatalf("cut at %d: %v, %d left", cut, err, rest.Len())
		}
		must(t, im.Finish(checkpointOf(info)))
		l, _ := openLog(t, o, OpenHints{DurableIndex: info.LastIndex})
		must(t, l.Close(false))
	}
}

// TestImportInfos refuses what no log can have, and what is announced but does not come.
func TestImportInfos(t *testing.T) {
	good, stream := smallStream(t)
	o := importOptions(vfs.NewMem())
	must(t, o.FS.MkdirAll("/replica"))
	for name, change := range map[string]func(*ExtentInfo){
		"no segment":          func(i *ExtentInfo) { i.Segments = nil },
		"start":               func(i *ExtentInfo) { i.StartOffset++ },
		"negative base":       func(i *ExtentInfo) { i.StartOffset, i.Segments[0].BaseOffset = -5, -5 },
		"index 0":             func(i *ExtentInfo) { i.Segments[0].FirstIndex = 0 },
		"index beyond":        func(i *ExtentInfo) { i.Segments[0].FirstIndex = i.LastIndex + 2 },
		"last index":          func(i *ExtentInfo) { i.LastIndex = math.MaxUint64 },
		"too many entries":    func(i *ExtentInfo) { i.LastIndex = 1 << 40 },
		"no entries":          func(i *ExtentInfo) { i.LastIndex = 0 },
		"end":                 func(i *ExtentInfo) { i.EndOffset = -1 },
		"last term":           func(i *ExtentInfo) { i.LastTerm = math.MaxInt32 + 1 },
		"term before":         func(i *ExtentInfo) { i.Segments[0].PrevTerm = 4 },
		"negative bytes":      func(i *ExtentInfo) { i.Segments[0].Bytes = -1 },
		"too many bytes":      func(i *ExtentInfo) { i.Segments[0].Bytes = maxSegmentFrames + 1 },
		"most bytes":          func(i *ExtentInfo) { i.Segments[0].Bytes = math.MaxInt64 },
		"no bytes":            func(i *ExtentInfo) { i.Segments[0].Bytes = 0 },
		"the same name twice": func(i *ExtentInfo) { i.Segments = append(i.Segments, i.Segments[0]) },
		"entries of nothing": func(i *ExtentInfo) {
			*i = ExtentInfo{EndOffset: 1, Segments: []ExtentSegment{{FirstIndex: 1}}}
		},
	} {
		info := good
		info.Segments = append([]ExtentSegment{}, good.Segments...)
		change(&info)
		if _, err := OpenImporter(o, info, nil, 0); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if names, err := o.FS.List("/replica"); err != nil || len(names) > 0 {
		t.Errorf("%v, %v", names, err)
	}
	for name, change := range map[string]func(*ExtentInfo){
		"longer":         func(i *ExtentInfo) { i.Segments[0].Bytes++ },
		"shorter":        func(i *ExtentInfo) { i.Segments[0].Bytes-- },
		"another end":    func(i *ExtentInfo) { i.EndOffset++ },
		"an earlier end": func(i *ExtentInfo) { i.EndOffset-- },
		"another term":   func(i *ExtentInfo) { i.LastTerm++ },
		"earlier term":   func(i *ExtentInfo) { i.LastTerm-- },
		"more entries":   func(i *ExtentInfo) { i.LastIndex++ },
		"fewer entries":  func(i *ExtentInfo) { i.LastIndex-- },
		"term before":    func(i *ExtentInfo) { i.Segments[0].PrevTerm = 2 },
		"base":           func(i *ExtentInfo) { i.StartOffset, i.Segments[0].BaseOffset = 1, 1 },
	} {
		info := good
		info.Segments = append([]ExtentSegment{}, good.Segments...)
		change(&info)
		im, o := newImporter(t, info)
		if _, err := im.ReadFrom(io.MultiReader(bytes.NewReader(stream), strings.NewReader("x"))); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if err := im.Finish(checkpointOf(info)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: finish says %v", name, err)
		}
		must(t, im.Close())
		// After that the right offer is taken, with what is right of what is there.
		im, err := OpenImporter(o, good, nil, 0)
		must(t, err)
		if _, offset, _, ok := im.Next(); ok {
			if _, err := im.ReadFrom(bytes.NewReader(stream[offset:])); err != nil {
				t.Errorf("%s: then %v", name, err)
			}
		}
		if err := im.Finish(Checkpoint{Index: good.LastIndex, Term: good.LastTerm, Offset: good.EndOffset + 1}); err == nil {
			t.Errorf("%s: a checkpoint of another offset is taken", name)
		}
		must(t, im.Finish(checkpointOf(good)))
		if err := im.Close(); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestImportNothingFollows goes on from frames of a source that lied: what the right source sends does not follow them. They go.
func TestImportNothingFollows(t *testing.T) {
	info, stream := smallStream(t)
	im, o := newImporter(t, info)
	m := vfs.NewMem()
	other := logOptions(m)
	l := createLog(t, other)
	f := newFeeder(t)
	mustAppend(t, l, f.noop(1), f.data(1, 17))
	e := extentOf(t, l)
	if _, err := im.ReadFrom(bytes.NewReader(streamOf(t, e, 0))); err != io.ErrUnexpectedEOF {
		t.Fatal(err)
	}
	must(t, errors.Join(e.Close(), l.Close(false)))
	for range 2 {
		_, offset, _, ok := im.Next()
		if !ok || offset == 0 {
			t.Fatalf("next is %d, %v", offset, ok)
		}
		if _, err := im.ReadFrom(bytes.NewReader(stream[offset:])); !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	}
	if _, offset, _, ok := im.Next(); !ok || offset != 0 {
		t.Fatalf("next is %d, %v", offset, ok)
	}
	_, err := im.ReadFrom(bytes.NewReader(stream))
	must(t, err)
	must(t, im.Finish(checkpointOf(info)))
	opened, _ := openLog(t, o, OpenHints{DurableIndex: info.LastIndex})
	must(t, opened.Close(false))
}

// TestImportMemory announces a frame as large as can be and sends little of it.
func TestImportMemory(t *testing.T) {
	info, stream := smallStream(t)
	info.Segments[0].Bytes = 1 << 30
	b := bytes.Clone(stream[:minFrameSize+20]) // the no-op, and the length of a batch
	b[minFrameSize+8], b[minFrameSize+9] = 0x03, 0xff
	b = append(b, stream[minFrameSize+20:minFrameSize+100]...)
	im, _ := newImporter(t, info)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if n, err := im.ReadFrom(bytes.NewReader(b)); err != io.ErrUnexpectedEOF || n != minFrameSize {
		t.Fatalf("%d, %v", n, err)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4*importBuffer {
		t.Errorf("%d bytes for a stream of %d", grown, len(b))
	}
	must(t, im.Close())
}

// TestImportLargeFrame imports frames larger than the buffer, between small ones.
func TestImportLargeFrame(t *testing.T) {
	o := logOptions(vfs.NewMem())
	o.SegmentBytes = 64 << 20
	l := createLog(t, o)
	defer func() { must(t, l.Close(false)) }()
	f := newFeeder(t)
	mustAppend(t, l, f.noop(1), f.data(1, 10), f.data(1, 5*importBuffer), f.data(1, 10), f.data(2, importBuffer), f.data(1, importBuffer-100), f.data(1, 3))
	e := extentOf(t, l)
	im, to := newImporter(t, e.Info())
	must(t, pull(im, e, 0))
	if n := len(im.mu.buf); n > importBuffer {
		t.Errorf("a buffer of %d bytes stays", n)
	}
	must(t, im.Finish(checkpointOf(e.Info())))
	got, _ := openLog(t, to, OpenHints{DurableIndex: e.Info().LastIndex})
	defer func() { must(t, got.Close(false)) }()
	sameLogs(t, got, e.Info(), l)
	must(t, e.Close())
}
