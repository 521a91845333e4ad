package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/billetlog/billet/internal/vfs"
)

// importOptions are those of the log that an import makes: of another generation, and of another replica unless told otherwise.
func importOptions(fs vfs.FS) Options {
	o := logOptions(fs)
	o.Dir, o.Generation = "/replica/000002", 2
	return o
}

// extentOf pins all of a log.
func extentOf(tb tester, l *Log) *Extent {
	tb.Helper()
	e, err := l.Extent(l.LastIndex())
	must(tb, err)
	return e
}

// checkpointOf is the one an import of the extent ends with.
func checkpointOf(info ExtentInfo) Checkpoint {
	return Checkpoint{Index: info.LastIndex, Term: info.LastTerm, Offset: info.EndOffset, Payload: []byte("fold")}
}

// pull reads what the importer misses from the extent, at most limit bytes of each range; 0 is no limit.
func pull(im *Importer, e *Extent, limit int64) error {
	for {
		n, offset, length, ok := im.Next()
		if !ok {
			return nil
		}
		r, err := e.Open(n, offset, length)
		if err != nil {
			return err
		}
		var from io.Reader = r
		if limit > 0 {
			from = io.LimitReader(r, limit)
		}
		kept, err := im.ReadFrom(from)
		err = errors.Join(err, r.Close())
		if limit > 0 && kept > 0 && errors.Is(err, io.ErrUnexpectedEOF) {
			err = nil
		}
		if err != nil {
			return err
		}
	}
}

// importAll imports an extent and opens the result.
func importAll(o Options, e *Extent, reuse *Log, through uint64) (*Log, error) {
	im, err := OpenImporter(o, e.Info(), reuse, through)
	if err != nil {
		return nil, err
	}
	defer func() { _ = im.Close() }()
	if err := pull(im, e, 0); err != nil {
		return nil, err
	}
	if err := im.Finish(checkpointOf(e.Info())); err != nil {
		return nil, err
	}
	l, r, err := Open(o, OpenHints{DurableIndex: e.Info().LastIndex})
	if err == nil && (r.Frames > 0 || r.IndexesRebuilt > 0 || r.CutBytes > 0 || r.CheckpointIndex != e.Info().LastIndex) {
		err = fmt.Errorf("opening had to do %+v", r)
		_ = l.Close(false)
	}
	return l, err
}

// sameEntries compares an imported log with what it was imported from.
func sameEntries(tb tester, got *Log, info ExtentInfo, want *Log) {
	tb.Helper()
	if got.LastIndex() != info.LastIndex || got.LastTerm() != info.LastTerm || got.StartOffset() != info.StartOffset || got.EndOffset() != info.EndOffset {
		tb.Fatalf("imported [%d, %d] to index %d, term %d; wanted %+v", got.StartOffset(), got.EndOffset(), got.LastIndex(), got.LastTerm(), info)
	}
	a := readTwin(tb, got)
	w := &twin{first: info.Segments[0].FirstIndex, start: info.StartOffset, term: info.Segments[0].PrevTerm}
	var err error
	w.entries, err = want.Entries(nil, w.first, info.LastIndex+1, 1<<40)
	must(tb, err)
	if !a.isPrefixOf(w) || len(a.entries) != len(w.entries) || a.start != w.start || a.term != w.term {
		tb.Fatalf("imported entries [%d, %d], wanted [%d, %d]", a.first, a.last(), w.first, w.last())
	}
}

// sameLogs compares them in every way.
func sameLogs(tb tester, got *Log, info ExtentInfo, want *Log) {
	tb.Helper()
	sameEntries(tb, got, info, want)
	entries, err := want.Entries(nil, info.Segments[0].FirstIndex, info.LastIndex+1, 1<<40)
	must(tb, err)
	checkReads(tb, got, entries)
	for offset := info.StartOffset; offset < info.EndOffset; {
		x, err := want.NewCursor().Read(nil, offset, info.EndOffset, 300)
		must(tb, err)
		y, err := got.NewCursor().Read(nil, offset, info.EndOffset, 300)
		must(tb, err)
		n := min(len(x), len(y)) // segments may end elsewhere
		if n == 0 || !bytes.Equal(x[:n], y[:n]) {
			tb.Fatalf("records at offset %d differ", offset)
		}
		offset = nextOffset(x[:n])
	}
}

