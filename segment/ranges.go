package segment

import (
	"fmt"

	"github.com/billetlog/billet/internal/vfs"
)

// Range is a piece of a file that holds whole record batches and nothing else.
type Range struct {
	File vfs.File
	Pos  int64
	Len  int
}

// Ranges are pieces of the log to send. The files stay open, even when retention
// deletes them, until Release.
type Ranges struct {
	Ranges     []Range
	Bytes      int
	NextOffset int64 // behind the last batch; the offset asked for if there is none

	held []*segment
}

// Release lets go of the files.
func (r *Ranges) Release() {
	for _, s := range r.held {
		s.log.release()
	}
	r.held, r.Ranges = nil, nil
}

// Ranges returns where the batches are that Cursor.Read would return. The caller
// calls Release, unless there is an error.
func (l *Log) Ranges(offset, limit int64, maxBytes int) (Ranges, error) {
	l.readMu.RLock()
	defer l.readMu.RUnlock()
	r := Ranges{NextOffset: offset}
	if l.closed.Load() {
		return r, ErrClosed
	}
	if offset > limit || limit > l.EndOffset() {
		return r, fmt.Errorf("%w: offset %d, limit %d, end %d", ErrUnavailable, offset, limit, l.EndOffset())
	}
	segments := l.segments()
	if first := segments[0].header; offset < first.base {
		return r, &CompactedError{FirstIndex: first.firstIndex, StartOffset: first.base}
	}
	for i := segmentOfOffset(segments, offset); i < len(segments) && r.Bytes == 0 && r.NextOffset < limit; i++ {
		more, err := l.rangesOf(segments[i], &r, limit, maxBytes)
		if err != nil {
			r.Release()
			return Ranges{}, err
		}
		if !more {
			break
		}
	}
	return r, nil
}

// rangesOf adds the ranges of one segment. It tells whether to go on in the next.
func (l *Log) rangesOf(s *segment, r *Ranges, limit int64, maxBytes int) (bool, error) {
	at := s.header.start()
	if r.NextOffset > at.offset {
		var err error
		if at, err = l.placeOfOffset(s, r.NextOffset); err != nil {
			return false, err
		}
	}
	file, err := s.log.acquire()
	if err != nil {
		return false, l.goneError(s, err)
	}
	r.held = append(r.held, s)
	more := true
	err = l.walk(s, at, func(w *walker, f *frame) (bool, error) {
		if f.next > limit || r.Bytes > 0 && r.Bytes+f.size > maxBytes {
			more = false
			if r.Bytes == 0 { // see Cursor.vouch
				_, err := w.body(f)
				return false, err
			}
			return false, nil
		}
		if f.kind != KindData {
			_, err := w.body(f)
			return true, err
		}
		if n := len(r.Ranges); n > 0 && r.Ranges[n-1].Pos+int64(r.Ranges[n-1].Len) == w.at.pos {
			r.Ranges[n-1].Len += f.size
		} else {
			r.Ranges = append(r.Ranges, Range{File: file, Pos: w.at.pos, Len: f.size})
		}
		r.Bytes += f.size
		r.NextOffset = f.next
		return true, nil
	})
	return more, err
}
