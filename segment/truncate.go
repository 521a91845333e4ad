package segment

import (
	"fmt"
	"slices"
	"time"

	"github.com/billetlog/billet/internal/vfs"
)

// Truncate cuts the entries from index from on. It is durable when it returns nil;
// an error other than ErrGap is final. Cut entries may be back after a crash in
// the middle, as if it had not been called.
//
// A durable mark that the caller keeps elsewhere must have been lowered, durably,
// to below from before: otherwise the next Open takes the cut for damage.
func (l *Log) Truncate(from uint64) error {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	if err := l.check(); err != nil {
		return err
	}
	return l.truncate(from)
}

// cut is where a truncation cuts.
type cut struct {
	segments []*segment // those that stay; the last one is cut
	gone     []*segment
	end      place // the new end
}

// truncate is Truncate for the writer.
func (l *Log) truncate(from uint64) error {
	l.retainMu.Lock()
	defer l.retainMu.Unlock()
	first, last := l.FirstIndex(), l.LastIndex()
	if from == last+1 {
		return nil
	}
	if from < first || from > last+1 {
		return fmt.Errorf("%w: cannot truncate from index %d, stored are [%d, %d]", ErrGap, from, first, last)
	}
	c, err := l.planCut(from)
	if err != nil {
		return err
	}
	if err := l.carryOut(c); err != nil {
		return l.fail(err)
	}
	return nil
}

// planCut finds the place of the cut.
func (l *Log) planCut(from uint64) (cut, error) {
	segments := l.segments()
	i := segmentOfIndex(segments, from)
	c := cut{segments: slices.Clone(segments[:i+1]), gone: segments[i+1:]}
	term, err := l.termBefore(from)
	if err != nil {
		return cut{}, err
	}
	err = l.walkTo(segments[i], from, func(w *walker, _ *frame) error {
		c.end = w.at
		return nil
	})
	c.end.term = term
	return c, err
}

// carryOut makes the cut: first nothing of it may come back from the journal, then
// nobody may read it, then checkpoints go, then bytes.
func (l *Log) carryOut(c cut) error {
	if err := l.fence(); err != nil {
		return err
	}
	s, file, err := l.reopen(c)
	if err != nil {
		return err
	}
	l.lowerEnd(c)
	if err := l.dropCheckpointsAbove(c.end.index - 1); err != nil {
		return err
	}
	if err := l.removeSegments(c.gone); err != nil {
		return err
	}
	if err := s.index.truncate(c.end.pos); err != nil {
		return err
	}
	if err := file.Truncate(c.end.pos); err != nil {
		return err
	}
	if err := file.SyncData(); err != nil {
		return err
	}
	return l.options.FS.SyncDir(l.options.Dir)
}

// fence makes durable what is written and ends the life of all redo records.
func (l *Log) fence() error {
	if err := l.Sync(); err != nil {
		return err
	}
	if f := l.options.Fencer; f != nil {
		return f.Fence(l.options.Identity.Key)
	}
	return nil
}

// reopen makes the segment that is cut the active one. A sealed one gets a new
// segment in the list, since readers take a sealed one for unchanging.
func (l *Log) reopen(c cut) (*segment, vfs.File, error) {
	w := &l.writer
	s := c.segments[len(c.segments)-1]
	if s == w.segment {
		return s, w.file, nil
	}
	o := &l.options
	cut := newSegment(o.FS, o.Dir, s.header, o.IndexIntervalBytes)
	_, ok, err := cut.index.readTrailer()
	if err == nil && !ok {
		l.repairMu.Lock()
		_, err = cut.index.rebuild(s, o.MaxFrameBytes)
		l.repairMu.Unlock()
	}
	if err != nil {
		return nil, nil, err
	}
	file, err := o.FS.Open(s.log.path)
	if err != nil {
		return nil, nil, err
	}
	w.close()
	w.adopt(cut, file, c.end)
	c.segments[len(c.segments)-1] = cut
	return cut, file, nil
}

// lowerEnd takes the cut entries out of sight and waits for those who read them.
func (l *Log) lowerEnd(c cut) {
	w := &l.writer
	w.end, w.noted = c.end, c.end
	if w.empty() {
		w.first = time.Time{}
	} else if w.first.IsZero() {
		w.first = time.Unix(0, w.segment.header.created)
	}
	l.readMu.Lock()
	defer l.readMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.truncations.Add(1)
	w.segment.size.Store(c.end.pos)
	l.mu.segments, l.mu.end = c.segments, c.end
	l.mu.durable = min(l.mu.durable, c.end.index-1)
	l.mu.synced = min(l.mu.synced, c.end.index-1)
	l.mu.recent.truncate(c.end.index)
	if l.mu.warm != nil {
		l.mu.warm.log.release()
		l.mu.warm = nil
	}
	l.endOffset.Store(c.end.offset)
	l.lastIndex.Store(c.end.index - 1)
}

// removeSegments deletes segments, the last one first, each durably before the
// one in front of it, so that a crash leaves no hole.
func (l *Log) removeSegments(segments []*segment) error {
	fs := l.options.FS
	for i := len(segments) - 1; i >= 0; i-- {
		if err := fs.RemoveAll(segments[i].index.file.path); err != nil {
			return err
		}
		if err := fs.Remove(segments[i].log.path); err != nil {
			return err
		}
		if err := fs.SyncDir(l.options.Dir); err != nil {
			return err
		}
	}
	return nil
}
