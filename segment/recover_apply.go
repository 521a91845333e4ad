package segment

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/billetlog/billet/internal/vfs"
)

// readState takes up one state file, or sets it aside.
func (r *recovery) readState(path string, offset int64) error {
	o := &r.log.options
	b, err := vfs.ReadFile(o.FS, path)
	if err != nil {
		return err
	}
	s, err := decodeState(b)
	limit := r.hints.MaxCheckpointIndex
	if err != nil || s.Offset != offset || s.key != o.Identity.Key || s.generation != o.Generation ||
		limit > 0 && s.Index > limit {
		r.stale = append(r.stale, path)
		return nil
	}
	s.Payload = nil
	i, _ := slices.BinarySearchFunc(r.states, s.Index, func(have state, index uint64) int {
		return cmp.Compare(index, have.Index)
	})
	r.states = slices.Insert(r.states, i, s)
	r.paths = slices.Insert(r.paths, i, path)
	return nil
}

// findStart finds the newest checkpoint that has its place in the log, where
// verification starts.
func (r *recovery) findStart() error {
	r.fromAt = r.segments[0].header.start()
	for i := 0; i < len(r.states); {
		n, at, ok, err := r.resolve(&r.states[i])
		if err != nil {
			return err
		}
		if !ok {
			r.stale = append(r.stale, r.paths[i])
			r.states = slices.Delete(r.states, i, i+1)
			r.paths = slices.Delete(r.paths, i, i+1)
			continue
		}
		if i == 0 {
			r.from, r.fromAt, r.result.CheckpointIndex = n, at, r.states[0].Index
		}
		i++
	}
	return nil
}

// resolve finds the segment and place of a checkpoint. ok is false when it belongs
// to entries no longer kept.
func (r *recovery) resolve(s *state) (n int, at place, ok bool, err error) {
	for n, seg := range r.segments {
		if seg.header.firstIndex == s.Index+1 && seg.header.base == s.Offset && seg.header.prevTerm == s.Term {
			return n, seg.header.start(), true, nil
		}
		if seg.header.base != s.segment || seg.header.id != s.segmentID {
			continue
		}
		if size := seg.size.Load(); s.place.pos > size {
			return 0, at, false, seg.damage(size, noTimestamp, fmt.Sprintf(
				"a checkpoint says that %d bytes, up to index %d, were durable; the file has %d", s.place.pos, s.Index, size))
		}
		return n, s.place, true, nil
	}
	return 0, at, false, nil
}

// apply makes the disk what was decided and the log ready.
func (r *recovery) apply() error {
	l, fs := r.log, r.log.options.FS
	if err := r.clean(); err != nil {
		return err
	}
	for _, s := range r.rebuild {
		l.options.Logger.Warn("segment: building a missing or damaged index anew", "file", s.index.file.path)
		if _, err := s.index.rebuild(s, l.options.MaxFrameBytes); err != nil {
			return err
		}
		r.result.IndexesRebuilt++
	}
	s := r.segments[len(r.segments)-1]
	file, err := fs.Open(s.log.path)
	if err != nil {
		return err
	}
	if err = r.settle(s, file); err != nil {
		s.index.close()
		return errors.Join(err, file.Close())
	}
	for i, st := range r.states {
		l.checkpoints.saved = append(l.checkpoints.saved, savedCheckpoint{Checkpoint: st.Checkpoint, path: r.paths[i]})
	}
	l.checkpoints.stale = r.stale
	l.begin(r.segments, file, r.end)
	return nil
}

// clean removes what crashes left: files without a segment, and a segment without
// a header.
func (r *recovery) clean() error {
	o := &r.log.options
	if r.torn != nil {
		r.result.UnfinishedRoll = r.torn.path
		r.garbage = append(r.garbage, r.torn.path, filepath.Join(o.Dir, fileName(r.torn.base, indexSuffix)))
	}
	for _, path := range r.garbage {
		if err := o.FS.RemoveAll(path); err != nil {
			return err
		}
	}
	if len(r.garbage) == 0 {
		return nil
	}
	return o.FS.SyncDir(o.Dir)
}

// settle cuts the torn tail of the last segment, makes durable what is kept and
// brings its index up to date.
func (r *recovery) settle(s *segment, file vfs.File) error {
	o := &r.log.options
	if r.result.CutBytes > 0 {
		o.Logger.Warn("segment: cutting a torn tail", "file", s.log.path, "pos", r.end.pos,
			"bytes", r.result.CutBytes, "index", r.end.index, "reason", r.result.CutReason)
		if err := file.Truncate(r.end.pos); err != nil {
			return err
		}
	}
	if r.result.CutBytes > 0 || r.end.index-1 > r.hints.DurableIndex {
		if err := file.SyncData(); err != nil {
			return err
		}
		if err := o.FS.SyncDir(o.Dir); err != nil {
			return err
		}
	}
	if err := s.index.flush(); !onlyFull(err) {
		return err
	}
	return s.index.settle()
}
