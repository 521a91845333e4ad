package segment

import (
	"time"
)

// Retention says which segments are no longer wanted. A segment goes when one of
// Bytes, Age and BelowOffset says so and all segments before it go.
type Retention struct {
	Bytes int64         // delete while the rest is at least this large; < 0: no limit
	Age   time.Duration // delete what has only records older than this; < 0: no limit
	// BelowOffset wants those deleted that have only records below it. 0: no limit.
	BelowOffset int64
	// BelowIndex spares segments with entries at or above it.
	BelowIndex uint64
	Now        time.Time
}

// Deleted tells what was deleted.
type Deleted struct {
	Segments    int
	Bytes       int64
	StartOffset int64  // now
	FirstIndex  uint64 // now
}

// Expired returns the last index of the segments that retention would delete were
// it not for BelowIndex, and how many those are.
func (l *Log) Expired(r Retention) (lastIndex uint64, n int) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	n = l.expiredLocked(r)
	if n == 0 {
		return 0, 0
	}
	return l.mu.segments[n-1].end.index - 1, n
}

func (l *Log) expiredLocked(r Retention) int {
	total := int64(0)
	for _, s := range l.mu.segments {
		total += s.size.Load()
	}
	sealed := l.mu.segments[:len(l.mu.segments)-1]
	for n, s := range sealed {
		size := s.size.Load()
		big := r.Bytes >= 0 && total-size >= r.Bytes
		below := r.BelowOffset > 0 && s.end.offset <= r.BelowOffset
		if !big && !below && !(r.Age >= 0 && r.Now.Sub(l.lastTimeLocked(n)) > r.Age) {
			return n
		}
		total -= size
	}
	return len(sealed)
}

// lastTimeLocked is the time of the latest record in the n-th segment, which is
// sealed, or when it was sealed if there is none.
func (l *Log) lastTimeLocked(n int) time.Time {
	if ts := l.mu.segments[n].end.maxTimestamp; ts != noTimestamp {
		return time.UnixMilli(ts)
	}
	return time.Unix(0, l.mu.segments[n+1].header.created)
}

// Retain deletes the segments that r says. StartOffset and FirstIndex move up to
// the next segment. Cursors that are in a deleted segment read it to its end.
// Appends may go on beside it.
func (l *Log) Retain(r Retention) (Deleted, error) {
	return l.deleteFront(func() int { return l.expiredLocked(r) }, r.BelowIndex)
}

// DeleteBelow deletes the segments whose records are all below offset and whose
// entries are all below belowIndex.
func (l *Log) DeleteBelow(offset int64, belowIndex uint64) (Deleted, error) {
	return l.deleteFront(func() int {
		sealed := l.mu.segments[:len(l.mu.segments)-1]
		for n, s := range sealed {
			if s.end.offset > offset {
				return n
			}
		}
		return len(sealed)
	}, belowIndex)
}

// deleteFront deletes as many segments from the front as count says, but none with
// entries at or above belowIndex.
func (l *Log) deleteFront(count func() int, belowIndex uint64) (Deleted, error) {
	l.retainMu.Lock()
	defer l.retainMu.Unlock()
	if err := l.check(); err != nil {
		return Deleted{}, err
	}
	l.mu.RLock()
	n := count()
	for n > 0 && l.mu.segments[n-1].end.index > belowIndex {
		n--
	}
	l.mu.RUnlock()
	d := Deleted{}
	err := l.removeRetained()
	for d.Segments < n && err == nil {
		var size int64
		if size, err = l.deleteFirst(); err == nil {
			d.Segments++
			d.Bytes += size
		}
	}
	d.StartOffset, d.FirstIndex = l.StartOffset(), l.FirstIndex()
	if d.Segments > 0 {
		l.dropCheckpointsBelow(d.FirstIndex)
	}
	return d, err
}

// deleteFirst takes the first segment out of sight and deletes it, unless it has
// to wait for an extent.
func (l *Log) deleteFirst() (int64, error) {
	l.mu.Lock()
	s := l.mu.segments[0]
	l.mu.segments = l.mu.segments[1:]
	if l.mu.warm != nil {
		l.mu.warm.log.release()
		l.mu.warm = nil
	}
	l.mu.Unlock()
	if l.retained.mustWait(s) {
		l.retained.waiting = append(l.retained.waiting, s)
		return s.size.Load(), nil
	}
	if err := l.removeFront(s); err != nil {
		if l.check() == nil { // it is still there
			l.mu.Lock()
			l.mu.segments = append([]*segment{s}, l.mu.segments...)
			l.mu.Unlock()
		}
		return 0, err
	}
	return s.size.Load(), nil
}

// removeFront deletes the files of a segment that nobody looks up any more. The
// segments in front of it are gone.
func (l *Log) removeFront(s *segment) error {
	if err := l.options.FS.Remove(s.log.path); err != nil {
		return err
	}
	// On disk it must be gone before the one behind it goes, or a crash could
	// leave it and a hole.
	if err := l.options.FS.SyncDir(l.options.Dir); err != nil {
		return l.fail(err)
	}
	if err := l.options.FS.RemoveAll(s.index.file.path); err != nil {
		l.options.Logger.Warn("segment: index of a deleted segment stays until the next open", "file", s.index.file.path, "err", err)
	}
	return nil
}

// retained is what retention has to know of extents. Log.retainMu guards it.
type retained struct {
	pins    map[int64]int // number of extents with a segment, by its base offset
	waiting []*segment    // deleted, but for their files; in order
}

func (r *retained) pin(base int64) {
	if r.pins == nil {
		r.pins = map[int64]int{}
	}
	r.pins[base]++
}

func (r *retained) unpin(base int64) {
	if r.pins[base]--; r.pins[base] <= 0 {
		delete(r.pins, base)
	}
}

// mustWait tells whether the files of s, the next one to go, have to stay: for
// its own sake, or since one in front of it does.
func (r *retained) mustWait(s *segment) bool {
	return r.pins[s.header.base] > 0 || len(r.waiting) > 0
}

// removeRetained deletes the files that no longer have to wait for an extent. The
// caller holds retainMu. What cannot be deleted is tried again later.
func (l *Log) removeRetained() error {
	r := &l.retained
	for len(r.waiting) > 0 && r.pins[r.waiting[0].header.base] == 0 {
		if err := l.removeFront(r.waiting[0]); err != nil {
			return err
		}
		r.waiting = r.waiting[1:]
	}
	return nil
}
