package segment

import (
	"fmt"
	"io"
	"slices"
)

// Entries appends the entries [low, high) to dst: at least the first one, then
// until their data exceeds maxBytes. With maxBytes 0 it is the first one alone,
// and without its data. Data is the caller's own copy; it is nil for KindNoOp and
// KindVoid. What is read is verified.
func (l *Log) Entries(dst []Entry, low, high uint64, maxBytes uint64) ([]Entry, error) {
	if low >= high {
		return dst, nil
	}
	if maxBytes == 0 {
		f, err := l.Frame(low)
		if err != nil {
			return dst, err
		}
		return append(dst, Entry{Index: low, Term: f.Term, Kind: f.Kind}), nil
	}
	l.readMu.RLock()
	defer l.readMu.RUnlock()
	if err := l.checkIndex(low); err != nil {
		return dst, err
	}
	if last := l.LastIndex(); high > last+1 {
		return dst, fmt.Errorf("%w: index %d, last is %d", ErrUnavailable, high-1, last)
	}
	segments := l.segments()
	total := uint64(0)
	for i := segmentOfIndex(segments, low); low < high; i++ {
		if i == len(segments) {
			return dst, segments[i-1].damage(segments[i-1].size.Load(), -1, fmt.Sprintf("no entry %d", low))
		}
		n := len(dst)
		more, err := l.entriesOf(segments[i], &dst, low, high, maxBytes, &total)
		if err != nil || !more {
			return dst, err
		}
		low += uint64(len(dst) - n)
	}
	return dst, nil
}

// entriesAhead is how much Entries reads at first, since it may want little.
const entriesAhead = 64 << 10

// entriesOf is Entries for one segment. It tells whether there is room for more.
func (l *Log) entriesOf(s *segment, dst *[]Entry, low, high, maxBytes uint64, total *uint64) (bool, error) {
	from, err := l.placeOf(s, low)
	if err != nil {
		return false, err
	}
	file, err := l.open(s)
	if err != nil {
		return false, err
	}
	defer s.log.release()
	chunk := lookupChunk
	if high-low > 1 && maxBytes > lookupChunk {
		chunk = scanChunk
	}
	w := newWalker(s, file, from, s.size.Load(), l.options.MaxFrameBytes, chunk)
	defer w.free()
	w.ahead = min(w.ahead, entriesAhead)
	for w.at.index < high {
		f, err := w.head()
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if w.at.index < low {
			w.at = w.at.after(&f)
			continue
		}
		e := Entry{Index: w.at.index, Term: f.term, Kind: f.kind}
		if *total > 0 && *total+uint64(f.size) > maxBytes {
			return false, nil
		}
		if e.Data, err = w.data(&f); err != nil {
			return false, err
		}
		*dst = append(*dst, e)
		*total += uint64(f.size)
		w.at = w.at.after(&f)
	}
	return false, nil
}

// placeOf returns a place at or before the frame of the index.
func (l *Log) placeOf(s *segment, index uint64) (place, error) {
	l.mu.RLock()
	f, ok := l.mu.recent.get(index)
	if ok && f.segment == s.header.base {
		// Of the term only an upper bound is known where the frame is a no-op,
		// which is as good: a no-op's term must be no lower.
		p := place{pos: int64(f.pos), offset: f.base, index: index, term: uint64(f.term)}
		l.mu.RUnlock()
		return p, nil
	}
	l.mu.RUnlock()
	if index <= s.header.firstIndex {
		return s.header.start(), nil
	}
	relative := uint32(index - s.header.firstIndex)
	return l.seek(s, func(e indexEntry) bool { return e.index <= relative })
}

// data verifies the frame at w and returns a copy of what its entry had.
func (w *walker) data(f *frame) ([]byte, error) {
	if f.kind == KindData && f.size > len(*w.room) {
		return w.ownBody(f)
	}
	b, err := w.body(f)
	if err != nil {
		return nil, err
	}
	if f.kind == KindData {
		return slices.Clone(b), nil
	}
	if len(b) == internalHeaderSize {
		return nil, nil
	}
	return slices.Clone(b[internalHeaderSize:]), nil
}

// ownBody reads a frame that is larger than the walker's buffer into a buffer of
// its own.
func (w *walker) ownBody(f *frame) ([]byte, error) {
	b := make([]byte, f.size)
	if err := readFull(w.file, b, w.at.pos); err != nil {
		return nil, err
	}
	if err := f.checkBody(b); err != nil {
		return nil, w.damage(err)
	}
	return b, nil
}
