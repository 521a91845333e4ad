package segment

import (
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/billetlog/billet/internal/vfs"
)

// ExtentInfo describes the frames of a log from its first kept segment through one entry. Frames are the same on every replica, the
// headers of segment files are not: they are left out, and whoever imports the frames writes headers of its own.
type ExtentInfo struct {
	LastIndex   uint64          `json:"lastIndex"`   // Raft index of the last entry
	LastTerm    uint64          `json:"lastTerm"`    // its term
	StartOffset int64           `json:"startOffset"` // offset of the first record: that of the first segment
	EndOffset   int64           `json:"endOffset"`   // behind the last entry
	Segments    []ExtentSegment `json:"segments"`    // in order; one at least
}

// ExtentSegment is one segment of an extent.
type ExtentSegment struct {
	BaseOffset int64  `json:"baseOffset"`
	FirstIndex uint64 `json:"firstIndex"` // Raft index of its first entry
	PrevTerm   uint64 `json:"prevTerm"`   // term of the entry before
	// Bytes is the length of its frames, without the header; in the last segment up to and including the last entry.
	Bytes int64 `json:"bytes"`
}

// Extent holds segments against deletion, so that their frames can be read although retention takes them out of the log. Methods are safe
// for concurrent use.
type Extent struct {
	log  *Log
	info ExtentInfo
	once sync.Once
}

// Extent pins the frames from the first kept segment through the entry with Raft index through, which must never be truncated. Close it:
// until then segments that retention deletes keep their files.
func (l *Log) Extent(through uint64) (*Extent, error) {
	l.retainMu.Lock()
	defer l.retainMu.Unlock()
	info, err := l.extentInfo(through)
	if err != nil {
		return nil, err
	}
	e := &Extent{log: l, info: info}
	for _, s := range info.Segments {
		l.retained.pin(s.BaseOffset)
	}
	return e, nil
}

// extentInfo describes the log through an entry. The caller holds retainMu.
func (l *Log) extentInfo(through uint64) (ExtentInfo, error) {
	l.readMu.RLock()
	defer l.readMu.RUnlock()
	segments, last := l.segments(), l.LastIndex()
	first := segments[0].header
	switch {
	case l.closed.Load():
		return ExtentInfo{}, ErrClosed
	case through > last:
		return ExtentInfo{}, fmt.Errorf("%w: extent through index %d, last is %d", ErrUnavailable, through, last)
	case through+1 < first.firstIndex:
		return ExtentInfo{}, &CompactedError{FirstIndex: first.firstIndex, StartOffset: first.base}
	}
	n := segmentOfIndex(segments, through)
	s := segments[n]
	end := s.header.start()
	if through >= end.index {
		err := l.walkTo(s, through, func(w *walker, f *frame) error {
			_, err := w.body(f)
			end = w.at.after(f)
			return err
		})
		if err != nil {
			return ExtentInfo{}, err
		}
	}
	info := ExtentInfo{LastIndex: through, LastTerm: end.term, StartOffset: first.base, EndOffset: end.offset}
	for i, s := range segments[:n+1] {
		size := end.pos
		if i < n {
			size = s.size.Load()
		}
		info.Segments = append(info.Segments, ExtentSegment{BaseOffset: s.header.base, FirstIndex: s.header.firstIndex,
			PrevTerm: s.header.prevTerm, Bytes: size - segmentHeaderSize})
	}
	return info, nil
}

// Info describes the extent.
func (e *Extent) Info() ExtentInfo { return e.info }

// Open opens length bytes of a segment's frames, from offset on, where 0 is the byte behind the header. segment counts Info().Segments. What
// is read is not verified.
func (e *Extent) Open(segment int, offset, length int64) (*ExtentReader, error) {
	if segment < 0 || segment >= len(e.info.Segments) {
		return nil, fmt.Errorf("%w: segment %d of an extent of %d", ErrUnavailable, segment, len(e.info.Segments))
	}
	s := e.info.Segments[segment]
	if offset < 0 || length < 0 || offset > s.Bytes || length > s.Bytes-offset {
		return nil, fmt.Errorf("%w: %d bytes from %d of a segment of %d bytes", ErrUnavailable, length, offset, s.Bytes)
	}
	o := &e.log.options
	file, err := o.FS.OpenReadOnly(pathOf(o.Dir, s.BaseOffset, logSuffix))
	if err != nil {
		return nil, fmt.Errorf("segment: opening a segment of an extent: %w", err)
	}
	return &ExtentReader{file: file, pos: segmentHeaderSize + offset, end: segmentHeaderSize + offset + length}, nil
}

// Close lets retention delete the files. Readers that are open go on. Later calls do nothing.
func (e *Extent) Close() error {
	var err error
	e.once.Do(func() {
		l := e.log
		l.retainMu.Lock()
		defer l.retainMu.Unlock()
		for _, s := range e.info.Segments {
			l.retained.unpin(s.BaseOffset)
		}
		if l.check() == nil {
			err = l.removeRetained()
		}
	})
	return err
}

// ExtentReader reads a range of an extent, once. It is for one goroutine at a time.
type ExtentReader struct {
	file     vfs.File // open for this reader alone
	pos, end int64    // in the file
}

// Read implements io.Reader. The file is read as it is: it may give less than was asked for when it is damaged.
func (r *ExtentReader) Read(p []byte) (int, error) {
	if r.pos >= r.end {
		return 0, io.EOF
	}
	n, err := r.file.ReadAt(p[:min(int64(len(p)), r.end-r.pos)], r.pos)
	r.pos += int64(n)
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}

// File returns the file, for sendfile, and where in it the unread rest of the range is. It is open for this reader alone: its position may be
// moved. nil means that the file system is not the machine's. Close whichever of file and reader is used.
func (r *ExtentReader) File() (f *os.File, pos, length int64) {
	return vfs.OSFile(r.file), r.pos, r.end - r.pos
}

// Close closes the file.
func (r *ExtentReader) Close() error { return r.file.Close() }
