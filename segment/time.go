package segment

import (
	"github.com/billetlog/billet/internal/batch"
)

// OffsetForTime returns the first record, with an offset from from and below limit, whose
// timestamp is ts or later. ok is false when there is none.
func (l *Log) OffsetForTime(ts, from, limit int64) (offset, timestamp int64, ok bool, err error) {
	l.readMu.RLock()
	defer l.readMu.RUnlock()
	if l.closed.Load() {
		return 0, 0, false, ErrClosed
	}
	segments, ends := l.ends()
	return l.recordFor(segments, ends, ts, from, limit)
}

// MaxTimestamp returns the first of the records from from and below limit that have
// the latest timestamp. ok is false when there are none, or none with a timestamp.
func (l *Log) MaxTimestamp(from, limit int64) (offset, timestamp int64, ok bool, err error) {
	l.readMu.RLock()
	defer l.readMu.RUnlock()
	if l.closed.Load() {
		return 0, 0, false, ErrClosed
	}
	segments, ends := l.ends()
	latest := int64(noTimestamp)
	for i, s := range segments {
		of := ends[i].maxTimestamp
		switch {
		case ends[i].offset <= from || s.header.base >= limit || of <= latest:
			continue
		case s.header.base < from || ends[i].offset > limit:
			if of, err = l.latestIn(s, from, limit); err != nil {
				return 0, 0, false, err
			}
		}
		latest = max(latest, of)
	}
	if latest == noTimestamp {
		return 0, 0, false, nil
	}
	return l.recordFor(segments, ends, latest, from, limit)
}

// ends returns the segments with the end of each.
func (l *Log) ends() ([]*segment, []place) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	ends := make([]place, len(l.mu.segments))
	for i := range ends {
		ends[i] = l.endLocked(i)
	}
	return l.mu.segments, ends
}

// seekOffset returns the place of the last indexed frame that begins at or below the
// offset, which is not behind the end of s.
func (l *Log) seekOffset(s *segment, offset int64) (place, error) {
	if offset <= s.header.base {
		return s.header.start(), nil
	}
	relative := uint32(offset - s.header.base)
	return l.seek(s, func(e indexEntry) bool { return e.offset <= relative })
}

// latestIn returns the latest timestamp of the records from from and below limit in a
// segment that has others as well.
func (l *Log) latestIn(s *segment, from, limit int64) (int64, error) {
	whole := s.header.base >= from
	at := from
	if whole { // the index knows of all in front of its entries
		at = limit
	}
	start, err := l.seekOffset(s, at)
	if err != nil {
		return 0, err
	}
	latest := int64(noTimestamp)
	if whole {
		latest = start.maxTimestamp
	}
	err = l.walk(s, start, func(w *walker, f *frame) (bool, error) {
		if f.next > limit || f.kind == KindData && w.at.offset >= limit {
			return false, nil
		}
		if f.kind != KindData || f.next <= from || f.maxTimestamp <= latest {
			return true, nil
		}
		b, err := w.body(f)
		if err != nil {
			return false, err
		}
		of := f.maxTimestamp
		if w.at.offset < from {
			of, err = latestRecord(b, from)
		}
		latest = max(latest, of)
		return true, err
	})
	return latest, err
}

// latestRecord returns the latest timestamp in a batch of the records from from.
func latestRecord(b []byte, from int64) (int64, error) {
	var r batch.Reader
	if err := r.Reset(batch.Batch(b), 0); err != nil {
		return 0, err
	}
	latest := int64(noTimestamp)
	var record batch.Record
	for r.Next(&record) {
		if record.Offset >= from {
			latest = max(latest, record.Timestamp)
		}
	}
	return latest, r.Err()
}

// recordFor is OffsetForTime. The caller holds readMu.
func (l *Log) recordFor(segments []*segment, ends []place, ts, from, limit int64) (offset, timestamp int64, ok bool, err error) {
	for i, s := range segments {
		if ends[i].maxTimestamp < ts || ends[i].offset <= from || s.header.base >= limit {
			continue
		}
		at, err := l.seek(s, func(e indexEntry) bool { return e.maxTimestamp < ts })
		if err != nil {
			return 0, 0, false, err
		}
		first, err := l.seekOffset(s, from)
		if err != nil {
			return 0, 0, false, err
		}
		if first.pos > at.pos {
			at = first
		}
		over := false
		err = l.walk(s, at, func(w *walker, f *frame) (bool, error) {
			if _, err := w.body(f); err != nil {
				return false, err
			}
			over = f.next > limit
			if over || f.kind != KindData || f.maxTimestamp < ts || f.next <= from {
				return !over, nil
			}
			offset, timestamp, ok, err = l.recordAtTime(w, f, ts, from)
			return !ok, err
		})
		if err != nil || ok || over {
			return offset, timestamp, ok, err
		}
	}
	return 0, 0, false, nil
}

// recordAtTime looks for the record inside the batch at w.
func (l *Log) recordAtTime(w *walker, f *frame, ts, from int64) (offset, timestamp int64, ok bool, err error) {
	b, err := w.body(f)
	if err != nil {
		return 0, 0, false, err
	}
	var r batch.Reader
	if err := r.Reset(batch.Batch(b), 0); err != nil {
		return 0, 0, false, err
	}
	var record batch.Record
	for r.Next(&record) {
		if record.Offset >= from && record.Timestamp >= ts {
			return record.Offset, record.Timestamp, true, nil
		}
	}
	return 0, 0, false, r.Err()
}
