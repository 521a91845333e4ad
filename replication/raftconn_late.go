package replication

import (
	"sync"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// commitDelay is how long what only tells how far a group's log is committed waits for a message with entries, which tells it too. Each batch
// that is committed would otherwise cost every follower a message, a step and an answer more than its entries do.
const commitDelay = time.Millisecond

// lateCommits are the messages of one connection that wait so: for each replica the newest one.
type lateCommits struct {
	send func([]pb.Message) // on a goroutine of the timer

	mu      sync.Mutex
	waiting map[lateKey]pb.Message
	timer   *time.Timer
	ticking bool // the timer will fire
	closed  bool
}

type lateKey struct{ shard, to uint64 }

// sift takes out what may wait and forgets what a message among the others makes needless. The list is changed in place.
func (l *lateCommits) sift(list []pb.Message) []pb.Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := list[:0]
	for _, m := range list {
		if m.Type != pb.Replicate {
			kept = append(kept, m)
			continue
		}
		key := lateKey{m.ShardID, m.To}
		if len(m.Entries) == 0 && !l.closed {
			l.putLocked(key, m)
			continue
		}
		if old, ok := l.waiting[key]; ok && old.Commit <= m.Commit {
			delete(l.waiting, key)
		}
		kept = append(kept, m)
	}
	return kept
}

func (l *lateCommits) putLocked(key lateKey, m pb.Message) {
	if l.waiting == nil {
		l.waiting = make(map[lateKey]pb.Message)
	}
	l.waiting[key] = m
	if l.ticking {
		return
	}
	l.ticking = true
	if l.timer == nil {
		l.timer = time.AfterFunc(commitDelay, l.fire)
		return
	}
	l.timer.Reset(commitDelay)
}

// fire sends what has waited.
func (l *lateCommits) fire() {
	l.mu.Lock()
	l.ticking = false
	list := make([]pb.Message, 0, len(l.waiting))
	for key, m := range l.waiting {
		list = append(list, m)
		delete(l.waiting, key)
	}
	l.mu.Unlock()
	if len(list) > 0 {
		l.send(list)
	}
}

// close drops what waits: Raft says it again with the next heartbeat.
func (l *lateCommits) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed, l.waiting = true, nil
	if l.timer != nil {
		l.timer.Stop()
	}
}
