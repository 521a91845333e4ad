package segment

import (
	"errors"
	"io"
	"io/fs"
	"sort"

	"github.com/billetlog/billet/internal/vfs"
)

// Frame tells where an entry is and what offsets it has.
type Frame struct {
	Index, Term            uint64
	Kind                   Kind
	BaseOffset, NextOffset int64 // equal unless Kind is KindData
	Size                   int   // bytes in the segment
	Segment                int64 // base offset of the segment
	Pos                    int64 // position in it
}

// segmentOfIndex returns the number of the segment that index is in, if in any.
func segmentOfIndex(segments []*segment, index uint64) int {
	return max(0, sort.Search(len(segments), func(i int) bool { return segments[i].header.firstIndex > index })-1)
}

// segmentOfOffset returns the number of the last segment that starts at or before
// offset: the one that offset is in, unless that is empty.
func segmentOfOffset(segments []*segment, offset int64) int {
	return max(0, sort.Search(len(segments), func(i int) bool { return segments[i].header.base > offset })-1)
}

// open opens s for reading until release. A sealed one is kept open until a look-up
// in another one.
func (l *Log) open(s *segment) (vfs.File, error) {
	file, err := s.log.acquire()
	if err != nil {
		return nil, l.goneError(s, err)
	}
	if !s.sealed.Load() {
		return file, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.warm == s || l.closed.Load() {
		return file, nil
	}
	if l.mu.warm != nil {
		l.mu.warm.log.release()
	}
	if _, err := s.log.acquire(); err == nil {
		l.mu.warm = s
	}
	return file, nil
}

// goneError explains an error of opening s: retention may have deleted it since it
// was looked up.
func (l *Log) goneError(s *segment, err error) error {
	first := l.segments()[0]
	if errors.Is(err, fs.ErrNotExist) && s.header.base < first.header.base {
		return &CompactedError{FirstIndex: first.header.firstIndex, StartOffset: first.header.base}
	}
	return err
}

// seek returns the place of the last indexed frame for which before holds, or that
// of the first frame. A damaged index of a sealed segment is built anew.
func (l *Log) seek(s *segment, before func(indexEntry) bool) (place, error) {
	e, ok, err := s.index.floor(before)
	if repairable(err) && s.sealed.Load() {
		e, ok, err = l.repair(s, before)
	}
	switch {
	case err == nil && ok:
		return e.place(&s.header), nil
	case err == nil || repairable(err):
		return s.header.start(), nil
	}
	return place{}, err
}

// repair builds the index of a sealed segment anew, unless somebody just did, and
// looks again.
func (l *Log) repair(s *segment, before func(indexEntry) bool) (indexEntry, bool, error) {
	l.repairMu.Lock()
	defer l.repairMu.Unlock()
	if e, ok, err := s.index.floor(before); !repairable(err) {
		return e, ok, err
	}
	l.options.Logger.Warn("segment: building a damaged index anew", "file", s.index.file.path)
	_, err := s.index.rebuild(s, l.options.MaxFrameBytes)
	if errors.Is(err, ErrCorrupt) {
		return indexEntry{}, false, err
	}
	if err != nil { // no room for it, for example: do without
		l.options.Logger.Warn("segment: cannot build the index", "file", s.index.file.path, "err", err)
		return indexEntry{}, false, errIndexDamaged
	}
	return s.index.floor(before)
}

// walk calls visit with the frames of s from the seeked place on, until it returns
// false or an error, or s ends.
func (l *Log) walk(s *segment, from place, visit func(*walker, *frame) (bool, error)) error {
	file, err := l.open(s)
	if err != nil {
		return err
	}
	defer s.log.release()
	w := newWalker(s, file, from, s.size.Load(), l.options.MaxFrameBytes, lookupChunk)
	defer w.free()
	for {
		f, err := w.head()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if more, err := visit(w, &f); err != nil || !more {
			return err
		}
		w.at = w.at.after(&f)
	}
}

// walkTo calls visit with the frame of the given index, with the walker at it.
func (l *Log) walkTo(s *segment, index uint64, visit func(*walker, *frame) error) error {
	relative := uint32(index - s.header.firstIndex)
	from, err := l.seek(s, func(e indexEntry) bool { return e.index <= relative })
	if err != nil {
		return err
	}
	found := false
	err = l.walk(s, from, func(w *walker, f *frame) (bool, error) {
		if w.at.index < index {
			return true, nil
		}
		found = true
		return false, visit(w, f)
	})
	if err == nil && !found {
		err = s.damage(s.size.Load(), noTimestamp, "fewer entries than there must be")
	}
	return err
}

// checkIndex says why there is no entry with the index, if there is none.
func (l *Log) checkIndex(index uint64) error {
	if l.closed.Load() {
		return ErrClosed
	}
	if index > l.LastIndex() {
		return ErrUnavailable
	}
	if s := l.segments()[0]; index < s.header.firstIndex {
		return &CompactedError{FirstIndex: s.header.firstIndex, StartOffset: s.header.base}
	}
	return nil
}

// Frame returns where the entry with the index is. It costs little for entries
// appended since the last Forget, and a read or two for others.
func (l *Log) Frame(index uint64) (Frame, error) {
	l.mu.RLock()
	if r, ok := l.mu.recent.get(index); ok {
		f := Frame{Index: index, Term: uint64(r.term), Kind: r.kind, BaseOffset: r.base,
			NextOffset: r.next, Size: int(r.size), Segment: r.segment, Pos: int64(r.pos)}
		l.mu.RUnlock()
		return f, nil
	}
	l.mu.RUnlock()
	return l.storedFrame(index)
}

// storedFrame is Frame for an entry that only the file knows.
func (l *Log) storedFrame(index uint64) (Frame, error) {
	l.readMu.RLock()
	defer l.readMu.RUnlock()
	if err := l.checkIndex(index); err != nil {
		return Frame{}, err
	}
	segments := l.segments()
	s := segments[segmentOfIndex(segments, index)]
	var result Frame
	err := l.walkTo(s, index, func(w *walker, f *frame) error {
		result = Frame{Index: index, Term: f.term, Kind: f.kind, BaseOffset: f.base,
			NextOffset: f.next, Size: f.size, Segment: s.header.base, Pos: w.at.pos}
		_, err := w.body(f)
		return err
	})
	return result, err
}

// Forget tells the log that Frame will hardly be called again for entries up to
// index.
func (l *Log) Forget(upTo uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.recent.forget(upTo)
}

// Term returns the term of the entry with the index, or of the one before the
// first.
func (l *Log) Term(index uint64) (uint64, error) {
	l.mu.RLock()
	end := l.mu.end
	first := l.mu.segments[0].header
	l.mu.RUnlock()
	if index+1 == end.index {
		return end.term, nil
	}
	if index+1 == first.firstIndex {
		return first.prevTerm, nil
	}
	f, err := l.Frame(index)
	return f.Term, err
}

// EpochEnd returns the largest epoch, not above the given one, that the log has
// entries of, and the offset at which it ends: where the next epoch begins, or the
// end of the log. ok is false when all that is kept is of later epochs.
func (l *Log) EpochEnd(epoch int32) (largest int32, end int64, ok bool, err error) {
	l.readMu.RLock()
	defer l.readMu.RUnlock()
	if l.closed.Load() {
		return 0, 0, false, ErrClosed
	}
	l.mu.RLock()
	segments, logEnd := l.mu.segments, l.mu.end
	l.mu.RUnlock()
	if epoch < 0 {
		return 0, 0, false, nil
	}
	if uint64(epoch) >= logEnd.term {
		first := segments[0].header
		return int32(logEnd.term), logEnd.offset, logEnd.index > first.firstIndex || first.prevTerm > 0, nil
	}
	// The last segment that begins with the epoch or a lower one before it.
	i := sort.Search(len(segments), func(i int) bool { return segments[i].header.prevTerm > uint64(epoch) }) - 1
	if i < 0 {
		return 0, 0, false, nil
	}
	s := segments[i]
	from, err := l.seek(s, func(e indexEntry) bool { return e.term <= uint32(epoch) })
	if err != nil {
		return 0, 0, false, err
	}
	term, offset := s.header.prevTerm, logEnd.offset
	err = l.walk(s, from, func(w *walker, f *frame) (bool, error) {
		if f.term > uint64(epoch) {
			offset = w.at.offset
			return false, nil
		}
		term = f.term
		offset = f.next
		return true, nil
	})
	return int32(term), min(offset, logEnd.offset), term > 0, err
}
