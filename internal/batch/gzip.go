package batch

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// gzipWriter is a compressor with the slice it appends to.
type gzipWriter struct {
	gz  *gzip.Writer
	out []byte
}

// Write appends p to the output.
func (w *gzipWriter) Write(p []byte) (int, error) {
	w.out = append(w.out, p...)
	return len(p), nil
}

// gzipReader is a decompressor with its source.
type gzipReader struct {
	gz  gzip.Reader
	src bytes.Reader
}

// gzipWriters has a pool for each level, gzipReaders one for all.
var (
	gzipWriters [10]sync.Pool
	gzipReaders sync.Pool
)

// compressGzip appends src as one gzip member. level is from 0, the default, to
// 9.
func compressGzip(dst, src []byte, level int) ([]byte, error) {
	pool := &gzipWriters[level]
	w, ok := pool.Get().(*gzipWriter)
	if !ok {
		w = new(gzipWriter)
		if level == 0 {
			level = gzip.DefaultCompression
		}
		gz, err := gzip.NewWriterLevel(w, level)
		if err != nil {
			return nil, fmt.Errorf("gzip level %d: %w: %w", level, ErrInvalidLevel, err)
		}
		w.gz = gz
	}
	defer pool.Put(w)
	w.out = dst
	w.gz.Reset(w)
	_, err := w.gz.Write(src)
	if err == nil {
		err = w.gz.Close()
	}
	dst, w.out = w.out, nil
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	return dst, nil
}

// decompressGzip appends all gzip members in src, as Java's reader does.
func decompressGzip(dst, src []byte, max int) ([]byte, error) {
	r, ok := gzipReaders.Get().(*gzipReader)
	if !ok {
		r = new(gzipReader)
	}
	defer gzipReaders.Put(r)
	r.src.Reset(src)
	defer r.src.Reset(nil)
	if err := r.gz.Reset(&r.src); err != nil {
		return nil, fmt.Errorf("header: %w: %w", ErrCorrupt, err)
	}
	start := len(dst)
	limit := start + max
	dst = reserve(dst, min(4*len(src), max), limit)
	for {
		if len(dst) == cap(dst) {
			dst = reserve(dst, min(512, limit+1-len(dst)), limit+1)
		}
		n, err := r.gz.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if len(dst) > limit {
			return nil, fmt.Errorf("more than %d bytes: %w", max, ErrTooLarge)
		}
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return nil, fmt.Errorf("after %d bytes: %w: %w", len(dst)-start, ErrCorrupt, err)
		}
	}
}
