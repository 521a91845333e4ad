package vfs

// Names in a Mem become stable by SyncDir. Until then each change of a directory
// waits in Mem.mu.changes, in order; a power cut carries out some of them.

// changeKind is what happened to a name.
type changeKind int

const (
	nameAdded   changeKind = iota // node got a name
	nameRemoved                   // node lost a name
	nameMoved                     // node changed its name from old to name
)

// entry is a name in a directory.
type entry struct {
	dir  *memNode
	name string
}

// nameChange is one change that is not stable yet.
type nameChange struct {
	kind changeKind
	node *memNode
	at   entry
	old  entry // nameMoved only
}

// names returns the entries c touches.
func (c *nameChange) names() []entry {
	if c.kind == nameMoved {
		return []entry{c.at, c.old}
	}
	return []entry{c.at}
}

// apply carries c out on directories as entries shows them.
func (c *nameChange) apply(entries func(dir *memNode) map[string]*memNode) {
	switch c.kind {
	case nameAdded:
		entries(c.at.dir)[c.at.name] = c.node
	case nameRemoved:
		if entries(c.at.dir)[c.at.name] == c.node {
			delete(entries(c.at.dir), c.at.name)
		}
	case nameMoved:
		if entries(c.old.dir)[c.old.name] == c.node {
			delete(entries(c.old.dir), c.old.name)
		}
		entries(c.at.dir)[c.at.name] = c.node
	}
}

// stabilize carries out the changes that a sync of dir makes stable, and returns
// the others. With a change go all earlier ones of the same name, and with the
// removal of a directory all that emptied it. Of a file's move to another
// directory a sync of the new one makes only the new name stable: the old one may
// come back beside it until its own directory is synced. A sync of the old one
// takes the whole move along, so that the file is never without a name.
func stabilize(changes []nameChange, dir *memNode) []nameChange {
	dirs := map[*memNode]bool{dir: true}
	names := map[entry]bool{}
	covered := func(e entry) bool { return dirs[e.dir] || names[e] }

	var waiting, ready []nameChange // both backwards
	for i := len(changes) - 1; i >= 0; i-- {
		c := changes[i]
		fromOld := c.kind == nameMoved && covered(c.old)
		if !fromOld && !covered(c.at) {
			waiting = append(waiting, c)
			continue
		}
		if c.kind == nameMoved && !fromOld && c.node.dir == nil {
			waiting = append(waiting, nameChange{kind: nameRemoved, node: c.node, at: c.old})
			c = nameChange{kind: nameAdded, node: c.node, at: c.at}
		}
		ready = append(ready, c)
		for _, e := range c.names() {
			names[e] = true
		}
		if c.kind == nameRemoved && c.node.dir != nil {
			dirs[c.node] = true
		}
	}
	for i := len(ready) - 1; i >= 0; i-- {
		ready[i].apply(stableEntries)
	}
	left := make([]nameChange, 0, len(waiting))
	for i := len(waiting) - 1; i >= 0; i-- {
		left = append(left, waiting[i])
	}
	return left
}

func stableEntries(dir *memNode) map[string]*memNode { return dir.dir.stable }
