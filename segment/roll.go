package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"time"

	"github.com/billetlog/billet/internal/vfs"
)

// Create makes a log of one empty segment. The folder may exist but must hold no
// segment. When it returns, the log is durable, and so is the folder's own name.
// Dir's parent must exist durably.
func Create(o Options, at Start) (*Log, error) {
	o.ensureDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	if at.FirstIndex == 0 || at.Offset < 0 || at.PrevTerm > math.MaxInt32 {
		return nil, errors.New("segment: a log starts at index 1, offset 0 and term 0 or above")
	}
	if err := prepareDir(&o); err != nil {
		return nil, err
	}
	l := &Log{options: o}
	p := place{offset: at.Offset, index: at.FirstIndex, term: at.PrevTerm}
	s, file, err := l.createSegment(p)
	if err != nil {
		return nil, err
	}
	l.begin([]*segment{s}, file, s.header.start())
	return l, nil
}

// prepareDir makes the folder, durably, and refuses one that holds a log.
func prepareDir(o *Options) error {
	if err := o.FS.MkdirAll(o.Dir); err != nil {
		return err
	}
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, ok := parseName(name, logSuffix); ok {
			return fmt.Errorf("segment: %s holds a log already: %w", o.Dir, fs.ErrExist)
		}
	}
	return o.FS.SyncDir(filepath.Dir(o.Dir))
}

// begin makes the log ready: segments are all there are, file is the last one's,
// and end is its end.
func (l *Log) begin(segments []*segment, file vfs.File, end place) {
	s := segments[len(segments)-1]
	s.size.Store(end.pos)
	l.writer.adopt(s, file, end)
	if !l.writer.empty() {
		l.writer.first = time.Unix(0, s.header.created)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.segments, l.mu.end = segments, end
	l.mu.durable, l.mu.synced = end.index-1, end.index-1
	l.lastIndex.Store(end.index - 1)
	l.endOffset.Store(end.offset)
}

// createSegment makes a segment that begins at p, durably.
func (l *Log) createSegment(p place) (*segment, vfs.File, error) {
	o := &l.options
	h := header{identity: o.Identity, generation: o.Generation, firstIndex: p.index,
		base: p.offset, prevTerm: p.term, created: o.Now().UnixNano()}
	b := h.encode()
	s := newSegment(o.FS, o.Dir, h, o.IndexIntervalBytes)
	file, err := o.FS.Create(s.log.path)
	if err != nil {
		return nil, nil, err
	}
	_, err = file.WriteAt(b, 0)
	if err == nil {
		err = file.SyncData()
	}
	if err == nil {
		err = o.FS.SyncDir(o.Dir)
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close(), o.FS.RemoveAll(s.log.path))
	}
	s.size.Store(segmentHeaderSize)
	return s, file, nil
}

// Roll seals the active segment and begins the next one. It does nothing when the
// active segment has no records.
func (l *Log) Roll() error {
	_, err := l.rollIf(func() bool { return true })
	return err
}

// RollIfOld rolls when the first entry of the active segment is older than
// Options.SegmentAge, and tells whether it did.
func (l *Log) RollIfOld() (bool, error) { return l.rollIf(l.isOld) }

func (l *Log) rollIf(want func() bool) (bool, error) {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	if err := l.check(); err != nil {
		return false, err
	}
	w := &l.writer
	if !w.hasRecords() || !want() {
		return false, nil
	}
	w.staged, w.synced = w.staged[:0], 0
	if err := l.roll(); err != nil {
		return false, l.fail(err)
	}
	l.publish(w.end.index)
	return true, nil
}

// roll seals the active segment, which ends at the writer's end, and begins the
// next one. The old one is durable before the new one exists.
func (l *Log) roll() error {
	w := &l.writer
	old := w.segment
	if err := w.unreserve(); err != nil {
		return err
	}
	if err := l.syncActive(); err != nil {
		return err
	}
	if err := old.index.seal(w.end); err != nil {
		return err
	}
	s, file, err := l.createSegment(w.end)
	if err != nil {
		return err
	}
	old.index.close()
	l.mu.Lock()
	old.end = w.end
	old.sealed.Store(true)
	segments := make([]*segment, len(l.mu.segments), len(l.mu.segments)+1)
	copy(segments, l.mu.segments)
	l.mu.segments = append(segments, s)
	l.mu.Unlock()
	w.adopt(s, file, s.header.start())
	old.log.release()
	return nil
}

// syncActive makes durable what is written to the active segment. The caller is
// the writer.
func (l *Log) syncActive() error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if err := l.check(); err != nil {
		return err
	}
	if err := l.writer.file.SyncData(); err != nil {
		return l.fail(err)
	}
	l.writer.synced = l.writer.end.index - 1
	return nil
}

// Sync makes durable every entry that was written when it began, in whatever way
// it was to become durable. It may run beside an Append.
func (l *Log) Sync() error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if err := l.check(); err != nil {
		return err
	}
	l.mu.RLock()
	last, synced, truncations := l.mu.end.index-1, l.mu.synced, l.truncations.Load()
	log := l.mu.segments[len(l.mu.segments)-1].log
	file, err := log.acquire()
	l.mu.RUnlock()
	if err != nil {
		return l.fail(err)
	}
	defer log.release()
	if synced < last {
		if err := file.SyncData(); err != nil {
			return l.fail(err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.truncations.Load() == truncations {
		l.mu.durable = max(l.mu.durable, last)
		l.mu.synced = max(l.mu.synced, last)
	}
	return nil
}

// SyncJournaled implements Syncer.
func (l *Log) SyncJournaled() error { return l.Sync() }
