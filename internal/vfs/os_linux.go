package vfs

import "golang.org/x/sys/unix"

func (f *osFile) syncData() error { return f.control("fdatasync", unix.Fdatasync) }

func preallocate(fd int, off, length int64) error {
	return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, off, length)
}

// blockUnit is the unit of the block counts: the fragment, where one is told.
func blockUnit(st *unix.Statfs_t) uint64 {
	if st.Frsize > 0 {
		return uint64(st.Frsize)
	}
	return uint64(st.Bsize)
}
