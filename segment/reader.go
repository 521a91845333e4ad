package segment

import (
	"fmt"
	"io"
	"slices"

	"github.com/billetlog/billet/internal/vfs"
)

// Cursor reads record batches as consumers see them: whole, in order, without
// internal frames. It remembers where it was, so that reading on costs no look-up.
// It is for one goroutine at a time. Close it to let go of its file.
type Cursor struct {
	// VerifyCRC makes Read check the CRC of every batch. Without it that is left
	// to whoever decodes them.
	VerifyCRC bool

	log         *Log
	segment     *segment // held open; nil before the first read
	file        vfs.File
	at          place // of the next frame to look at
	truncations uint64
}

// NewCursor returns a cursor that is nowhere yet.
func (l *Log) NewCursor() *Cursor { return &Cursor{log: l} }

// Close lets go of the file. The cursor can be used again.
func (c *Cursor) Close() {
	if c.segment != nil {
		c.segment.log.release()
		c.segment, c.file = nil, nil
	}
}

// Read appends to dst whole batches, beginning with the one that has offset in it,
// all ending at or below limit. It reads about maxBytes, but at least one batch if
// there is one. At limit there is nothing and no error. limit must not be above
// EndOffset, and what is below it must never be truncated.
//
// Errors: a *CompactedError below the log's start, ErrUnavailable above limit or
// for a limit above the end, a *CorruptionError. On an error dst comes back as it
// was, but for its spare room.
func (c *Cursor) Read(dst []byte, offset, limit int64, maxBytes int) ([]byte, error) {
	l := c.log
	l.readMu.RLock()
	defer l.readMu.RUnlock()
	if l.closed.Load() {
		return dst, ErrClosed
	}
	if offset > limit || limit > l.EndOffset() {
		return dst, fmt.Errorf("%w: offset %d, limit %d, end %d", ErrUnavailable, offset, limit, l.EndOffset())
	}
	if err := c.position(offset, limit); err != nil || offset == limit {
		return dst, err
	}
	start := len(dst)
	for len(dst) == start && c.at.offset < limit {
		if err := c.step(); err != nil {
			return dst[:start], err
		}
		var done bool
		var err error
		if dst, done, err = c.fill(dst, limit, maxBytes); err != nil {
			c.Close()
			return dst[:start], err
		}
		if done {
			break
		}
	}
	return dst, nil
}

// position moves to the batch that has offset in it, unless c is there.
func (c *Cursor) position(offset, limit int64) error {
	l := c.log
	truncations := l.truncations.Load()
	if c.segment != nil && c.at.offset == offset && c.truncations == truncations {
		return nil
	}
	segments := l.segments()
	if first := segments[0].header; offset < first.base {
		return &CompactedError{FirstIndex: first.firstIndex, StartOffset: first.base}
	}
	if offset == limit {
		return nil
	}
	c.Close()
	s := segments[segmentOfOffset(segments, offset)]
	at, err := l.placeOfOffset(s, offset)
	if err != nil {
		return err
	}
	c.truncations = truncations
	return c.enter(s, at)
}

// placeOfOffset returns the place of the batch that has offset in it.
func (l *Log) placeOfOffset(s *segment, offset int64) (place, error) {
	relative := uint32(offset - s.header.base)
	at, err := l.seek(s, func(e indexEntry) bool { return e.offset <= relative })
	if err != nil {
		return place{}, err
	}
	found := false
	err = l.walk(s, at, func(w *walker, f *frame) (bool, error) {
		at = w.at
		found = f.next > offset
		return !found, nil
	})
	if err == nil && !found {
		err = s.damage(s.size.Load(), offset, "the segment ends before the record")
	}
	return at, err
}

// enter opens s and stands at at.
func (c *Cursor) enter(s *segment, at place) error {
	file, err := s.log.acquire()
	if err != nil {
		return c.log.goneError(s, err)
	}
	c.segment, c.file, c.at = s, file, at
	return nil
}

// step goes to the next segment when this one is read to its end.
func (c *Cursor) step() error {
	if c.at.pos < c.segment.size.Load() {
		return nil
	}
	segments := c.log.segments()
	if first := segments[0].header; c.at.offset < first.base {
		return &CompactedError{FirstIndex: first.firstIndex, StartOffset: first.base}
	}
	s := segments[segmentOfOffset(segments, c.at.offset)]
	if s.header.base != c.at.offset || s.header.base == c.segment.header.base {
		return c.segment.damage(c.at.pos, c.at.offset, "the segment ends before the record")
	}
	c.Close()
	return c.enter(s, s.header.start())
}

// fill reads from where c stands, keeps the batches, and stands behind them. done
// means that the next batch ends above limit.
func (c *Cursor) fill(dst []byte, limit int64, maxBytes int) (_ []byte, done bool, err error) {
	start := len(dst)
	there := c.segment.size.Load() - c.at.pos
	want := int(min(max(int64(maxBytes), headSize), there))
	dst, err = c.readAt(dst, start, want)
	if err != nil {
		return dst, false, err
	}
	kept := start
	for at := start; at < len(dst); {
		rest := dst[at:]
		if len(rest) < headSize && int64(len(rest)) < there {
			break // cut off in the middle of a head
		}
		f, err := decodeHead(rest, c.log.options.MaxFrameBytes)
		if err == nil {
			err = c.at.follows(&f)
		}
		if err == nil && int64(f.size) > there {
			err = frameErrorf("frame of %d bytes, %d are there", f.size, there)
		}
		if err != nil {
			return dst, false, c.damage(err)
		}
		if f.next > limit {
			if kept == start { // or else the next read begins here
				err = c.vouch(&f)
			}
			if err != nil {
				return dst, false, err
			}
			done = true
			break
		}
		if f.size > len(rest) {
			if kept > start {
				break
			}
			if dst, err = c.readAt(dst, start, f.size); err != nil {
				return dst, false, err
			}
			at, rest = start, dst[start:]
		}
		if f.kind != KindData || c.VerifyCRC {
			if err := f.checkBody(rest[:f.size]); err != nil {
				return dst, false, c.damage(err)
			}
		}
		if f.kind == KindData {
			if kept < at {
				copy(dst[kept:], rest[:f.size])
			}
			kept += f.size
		}
		at += f.size
		there -= int64(f.size)
		c.at = c.at.after(&f)
	}
	return dst[:kept], done, nil
}

// vouch checks the whole frame where c stands: a batch that is said to reach beyond the limit, so that nothing is returned, had better say so
// truly.
func (c *Cursor) vouch(f *frame) error {
	buf, err := c.readAt(nil, 0, f.size)
	if err != nil {
		return err
	}
	if err := f.checkBody(buf); err != nil {
		return c.damage(err)
	}
	return nil
}

// readAt puts n bytes of the file, from where c stands, at dst[start:].
func (c *Cursor) readAt(dst []byte, start, n int) ([]byte, error) {
	dst = slices.Grow(dst[:start], n)[:start+n]
	got, err := c.file.ReadAt(dst[start:], c.at.pos)
	if err == io.EOF || err == nil && got < n {
		if got == n {
			return dst, nil
		}
		return dst, c.damage(frameErrorf("the file ends %d bytes early", n-got))
	}
	return dst, err
}

func (c *Cursor) damage(reason error) error {
	return c.segment.damage(c.at.pos, c.at.offset, reason.Error())
}
