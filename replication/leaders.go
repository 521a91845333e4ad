package replication

import (
	"slices"
	"sync"
	"sync/atomic"
)

// leadersMaxEntries bounds the partitions of which this node remembers who leads them.
const leadersMaxEntries = 1 << 18

// leadership is who leads a partition, as its leader said, or as somebody said of it.
type leadership struct {
	wirePartition
	shard   uint64
	epoch   int32
	replica uint64
	serial  uint64   // 0: not from the leader itself
	leading bool     // false: it led, and nobody is known to lead since
	denied  bool     // it does not lead because it refused something, which it may have done before it was ready
	isr     []uint64 // in-sync replicas; nil: not known
}

func (l *leadership) node() int32 { return nodeOf(l.replica) }

// leaders is what this node knows of who leads what. It is a cache: a request that meets a node that does not lead is told who does.
type leaders struct {
	version atomic.Uint64 // changes with every change

	mu struct {
		sync.RWMutex
		byShard map[uint64]*leadership // entries are not changed, but replaced
		changed chan struct{}          // closed and replaced with every change
	}
}

func newLeaders() *leaders {
	l := &leaders{}
	l.mu.byShard = map[uint64]*leadership{}
	l.mu.changed = make(chan struct{})
	return l
}

// lookup returns what is known of a shard. ok is false when nobody is known to lead it.
func (l *leaders) lookup(shard uint64) (at leadership, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	e := l.mu.byShard[shard]
	if e == nil {
		return leadership{}, false
	}
	return *e, e.leading
}

// watch returns a channel that is closed with the next change.
func (l *leaders) watch() <-chan struct{} {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.mu.changed
}

// learn takes what a leader says of itself. The highest epoch counts, within one what was said last. It returns false for what is no news.
func (l *leaders) learn(e leadership) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.mu.byShard[e.shard]
	switch {
	case old == nil:
		if len(l.mu.byShard) >= leadersMaxEntries {
			return false
		}
	case e.epoch < old.epoch, e.epoch == old.epoch && e.replica != old.replica:
		return false
	case e.epoch == old.epoch && (e.serial < old.serial || e.serial == old.serial && !old.denied):
		return false
	case e.epoch == old.epoch && e.leading == old.leading && slices.Equal(e.isr, old.isr):
		e.isr = old.isr
		l.mu.byShard[e.shard] = &e // a newer serial alone is no news
		return false
	}
	l.mu.byShard[e.shard] = &e
	l.changedLocked()
	return true
}

// hint takes what another node, or a local replica, says of a shard's leader: it counts when it is of a newer epoch than all that is known, or of
// the same one of which nobody leads.
func (l *leaders) hint(p wirePartition, shard uint64, by wireLeader) bool {
	if by.node <= 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := leadership{wirePartition: p, shard: shard, epoch: by.epoch, replica: by.replica, leading: true}
	switch old := l.mu.byShard[shard]; {
	case old == nil:
		if len(l.mu.byShard) >= leadersMaxEntries {
			return false
		}
	case by.epoch < old.epoch, by.epoch == old.epoch && (old.leading || old.replica != by.replica):
		return false
	case by.epoch == old.epoch:
		e.serial, e.isr = old.serial, old.isr
	}
	l.mu.byShard[shard] = &e
	l.changedLocked()
	return true
}

// deny notes that the node that was taken for the leader says that it is not. That counts until it says again that it leads, with nothing else new.
func (l *leaders) deny(shard uint64, node, epoch int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.mu.byShard[shard]
	if old == nil || !old.leading || old.node() != node || old.epoch != epoch {
		return
	}
	e := *old
	e.leading, e.denied = false, true
	l.mu.byShard[shard] = &e
	l.changedLocked()
}

// forget drops shards of deleted topics.
func (l *leaders) forget(shards ...uint64) {
	if len(shards) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range shards {
		delete(l.mu.byShard, s)
	}
	l.changedLocked()
}

// ledBy lists what a node leads.
func (l *leaders) ledBy(node int32) []leadership {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var out []leadership
	for _, e := range l.mu.byShard {
		if e.leading && e.node() == node {
			out = append(out, *e)
		}
	}
	return out
}

// all lists everything.
func (l *leaders) all() []leadership {
	l.mu.RLock()
	defer l.mu.RUnlock()
	out := make([]leadership, 0, len(l.mu.byShard))
	for _, e := range l.mu.byShard {
		out = append(out, *e)
	}
	return out
}

func (l *leaders) changedLocked() {
	l.version.Add(1)
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
}
