package segment

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// sweepLocked looks through the folder: it takes up complete segments, notes the others that can be gone on with, and deletes, durably, what
// does not fit. An index counts only when it vouches for its whole segment.
func (im *Importer) sweepLocked() error {
	o := &im.options
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return err
	}
	number := map[int64]int{}
	for n := range im.info.Segments {
		number[im.info.Segments[n].BaseOffset] = n
	}
	for _, name := range names {
		if base, ok := parseName(name, logSuffix); ok {
			if n, ok := number[base]; ok {
				if err := im.takeUpLocked(n); err != nil {
					return err
				}
			}
		}
	}
	removed := false
	for _, name := range names {
		log, isLog := parseName(name, logSuffix)
		index, isIndex := parseName(name, indexSuffix)
		_, isState := parseName(name, stateSuffix)
		keep := false
		switch {
		case isLog:
			n, ok := number[log]
			keep = ok && im.mu.parts[n].segment != nil
		case isIndex:
			n, ok := number[index]
			keep = ok && im.mu.parts[n].complete
		default:
			keep = !isState && filepath.Ext(name) != tempSuffix
		}
		if keep {
			continue
		}
		removed = true
		if err := o.FS.RemoveAll(filepath.Join(o.Dir, name)); err != nil {
			return err
		}
	}
	if !removed {
		return nil
	}
	// An index that is gone for good cannot vouch for what is written now.
	return o.FS.SyncDir(o.Dir)
}

// takeUpLocked looks at a segment's file. A segment that was linked is complete or not wanted, since its bytes are not ours to change.
func (im *Importer) takeUpLocked(n int) error {
	o, p := &im.options, &im.mu.parts[n]
	file, err := o.FS.OpenReadOnly(pathOf(o.Dir, p.at.offset, logSuffix))
	if err != nil {
		return err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return err
	}
	b := make([]byte, segmentHeaderSize)
	read, err := file.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return err
	}
	h, err := decodeHeader(b[:read])
	if err != nil || h.identity != o.Identity || h.generation > o.Generation || h.start() != p.at {
		return nil
	}
	s := newSegment(o.FS, o.Dir, h, o.IndexIntervalBytes)
	last := n == len(im.mu.parts)-1
	if !last {
		end, ok, err := s.index.readTrailer()
		if err != nil {
			return err
		}
		if ok && size == end.pos && end.matches(p.end) {
			s.size.Store(size)
			p.segment, p.at, p.complete = s, end, true
			return nil
		}
		s = newSegment(o.FS, o.Dir, h, o.IndexIntervalBytes)
	}
	if h.generation == o.Generation {
		s.size.Store(size)
		p.segment = s
	}
	return nil
}

// matches tells whether two places are the same but for the timestamp.
func (p place) matches(q place) bool {
	p.maxTimestamp = q.maxTimestamp
	return p == q
}

// scanLocked verifies a segment that may be incomplete and cuts it behind the last frame that is right.
func (im *Importer) scanLocked(p *part) error {
	if err := im.openPartLocked(p); err != nil {
		return err
	}
	s := p.segment
	size := s.size.Load()
	w := newWalker(s, p.file, s.header.start(), min(size, p.end.pos), im.options.MaxFrameBytes, scanChunk)
	defer w.free()
	for {
		if im.closed.Load() {
			return ErrClosed
		}
		at := w.at
		f, err := w.verified()
		if err == nil && !at.fits(&f, p) {
			err = ErrCorrupt
		}
		if err == io.EOF || errors.Is(err, ErrCorrupt) {
			break
		}
		if err != nil {
			return err
		}
		s.index.note(at, &f)
		p.at = at.after(&f)
		if err := im.flushIndexLocked(p); err != nil {
			return err
		}
	}
	if p.at.pos < size {
		if err := p.file.Truncate(p.at.pos); err != nil {
			return err
		}
	}
	s.size.Store(p.at.pos)
	if err := im.syncLocked(p); err != nil {
		return err
	}
	s.index.close()
	file := p.file
	p.file = nil
	return file.Close()
}

// fits tells whether the frame f at p may be one of the part: it leads nowhere beyond the end, and the index can say where it is.
func (p place) fits(f *frame, part *part) bool {
	next, start := p.after(f), part.segment.header.base
	return next.pos <= part.end.pos && next.index <= part.end.index && next.offset <= part.end.offset &&
		next.term <= part.end.term && p.offset-start <= maxSegmentSize
}

