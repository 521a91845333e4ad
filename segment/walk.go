package segment

import (
	"errors"
	"io"
	"sync"
)

// Sizes of reads.
const (
	scanChunk   = 1 << 20
	lookupChunk = 8 << 10
)

var (
	scanBuffers   = sync.Pool{New: func() any { return newBuffer(scanChunk) }}
	lookupBuffers = sync.Pool{New: func() any { return newBuffer(lookupChunk) }}
)

func newBuffer(size int) *[]byte {
	b := make([]byte, size)
	return &b
}

// walker goes through the frames of a segment one after the other and checks that
// each may stand where it does.
type walker struct {
	at   place // of the next frame
	file io.ReaderAt
	seg  *segment
	end  int64 // of what may be read
	max  int   // bytes in a frame
	// ahead is how much the next read takes at least; it doubles up to the size
	// of the buffer.
	ahead int

	buf    []byte // bytes of the file from bufPos on
	bufPos int64
	room   *[]byte
	pool   *sync.Pool
}

// newWalker starts at the frame that begins at at. chunk is scanChunk or
// lookupChunk.
func newWalker(s *segment, file io.ReaderAt, at place, end int64, maxFrame, chunk int) *walker {
	pool := &lookupBuffers
	if chunk == scanChunk {
		pool = &scanBuffers
	}
	return &walker{at: at, file: file, seg: s, end: end, max: maxFrame,
		bufPos: at.pos, ahead: chunk, room: pool.Get().(*[]byte), pool: pool}
}

// free gives the buffer back.
func (w *walker) free() {
	if w.pool != nil {
		w.pool.Put(w.room)
		w.pool, w.room, w.buf = nil, nil, nil
	}
}

// bytes returns n bytes at the walker's place, fewer where the segment ends.
func (w *walker) bytes(n int) ([]byte, error) {
	n = int(min(int64(n), w.end-w.at.pos))
	skip := w.at.pos - w.bufPos
	if skip >= 0 && skip+int64(n) <= int64(len(w.buf)) {
		return w.buf[skip:][:n], nil
	}
	var rest []byte
	if skip >= 0 && skip < int64(len(w.buf)) {
		rest = w.buf[skip:]
	}
	room := *w.room
	if n > len(room) {
		room = make([]byte, n)
	}
	room = room[:min(int64(len(room)), int64(max(n, w.ahead)), w.end-w.at.pos)]
	w.ahead = min(2*w.ahead, len(*w.room))
	have := copy(room, rest)
	got, err := w.file.ReadAt(room[have:], w.at.pos+int64(have))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	w.buf, w.bufPos = room[:have+got], w.at.pos
	return w.buf[:min(n, len(w.buf))], nil
}

// head reads the head of the next frame. io.EOF means that there is none.
func (w *walker) head() (frame, error) {
	if w.at.pos >= w.end {
		return frame{}, io.EOF
	}
	b, err := w.bytes(headSize)
	if err != nil {
		return frame{}, err
	}
	f, err := decodeHead(b, w.max)
	if err == nil {
		err = w.at.follows(&f)
	}
	if err == nil && int64(f.size) > w.end-w.at.pos {
		err = frameErrorf("frame of %d bytes, %d are there", f.size, w.end-w.at.pos)
	}
	if err != nil {
		return f, w.damage(err)
	}
	return f, nil
}

// follows tells whether f may stand at p.
func (p place) follows(f *frame) error {
	switch {
	case f.kind == KindHeader:
		return errFrame("a header among the entries")
	case f.base != p.offset:
		return frameErrorf("base offset %d, expected %d", f.base, p.offset)
	case f.kind == KindNoOp && f.term < p.term, f.kind != KindNoOp && f.term != p.term:
		return frameErrorf("term %d after term %d", f.term, p.term)
	}
	return nil
}

// body reads the whole frame f and verifies its checksum. The bytes are valid
// until the next call.
func (w *walker) body(f *frame) ([]byte, error) {
	b, err := w.bytes(f.size)
	if err != nil {
		return nil, err
	}
	if len(b) < f.size {
		return nil, w.damage(frameErrorf("frame of %d bytes, %d are there", f.size, len(b)))
	}
	if err := f.checkBody(b); err != nil {
		return nil, w.damage(err)
	}
	return b, nil
}

// verified reads and verifies the next frame and steps over it.
func (w *walker) verified() (frame, error) {
	f, err := w.head()
	if err != nil {
		return f, err
	}
	if _, err := w.body(&f); err != nil {
		return f, err
	}
	w.at = w.at.after(&f)
	return f, nil
}

// damage makes the reason into an error with the place.
func (w *walker) damage(reason error) error {
	return w.seg.damage(w.at.pos, w.at.offset, reason.Error())
}
