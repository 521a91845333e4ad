//go:build linux || darwin

package vfs

import (
	"io"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// iovMax is the most buffers one pwritev takes (IOV_MAX on Linux and darwin).
const iovMax = 1024

func (f *osFile) WritevAt(bufs [][]byte, off int64) (int, error) {
	if off < 0 {
		return 0, &fs.PathError{Op: "pwritev", Path: f.file.Name(), Err: syscall.EINVAL}
	}
	total := 0
	for {
		for len(bufs) > 0 && len(bufs[0]) == 0 {
			bufs = bufs[1:]
		}
		if len(bufs) == 0 {
			return total, nil
		}
		n, err := f.pwritev(bufs[:min(len(bufs), iovMax)], off)
		total += n
		off += int64(n)
		if err != nil {
			return total, err
		}
		// Step over what is written. A buffer written in part is finished
		// by a plain write, so that the caller's list is never changed.
		for len(bufs) > 0 && n >= len(bufs[0]) {
			n -= len(bufs[0])
			bufs = bufs[1:]
		}
		if n > 0 {
			m, err := f.file.WriteAt(bufs[0][n:], off)
			total += m
			off += int64(m)
			if err != nil {
				return total, err
			}
			bufs = bufs[1:]
		}
	}
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
