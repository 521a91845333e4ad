package segment

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/billetlog/billet/internal/vfs"
)

// Checkpoint is what somebody folded out of the log up to an entry, so that
// neither folding nor verifying starts from the beginning after a restart.
type Checkpoint struct {
	Index   uint64 // of the last entry folded
	Term    uint64 // of that entry
	Offset  int64  // the end offset behind it
	Payload []byte // opaque
}

// checkpoints are those on disk, newest first, without payloads.
type checkpoints struct {
	saved []savedCheckpoint
	stale []string // paths of state files that do not count
}

type savedCheckpoint struct {
	Checkpoint
	path    string
	durable bool // known to be
}

// keptCheckpoints is how many are kept, besides the newest durable one.
const keptCheckpoints = 2

// SaveCheckpoint stores c, having made the log durable up to c.Index. The file
// itself is durable only when durable is set. The two newest are kept, and the
// newest durable one. An error of the file alone does not latch the log.
func (l *Log) SaveCheckpoint(c Checkpoint, durable bool) error {
	l.checkpointMu.Lock()
	defer l.checkpointMu.Unlock()
	if err := l.check(); err != nil {
		return err
	}
	if int64(len(c.Payload)) > math.MaxInt32 {
		return fmt.Errorf("segment: checkpoint of %d bytes is too large", len(c.Payload))
	}
	if c.Index > l.DurableIndex() {
		if err := l.Sync(); err != nil {
			return err
		}
	}
	s, err := l.stateOf(c, durable)
	if err != nil {
		return err
	}
	return l.writeState(&s, durable)
}

// stateOf finds the place of c and brings the index there up to date.
func (l *Log) stateOf(c Checkpoint, durable bool) (state, error) {
	l.readMu.RLock()
	defer l.readMu.RUnlock()
	segments := l.segments()
	first, last := segments[0].header.firstIndex, l.LastIndex()
	if c.Index > last {
		return state{}, fmt.Errorf("%w: checkpoint of index %d, last is %d", ErrUnavailable, c.Index, last)
	}
	if c.Index+1 < first {
		return state{}, &CompactedError{FirstIndex: first, StartOffset: segments[0].header.base}
	}
	seg := segments[segmentOfIndex(segments, c.Index+1)]
	at := seg.header.start()
	if c.Index+1 > at.index {
		err := l.walkTo(seg, c.Index, func(w *walker, f *frame) error {
			at = w.at.after(f)
			return nil
		})
		if err != nil {
			return state{}, err
		}
	}
	if at.term != c.Term || at.offset != c.Offset {
		return state{}, fmt.Errorf("segment: checkpoint of index %d says term %d, offset %d; the log has %d, %d",
			c.Index, c.Term, c.Offset, at.term, at.offset)
	}
	s := state{Checkpoint: c, key: l.options.Identity.Key, generation: l.options.Generation,
		segment: seg.header.base, segmentID: seg.header.id, place: at}
	if seg.sealed.Load() {
		return s, nil
	}
	var err error
	s.entries, err = seg.index.save(at.pos, durable)
	return s, err
}

// save writes the tail and returns how many entries lie before pos.
func (x *index) save(pos int64, durable bool) (int, error) {
	if err := x.flush(); err != nil {
		return 0, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	n, err := x.searchLocked(func(e indexEntry) bool { return int64(e.pos) < pos })
	if repairable(err) {
		return 0, nil
	}
	if err == nil && durable && x.mu.owned {
		err = x.file.file.SyncData()
	}
	return n, err
}

// writeState writes the file and deletes those no longer needed.
func (l *Log) writeState(s *state, durable bool) error {
	c := &l.checkpoints
	path := filepath.Join(l.options.Dir, fileName(s.Offset, stateSuffix))
	anyDurable := false
	for _, old := range c.saved {
		anyDurable = anyDurable || old.durable
		// The file of the same name goes when this one comes, so this one
		// must be there for sure.
		durable = durable || old.path == path
	}
	durable = durable || len(c.saved) >= keptCheckpoints && !anyDurable
	if err := l.replaceFile(path, s.encode(), durable); err != nil {
		return err
	}
	saved := savedCheckpoint{Checkpoint: s.Checkpoint, path: path, durable: durable}
	saved.Payload = nil
	c.saved = slices.DeleteFunc(c.saved, func(old savedCheckpoint) bool { return old.path == path })
	c.stale = slices.DeleteFunc(c.stale, func(old string) bool { return old == path })
	at := slices.IndexFunc(c.saved, func(old savedCheckpoint) bool { return old.Index <= s.Index })
	if at < 0 {
		at = len(c.saved)
	}
	c.saved = slices.Insert(c.saved, at, saved)
	l.pruneCheckpoints()
	return nil
}

// replaceFile writes a file under another name first.
func (l *Log) replaceFile(path string, data []byte, durable bool) error {
	fs := l.options.FS
	if durable {
		return vfs.WriteFileAtomic(fs, path, data)
	}
	temp := path + tempSuffix
	if err := fs.RemoveAll(temp); err != nil {
		return err
	}
	f, err := fs.Create(temp)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = fs.Rename(temp, path)
	}
	if err != nil {
		_ = fs.RemoveAll(temp)
	}
	return err
}

