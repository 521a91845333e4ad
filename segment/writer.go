package segment

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/billetlog/billet/internal/vfs"
)

// writer is what only the one writer sees.
type writer struct {
	segment *segment // the active one
	file    vfs.File
	end     place     // behind what was written or is in the run; that of the log between calls
	noted   place     // behind what was written
	first   time.Time // when the active segment got its first entry; zero while empty

	frames []frame       // of the run, reused
	staged []recentFrame // of the Append, reused
	synced uint64        // last index known to be fdatasynced during the Append

	reserved  int64 // position up to which space is reserved in file
	noReserve bool  // it could not be
}

func (w *writer) adopt(s *segment, file vfs.File, end place) {
	s.log.adopt(file)
	w.segment, w.file, w.end, w.noted, w.first = s, file, end, end, time.Time{}
	w.reserved, w.noReserve = 0, false
}

func (w *writer) empty() bool { return w.end.index == w.segment.header.firstIndex }

// hasRecords tells whether the active segment can be sealed: without records the
// next one would have the same name.
func (w *writer) hasRecords() bool { return w.end.offset > w.segment.header.base }

func (w *writer) close() {
	w.segment.index.close()
	w.segment.log.release()
	w.file, w.frames, w.staged = nil, nil, nil
}

// Appended tells what an Append did.
type Appended struct {
	Writes    []Write // in the order written; for the journal
	Bytes     int     // in all writes
	LastIndex uint64
	EndOffset int64
	Voids     int  // record batches that did not take effect
	Synced    bool // all of it is durable already
	Truncated bool // entries were cut away first
	Rolled    int  // segments begun
}

// run is a piece of the active segment that is about to be written.
type run struct {
	bufs [][]byte
	size int
}

// appending is one call of Append.
type appending struct {
	log      *Log
	result   Appended
	run      run
	unsynced int64 // bytes written and not durable, without run
}

// Append stores entries, which continue the log or replace its end from
// entries[0].Index on, and decides which record batches take effect: those whose
// base offset is the log's end offset and whose epoch is the entry's term. It does
// not look at the CRC of a record batch: an entry whose CRC is wrong is found
// damaged when it is next read.
//
// Nothing is durable when it returns, unless Appended says so: see Sync and
// MarkDurable. The writes alias the entries' data. Readers see all of the entries
// or, on an error, none. An error that wraps ErrGap says that nothing was tried;
// any other one is final: the log takes no more writes.
//
// Before it replaces entries the caller must have lowered, durably, a durable mark
// kept elsewhere to below entries[0].Index.
func (l *Log) Append(entries []Entry) (Appended, error) {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	if err := l.check(); err != nil {
		return Appended{}, err
	}
	if err := l.checkEntries(entries); err != nil {
		return Appended{}, err
	}
	a := appending{log: l}
	if len(entries) == 0 {
		return a.finish(), nil
	}
	if entries[0].Index <= l.LastIndex() {
		if err := l.truncate(entries[0].Index); err != nil {
			return Appended{}, err
		}
		a.result.Truncated = true
	}
	a.unsynced = l.unsynced()
	w := &l.writer
	w.frames, w.staged, w.synced = w.frames[:0], w.staged[:0], 0
	first := w.end.index
	err := a.addAll(entries)
	if err != nil {
		return Appended{}, l.fail(err)
	}
	l.publish(first)
	return a.finish(), nil
}

func (a *appending) finish() Appended {
	w := &a.log.writer
	a.result.LastIndex, a.result.EndOffset = w.end.index-1, w.end.offset
	a.result.Synced = w.synced == w.end.index-1
	const keep = 16
	if cap(w.frames) > keep {
		w.frames = nil
	}
	if cap(w.staged) > keep {
		w.staged = nil
	}
	return a.result
}

