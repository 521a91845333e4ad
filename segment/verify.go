package segment

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/billetlog/billet/internal/vfs"
)

// Verify reads everything that is stored, as it is in the files, and checks what Open checks: headers, every checksum, and that offsets,
// indexes and terms continue. It may run beside everything else, and holds nothing up: it reads about a MiB, or one frame, at a time, and after each calls
// budget, unless that is nil, with how many bytes that were; budget may wait, and its error ends the call. Damage is a
// *CorruptionError. The system may answer from memory what it has there, so what it reads need not be on the disk in that moment.
func (l *Log) Verify(ctx context.Context, budget func(n int) error) error {
	v := verification{log: l, next: l.FirstIndex()}
	return v.run(ctx, budget, ^uint64(0))
}

// VerifySegment is Verify for the segment that holds the record with the offset, or would: one below the first segment means the first.
func (l *Log) VerifySegment(ctx context.Context, offset int64, budget func(n int) error) error {
	segments := l.segments()
	n := 0
	for n+1 < len(segments) && segments[n+1].header.base <= offset {
		n++
	}
	through := ^uint64(0)
	if n+1 < len(segments) {
		through = segments[n+1].header.firstIndex - 1
	}
	v := verification{log: l, next: segments[n].header.firstIndex}
	return v.run(ctx, budget, through)
}

// run verifies what is left, through the entry with the index.
func (v *verification) run(ctx context.Context, budget func(n int) error, through uint64) error {
	l := v.log
	for v.next <= min(l.LastIndex(), through) {
		if l.closed.Load() {
			return ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		err := v.step()
		if errors.Is(err, ErrCompacted) {
			*v, err = verification{log: l, next: l.FirstIndex()}, nil
		}
		if err == nil && budget != nil && v.read > 0 {
			err = budget(v.read)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// verification is one call of Verify.
type verification struct {
	log  *Log
	next uint64 // index to go on with
	read int    // bytes in the last step

	// Where that entry begins, as far as verified; of no meaning when segment is nil.
	at          place
	segment     *segment
	truncations uint64
}

// step verifies about scanChunk bytes, or what is left of a segment.
func (v *verification) step() error {
	v.read = 0
	l := v.log
	l.readMu.RLock()
	defer l.readMu.RUnlock()
	segments := l.segments()
	s := segments[segmentOfIndex(segments, v.next)]
	l.mu.RLock()
	end := l.mu.end
	if s.sealed.Load() {
		end = s.end
	}
	l.mu.RUnlock()
	if v.next < s.header.firstIndex { // deleted meanwhile
		v.next = s.header.firstIndex
	}
	if v.next >= end.index { // truncated meanwhile
		v.next = end.index
		return nil
	}
	file, err := l.open(s)
	if err != nil {
		return err
	}
	defer s.log.release()
	if err := v.position(s, file); err != nil {
		return err
	}
	return v.walk(file, end)
}

// position finds the place of the next entry: where the step before ended, unless entries were cut since, or what the index says.
func (v *verification) position(s *segment, file vfs.File) error {
	l := v.log
	truncations := l.truncations.Load()
	if v.segment == s && v.truncations == truncations && v.at.index == v.next {
		return nil
	}
	v.segment, v.truncations, v.at = s, truncations, s.header.start()
	if v.next != s.header.firstIndex {
		var err error
		v.at, err = l.placeOf(s, v.next)
		return err
	}
	b := make([]byte, segmentHeaderSize)
	n, err := file.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return err
	}
	h, err := decodeHeader(b[:n])
	if err == nil && h.id != s.header.id {
		err = frameErrorf("header of another segment: base offset %d, index %d, created %d", h.base, h.firstIndex, h.created)
	}
	if err != nil {
		return s.damage(0, s.header.base, err.Error())
	}
	if size, err := file.Size(); err != nil || s.sealed.Load() && size != s.end.pos {
		if err != nil {
			return err
		}
		return s.damage(min(size, s.end.pos), s.end.offset, fmt.Sprintf("sealed with %d bytes, has %d", s.end.pos, size))
	}
	return nil
}

// walk verifies frames of the segment, which ends at end.
func (v *verification) walk(file vfs.File, end place) error {
	s, from := v.segment, v.at.pos
	w := newWalker(s, file, v.at, min(s.size.Load(), end.pos), v.log.options.MaxFrameBytes, scanChunk)
	defer w.free()
	for {
		switch _, err := w.verified(); {
		case err == io.EOF:
			if w.at.index != end.index || w.at.offset != end.offset || w.at.term != end.term {
				return w.damage(frameErrorf("the segment ends with index %d, offset %d, term %d; expected are %d, %d, %d",
					w.at.index-1, w.at.offset, w.at.term, end.index-1, end.offset, end.term))
			}
			v.stepped(w, from)
			return nil
		case err != nil:
			return err
		case w.at.index > v.next && !w.hasWhole():
			v.stepped(w, from)
			return nil
		}
	}
}

// stepped notes how far the walker came.
func (v *verification) stepped(w *walker, from int64) {
	v.next, v.at, v.read = w.at.index, w.at, int(w.at.pos-from)
}

// hasWhole tells whether the next frame can be read without reading the file.
func (w *walker) hasWhole() bool {
	b := w.buf[min(int64(len(w.buf)), w.at.pos-w.bufPos):]
	if len(b) < headSize && int64(len(b)) < w.end-w.at.pos {
		return false
	}
	f, err := decodeHead(b[:min(len(b), headSize)], w.max)
	return err != nil || f.size <= len(b)
}
