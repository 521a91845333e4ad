//go:build linux || darwin

package vfs

import (
	"io"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

func (f *osFile) WritevAt(bufs [][]byte, off int64) (int, error) {
	if off < 0 {
		return 0, &fs.PathError{Op: "pwritev", Path: f.file.Name(), Err: syscall.EINVAL}
	}
	return writeGathered(f, bufs, off)
}

// pwritev makes one call, which may write less than asked but not nothing.
func (f *osFile) pwritev(bufs [][]byte, off int64) (int, error) {
	n := 0
	err := f.control("pwritev", func(fd int) error {
		var err error
		n, err = unix.Pwritev(fd, bufs, off)
		return err
	})
	if err != nil {
		return 0, err
	}
	if n <= 0 {
		return 0, &fs.PathError{Op: "pwritev", Path: f.file.Name(), Err: io.ErrShortWrite}
	}
	return n, nil
}
