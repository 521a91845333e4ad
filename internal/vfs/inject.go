package vfs

import (
	"errors"
	"io"
	"os"
)

// Fault decides about one operation before it happens: nil lets it pass, anything
// else is its result, and the operation does not take place. off and n are the
// range of a read, write, preallocation, or the new size (in off) of a
// truncation, otherwise 0. It must be safe for concurrent use.
type Fault func(op Op, name string, off int64, n int) error

// tornError makes a write stop short: keep bytes are written, then err.
type tornError struct {
	keep int
	err  error
}

func (e *tornError) Error() string { return e.err.Error() }
func (e *tornError) Unwrap() error { return e.err }

// unsyncedLoser is a file that can do what a failed sync does to it.
type unsyncedLoser interface {
	loseUnsynced()
}

// Inject returns fs with f asked before each operation.
//
// A SyncData that f makes fail also takes the unsynced data of the file with it,
// where the file is one of a Mem: readers see it still, but it will not survive a
// crash, even if a later SyncData succeeds, unless it is written again. Linux
// does the same when it marks the pages clean after a failed write.
//
// A Close that f makes fail closes the file all the same. Fd is that of the file
// below; what is done through it is not seen.
func Inject(fs FS, f Fault) FS { return &injectFS{fs: fs, fault: f} }

type injectFS struct {
	fs    FS
	fault Fault
}

// ask is the fault's word on an operation without a range.
func (i *injectFS) ask(op Op, name string) error { return i.fault(op, name, 0, 0) }

func (i *injectFS) open(op Op, name string, open func(string) (File, error)) (File, error) {
	if err := i.ask(op, name); err != nil {
		return nil, err
	}
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	return &injectFile{file: f, name: name, fault: i.fault}, nil
}

func (i *injectFS) Create(name string) (File, error) { return i.open(OpCreate, name, i.fs.Create) }
func (i *injectFS) Open(name string) (File, error)   { return i.open(OpOpen, name, i.fs.Open) }

func (i *injectFS) OpenReadOnly(name string) (File, error) {
	return i.open(OpOpen, name, i.fs.OpenReadOnly)
}

func (i *injectFS) Remove(name string) error {
	if err := i.ask(OpRemove, name); err != nil {
		return err
	}
	return i.fs.Remove(name)
}

func (i *injectFS) RemoveAll(name string) error {
	if err := i.ask(OpRemove, name); err != nil {
		return err
	}
	return i.fs.RemoveAll(name)
}

func (i *injectFS) Rename(oldname, newname string) error {
	if err := i.ask(OpRename, newname); err != nil {
		return err
	}
	return i.fs.Rename(oldname, newname)
}

func (i *injectFS) Link(oldname, newname string) error {
	if err := i.ask(OpLink, newname); err != nil {
		return err
	}
	return i.fs.Link(oldname, newname)
}

func (i *injectFS) MkdirAll(dir string) error {
	if err := i.ask(OpMkdir, dir); err != nil {
		return err
	}
	return i.fs.MkdirAll(dir)
}

func (i *injectFS) List(dir string) ([]string, error) {
	if err := i.ask(OpList, dir); err != nil {
		return nil, err
	}
	return i.fs.List(dir)
}

func (i *injectFS) Stat(name string) (Info, error) {
	if err := i.ask(OpStat, name); err != nil {
		return Info{}, err
	}
	return i.fs.Stat(name)
}

func (i *injectFS) SyncDir(dir string) error {
	if err := i.ask(OpSyncDir, dir); err != nil {
		return err
	}
	return i.fs.SyncDir(dir)
}

func (i *injectFS) Lock(name, holder string) (io.Closer, error) {
	if err := i.ask(OpLock, name); err != nil {
		return nil, err
	}
	lock, err := i.fs.Lock(name, holder)
	if err != nil {
		return nil, err
	}
	return &injectCloser{closer: lock, name: name, fault: i.fault}, nil
}

func (i *injectFS) Free(dir string) (Space, error) {
	if err := i.ask(OpFree, dir); err != nil {
		return Space{}, err
	}
	return i.fs.Free(dir)
}

// injectCloser closes in any case and then tells what the fault said.
type injectCloser struct {
	closer io.Closer
	name   string
	fault  Fault
}

func (c *injectCloser) Close() error {
	return errors.Join(c.fault(OpClose, c.name, 0, 0), c.closer.Close())
}

type injectFile struct {
	file  File
	name  string
	fault Fault
}

func (f *injectFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fault(OpRead, f.name, off, len(p)); err != nil {
		return 0, err
	}
	return f.file.ReadAt(p, off)
}

func (f *injectFile) WriteAt(p []byte, off int64) (int, error) {
	err := f.fault(OpWrite, f.name, off, len(p))
	if err == nil {
		return f.file.WriteAt(p, off)
	}
	var torn *tornError
	if !errors.As(err, &torn) {
		return 0, err
	}
	n, writeErr := f.file.WriteAt(p[:min(torn.keep, len(p))], off)
	if writeErr != nil {
		return n, writeErr
	}
	return n, err
}

func (f *injectFile) WritevAt(bufs [][]byte, off int64) (int, error) {
	size := 0
	for _, b := range bufs {
		size += len(b)
	}
	err := f.fault(OpWrite, f.name, off, size)
	if err == nil {
		return f.file.WritevAt(bufs, off)
	}
	var torn *tornError
	if !errors.As(err, &torn) {
		return 0, err
	}
	n, writeErr := f.file.WritevAt(firstBytes(bufs, torn.keep), off)
	if writeErr != nil {
		return n, writeErr
	}
	return n, err
}

// firstBytes returns buffers with the first n bytes of bufs.
func firstBytes(bufs [][]byte, n int) [][]byte {
	var first [][]byte
	for _, b := range bufs {
		b = b[:min(n, len(b))]
		first = append(first, b)
		n -= len(b)
	}
	return first
}

func (f *injectFile) Truncate(size int64) error {
	if err := f.fault(OpTruncate, f.name, size, 0); err != nil {
		return err
	}
	return f.file.Truncate(size)
}

func (f *injectFile) SyncData() error {
	if err := f.fault(OpSync, f.name, 0, 0); err != nil {
		f.loseUnsynced()
		return err
	}
	return f.file.SyncData()
}

// loseUnsynced passes a failed sync down to the Mem, through other wrappers.
func (f *injectFile) loseUnsynced() {
	if l, ok := f.file.(unsyncedLoser); ok {
		l.loseUnsynced()
	}
}

func (f *injectFile) Preallocate(off, length int64) error {
	if err := f.fault(OpPreallocate, f.name, off, int(length)); err != nil {
		return err
	}
	return f.file.Preallocate(off, length)
}

func (f *injectFile) Size() (int64, error) {
	if err := f.fault(OpSize, f.name, 0, 0); err != nil {
		return 0, err
	}
	return f.file.Size()
}

func (f *injectFile) Fd() uintptr { return f.file.Fd() }

func (f *injectFile) osFile() *os.File { return OSFile(f.file) }

func (f *injectFile) Close() error {
	return errors.Join(f.fault(OpClose, f.name, 0, 0), f.file.Close())
}
