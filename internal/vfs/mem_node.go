package vfs

import (
	"slices"
	"time"
)

// memNode is a file or a directory of a Mem, apart from its names. Mem.mu guards
// all of it.
type memNode struct {
	dir     *memDir // nil for a file
	modTime time.Time
	links   int // names it has
	opens   int // open files on it

	// The content of a file: what a reader sees, and what is certain to be
	// there after a power cut.
	data, stable []byte
	// dirty are the sectors written since the last sync. lost are those whose
	// sync failed: they are never written out unless they are written to
	// again, as if the kernel had dropped the pages.
	dirty, lost sectorSet
	// floor is the smallest size since the last sync.
	floor int
	// allocated are the sectors that take up room.
	allocated sectorSet
}

// memDir is what a directory holds, now and for certain after a power cut.
type memDir struct {
	entries, stable map[string]*memNode
}

func newMemDir() *memNode {
	return &memNode{
		dir:     &memDir{entries: map[string]*memNode{}, stable: map[string]*memNode{}},
		modTime: time.Now(),
	}
}

// gone tells that nothing leads to the node any more.
func (n *memNode) gone() bool { return n.links == 0 && n.opens == 0 }

// write puts p at off; there must be room for it.
func (n *memNode) write(p []byte, off int64) {
	end := off + int64(len(p))
	if end > int64(len(n.data)) {
		n.data = resize(n.data, int(end))
	}
	copy(n.data[off:], p)
	first, last := sectorsIn(off, end)
	for i := first; i < last; i++ {
		n.dirty.add(i)
		n.lost.remove(i)
	}
	n.modTime = time.Now()
}

func (n *memNode) truncate(size int) {
	n.data = resize(n.data, size)
	if size < n.floor {
		n.floor = size
	}
	_, end := sectorsIn(0, int64(size))
	n.dirty.cut(end)
	n.lost.cut(end)
	n.modTime = time.Now()
}

// sync makes the content stable, but for the lost sectors.
func (n *memNode) sync() {
	if n.floor < len(n.stable) {
		n.stable = n.stable[:n.floor]
	}
	n.stable = resize(n.stable, len(n.data))
	for i := range n.dirty.all {
		copySector(n.stable, n.data, i)
	}
	n.dirty = nil
	n.floor = len(n.data)
}

// loseUnsynced is what a failed sync does.
func (n *memNode) loseUnsynced() {
	n.lost = n.lost.addAll(n.dirty)
	n.dirty = nil
}

// copySector copies what both have of sector i.
func copySector(dst, src []byte, i int) {
	start := i * sectorSize
	end := min(start+sectorSize, len(dst), len(src))
	if start < end {
		copy(dst[start:end], src[start:end])
	}
}

// resize cuts b or fills it up with zeros.
func resize(b []byte, size int) []byte {
	if size <= len(b) {
		return b[:size]
	}
	old := len(b)
	b = slices.Grow(b, size-old)[:size]
	clear(b[old:])
	return b
}
