package vfs

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is a file system in memory that behaves like OS and besides knows what a
// power cut would leave of it: see CrashClone. It is for tests; a file takes up
// to twice its size. A relative name is taken from the root, which is there from
// the start and is stable.
type Mem struct {
	mu struct {
		sync.RWMutex
		root     *memNode
		changes  []nameChange // not stable yet, oldest first
		locks    map[*memNode]bool
		capacity int64 // 0 for no end
		used     int64 // bytes of the allocated sectors
	}
}

var _ FS = (*Mem)(nil)

// unlimitedTotal is what Free tells of a Mem without a capacity.
const unlimitedTotal = 1 << 40

// NewMem returns an empty file system of unlimited capacity.
func NewMem() *Mem {
	m := &Mem{}
	m.mu.root = newMemDir()
	m.mu.root.links = 1
	m.mu.locks = map[*memNode]bool{}
	return m
}

// SetCapacity bounds the bytes that files may take up, counted in sectors; 0
// takes the bound away. What is above it already stays. Beyond it, Create and
// MkdirAll, Preallocate and writes fail with syscall.ENOSPC; writes do what they
// can before.
func (m *Mem) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.capacity = bytes
}

// SyncAll makes all content and all names stable: the start of a test that is
// about what comes after.
func (m *Mem) SyncAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.mu.changes {
		m.mu.changes[i].apply(stableEntries)
	}
	m.mu.changes = nil
	m.mu.root.syncBelow()
}

// syncBelow makes the content of n, and of all below it, stable.
func (n *memNode) syncBelow() {
	if n.dir == nil {
		n.sync()
		return
	}
	for _, child := range n.dir.entries {
		child.syncBelow()
	}
}

// Free implements FS.
func (m *Mem) Free(dir string) (Space, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if _, err := m.lookupLocked(dir); err != nil {
		return Space{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	total := m.mu.capacity
	if total <= 0 {
		total = unlimitedTotal
	}
	return Space{Free: uint64(max(total-m.mu.used, 0)), Total: uint64(total)}, nil
}

func (m *Mem) fullLocked() bool {
	return m.mu.capacity > 0 && m.mu.used >= m.mu.capacity
}

// allocateLocked gives n the sectors of [off, end) that it has not yet, as far as
// there is room, and returns the end of what it got.
func (m *Mem) allocateLocked(n *memNode, off, end int64) int64 {
	first, last := sectorsIn(off, end)
	for i := first; i < last; i++ {
		if n.allocated.has(i) {
			continue
		}
		if m.mu.capacity > 0 && m.mu.used+sectorSize > m.mu.capacity {
			return min(end, int64(i)*sectorSize)
		}
		n.allocated.add(i)
		m.mu.used += sectorSize
	}
	return end
}

// releaseLocked takes the sectors after size away from n.
func (m *Mem) releaseLocked(n *memNode, size int64) {
	before := n.allocated.len()
	_, end := sectorsIn(0, size)
	n.allocated.cut(end)
	m.mu.used -= int64(before-n.allocated.len()) * sectorSize
}

// forgetLocked frees the room of n when nothing leads to it any more.
func (m *Mem) forgetLocked(n *memNode) {
	if n.gone() {
		m.releaseLocked(n, 0)
	}
}

// split returns the parts of a cleaned name; none for the root.
func split(name string) []string {
	name = filepath.ToSlash(filepath.Clean("/" + name))
	name = strings.Trim(name, "/")
	if name == "" {
		return nil
	}
	return strings.Split(name, "/")
}

// lookupLocked finds what name leads to.
func (m *Mem) lookupLocked(name string) (*memNode, error) {
	return m.walkLocked(split(name))
}

func (m *Mem) walkLocked(parts []string) (*memNode, error) {
	n := m.mu.root
	for _, part := range parts {
		if n.dir == nil {
			return nil, syscall.ENOTDIR
		}
		next, ok := n.dir.entries[part]
		if !ok {
			return nil, syscall.ENOENT
		}
		n = next
	}
	return n, nil
}

// lookupDirLocked finds the directory dir.
func (m *Mem) lookupDirLocked(dir string) (*memNode, error) {
	n, err := m.lookupLocked(dir)
	if err == nil && n.dir == nil {
		err = syscall.ENOTDIR
	}
	return n, err
}

// entryLocked finds the directory of name, and what is under that name, or nil.
func (m *Mem) entryLocked(name string) (entry, *memNode, error) {
	parts := split(name)
	if len(parts) == 0 {
		return entry{}, nil, syscall.EBUSY // the root has no entry
	}
	last := len(parts) - 1
	dir, err := m.walkLocked(parts[:last])
	if err != nil {
		return entry{}, nil, err
	}
	if dir.dir == nil {
		return entry{}, nil, syscall.ENOTDIR
	}
	return entry{dir: dir, name: parts[last]}, dir.dir.entries[parts[last]], nil
}

// addLocked gives n the name at.
func (m *Mem) addLocked(at entry, n *memNode) {
	at.dir.dir.entries[at.name] = n
	at.dir.modTime = time.Now()
	n.links++
	m.mu.changes = append(m.mu.changes, nameChange{kind: nameAdded, node: n, at: at})
}

// removeLocked takes the name at away from n.
func (m *Mem) removeLocked(at entry, n *memNode) {
	delete(at.dir.dir.entries, at.name)
	at.dir.modTime = time.Now()
	m.mu.changes = append(m.mu.changes, nameChange{kind: nameRemoved, node: n, at: at})
	m.unlinkLocked(n)
}

func (m *Mem) unlinkLocked(n *memNode) {
	n.links--
	m.forgetLocked(n)
}

// openLocked returns an open file on n.
func (m *Mem) openLocked(name string, n *memNode, readOnly bool) *memFile {
	n.opens++
	return &memFile{mem: m, node: n, name: name, readOnly: readOnly}
}

// Lock implements FS.
func (m *Mem) Lock(name, holder string) (io.Closer, error) {
	f, held, err := m.lockFile(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	if held {
		err := lockedError(name, f)
		_ = f.Close()
		return nil, err
	}
	lock := &memLock{file: f}
	if err := noteHolder(f, holder); err != nil {
		_ = lock.Close()
		return nil, err
	}
	return lock, nil
}

// lockFile opens the lock file, makes it when missing, and takes the lock unless
// it is held.
func (m *Mem) lockFile(name string) (f *memFile, held bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, n, err := m.entryLocked(name)
	switch {
	case err != nil:
		return nil, false, err
	case n == nil && m.fullLocked():
		return nil, false, syscall.ENOSPC
	case n == nil:
		n = &memNode{modTime: time.Now()}
		m.addLocked(at, n)
	case n.dir != nil:
		return nil, false, syscall.EISDIR
	}
	held = m.mu.locks[n]
	m.mu.locks[n] = true
	return m.openLocked(name, n, false), held, nil
}

func linkError(op, oldname, newname string, err error) error {
	return &os.LinkError{Op: op, Old: oldname, New: newname, Err: err}
}
