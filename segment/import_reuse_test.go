package segment

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/billetlog/billet/internal/vfs"
)

// pulled imports the scene's extent and returns how many bytes were asked for.
func (s *importScene) pulled(tb tester, fs vfs.FS, reuse *Log, through uint64) int64 {
	tb.Helper()
	im, err := OpenImporter(s.next(fs), s.extent.Info(), reuse, through)
	must(tb, err)
	asked := int64(0)
	for {
		n, offset, length, ok := im.Next()
		if !ok {
			break
		}
		asked += length
		r, err := s.extent.Open(n, offset, length)
		must(tb, err)
		kept, err := im.ReadFrom(r)
		must(tb, errors.Join(err, r.Close()))
		if kept != length {
			tb.Fatalf("kept %d of %d", kept, length)
		}
	}
	must(tb, im.Finish(checkpointOf(s.extent.Info())))
	return asked
}

// bytesAbove is how many bytes of the scene's extent are above an index.
func (s *importScene) bytesAbove(tb tester, index uint64) int64 {
	tb.Helper()
	n := int64(0)
	for i := index + 1; i <= s.extent.Info().LastIndex; i++ {
		f, err := s.source.Frame(i)
		must(tb, err)
		n += int64(f.Size)
	}
	return n
}

// TestImportReuses asks for nothing that the present log has, whether files can be linked or not, and wherever its segments end.
func TestImportReuses(t *testing.T) {
	s := newImportScene(t)
	clean := s.fs
	for through := uint64(0); through <= s.common; through++ {
		for _, linking := range []bool{true, false} {
			m := clean.CrashClone(vfs.CrashOptions{})
			links := 0
			files := vfs.Inject(m, func(op vfs.Op, _ string, _ int64, _ int) error {
				if op == vfs.OpLink && linking {
					links++
				} else if op == vfs.OpLink {
					return errors.ErrUnsupported
				}
				return nil
			})
			present, _ := openLog(t, s.present(files), OpenHints{})
			if asked, want := s.pulled(t, files, present, through), s.bytesAbove(t, through); asked != want {
				t.Fatalf("through %d, linking %v: asked for %d bytes, missing were %d", through, linking, asked, want)
			}
			if linking && through == s.common && links == 0 {
				t.Fatal("nothing was linked")
			}
			// The present log goes on and is then deleted.
			mustAppend(t, present, Entry{Index: present.LastIndex() + 1, Term: present.LastTerm(), Kind: KindVoid})
			must(t, present.Verify(t.Context(), nil))
			must(t, present.Close(true))
			must(t, m.RemoveAll(present.options.Dir))
			s.done(t, m)
		}
	}
}

// TestImportLinkedIsReadOnly lets the new log live on: the old one's files do not change by it.
func TestImportLinkedIsReadOnly(t *testing.T) {
	s := newImportScene(t)
	m := s.fs
	before := readFiles(t, m, "/replica/000001")
	must(t, s.run(m, 0))
	o := s.next(m)
	o.SegmentBytes = 600
	l, _ := openLog(t, o, OpenHints{})
	f := &feeder{tb: t, index: l.LastIndex() + 1, term: l.LastTerm() + 1, offset: l.EndOffset()}
	last := l.LastIndex()
	mustAppend(t, l, f.noop(f.term), f.data(1, 900), f.data(1, 900))
	must(t, l.Truncate(last+1))
	_, err := l.Retain(everything(l))
	must(t, err)
	must(t, l.Close(true))
	for name, b := range readFiles(t, m, "/replica/000001") {
		if !bytes.Equal(b, before[name]) {
			t.Errorf("%s changed", name)
		}
	}
}

