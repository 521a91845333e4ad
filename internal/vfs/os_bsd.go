//go:build freebsd || dragonfly

package vfs

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

func (f *osFile) syncData() error { return f.control("fsync", unix.Fsync) }

// preallocate does nothing: there is no call here that keeps the size.
func preallocate(int, int64, int64) error { return nil }

func blockUnit(st *unix.Statfs_t) uint64 { return uint64(st.Bsize) }

// WritevAt writes one buffer after the other; x/sys has no pwritev here.
func (f *osFile) WritevAt(bufs [][]byte, off int64) (int, error) {
	if off < 0 {
		return 0, &fs.PathError{Op: "pwritev", Path: f.file.Name(), Err: syscall.EINVAL}
	}
	total := 0
	for _, b := range bufs {
		n, err := f.file.WriteAt(b, off+int64(total))
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}
