package segment

import "io"

// importBuffer is how much of a range is in memory, unless a frame is larger.
const importBuffer = scanChunk

// ingestLocked takes up to length bytes of a part's frames from r. It returns how many it kept, and no error when r ends early.
func (im *Importer) ingestLocked(n int, r io.Reader, length int64) (int64, error) {
	p := &im.mu.parts[n]
	if p.segment == nil {
		if err := im.beginLocked(n); err != nil {
			return 0, err
		}
	}
	if err := im.openPartLocked(p); err != nil {
		return 0, err
	}
	if im.mu.room == nil {
		im.mu.room = scanBuffers.Get().(*[]byte)
		im.mu.buf = *im.mu.room
	}
	start, have := p.at.pos, 0
	for {
		if im.closed.Load() {
			return p.at.pos - start, ErrClosed
		}
		buf := im.mu.buf
		limit := int(min(int64(len(buf)), length-(p.at.pos-start)))
		more, readErr := io.ReadFull(r, buf[have:limit])
		have += more
		whole, wanted, err := im.takeLocked(p, buf[:have])
		if err != nil || p.at.pos == p.end.pos {
			kept := p.at.pos - start
			if err == nil {
				if err = im.completeLocked(n); err != nil {
					kept = 0
				}
			}
			return kept, err
		}
		if readErr == io.EOF || readErr == io.ErrUnexpectedEOF {
			readErr = nil
		} else if readErr == nil && p.at.pos-start+int64(have-whole) < length {
			have = copy(buf, buf[whole:have])
			im.resizeLocked(have, wanted)
			continue
		}
		return p.at.pos - start, readErr
	}
}

// resizeLocked makes room for a frame larger than the buffer, no more at once than doubles it, so that memory follows what came and not what was
// announced. Behind such a frame the buffer is small again.
func (im *Importer) resizeLocked(have, wanted int) {
	buf := im.mu.buf
	switch {
	case have == len(buf) && wanted > len(buf):
		im.mu.buf = make([]byte, min(wanted, 2*len(buf)))
		copy(im.mu.buf, buf)
	case len(buf) > importBuffer && wanted <= importBuffer && have <= importBuffer:
		im.mu.buf = *im.mu.room
		copy(im.mu.buf, buf[:have])
	}
}

// takeLocked verifies the whole frames that b begins with and writes them. It returns their length, and the length of the one that is not whole,
// 0 while that is not known.
func (im *Importer) takeLocked(p *part, b []byte) (whole, wanted int, err error) {
	at := p.at
	var refused error
	for whole < len(b) && refused == nil {
		rest := b[whole:]
		if int64(len(rest)) < p.end.pos-at.pos && !hasHead(rest) {
			break
		}
		f, err := decodeHead(rest[:min(len(rest), headSize)], im.options.MaxFrameBytes)
		if err == nil {
			err = at.follows(&f)
		}
		if err == nil && !at.fits(&f, p) {
			err = frameErrorf("frame of %d bytes, offsets %d to %d, index %d, term %d leads beyond the end of the segment: %d bytes, offset %d, index %d, term %d",
				f.size, f.base, f.next, at.index, f.term, p.end.pos-at.pos, p.end.offset, p.end.index, p.end.term)
		}
		if err == nil && f.size > len(rest) {
			wanted = f.size
			break
		}
		if err == nil {
			err = f.checkBody(rest[:f.size])
		}
		if err != nil {
			refused = err
			break
		}
		p.segment.index.note(at, &f)
		at = at.after(&f)
		whole += f.size
	}
	if err := im.writeLocked(p, b[:whole], at); err != nil {
		return whole, wanted, im.failLocked(err)
	}
	if refused != nil {
		return whole, wanted, im.refuse(p, refused.Error())
	}
	return whole, wanted, nil
}

// hasHead tells whether decodeHead gets all it wants from what b begins with.
func hasHead(b []byte) bool {
	return len(b) >= headSize || len(b) >= minFrameSize && b[prefixSize-1] == internalMagic
}

// writeLocked writes frames that lead to the place at.
func (im *Importer) writeLocked(p *part, b []byte, at place) error {
	if len(b) == 0 {
		return nil
	}
	n, err := p.file.WriteAt(b, p.at.pos)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return err
	}
	p.at = at
	p.segment.size.Store(at.pos)
	im.have.Add(int64(len(b)))
	if err := im.flushIndexLocked(p); err != nil {
		return err
	}
	if im.mu.unsynced += int64(len(b)); im.mu.unsynced >= im.options.MaxUnsyncedBytes {
		return im.syncLocked(p)
	}
	return nil
}
