package transport

import (
	"fmt"
	"io"
	"os"
)

// Source is what a pull sends. Reader must give Length bytes; if it gives fewer the connection is closed and the peer knows that the
// rest is missing.
type Source struct {
	// Length is the number of bytes that will be sent, at least 0.
	Length int64
	// Reader gives them. An *os.File is sent with sendfile on plain TCP, from its position on.
	Reader io.Reader
	// Close is called once when the pull has ended; nil if there is nothing to close.
	Close func() error
}

// FileRange is a Source of a part of a file. The file's position is moved and the file closed when the pull has ended: it must be open
// for this pull alone.
func FileRange(f *os.File, offset, length int64) (Source, error) {
	if offset < 0 || length < 0 {
		return Source{}, fmt.Errorf("transport: file range of %d bytes from %d", length, offset)
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return Source{}, fmt.Errorf("transport: file range: %w", err)
	}
	return Source{Length: length, Reader: f, Close: f.Close}, nil
}

func (s Source) close() {
	if s.Close != nil {
		_ = s.Close()
	}
}
