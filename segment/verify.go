package segment

import (
	"context"
	"errors"
	"io"
)

// Verify reads everything that is stored and checks every checksum and that
// offsets, indexes and terms continue. It may run beside everything else.
func (l *Log) Verify(ctx context.Context) error {
	for next := l.FirstIndex(); next <= l.LastIndex(); {
		if l.closed.Load() {
			return ErrClosed
		}
		after, err := l.verifySome(next)
		if errors.Is(err, ErrCompacted) {
			after, err = l.FirstIndex(), nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		next = after
	}
	return nil
}

// verifySome verifies about scanChunk bytes from the entry index on, within its
// segment, and returns the index behind them.
func (l *Log) verifySome(index uint64) (uint64, error) {
	l.readMu.RLock()
	defer l.readMu.RUnlock()
	segments := l.segments()
	s := segments[segmentOfIndex(segments, index)]
	l.mu.RLock()
	end := l.mu.end
	if s.sealed.Load() {
		end = s.end
	}
	l.mu.RUnlock()
	if index >= end.index { // truncated meanwhile
		return end.index, nil
	}
	at := s.header.start()
	if index != at.index {
		var err error
		if at, err = l.placeOf(s, index); err != nil {
			return 0, err
		}
	}
	file, err := l.open(s)
	if err != nil {
		return 0, err
	}
	defer s.log.release()
	w := newWalker(s, file, at, min(s.size.Load(), end.pos), l.options.MaxFrameBytes, scanChunk)
	defer w.free()
	for {
		switch _, err := w.verified(); {
		case err == io.EOF:
			if w.at.index != end.index || w.at.offset != end.offset || w.at.term != end.term {
				return 0, w.damage(frameErrorf("the segment ends with index %d, offset %d, term %d; expected are %d, %d, %d",
					w.at.index-1, w.at.offset, w.at.term, end.index-1, end.offset, end.term))
			}
			return w.at.index, nil
		case err != nil:
			return 0, err
		case w.at.pos-at.pos >= scanChunk && w.at.index > index:
			return w.at.index, nil
		}
	}
}