// TestImportLinkedIsNotCut offers less of what was linked, and what was linked under a name of its own without its index.
func TestImportLinkedIsNotCut(t *testing.T) {
	s := newImportScene(t)
	clean := s.fs
	first, second := s.source.Segments()[0], s.source.Segments()[1]
	for _, through := range []uint64{first.LastIndex - 1, first.LastIndex, second.LastIndex - 1, s.common} {
		m := clean.CrashClone(vfs.CrashOptions{})
		present, _ := openLog(t, s.present(m), OpenHints{})
		must(t, present.Close(true))
		before := readFiles(t, m, "/replica/000001")
		present, _ = openLog(t, s.present(m), OpenHints{})
		im, err := OpenImporter(s.next(m), s.extent.Info(), present, s.common)
		must(t, err)
		if have, _ := im.Progress(); have == 0 {
			t.Fatal("nothing was linked")
		}
		must(t, errors.Join(im.Close(), present.Close(false)))
		must(t, m.RemoveAll(pathOf("/replica/000002", second.BaseOffset, indexSuffix)))
		e, err := s.source.Extent(through)
		must(t, err)
		l, err := importAll(s.next(m), e, nil, 0)
		must(t, err)
		sameLogs(t, l, e.Info(), s.source)
		f := &feeder{tb: t, index: l.LastIndex() + 1, term: l.LastTerm() + 1, offset: l.EndOffset()}
		mustAppend(t, l, f.noop(f.term), f.data(1, 100))
		must(t, errors.Join(l.Close(true), e.Close()))
		for name, b := range readFiles(t, m, "/replica/000001") {
			if !bytes.Equal(b, before[name]) {
				t.Errorf("through %d: %s changed", through, name)
			}
		}
	}
}

// TestImportAnotherOffer goes on, over what one import left, with offers that end elsewhere or have other segments, and after power cuts.
func TestImportAnotherOffer(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := vfs.NewMem()
		must(rt, m.MkdirAll("/replica"))
		m.SyncAll()
		o := importOptions(m)
		first, f := mixedLog(rt, logOptions(vfs.NewMem()))
		entries, err := first.Entries(nil, 1, f.index, 1<<40)
		must(rt, err)
		var e *Extent
		var source *Log
		for range rapid.IntRange(2, 5).Draw(rt, "offers") {
			other := logOptions(vfs.NewMem())
			other.SegmentBytes = int64(rapid.SampledFrom([]int{800, 1500, 2048, 9000}).Draw(rt, "segment"))
			source = createLog(rt, other)
			mustAppend(rt, source, entries...)
			_, err := source.DeleteBelow(int64(rapid.IntRange(0, 20).Draw(rt, "offset")), uint64(rapid.IntRange(0, 20).Draw(rt, "below")))
			must(rt, err)
			e, err = source.Extent(rapid.Uint64Range(source.FirstIndex()-1, source.LastIndex()).Draw(rt, "through"))
			must(rt, err)
			im, err := OpenImporter(o, e.Info(), nil, 0)
			must(rt, err)
			for range rapid.IntRange(0, 4).Draw(rt, "ranges") {
				n, offset, length, ok := im.Next()
				if !ok {
					break
				}
				r, err := e.Open(n, offset, length)
				must(rt, err)
				if _, err := im.ReadFrom(io.LimitReader(r, rapid.Int64Range(0, 3000).Draw(rt, "bytes"))); err != nil && err != io.ErrUnexpectedEOF {
					rt.Fatal(err)
				}
			}
			must(rt, im.Close())
			if rapid.Bool().Draw(rt, "crash") {
				keep := rapid.SampledFrom([]float64{0, 0.5, 0.9, 1}).Draw(rt, "keep")
				m = m.CrashClone(vfs.CrashOptions{KeepUnsynced: keep, Rand: rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))})
				must(rt, m.MkdirAll("/replica"))
				o.FS = m
			}
		}
		l, err := importAll(o, e, nil, 0)
		must(rt, err)
		sameLogs(rt, l, e.Info(), source)
		must(rt, l.Close(false))
		o.FS = m.CrashClone(vfs.CrashOptions{})
		l, _ = openLog(rt, o, OpenHints{DurableIndex: e.Info().LastIndex})
		sameLogs(rt, l, e.Info(), source)
		must(rt, l.Close(false))
	})
}

