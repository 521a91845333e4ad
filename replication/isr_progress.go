package replication

import (
	"slices"
	"sync"
	"sync/atomic"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

const (
	progressPeersMax = 64 // replicas of one group that are followed
	progressMarks    = 32 // marks of the log's end that span the lag bound
)

// progress is what the leader of one term has seen of the other replicas. It begins with the first answer of the term, which comes before
// anybody here knows of the leadership: a group that rests afterwards sends no second one. Times are the host's monotonic clock.
type progress struct {
	term  uint64
	began int64
	peers atomic.Pointer[[]*peerProgress] // replaced under mu

	mu struct {
		sync.Mutex
		marks     []logMark // oldest first
		announced []uint64  // the voters in sync that events have told of
		under     bool      // it was told that they are fewer than the voters
	}
}

// peerProgress is one other replica.
type peerProgress struct {
	replica uint64
	match   atomic.Uint64 // it has stored all up to here
	heard   atomic.Int64  // when it last answered
	caught  int64         // it had all of what the log held then; guarded by progress.mu
}

// logMark says where the log ended at a time.
type logMark struct {
	at  int64
	end uint64
}

// observe notes what a replica answers to its leader here. An answer that carries no index says only that the replica lives.
func (r *replica) observe(m *pb.Message, now int64) {
	g := r.progress.Load()
	if g == nil || g.term < m.Term {
		g = r.beginProgress(m.Term, now)
	}
	if g.term != m.Term {
		return
	}
	q := g.peer(m.From)
	if q == nil {
		if q = g.addPeer(m.From, now); q == nil {
			return
		}
	}
	q.heard.Store(now)
	if m.Type != pb.ReplicateResp || m.Reject {
		return
	}
	for was := q.match.Load(); was < m.LogIndex; was = q.match.Load() {
		if q.match.CompareAndSwap(was, m.LogIndex) {
			r.hooks.onProgress()
			return
		}
	}
}

// beginProgress returns the record of the newest term, which is the given one unless a later one has begun.
func (r *replica) beginProgress(term uint64, now int64) *progress {
	for {
		g := r.progress.Load()
		if g != nil && g.term >= term {
			return g
		}
		fresh := &progress{term: term, began: now}
		fresh.peers.Store(&[]*peerProgress{})
		if r.progress.CompareAndSwap(g, fresh) {
			return fresh
		}
	}
}

func (g *progress) peer(replica uint64) *peerProgress {
	for _, q := range *g.peers.Load() {
		if q.replica == replica {
			return q
		}
	}
	return nil
}

func (g *progress) addPeer(replica uint64, now int64) *peerProgress {
	g.mu.Lock()
	defer g.mu.Unlock()
	if q := g.peer(replica); q != nil {
		return q
	}
	old := *g.peers.Load()
	if len(old) >= progressPeersMax {
		return nil
	}
	q := &peerProgress{replica: replica, caught: g.began}
	q.heard.Store(now)
	list := append(slices.Clone(old), q)
	g.peers.Store(&list)
	return q
}

// matchOf is the index up to which a replica is known to have the log.
func (g *progress) matchOf(replica uint64) uint64 {
	if q := g.peer(replica); q != nil {
		return q.match.Load()
	}
	return 0
}

// heardOf is when the replica last answered; a leader that is new gives everybody the time since it began.
func (g *progress) heardOf(replica uint64) int64 {
	if q := g.peer(replica); q != nil {
		return q.heard.Load()
	}
	return g.began
}

// inSyncLocked returns the voters that are in sync now, sorted: this replica, and who answered within lag and has, or had within lag, all of
// what the log held. last is where the log ends.
func (g *progress) inSyncLocked(self uint64, voters []uint64, last uint64, now, lag int64) []uint64 {
	g.markLocked(last, now, lag)
	in := make([]uint64, 0, len(voters))
	for _, v := range voters {
		if v == self || g.isInSyncLocked(v, last, now, lag) {
			in = append(in, v)
		}
	}
	return in
}

func (g *progress) isInSyncLocked(replica, last uint64, now, lag int64) bool {
	if now-g.heardOf(replica) > lag {
		return false
	}
	q := g.peer(replica)
	if q == nil {
		return true
	}
	match := q.match.Load()
	if match >= last {
		q.caught = now
		return true
	}
	for i := len(g.mu.marks) - 1; i >= 0 && g.mu.marks[i].at > q.caught; i-- {
		if g.mu.marks[i].end <= match {
			q.caught = g.mu.marks[i].at
			break
		}
	}
	return now-q.caught <= lag
}

// markLocked notes where the log ends. A log that rests moves its newest mark on; marks too old to count are dropped.
func (g *progress) markLocked(last uint64, now, lag int64) {
	marks := g.mu.marks
	n := len(marks)
	switch {
	case n > 0 && marks[n-1].end == last:
		marks[n-1].at = now
	case n > 0 && now-marks[n-1].at < lag/progressMarks:
	default:
		marks = append(marks, logMark{now, last})
	}
	old := 0
	for old < len(marks)-1 && now-marks[old].at > lag {
		old++
	}
	g.mu.marks = append(marks[:0], marks[old:]...)
}
