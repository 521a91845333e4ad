package vfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// CrashOptions says what a power cut leaves.
type CrashOptions struct {
	// KeepUnsynced is the chance, from 0 to 1, that something not synced is
	// there afterwards: asked anew for each sector, size and name. 0 loses
	// all of it, 1 keeps all of it; between them writes tear and overtake one
	// another.
	KeepUnsynced float64
	// Rand decides; the same seed on the same history gives the same state.
	// Nil is a fixed seed. Not used when KeepUnsynced is 0 or 1.
	Rand *rand.Rand
}

// CrashClone returns a new Mem in the state in which m would be found after a
// power cut at this moment. m goes on undisturbed. In the clone all is stable, no
// file is open and no lock is held.
//
// Sectors of 512 bytes are there as a whole or not at all. What is not, reads as
// it was at the last sync, or as zeros. The size is the last synced one, or
// the present one, or (when it has grown) one between. A truncation that is not
// kept shows the old bytes. Sectors whose sync failed are never kept.
//
// Names follow FS.SyncDir strictly: a new file may be missing although its data
// was synced, a removed one may be back, a rename may have happened or not, but a
// file that had a stable name has the old one or the new one. Changes of the same
// name happen in order; those of different names do not.
func (m *Mem) CrashClone(opts CrashOptions) *Mem {
	m.mu.RLock()
	defer m.mu.RUnlock()
	c := crash{
		keepUnsynced: opts.KeepUnsynced,
		rand:         opts.Rand,
		views:        map[*memNode]map[string]*memNode{},
		clones:       map[*memNode]*memNode{},
	}
	if c.rand == nil {
		c.rand = rand.New(rand.NewPCG(1, 2))
	}
	c.changeNames(m.mu.changes)
	clone := NewMem()
	clone.mu.root = c.clone(m.mu.root)
	clone.mu.root.links = 1
	clone.mu.capacity = m.mu.capacity
	for _, n := range c.clones {
		clone.mu.used += int64(n.allocated.len()) * sectorSize
	}
	return clone
}

// crash is the making of one clone.
type crash struct {
	keepUnsynced float64
	rand         *rand.Rand
	views        map[*memNode]map[string]*memNode // directories after the crash
	clones       map[*memNode]*memNode
}

// keep decides about one thing that was not synced.
func (c *crash) keep() bool {
	switch {
	case c.keepUnsynced <= 0:
		return false
	case c.keepUnsynced >= 1:
		return true
	}
	return c.rand.Float64() < c.keepUnsynced
}

// view returns what is in dir after the crash, before the unsynced changes that
// are still to come.
func (c *crash) view(dir *memNode) map[string]*memNode {
	v, ok := c.views[dir]
	if !ok {
		v = maps.Clone(dir.dir.stable)
		c.views[dir] = v
	}
	return v
}

// changeNames carries out some of the changes. One that is dropped takes along
// all later ones of the same name. A directory that is not empty in this state
// cannot have been removed.
func (c *crash) changeNames(changes []nameChange) {
	dropped := map[entry]bool{}
	for i := range changes {
		change := &changes[i]
		names := change.names()
		ok := c.keep() && !slices.ContainsFunc(names, func(e entry) bool { return dropped[e] })
		if change.kind == nameRemoved && change.node.dir != nil && len(c.view(change.node)) > 0 {
			ok = false
		}
		if ok {
			change.apply(c.view)
			continue
		}
		for _, e := range names {
			dropped[e] = true
		}
	}
}

// clone copies n as it is after the crash, with all below it, in the order of
// names so that the seed decides alone.
func (c *crash) clone(n *memNode) *memNode {
	if done, ok := c.clones[n]; ok {
		return done
	}
	if n.dir == nil {
		done := c.cloneFile(n)
		c.clones[n] = done
		return done
	}
	done := newMemDir()
	done.modTime = n.modTime
	c.clones[n] = done
	view := c.view(n)
	for _, name := range slices.Sorted(maps.Keys(view)) {
		child := c.clone(view[name])
		child.links++
		done.dir.entries[name] = child
		done.dir.stable[name] = child
	}
	return done
}

func (c *crash) cloneFile(n *memNode) *memNode {
	data := c.content(n)
	done := &memNode{
		modTime:   n.modTime,
		data:      data,
		stable:    slices.Clone(data),
		floor:     len(data),
		allocated: slices.Clone(n.allocated),
	}
	_, end := sectorsIn(0, int64(len(data)))
	for i := range end {
		done.allocated.add(i)
	}
	return done
}

// content is what n holds after the crash.
func (c *crash) content(n *memNode) []byte {
	base, size := n.stable, len(n.stable)
	cutLost := n.floor < len(n.stable)
	if (cutLost || len(n.data) != len(n.stable)) && c.keep() {
		base = base[:min(n.floor, len(base))]
		size = c.sizeBetween(len(base), len(n.data))
		cutLost = false
	}
	data := resize(slices.Clone(base), size)
	for i := range n.dirty.all {
		// Where a truncation is not kept, neither is what came after it in
		// the same place: it went to other blocks.
		if cutLost && (i+1)*sectorSize > n.floor {
			continue
		}
		if c.keep() {
			copySector(data, n.data, i)
		}
	}
	return data
}

// sizeBetween picks the size of a file that grew from low to high: the growth may
// have become stable in steps.
func (c *crash) sizeBetween(low, high int) int {
	if low == high || c.keepUnsynced >= 1 || c.rand.IntN(2) == 0 {
		return high
	}
	size := low + c.rand.IntN(high-low+1)
	return max(low, size-size%sectorSize)
}
