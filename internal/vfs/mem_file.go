package vfs

import (
	"io"
	"io/fs"
	"sync/atomic"
	"syscall"
)

// memFileMax bounds the offset in a file of a Mem, so that a wild one is an error
// and not the end of memory.
const memFileMax = 1 << 32

// memFile is one open file of a Mem.
type memFile struct {
	mem      *Mem
	node     *memNode
	name     string // as opened, for errors
	readOnly bool
	closed   atomic.Bool
}

func (f *memFile) fail(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}

// check rejects what the system would reject; write says that op needs a file
// open for writing.
func (f *memFile) check(op string, write bool, off int64) error {
	switch {
	case f.closed.Load():
		return f.fail(op, fs.ErrClosed)
	case off < 0:
		return f.fail(op, syscall.EINVAL)
	case write && f.readOnly:
		return f.fail(op, syscall.EBADF)
	case off > memFileMax:
		return f.fail(op, syscall.EFBIG)
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.check("read", false, off); err != nil {
		return 0, err
	}
	f.mem.mu.RLock()
	defer f.mem.mu.RUnlock()
	if len(p) == 0 {
		return 0, nil
	}
	if off >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.node.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.check("write", true, off); err != nil {
		return 0, err
	}
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	return f.writeLocked(p, off)
}

func (f *memFile) WritevAt(bufs [][]byte, off int64) (int, error) {
	if err := f.check("pwritev", true, off); err != nil {
		return 0, err
	}
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	total := 0
	for _, b := range bufs {
		n, err := f.writeLocked(b, off+int64(total))
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// writeLocked writes as much of p as there is room for.
func (f *memFile) writeLocked(p []byte, off int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	room := f.mem.allocateLocked(f.node, off, off+int64(len(p)))
	n := int(max(room-off, 0))
	if n > 0 {
		f.node.write(p[:n], off)
	}
	if n < len(p) {
		return n, f.fail("write", syscall.ENOSPC)
	}
	return n, nil
}

func (f *memFile) Truncate(size int64) error {
	if err := f.check("truncate", false, size); err != nil {
		return err
	}
	if f.readOnly {
		return f.fail("truncate", syscall.EINVAL)
	}
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	f.mem.releaseLocked(f.node, size)
	f.node.truncate(int(size))
	return nil
}

func (f *memFile) SyncData() error {
	if err := f.check("sync", false, 0); err != nil {
		return err
	}
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	f.node.sync()
	return nil
}

// loseUnsynced is called by Inject when it makes SyncData fail.
func (f *memFile) loseUnsynced() {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	f.node.loseUnsynced()
}

func (f *memFile) Preallocate(off, length int64) error {
	if off >= 0 && length <= 0 {
		off = -1
	}
	if err := f.check("preallocate", true, off); err != nil {
		return err
	}
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	if f.mem.allocateLocked(f.node, off, off+length) < off+length {
		return f.fail("preallocate", syscall.ENOSPC)
	}
	return nil
}

func (f *memFile) Size() (int64, error) {
	if err := f.check("stat", false, 0); err != nil {
		return 0, err
	}
	f.mem.mu.RLock()
	defer f.mem.mu.RUnlock()
	return int64(len(f.node.data)), nil
}

func (f *memFile) Fd() uintptr { return InvalidFd }

func (f *memFile) Close() error {
	if f.closed.Swap(true) {
		return f.fail("close", fs.ErrClosed)
	}
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	f.node.opens--
	f.mem.forgetLocked(f.node)
	return nil
}

// memLock is a held lock of a Mem.
type memLock struct {
	file     *memFile
	released atomic.Bool
}

func (l *memLock) Close() error {
	if l.released.Swap(true) {
		return l.file.fail("close", fs.ErrClosed)
	}
	l.file.mem.mu.Lock()
	delete(l.file.mem.mu.locks, l.file.node)
	l.file.mem.mu.Unlock()
	return l.file.Close()
}
