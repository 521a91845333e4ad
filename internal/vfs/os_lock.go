//go:build linux || darwin || freebsd || dragonfly

package vfs

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// osLock is a held lock. The lock belongs to the open file description, so a
// second open in the same process does not get it (on NFS, where Linux makes it a
// lock of the process, it would), and death of the process frees it.
type osLock struct {
	file *osFile
}

func lockOS(name, holder string) (io.Closer, error) {
	f, err := openOS(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	err = f.control("flock", func(fd int) error {
		return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	})
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		err = lockedError(name, f)
	case err == nil:
		err = noteHolder(f, holder)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &osLock{file: f}, nil
}

// Close frees the lock by name before it closes the file: a child between fork
// and exec has a copy of the descriptor and would hold the lock a little longer.
func (l *osLock) Close() error {
	unlockErr := l.file.control("flock", func(fd int) error {
		return unix.Flock(fd, unix.LOCK_UN)
	})
	if err := l.file.Close(); err != nil {
		return err
	}
	return unlockErr
}