// beginLocked makes the file of a part.
func (im *Importer) beginLocked(n int) error {
	p := &im.mu.parts[n]
	s, file, err := (&Log{options: im.options}).createSegment(im.info.start(n))
	if err != nil {
		return im.failLocked(err)
	}
	p.segment, p.file, p.at = s, file, s.header.start()
	im.mu.unsynced = 0
	return nil
}

// openPartLocked makes sure that a part has its file open.
func (im *Importer) openPartLocked(p *part) error {
	if p.file != nil {
		return nil
	}
	file, err := im.options.FS.Open(p.segment.log.path)
	if err != nil {
		return im.failLocked(err)
	}
	p.file = file
	im.mu.unsynced = 0
	return nil
}

// flushIndexLocked writes the entries of the index when they are many.
func (im *Importer) flushIndexLocked(p *part) error {
	if !p.segment.index.full() {
		return nil
	}
	if err := p.segment.index.flush(); err != nil {
		return im.failLocked(err)
	}
	return nil
}

// syncLocked makes a part's frames durable. When that fails, nobody knows which of them are, although they can be read: the file goes.
func (im *Importer) syncLocked(p *part) error {
	im.mu.unsynced = 0
	if err := p.file.SyncData(); err != nil {
		return im.failLocked(errors.Join(err, im.removeLocked(p)))
	}
	return nil
}

// completeLocked ends a part that has all its bytes: it must end where the next one begins. Its index vouches for it from now on, unless it is
// the last one, which stays active.
func (im *Importer) completeLocked(n int) error {
	p := &im.mu.parts[n]
	if p.segment == nil {
		if err := im.beginLocked(n); err != nil {
			return err
		}
	}
	if !p.at.matches(p.end) {
		err := im.refuse(p, fmt.Sprintf("the segment ends with offset %d, index %d, term %d; announced are %d, %d, %d",
			p.at.offset, p.at.index-1, p.at.term, p.end.offset, p.end.index-1, p.end.term))
		if removeErr := im.removeLocked(p); removeErr != nil {
			return im.failLocked(removeErr)
		}
		return err
	}
	if err := im.openPartLocked(p); err != nil {
		return err
	}
	if err := im.syncLocked(p); err != nil {
		return err
	}
	if err := im.sealLocked(n); err != nil {
		return im.failLocked(errors.Join(err, im.removeLocked(p)))
	}
	p.complete = true
	file := p.file
	p.file = nil
	if err := file.Close(); err != nil {
		return im.failLocked(err)
	}
	return nil
}

// sealLocked makes the index of a part durable: its entries before the trailer that says that they are all there.
func (im *Importer) sealLocked(n int) error {
	p := &im.mu.parts[n]
	x := p.segment.index
	p.segment.size.Store(p.at.pos)
	if err := x.flush(); err != nil {
		return err
	}
	if err := x.sync(); err != nil {
		return err
	}
	if n < len(im.mu.parts)-1 {
		if err := x.seal(p.at); err != nil {
			return err
		}
		if err := x.sync(); err != nil {
			return err
		}
	}
	x.close()
	return nil
}

// sync makes durable what the writer wrote to the file, if it did.
func (x *index) sync() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.mu.owned {
		return nil
	}
	return x.file.file.SyncData()
}

// removeLocked deletes what there is of a part. It is durable before there is another file of that name, since that is synced with the folder.
func (im *Importer) removeLocked(p *part) error {
	s := p.segment
	s.index.close()
	if p.file != nil {
		_ = p.file.Close()
	}
	p.segment, p.file, p.complete = nil, nil, false
	p.at = s.header.start()
	im.countLocked()
	fs := im.options.FS
	return errors.Join(fs.RemoveAll(s.index.file.path), fs.RemoveAll(s.log.path))
}

// refuse is the error for bytes that are not the extent's.
func (im *Importer) refuse(p *part, reason string) error {
	return fmt.Errorf("segment: import of %s, segment %d, byte %d: %s: %w", im.options.Dir, p.end.offset, p.at.pos, reason, ErrCorrupt)
}
