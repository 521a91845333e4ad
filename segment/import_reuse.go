package segment

import (
	"errors"
	"io"
	"io/fs"

	"github.com/billetlog/billet/internal/vfs"
)

// linkLocked gives a sealed segment of the log to reuse that is the same as the n-th part a second name in the folder. Neither log changes the
// file: what is sealed and committed is never cut. When it cannot be linked it is copied later.
func (im *Importer) linkLocked(n int) error {
	p := &im.mu.parts[n]
	old := im.sameSegment(n)
	if old == nil {
		return nil
	}
	if p.segment != nil {
		if err := im.removeLocked(p); err != nil {
			return err
		}
	}
	o := &im.options
	path, indexPath := pathOf(o.Dir, old.header.base, logSuffix), pathOf(o.Dir, old.header.base, indexSuffix)
	if err := o.FS.Link(old.log.path, path); err != nil {
		if !errors.Is(err, fs.ErrNotExist) { // deleted by retention meanwhile
			o.Logger.Info("segment: cannot link a segment, copying it", "file", old.log.path, "err", err)
		}
		return nil
	}
	s := newSegment(o.FS, o.Dir, old.header, o.IndexIntervalBytes)
	s.size.Store(old.end.pos)
	ok, err := im.linkIndex(s, old.index.file.path, indexPath)
	if err == nil && ok {
		p.segment, p.at, p.complete = s, old.end, true
		return nil
	}
	p.segment = s
	return errors.Join(err, im.removeLocked(p))
}

// linkIndex gives s the index of the segment it was linked from, or builds one. ok is false when the segment is damaged.
func (im *Importer) linkIndex(s *segment, from, to string) (ok bool, err error) {
	files := im.options.FS
	if err := files.Link(from, to); err == nil {
		end, whole, err := s.index.readTrailer()
		if err == nil && whole && end.pos == s.size.Load() {
			return true, syncFile(files, to)
		}
		if err := files.RemoveAll(to); err != nil {
			return false, err
		}
	}
	_, err = s.index.rebuild(s, im.options.MaxFrameBytes)
	if errors.Is(err, ErrCorrupt) {
		im.options.Logger.Warn("segment: not reusing a damaged segment", "err", err)
		return false, nil
	}
	return err == nil, err
}

func syncFile(files vfs.FS, path string) error {
	file, err := files.OpenReadOnly(path)
	if err != nil {
		return err
	}
	return errors.Join(file.SyncData(), file.Close())
}

// sameSegment returns the sealed segment of the log to reuse that is the n-th part, nil if there is none.
func (im *Importer) sameSegment(n int) *segment {
	if im.reuse == nil || im.reuse.closed.Load() {
		return nil
	}
	p := &im.mu.parts[n]
	segments := im.reuse.segments()
	s := segments[segmentOfOffset(segments, p.end.offset-1)]
	start := im.info.start(n)
	if !s.sealed.Load() || s.header.start() != start || !s.end.matches(p.end) || s.end.index-1 > im.reuseThrough ||
		s.header.generation > im.options.Generation || s.header.identity != im.options.Identity {
		return nil
	}
	return s
}

// copyLocked takes what it can of the n-th part from the log to reuse. Whatever goes wrong on that side, the rest is asked for.
func (im *Importer) copyLocked(n int) {
	if im.reuse == nil {
		return
	}
	p := &im.mu.parts[n]
	for !p.complete && im.mu.failure == nil && !im.closed.Load() {
		kept, err := im.copySegmentLocked(n)
		if err != nil && !errors.Is(err, ErrCompacted) && !errors.Is(err, ErrUnavailable) {
			im.options.Logger.Warn("segment: reusing what is there stopped early", "dir", im.options.Dir, "err", err)
		}
		if err != nil || kept == 0 {
			return
		}
	}
}

// copySegmentLocked is copyLocked for what lies in one segment of the log to reuse.
func (im *Importer) copySegmentLocked(n int) (int64, error) {
	l, p := im.reuse, &im.mu.parts[n]
	if p.at.index > min(im.reuseThrough, p.end.index-1, l.LastIndex()) {
		return 0, nil
	}
	first, err := l.Frame(p.at.index)
	if err != nil {
		return 0, err
	}
	segments := l.segments()
	i := segmentOfIndex(segments, p.at.index)
	lastIndex := min(im.reuseThrough, p.end.index-1, l.LastIndex())
	if i+1 < len(segments) {
		lastIndex = min(lastIndex, segments[i+1].header.firstIndex-1)
	}
	last, err := l.Frame(lastIndex)
	if err != nil {
		return 0, err
	}
	s := segments[i]
	if first.Segment != s.header.base || last.Segment != s.header.base {
		return 0, nil // retention was faster
	}
	file, err := s.log.acquire()
	if err != nil {
		return 0, l.goneError(s, err)
	}
	defer s.log.release()
	length := min(last.Pos+int64(last.Size)-first.Pos, p.end.pos-p.at.pos)
	return im.ingestLocked(n, io.NewSectionReader(file, first.Pos, length), length)
}