// checkEntries refuses what cannot be stored, before anything is changed.
func (l *Log) checkEntries(entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	first, last := l.FirstIndex(), l.LastIndex()
	at := entries[0].Index
	if at < first || at > last+1 {
		return fmt.Errorf("%w: first entry has index %d, stored are [%d, %d]", ErrGap, at, first, last)
	}
	term, err := l.termBefore(at)
	if err != nil {
		return err
	}
	for i := range entries {
		e := &entries[i]
		if e.Index != at+uint64(i) {
			return fmt.Errorf("%w: index %d where %d must be", ErrGap, e.Index, at+uint64(i))
		}
		if e.Term == 0 || e.Term > math.MaxInt32 || e.Term < term {
			return fmt.Errorf("%w: term %d after term %d at index %d", ErrGap, e.Term, term, e.Index)
		}
		if e.Term != term && e.Kind != KindNoOp {
			return fmt.Errorf("%w: index %d has term %d, but no no-op of that term comes before it (last term is %d)",
				ErrGap, e.Index, e.Term, term)
		}
		if e.Kind < KindData || e.Kind > KindVoid {
			return fmt.Errorf("%w: kind %d at index %d", ErrGap, e.Kind, e.Index)
		}
		if len(e.Data) > l.options.MaxFrameBytes-internalHeaderSize {
			return fmt.Errorf("%w: %d bytes at index %d, MaxFrameBytes is %d", ErrGap, len(e.Data), e.Index, l.options.MaxFrameBytes)
		}
		term = e.Term
	}
	return nil
}

// termBefore returns the term of the entry before index.
func (l *Log) termBefore(index uint64) (uint64, error) {
	if index == l.LastIndex()+1 {
		return l.writer.end.term, nil
	}
	if s := l.segments()[0]; index == s.header.firstIndex {
		return s.header.prevTerm, nil
	}
	return l.Term(index - 1)
}

// unsynced returns how many bytes of the active segment may not be durable.
func (l *Log) unsynced() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	end := l.mu.end
	if l.mu.durable+1 >= end.index {
		return 0
	}
	s := l.writer.segment
	if f, ok := l.mu.recent.get(l.mu.durable + 1); ok && f.segment == s.header.base {
		return end.pos - int64(f.pos)
	}
	return end.pos - segmentHeaderSize
}

// takesEffect is the rule of compare-and-append.
func takesEffect(e *Entry, end place) (frame, bool) {
	f, err := decodeHead(e.Data[:min(len(e.Data), headSize)], maxFrameSize)
	ok := err == nil && f.kind == KindData && f.size == len(e.Data) &&
		f.base == end.offset && f.term == e.Term
	return f, ok
}

// addAll writes the entries.
func (a *appending) addAll(entries []Entry) error {
	a.run.bufs = make([][]byte, 0, len(entries))
	for i := range entries {
		if err := a.add(&entries[i]); err != nil {
			return err
		}
	}
	if err := a.flush(); err != nil {
		return err
	}
	if x := a.log.writer.segment.index; x.full() {
		return x.flush()
	}
	return nil
}

// add makes room for one entry and puts its frame into the run.
func (a *appending) add(e *Entry) error {
	w := &a.log.writer
	kind, payload := e.Kind, e.Data
	f, ok := frame{}, false
	if kind == KindData {
		if f, ok = takesEffect(e, w.end); !ok {
			kind = KindVoid
			a.result.Voids++
		}
	}
	if kind == KindVoid || kind == KindNoOp {
		payload = nil
	}
	if !ok {
		f = frame{kind: kind, size: internalHeaderSize + len(payload), base: w.end.offset,
			next: w.end.offset, term: e.Term, maxTimestamp: noTimestamp}
	}
	if err := a.makeRoom(&f); err != nil {
		return err
	}
	if kind != KindData {
		head := make([]byte, internalHeaderSize)
		putInternal(head, kind, f.base, f.term, payload)
		a.run.bufs = append(a.run.bufs, head)
	}
	if len(payload) > 0 {
		a.run.bufs = append(a.run.bufs, payload)
	}
	a.run.size += f.size
	w.frames = append(w.frames, f)
	w.end = w.end.after(&f)
	return nil
}

