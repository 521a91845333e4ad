//go:build linux || darwin || freebsd || dragonfly

package vfs

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// osFile is an *os.File with the calls package os lacks.
type osFile struct {
	file *os.File
	raw  syscall.RawConn // holds the descriptor open during a call
}

func openOS(name string, flag int) (*osFile, error) {
	file, err := os.OpenFile(name, flag, fileMode)
	if err != nil {
		return nil, err
	}
	raw, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return &osFile{file: file, raw: raw}, nil
}

func (f *osFile) ReadAt(p []byte, off int64) (int, error)  { return f.file.ReadAt(p, off) }
func (f *osFile) WriteAt(p []byte, off int64) (int, error) { return f.file.WriteAt(p, off) }
func (f *osFile) Truncate(size int64) error                { return f.file.Truncate(size) }
func (f *osFile) Fd() uintptr                              { return f.file.Fd() }
func (f *osFile) Close() error                             { return f.file.Close() }

func (f *osFile) osFile() *os.File { return f.file }

func (f *osFile) Size() (int64, error) {
	info, err := f.file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f *osFile) SyncData() error { return f.syncData() }

func (f *osFile) Preallocate(off, length int64) error {
	if off < 0 || length <= 0 {
		return &fs.PathError{Op: "preallocate", Path: f.file.Name(), Err: syscall.EINVAL}
	}
	err := f.control("preallocate", func(fd int) error { return preallocate(fd, off, length) })
	if isUnsupported(err) && !errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return err
}

// control runs call on the descriptor, again when a signal came in between, and
// names the file in its error.
func (f *osFile) control(op string, call func(fd int) error) error {
	var callErr error
	err := f.raw.Control(func(fd uintptr) {
		for {
			if callErr = call(int(fd)); callErr != unix.EINTR {
				return
			}
		}
	})
	if err != nil {
		callErr = os.ErrClosed // the only way Control fails
	}
	if callErr != nil {
		return &fs.PathError{Op: op, Path: f.file.Name(), Err: callErr}
	}
	return nil
}

// isUnsupported tells whether err says that the file system does not know the
// operation, other than that it failed.
func isUnsupported(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTSUP) ||
		errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL)
}
