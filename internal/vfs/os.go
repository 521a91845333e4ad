//go:build linux || darwin || freebsd || dragonfly

package vfs

import (
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Modes of what we create, before the umask: logs are nobody else's business.
const (
	fileMode fs.FileMode = 0o640
	dirMode  fs.FileMode = 0o750
)

// OS is the file system of the machine.
var OS FS = osFS{}

// osFS has no state of its own.
type osFS struct{}

func (osFS) Create(name string) (File, error) {
	return openOS(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (osFS) Open(name string) (File, error) { return openOS(name, os.O_RDWR) }

func (osFS) OpenReadOnly(name string) (File, error) {
	f, err := openOS(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	// The system lets one open a directory for reading; we do not, as it
	// would fail at the first read only.
	info, err := f.file.Stat()
	if err == nil && info.IsDir() {
		err = &fs.PathError{Op: "open", Path: name, Err: syscall.EISDIR}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func (osFS) Remove(name string) error             { return os.Remove(name) }
func (osFS) RemoveAll(name string) error          { return os.RemoveAll(name) }
func (osFS) Rename(oldname, newname string) error { return os.Rename(oldname, newname) }
func (osFS) Link(oldname, newname string) error   { return os.Link(oldname, newname) }
func (osFS) MkdirAll(dir string) error            { return os.MkdirAll(dir, dirMode) }

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (osFS) Stat(name string) (Info, error) {
	info, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return Info{Size: info.Size(), IsDir: info.IsDir(), ModTime: info.ModTime()}, nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	err = d.Sync()
	if isUnsupported(err) {
		// Some network and user-space file systems refuse to sync a
		// directory; there is nothing more to be had from them.
		err = nil
	}
	if closeErr := d.Close(); err == nil {
		err = closeErr
	}
	return err
}

func (osFS) Lock(name, holder string) (io.Closer, error) { return lockOS(name, holder) }

func (osFS) Free(dir string) (Space, error) {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(dir, &st)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return Space{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
		}
		break
	}
	unit := blockUnit(&st)
	// Below zero (BSD) when only the reserve of the superuser is left.
	avail := max(int64(st.Bavail), 0)
	return Space{Free: uint64(avail) * unit, Total: uint64(st.Blocks) * unit}, nil
}