// pruneCheckpoints deletes state files beyond those to keep. One that cannot be
// deleted is tried again next time.
func (l *Log) pruneCheckpoints() {
	c := &l.checkpoints
	haveDurable := false
	kept := c.saved[:0]
	for i, s := range c.saved {
		if i < keptCheckpoints || s.durable && !haveDurable {
			haveDurable = haveDurable || s.durable
			kept = append(kept, s)
			continue
		}
		c.stale = append(c.stale, s.path)
	}
	c.saved = kept
	c.stale = slices.DeleteFunc(c.stale, func(path string) bool {
		return l.options.FS.RemoveAll(path) == nil
	})
}

// Checkpoint returns the newest checkpoint.
func (l *Log) Checkpoint() (Checkpoint, bool) { return l.readCheckpoint(0) }

// OlderCheckpoint returns the one before the newest.
func (l *Log) OlderCheckpoint() (Checkpoint, bool) { return l.readCheckpoint(1) }

// readCheckpoint returns the n-th newest of those that can be read.
func (l *Log) readCheckpoint(n int) (Checkpoint, bool) {
	l.checkpointMu.Lock()
	defer l.checkpointMu.Unlock()
	for _, saved := range l.checkpoints.saved {
		b, err := vfs.ReadFile(l.options.FS, saved.path)
		if err != nil {
			l.options.Logger.Warn("segment: cannot read a checkpoint", "file", saved.path, "err", err)
			continue
		}
		s, err := decodeState(b)
		if err != nil || s.Index != saved.Index || s.key != l.options.Identity.Key {
			l.options.Logger.Warn("segment: damaged checkpoint", "file", saved.path, "err", err)
			continue
		}
		if n == 0 {
			return s.Checkpoint, true
		}
		n--
	}
	return Checkpoint{}, false
}

// dropCheckpointsAbove deletes, durably, the checkpoints of entries above index.
// The caller is the writer.
func (l *Log) dropCheckpointsAbove(index uint64) error {
	l.checkpointMu.Lock()
	defer l.checkpointMu.Unlock()
	c := &l.checkpoints
	drop := slices.Clone(c.stale)
	for _, s := range c.saved {
		if s.Index > index {
			drop = append(drop, s.path)
		}
	}
	if len(drop) == 0 {
		return nil
	}
	for _, path := range drop {
		if err := l.options.FS.RemoveAll(path); err != nil {
			return err
		}
	}
	c.stale = nil
	c.saved = slices.DeleteFunc(c.saved, func(s savedCheckpoint) bool { return s.Index > index })
	return l.options.FS.SyncDir(l.options.Dir)
}

// dropCheckpointsBelow deletes those whose entries are gone: nobody could fold on.
func (l *Log) dropCheckpointsBelow(index uint64) {
	l.checkpointMu.Lock()
	defer l.checkpointMu.Unlock()
	c := &l.checkpoints
	c.saved = slices.DeleteFunc(c.saved, func(s savedCheckpoint) bool {
		if s.Index+1 >= index {
			return false
		}
		c.stale = append(c.stale, s.path)
		return true
	})
	l.pruneCheckpoints()
}
