package vfs

import (
	"io/fs"
	"maps"
	"slices"
	"syscall"
	"time"
)

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, n, err := m.entryLocked(name)
	switch {
	case err != nil:
	case n != nil:
		err = syscall.EEXIST
	case m.fullLocked():
		err = syscall.ENOSPC
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	n = &memNode{modTime: time.Now()}
	m.addLocked(at, n)
	return m.openLocked(name, n, false), nil
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) { return m.open(name, false) }

// OpenReadOnly implements FS.
func (m *Mem) OpenReadOnly(name string) (File, error) { return m.open(name, true) }

func (m *Mem) open(name string, readOnly bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookupLocked(name)
	if err == nil && n.dir != nil {
		err = syscall.EISDIR
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return m.openLocked(name, n, readOnly), nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, n, err := m.entryLocked(name)
	switch {
	case err != nil:
	case n == nil:
		err = syscall.ENOENT
	case n.dir != nil && len(n.dir.entries) > 0:
		err = syscall.ENOTEMPTY
	}
	if err != nil {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	m.removeLocked(at, n)
	return nil
}

// RemoveAll implements FS.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, n, err := m.entryLocked(name)
	if err == syscall.ENOENT || err == nil && n == nil {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "unlinkat", Path: name, Err: err}
	}
	m.removeBelowLocked(at, n)
	return nil
}

func (m *Mem) removeBelowLocked(at entry, n *memNode) {
	if n.dir != nil {
		for _, name := range slices.Sorted(maps.Keys(n.dir.entries)) {
			m.removeBelowLocked(entry{dir: n, name: name}, n.dir.entries[name])
		}
	}
	m.removeLocked(at, n)
}

// Rename implements FS.
func (m *Mem) Rename(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, n, err := m.entryLocked(oldname)
	if err != nil {
		return linkError("rename", oldname, newname, err)
	}
	at, target, err := m.entryLocked(newname)
	switch {
	case err != nil:
	case n == nil:
		err = syscall.ENOENT
	case target != nil && target.dir != nil:
		err = syscall.EEXIST
	case n.dir != nil && n.contains(at.dir):
		err = syscall.EINVAL
	case n.dir != nil && target != nil:
		err = syscall.ENOTDIR
	case target == n:
		return nil // two names of one file: both stay
	}
	if err != nil {
		return linkError("rename", oldname, newname, err)
	}
	delete(old.dir.dir.entries, old.name)
	at.dir.dir.entries[at.name] = n
	old.dir.modTime = time.Now()
	at.dir.modTime = old.dir.modTime
	m.mu.changes = append(m.mu.changes, nameChange{kind: nameMoved, node: n, at: at, old: old})
	if target != nil {
		m.unlinkLocked(target)
	}
	return nil
}

// contains tells whether dir is n or below it.
func (n *memNode) contains(dir *memNode) bool {
	if n == dir {
		return true
	}
	for _, child := range n.dir.entries {
		if child.dir != nil && child.contains(dir) {
			return true
		}
	}
	return false
}

// Link implements FS.
func (m *Mem) Link(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookupLocked(oldname)
	if err != nil {
		return linkError("link", oldname, newname, err)
	}
	at, target, err := m.entryLocked(newname)
	switch {
	case err != nil:
	case target != nil:
		err = syscall.EEXIST
	case n.dir != nil:
		err = syscall.EPERM
	}
	if err != nil {
		return linkError("link", oldname, newname, err)
	}
	m.addLocked(at, n)
	return nil
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.mu.root
	for _, part := range split(dir) {
		next, ok := n.dir.entries[part]
		if !ok {
			if m.fullLocked() {
				return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOSPC}
			}
			next = newMemDir()
			m.addLocked(entry{dir: n, name: part}, next)
		}
		if next.dir == nil {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
		}
		n = next
	}
	return nil
}

// List implements FS.
func (m *Mem) List(dir string) ([]string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.lookupDirLocked(dir)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	names := slices.AppendSeq(make([]string, 0, len(n.dir.entries)), maps.Keys(n.dir.entries))
	slices.Sort(names)
	return names, nil
}

// Stat implements FS.
func (m *Mem) Stat(name string) (Info, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.lookupLocked(name)
	if err != nil {
		return Info{}, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return Info{Size: int64(len(n.data)), IsDir: n.dir != nil, ModTime: n.modTime}, nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookupDirLocked(dir)
	if err != nil {
		return &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	m.mu.changes = stabilize(m.mu.changes, n)
	return nil
}
