package vfs

import (
	"errors"
	"io"
	"time"
)

// InvalidFd is what File.Fd returns when there is no descriptor.
const InvalidFd = ^uintptr(0)

// ErrLocked says that a lock file is held by another open of it, in this process
// or in another one.
var ErrLocked = errors.New("vfs: locked")

// File is one open file. Methods are safe for concurrent use; the order of
// overlapping writes is up to the caller. Buffers stay the caller's and are not
// kept or changed.
type File interface {
	// ReadAt returns io.EOF with the bytes there are when the file ends
	// before p is full.
	io.ReaderAt
	// WriteAt extends the file when it writes past the end; a gap reads as
	// zeros. Nothing is durable before SyncData.
	io.WriterAt
	// WritevAt writes all of bufs, one after the other, at off. It is one
	// system call where the system has it and the list is short enough, but
	// not atomic against a crash. It returns the bytes written, with an error
	// when they are fewer than asked.
	WritevAt(bufs [][]byte, off int64) (int, error)
	// Truncate sets the size; growth reads as zeros.
	Truncate(size int64) error
	// SyncData makes all completed writes and truncations durable, and the
	// size needed to read them; times may be left behind. On error see the
	// package comment: what was not durable before counts as lost.
	SyncData() error
	// Preallocate reserves space for the range without changing the size. It
	// is a hint: nil also when the file system cannot do it. A full disk is
	// an error.
	Preallocate(off, length int64) error
	// Size returns the length in bytes.
	Size() (int64, error)
	// Fd returns the descriptor, valid until Close, or InvalidFd.
	Fd() uintptr
	// Close releases the file; it does not sync. A second Close returns
	// fs.ErrClosed.
	Close() error
}

// FS is a file system. Names are paths in the manner of package path/filepath.
// Nothing that changes a directory is durable before SyncDir of it.
type FS interface {
	// Create makes a new empty file, open for reading and writing. It fails
	// with fs.ErrExist when the name is taken.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// OpenReadOnly opens an existing file for reading.
	OpenReadOnly(name string) (File, error)
	// Remove deletes a file or an empty directory. Open files live on without
	// a name.
	Remove(name string) error
	// RemoveAll deletes name and all below it; a missing name is no error.
	RemoveAll(name string) error
	// Rename moves a file or directory in one step. It replaces an existing
	// file, and fails with fs.ErrExist on an existing directory.
	Rename(oldname, newname string) error
	// Link gives the file oldname a second name; fs.ErrExist when it is taken.
	Link(oldname, newname string) error
	// MkdirAll makes dir and its missing parents. It does not sync them: each
	// new directory is an entry of its parent.
	MkdirAll(dir string) error
	// List returns the base names in dir, sorted.
	List(dir string) ([]string, error)
	// Stat describes a file or directory.
	Stat(name string) (Info, error)
	// SyncDir makes the entries of dir durable (not the files behind them).
	SyncDir(dir string) error
	// Lock takes an exclusive advisory lock on the file name, which it makes
	// when missing, and notes holder in it for people to read. It does not
	// wait: ErrLocked, with the noted holder if there is one, when the lock
	// is taken. Closing the result frees the lock and leaves the file there.
	// The system frees the lock of a process that dies.
	Lock(name, holder string) (io.Closer, error)
	// Free tells the space of the file system that holds dir.
	Free(dir string) (Space, error)
}

// Info describes a file or directory.
type Info struct {
	Size    int64 // bytes; of no meaning for a directory
	IsDir   bool
	ModTime time.Time
}

// Space is the room of a file system in bytes.
type Space struct {
	Free  uint64 // for users without privilege
	Total uint64
}
