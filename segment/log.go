package segment

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Log is one replica's log: segments in a folder, the last of them active. One
// goroutine writes (Append, Truncate, Roll; calls are serialised); any number
// read, sync, save checkpoints and delete beside it.
//
// Locks are taken in the order of the fields: writeMu, checkpointMu, syncMu,
// readMu, mu, and those of an index and of a handle last.
type Log struct {
	options Options

	writeMu sync.Mutex // the one writer
	writer  writer     // under writeMu

	// retainMu is held while segments are deleted at either end. Appends go on
	// while they are at the front.
	retainMu sync.Mutex
	retained retained // under retainMu

	checkpointMu sync.Mutex
	checkpoints  checkpoints // under checkpointMu

	syncMu sync.Mutex // one sync at a time, so that none can miss another's error

	// readMu is held for reading while bytes of the log are read, and for
	// writing while the end moves down, so that nobody reads what is about to
	// be cut.
	readMu sync.RWMutex

	repairMu sync.Mutex // one index is built anew at a time

	failure     atomic.Pointer[error] // the first failed write
	closed      atomic.Bool
	truncations atomic.Uint64

	// The end, for those who need no lock. Stored under mu, endOffset last.
	lastIndex atomic.Uint64
	endOffset atomic.Int64

	mu struct {
		sync.RWMutex
		segments []*segment // replaced, never changed in place
		end      place      // behind the last entry, in the last segment
		durable  uint64     // index
		synced   uint64     // last index whose bytes were fdatasynced in their file
		recent   recent
		warm     *segment // a sealed segment kept open for the next look-up
	}
}

// Start says where an empty log begins.
type Start struct {
	FirstIndex uint64 // Raft index of the first entry, at least 1
	PrevTerm   uint64 // term of the entry before, 0 when there is none
	Offset     int64  // offset of the first record
}

// FirstIndex returns the Raft index of the first entry kept.
func (l *Log) FirstIndex() uint64 { return l.segments()[0].header.firstIndex }

// LastIndex returns the Raft index of the last entry, FirstIndex()-1 when there is
// none.
func (l *Log) LastIndex() uint64 { return l.lastIndex.Load() }

// LastTerm returns the term of the last entry, or of the one before the first.
func (l *Log) LastTerm() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.mu.end.term
}

// StartOffset returns the offset of the first record kept.
func (l *Log) StartOffset() int64 { return l.segments()[0].header.base }

// EndOffset returns the offset behind the last record.
func (l *Log) EndOffset() int64 { return l.endOffset.Load() }

// Size returns the bytes in all segments.
func (l *Log) Size() int64 {
	size := int64(0)
	for _, s := range l.segments() {
		size += s.size.Load()
	}
	return size
}

// DurableIndex returns the index up to which entries are known to survive a power
// cut.
func (l *Log) DurableIndex() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.mu.durable
}

// MarkDurable tells the log that the caller made the entries up to index durable
// through the journal.
func (l *Log) MarkDurable(index uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.durable = max(l.mu.durable, min(index, l.mu.end.index-1))
}

// SegmentInfo describes one segment.
type SegmentInfo struct {
	BaseOffset   int64
	EndOffset    int64
	FirstIndex   uint64
	LastIndex    uint64 // FirstIndex-1 when empty
	Size         int64
	MaxTimestamp int64 // -1 without records
	Active       bool
}

// Segments describes the segments in order.
func (l *Log) Segments() []SegmentInfo {
	l.mu.RLock()
	defer l.mu.RUnlock()
	infos := make([]SegmentInfo, len(l.mu.segments))
	for i, s := range l.mu.segments {
		end := l.endLocked(i)
		infos[i] = SegmentInfo{
			BaseOffset: s.header.base, EndOffset: end.offset,
			FirstIndex: s.header.firstIndex, LastIndex: end.index - 1,
			Size: s.size.Load(), MaxTimestamp: end.maxTimestamp,
			Active: i == len(l.mu.segments)-1,
		}
	}
	return infos
}

// endLocked returns the end of the i-th segment.
func (l *Log) endLocked(i int) place {
	s := l.mu.segments[i]
	switch {
	case s.sealed.Load():
		return s.end
	case l.mu.end.index < s.header.firstIndex: // begun by an Append not yet over
		return s.header.start()
	}
	return l.mu.end
}

// segments returns the present list; nobody changes it.
func (l *Log) segments() []*segment {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.mu.segments
}

// check returns why the log takes no writes, nil when it does.
func (l *Log) check() error {
	if l.closed.Load() {
		return ErrClosed
	}
	if err := l.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// fail latches the log: err is what every later write gets.
func (l *Log) fail(err error) error {
	if errors.Is(err, ErrFailed) {
		return err
	}
	failure := fmt.Errorf("%w: %w", ErrFailed, err)
	if l.failure.CompareAndSwap(nil, &failure) {
		l.options.Logger.Error("segment: log takes no more writes", "dir", l.options.Dir, "err", err)
	}
	return failure
}

// Failed returns the error that made the log refuse writes, nil when it does not.
func (l *Log) Failed() error {
	if err := l.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Close ends all writing. It syncs first when durable is set. Nothing is sealed.
// Reads fail with ErrClosed from now on; cursors and ranges hold their files until
// they are closed and released. A second Close returns ErrClosed.
func (l *Log) Close(durable bool) error {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	l.retainMu.Lock()
	defer l.retainMu.Unlock()
	l.checkpointMu.Lock()
	defer l.checkpointMu.Unlock()
	if l.closed.Load() {
		return ErrClosed
	}
	var err error
	if l.failure.Load() == nil {
		if err = l.writer.unreserve(); err != nil {
			durable = false
		}
		if durable {
			err = l.Sync()
		}
		if flushErr := l.active().index.flush(); !onlyFull(flushErr) {
			err = errors.Join(err, flushErr)
		}
	}
	l.closed.Store(true)
	l.release()
	return err
}

// release gives up the files the log itself holds.
func (l *Log) release() {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.warm != nil {
		l.mu.warm.log.release()
		l.mu.warm = nil
	}
	l.writer.close()
	l.mu.recent = recent{}
}

// active returns the segment that is written to. The caller is the writer.
func (l *Log) active() *segment { return l.writer.segment }
