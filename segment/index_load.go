package segment

import (
	"errors"
	"io"
	"io/fs"
	"math"

	"github.com/billetlog/billet/internal/vfs"
)

// readTrailer looks for the summary of a sealed segment, and makes x ready for
// lookups when there is one. Without one ok is false: build it anew.
func (x *index) readTrailer() (end place, ok bool, err error) {
	file, err := x.file.acquire()
	if errors.Is(err, fs.ErrNotExist) {
		return place{}, false, nil
	}
	if err != nil {
		return place{}, false, err
	}
	defer x.file.release()
	size, err := file.Size()
	if err != nil || size < indexHeaderSize+indexTrailerSize {
		return place{}, false, err
	}
	var b [indexTrailerSize]byte
	if err := readFull(file, b[:indexHeaderSize], 0); err != nil {
		return place{}, false, err
	}
	if !isIndexHeader(b[:indexHeaderSize], x.header) {
		return place{}, false, nil
	}
	if err := readFull(file, b[:], size-indexTrailerSize); err != nil {
		return place{}, false, err
	}
	count, end, ok := decodeTrailer(b[:], x.header)
	if !ok || size != entryPos(count)+indexTrailerSize {
		return place{}, false, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.count, x.mu.size = count, size
	return end, true, nil
}

// load takes up the first count entries of an active segment's index. Whatever is
// behind them in the file is compared with what the scan adds. When they are not
// all there and valid, nothing is taken and ok is false.
func (x *index) load(count int) (ok bool, err error) {
	b, err := vfs.ReadFile(x.file.fs, x.file.path)
	if errors.Is(err, fs.ErrNotExist) {
		return count == 0, nil
	}
	if err != nil {
		return false, err
	}
	if len(b) < indexHeaderSize || !isIndexHeader(b[:indexHeaderSize], x.header) {
		return count == 0, nil // the first flush replaces it
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.size = int64(len(b))
	if int64(len(b)) < entryPos(count) {
		return false, nil
	}
	last := int64(math.MinInt32)
	for i := range count {
		e, ok := decodeIndexEntry(b[entryPos(i):], x.header.id, i)
		if !ok || int64(e.pos) <= last {
			return false, nil
		}
		last = int64(e.pos)
	}
	x.mu.count, x.mu.lastPos = count, last
	return true, nil
}

// rebuild replaces the index of the sealed segment s by what its log says, which
// is verified on the way.
func (x *index) rebuild(s *segment, maxFrame int) (place, error) {
	b := encodeIndexHeader(x.header)
	count, lastPos := 0, int64(math.MinInt32)
	file, err := s.log.acquire()
	if err != nil {
		return place{}, err
	}
	defer s.log.release()
	w := newWalker(s, file, s.header.start(), s.size.Load(), maxFrame, scanChunk)
	defer w.free()
	for {
		p := w.at
		f, err := w.verified()
		if err == io.EOF {
			break
		}
		if err != nil {
			return place{}, err
		}
		if f.kind != KindData || p.pos-lastPos >= x.interval {
			lastPos = p.pos
			b = append(b, make([]byte, indexEntrySize)...)
			newEntry(x.header, p, &f).encode(b[entryPos(count):], x.header.id, count)
			count++
		}
	}
	b = append(b, encodeTrailer(x.header, count, w.at)...)
	if err := vfs.WriteFileAtomic(x.file.fs, x.file.path, b); err != nil {
		return place{}, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.count, x.mu.size, x.mu.tail = count, int64(len(b)), nil
	return w.at, nil
}

// readFull reads all of b at pos; bytes behind the end of the file read as zeros.
func readFull(file io.ReaderAt, b []byte, pos int64) error {
	n, err := file.ReadAt(b, pos)
	if err == io.EOF {
		clear(b[n:])
		return nil
	}
	return err
}