// mixedLog makes a log of several segments with frames of all kinds and several terms.
func mixedLog(tb tester, o Options) (*Log, *feeder) {
	tb.Helper()
	must(tb, o.FS.MkdirAll("/"))
	l := createLog(tb, o)
	f := newFeeder(tb)
	mustAppend(tb, l, f.noop(1), f.data(2, 60), f.void(), f.data(1, 90), f.config("members"))
	for range 6 {
		mustAppend(tb, l, f.data(1, 300), f.data(3, 100), f.noop(f.term+2), f.data(2, 300), f.void(), f.config("more"))
	}
	return l, f
}

// importScene is a replica that lags behind, and the source it imports from. The replica's log has the first segments of the source in common,
// and its active segment is in the middle of one.
type importScene struct {
	source *Log
	extent *Extent
	fs     *vfs.Mem // of the replica
	common uint64   // what both have
}

func newImportScene(tb tester) *importScene {
	tb.Helper()
	there := vfs.NewMem()
	o := logOptions(there)
	o.SegmentBytes = 800
	source, _ := mixedLog(tb, o)
	s := &importScene{source: source, extent: extentOf(tb, source), fs: vfs.NewMem(), common: source.LastIndex() - 10}
	entries, err := source.Entries(nil, 1, s.common+1, 1<<40)
	must(tb, err)
	must(tb, s.fs.MkdirAll("/replica"))
	s.fs.SyncAll()
	l, err := Create(s.present(s.fs), Start{FirstIndex: 1})
	must(tb, err)
	mustAppend(tb, l, entries...)
	// What it has beyond is of a leader that lost.
	f := &feeder{tb: tb, index: s.common + 1, term: l.LastTerm() + 1, offset: l.EndOffset()}
	mustAppend(tb, l, f.noop(f.term), f.data(1, 2000), f.data(1, 30))
	must(tb, l.Close(true))
	return s
}

// present are options for the log that the replica has.
func (s *importScene) present(fs vfs.FS) Options {
	o := importOptions(fs)
	o.Dir, o.Generation, o.SegmentBytes = "/replica/000001", 1, 800
	return o
}

// next are options for the log that the replica is to get.
func (s *importScene) next(fs vfs.FS) Options {
	o := importOptions(fs)
	o.MaxUnsyncedBytes = 700
	return o
}

// run imports, with what the replica has, in pieces.
func (s *importScene) run(fs vfs.FS, limit int64) (err error) {
	l, _, err := Open(s.present(fs), OpenHints{})
	if err != nil {
		return err
	}
	defer func() { _ = l.Close(false) }()
	im, err := OpenImporter(s.next(fs), s.extent.Info(), l, s.common)
	if err != nil {
		return err
	}
	defer func() { _ = im.Close() }()
	if err := pull(im, s.extent, limit); err != nil {
		return err
	}
	return im.Finish(checkpointOf(s.extent.Info()))
}

// done checks that the import is there for good.
func (s *importScene) done(tb tester, m *vfs.Mem) {
	tb.Helper()
	o := s.next(m.CrashClone(vfs.CrashOptions{}))
	l, r := openLog(tb, o, OpenHints{DurableIndex: s.extent.Info().LastIndex})
	if r.Frames > 0 || r.IndexesRebuilt > 0 || r.CutBytes > 0 || r.CheckpointIndex != l.LastIndex() {
		tb.Fatalf("opening had to do %+v", r)
	}
	defer func() { _ = l.Close(false) }()
	sameEntries(tb, l, s.extent.Info(), s.source)
	must(tb, l.Verify(context.Background(), nil))
}
