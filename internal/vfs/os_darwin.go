package vfs

import (
	"golang.org/x/sys/unix"
)

// syncData asks the drive to empty its cache, which fsync does not do on darwin.
// Where the file system cannot (network mounts), fsync is the best there is.
func (f *osFile) syncData() error {
	return f.control("fullfsync", func(fd int) error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_FULLFSYNC, 0)
		if isUnsupported(err) {
			err = unix.Fsync(fd)
		}
		return err
	})
}

// preallocate reserves from the end of what is allocated; darwin knows no other
// place. It asks for one piece first and then for any pieces.
func preallocate(fd int, off, length int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	missing := off + length - st.Blocks*512
	if missing <= 0 {
		return nil
	}
	store := unix.Fstore_t{
		Flags:   unix.F_ALLOCATECONTIG,
		Posmode: unix.F_PEOFPOSMODE,
		Length:  missing,
	}
	err := unix.FcntlFstore(uintptr(fd), unix.F_PREALLOCATE, &store)
	if err != nil {
		store.Flags = unix.F_ALLOCATEALL
		err = unix.FcntlFstore(uintptr(fd), unix.F_PREALLOCATE, &store)
	}
	return err
}

func blockUnit(st *unix.Statfs_t) uint64 { return uint64(st.Bsize) }