// maxSegmentSize is what positions in the index can say.
const maxSegmentSize = math.MaxUint32

// makeRoom rolls when f does not go into the active segment, and syncs when there
// would be too much unsynced.
func (a *appending) makeRoom(f *frame) error {
	o, w := &a.log.options, &a.log.writer
	if w.end.pos+int64(f.size) > maxSegmentSize && !w.hasRecords() {
		return errors.New("segment: too many entries without a record")
	}
	if w.empty() && a.run.size == 0 {
		w.first = o.Now()
	} else if a.log.mustRoll(f) {
		if err := a.flush(); err != nil {
			return err
		}
		if err := a.log.roll(); err != nil {
			return err
		}
		a.unsynced = 0
		a.result.Rolled++
		w.first = o.Now()
	}
	written := a.unsynced + int64(a.run.size)
	if o.LossyTail || written == 0 || written+int64(f.size) <= o.MaxUnsyncedBytes {
		return nil
	}
	if err := a.flush(); err != nil {
		return err
	}
	a.unsynced = 0
	return a.log.syncActive()
}

// mustRoll tells whether f goes to the next segment.
func (l *Log) mustRoll(f *frame) bool {
	w := &l.writer
	return w.hasRecords() && (w.end.pos+int64(f.size) > l.options.SegmentBytes ||
		w.end.offset-w.segment.header.base > math.MaxInt32 || l.isOld())
}

// isOld tells whether the active segment has entries and the first is too old.
func (l *Log) isOld() bool {
	w, age := &l.writer, l.options.SegmentAge
	return age > 0 && !w.empty() && l.options.Now().Sub(w.first) > age
}

// flush writes the run. When that fails, the file is cut back as far as may be, so
// that the space is free again; what stays is cut by the next open.
func (a *appending) flush() error {
	if a.run.size == 0 {
		return nil
	}
	w := &a.log.writer
	start := w.end.pos - int64(a.run.size)
	w.reserve(w.end.pos, a.log.options.SegmentBytes)
	n, err := w.file.WritevAt(a.run.bufs, start)
	if err == nil && n != a.run.size {
		err = errors.New("segment: short write")
	}
	if err != nil {
		_ = w.file.Truncate(start)
		return err
	}
	a.noteFrames()
	w.segment.size.Store(w.end.pos)
	a.unsynced += int64(a.run.size)
	a.result.Bytes += a.run.size
	a.result.Writes = append(a.result.Writes, Write{
		Key: a.log.options.Identity.Key, Generation: a.log.options.Generation,
		File: w.segment.name, Pos: start, Data: a.run.bufs, Size: a.run.size,
	})
	a.run = run{}
	return nil
}

// noteFrames tells the index and the memory of recent frames what was written.
func (a *appending) noteFrames() {
	w := &a.log.writer
	w.staged = slices.Grow(w.staged, len(w.frames))
	p := w.noted
	for i := range w.frames {
		f := &w.frames[i]
		w.segment.index.note(p, f)
		w.staged = append(w.staged, recentFrame{base: f.base, next: f.next, segment: w.segment.header.base,
			pos: uint32(p.pos), size: uint32(f.size), term: uint32(f.term), kind: f.kind})
		p = p.after(f)
	}
	w.frames, w.noted = w.frames[:0], p
}

// publish shows readers what was written since frame first.
func (l *Log) publish(first uint64) {
	w := &l.writer
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.recent.add(first, w.staged)
	l.mu.end = w.end
	l.mu.durable = max(l.mu.durable, w.synced)
	l.mu.synced = max(l.mu.synced, w.synced)
	l.lastIndex.Store(w.end.index - 1)
	l.endOffset.Store(w.end.offset)
}