// TestImportTwin imports random logs over random present ones.
func TestImportTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sizes := rapid.SampledFrom([]int64{512, 900, 1500, 4000})
		at := Start{FirstIndex: 1}
		if rapid.Bool().Draw(rt, "later") {
			at = Start{FirstIndex: 100, PrevTerm: 3, Offset: 1000}
		}
		theirs := logOptions(vfs.NewMem())
		theirs.SegmentBytes = sizes.Draw(rt, "source")
		source, err := Create(theirs, at)
		must(rt, err)
		w := &twin{first: at.FirstIndex, start: at.Offset, term: at.PrevTerm}
		m := vfs.NewMem()
		must(rt, m.MkdirAll("/replica"))
		mine := importOptions(m)
		mine.Dir, mine.Generation = "/replica/000001", 1
		mine.SegmentBytes = sizes.Draw(rt, "present")
		present, err := Create(mine, at)
		must(rt, err)
		common := at.FirstIndex - 1
		for range rapid.IntRange(1, 12).Draw(rt, "appends") {
			entries := drawEntries(rt, rt, w, w.last()+1)
			_, err := source.Append(entries)
			must(rt, err)
			w.append(entries)
			if common+1 == w.last()+1-uint64(len(entries)) && rapid.IntRange(0, 3).Draw(rt, "both") > 0 {
				_, err := present.Append(entries)
				must(rt, err)
				common = w.last()
			}
		}
		retain := func(l *Log) {
			_, err := l.DeleteBelow(rapid.Int64Range(0, l.EndOffset()).Draw(rt, "offset"), rapid.Uint64Range(0, l.LastIndex()+1).Draw(rt, "below"))
			must(rt, err)
		}
		retain(source)
		retain(present)
		e, err := source.Extent(rapid.Uint64Range(source.FirstIndex()-1, source.LastIndex()).Draw(rt, "through"))
		must(rt, err)
		n := len(e.Info().Segments)
		whole, err := source.Entries(nil, source.FirstIndex(), e.Info().LastIndex+1, 1<<40)
		must(rt, err)
		retain(source) // while it is pulled
		l, err := importAll(importOptions(m), e, present, rapid.Uint64Range(0, common).Draw(rt, "known"))
		must(rt, err)
		got := readTwin(rt, l)
		if got.first != e.Info().Segments[0].FirstIndex || len(got.entries) != len(whole) || len(l.Segments()) != n {
			rt.Fatalf("imported [%d, %d] in %d segments, wanted %+v", got.first, got.last(), len(l.Segments()), e.Info())
		}
		for i := range whole {
			if !sameEntry(got.entries[i], whole[i]) {
				rt.Fatalf("entry %d is %+v, at the source %+v", whole[i].Index, got.entries[i], whole[i])
			}
		}
		checkReads(rt, l, whole)
		must(rt, l.Verify(t.Context(), nil))
		for n := range e.Info().Segments {
			got, err := vfs.ReadFile(m, pathOf(l.options.Dir, e.Info().Segments[n].BaseOffset, logSuffix))
			must(rt, err)
			if !bytes.Equal(got[segmentHeaderSize:], streamOf(rt, e, n)) {
				rt.Fatalf("segment %d has other bytes", n)
			}
		}
		must(rt, errors.Join(e.Close(), l.Close(false), present.Close(false), source.Close(false)))
	})
}

// TestImportDamagedReuse has a present log with a damaged index, and one with a damaged segment that is copied: what is damaged is asked for.
func TestImportDamagedReuse(t *testing.T) {
	s := newImportScene(t)
	clean := s.fs
	for name, c := range map[string]struct {
		suffix  string
		linking bool
	}{"index": {indexSuffix, true}, "frames": {logSuffix, false}} {
		m := clean.CrashClone(vfs.CrashOptions{})
		files := vfs.Inject(m, func(op vfs.Op, _ string, _ int64, _ int) error {
			if op == vfs.OpLink && !c.linking {
				return errors.ErrUnsupported
			}
			return nil
		})
		present, _ := openLog(t, s.present(files), OpenHints{})
		path := pathOf(present.options.Dir, 0, c.suffix)
		b, err := vfs.ReadFile(m, path)
		must(t, err)
		file, err := m.Open(path)
		must(t, err)
		_, err = file.WriteAt([]byte{b[len(b)-3] ^ 1}, int64(len(b)-3))
		must(t, errors.Join(err, file.Close()))
		asked, missing := s.pulled(t, files, present, s.common), s.bytesAbove(t, s.common)
		if (asked > missing) != (c.suffix == logSuffix) {
			t.Errorf("%s: asked for %d bytes, missing were %d", name, asked, missing)
		}
		must(t, present.Close(false))
		s.done(t, m)
	}
}
